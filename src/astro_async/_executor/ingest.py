"""Ingest: turn the files of a source directory into the first versions of a new run."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread

from astro_async._core.events import (
    AnyEvent,
    FileIngested,
    PartWritten,
    RunCreated,
    RunIngested,
    VersionWritten,
)
from astro_async._core.names import INGEST_STEP
from astro_async._core.records import RunRecord
from astro_async._core.selection import has_something_to_do
from astro_async._executor.clock import format_time
from astro_async._executor.ingest_progress import FileProgress, IngestProgress
from astro_async._executor.invocation import Services, check_params
from astro_async._executor.source_files import ConvertedFile, convert_file, match_files
from astro_async._frames.bad_rows import ParkedPart
from astro_async._store.catalogue import find_delivery, load_summaries
from astro_async._store.checksum import read_tail_crc32
from astro_async._store.ingest_store import IngestStore, hold_ingest_gate
from astro_async._store.layout import ingested_path, part_path
from astro_async._threads import in_thread
from astro_async.exceptions import AstroError, IngestError, RunRefusedError, StorageError
from astro_async.ingest_spec import IngestFileSpec
from astro_async.pipeline import ExecutionMode, Pipeline

__all__ = ["ingest_source"]

# Polars streams each file with all cores; two at a time hide the waits of one behind the other.
_CONCURRENT_FILES = 2


async def ingest_source(
    pipeline: Pipeline,
    source: str,
    *,
    pipeline_dir: str,
    params: Mapping[str, Any],
    services: Services,
    logger: logging.Logger,
    progress: IngestProgress,
) -> RunRecord:
    """Ingest a source directory into a new run: all of it, or nothing.

    Raises:
        PipelineError: The pipeline or the parameters make no sense.
        IngestError: The directory or one of its files is not what the pipeline expects.
        RunRefusedError: The pipeline is serial and an earlier run is incomplete.
        RunLockedError: The pipeline is serial and another ingest is under way.
        StorageError: The disk refused.
    """
    params = check_params(params)
    # What cannot be run need not be ingested.
    pipeline.graph()
    specs = pipeline.file_specs()
    now = services.clock()
    is_serial = pipeline.execution_mode == ExecutionMode.SERIAL
    matched = await in_thread(match_files, list(specs.values()), source)
    gate = None
    if is_serial:
        gate = await in_thread(hold_ingest_gate, pipeline_dir, disk=services.disk, now=format_time(now))
    try:
        if is_serial:
            _refuse_while_incomplete(pipeline_dir)
        return await _ingest(pipeline, matched, source, pipeline_dir, params, services, logger, progress)
    finally:
        if gate is not None:
            gate.release()


def _refuse_while_incomplete(pipeline_dir: str) -> None:
    summaries, _ = load_summaries(pipeline_dir)
    for summary in summaries:
        if has_something_to_do(summary):
            raise RunRefusedError(
                f"this pipeline is serial and run {summary.run_id} is {summary.status}: finish it with "
                f"`astro run {summary.run_id}`, or set execution_mode = 'parallel' to ingest beside it"
            )


async def _ingest(
    pipeline: Pipeline,
    matched: Mapping[str, str],
    source: str,
    pipeline_dir: str,
    params: Mapping[str, Any],
    services: Services,
    logger: logging.Logger,
    progress: IngestProgress,
) -> RunRecord:
    specs = pipeline.file_specs()
    created = services.clock()
    store = await in_thread(IngestStore, pipeline_dir, disk=services.disk, now=format_time(created))
    written: dict[str, ConvertedFile] = {}
    try:
        progress.files = {
            name: FileProgress(name, os.path.getsize(path), store.staged_path(name))
            for name, path in matched.items()
        }
        await _convert_all(specs, matched, store, written, progress.files)
        run_date = created.date().isoformat()
        events = await in_thread(
            _first_events, pipeline, matched, written, source, params, store, run_date, services
        )
        earlier = await in_thread(
            find_delivery, pipeline_dir, {name: file.sha256 for name, file in written.items()}
        )
        run = await in_thread(store.publish, events)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await in_thread(store.abandon)
        raise
    for notice in store.notices:
        logger.warning("%s", notice)
    if earlier is not None:
        logger.warning(
            "run %s has the very same files as run %s, byte for byte: was this delivery meant to come again?",
            run.run_id,
            earlier,
        )
    return run


async def _convert_all(
    specs: Mapping[str, IngestFileSpec],
    matched: Mapping[str, str],
    store: IngestStore,
    written: dict[str, ConvertedFile],
    progress: Mapping[str, FileProgress],
) -> None:
    """Convert all files; the errors of all of them are told, in the order of the pipeline."""
    limiter = anyio.CapacityLimiter(_CONCURRENT_FILES)
    failures: dict[str, AstroError] = {}

    def convert_in_thread(name: str, path: str) -> ConvertedFile:
        file = progress[name]
        file.has_begun = True
        converted = convert_file(
            specs[name], path, file.target, file.facts, functools.partial(store.claim_part, name)
        )
        file.is_done = True
        return converted

    async def convert(name: str, path: str) -> None:
        try:
            call = functools.partial(convert_in_thread, name, path)
            written[name] = await anyio.to_thread.run_sync(call, limiter=limiter)
        except AstroError as error:
            failures[name] = error

    async with anyio.create_task_group() as group:
        for name, path in matched.items():
            group.start_soon(convert, name, path)
    if failures:
        ordered = [failures[name] for name in matched if name in failures]
        refused = [error for error in ordered if isinstance(error, StorageError)]
        if refused or len(ordered) == 1:
            # A disk that refuses one file is all there is to say of the others.
            raise (refused or ordered)[0]
        raise IngestError("; ".join(str(error) for error in ordered))


def _first_events(
    pipeline: Pipeline,
    matched: Mapping[str, str],
    written: Mapping[str, ConvertedFile],
    source: str,
    params: Mapping[str, Any],
    store: IngestStore,
    run_date: str,
    services: Services,
) -> list[AnyEvent]:
    now = format_time(services.clock())
    events: list[AnyEvent] = [
        RunCreated(
            seq=1,
            time=now,
            run_id=store.run_id,
            pipeline_name=pipeline.name,
            source_directory=os.fsencode(os.path.abspath(source)).decode("utf-8", "backslashreplace"),
            run_date=run_date,
            params=dict(params),
        )
    ]
    for name, path in matched.items():
        converted = written[name]
        frame = converted.frame
        events.append(
            FileIngested(
                seq=len(events) + 1,
                time=now,
                run_id=store.run_id,
                name=name,
                source_path=os.fsencode(path).decode("utf-8", "backslashreplace"),
                source_size_bytes=converted.size_bytes,
                version=VersionWritten(
                    ingested_path(name),
                    frame.rows,
                    frame.columns,
                    frame.size_bytes,
                    read_tail_crc32(f"{store.directory}/{ingested_path(name)}"),
                ),
                private=pipeline.file_specs()[name].private,
                source_sha256=converted.sha256,
                ignored_columns=converted.ignored,
                inserted_columns=converted.inserted,
                **_parked_fields(name, converted.parked),
            )
        )
    events.append(RunIngested(seq=len(events) + 1, time=now, run_id=store.run_id))
    return events


def _parked_fields(name: str, parked: ParkedPart | None) -> dict[str, Any]:
    if parked is None:
        return {}
    path, checksum = part_path(INGEST_STEP, name, 1), read_tail_crc32(parked.path)
    part = PartWritten(path, parked.rows, parked.size_bytes, tail_crc32=checksum)
    return {
        "rows_quarantined": parked.rows,
        "parts": (part,),
        "reasons": dict(parked.reasons),
        "rows_in": parked.rows_in,
    }
