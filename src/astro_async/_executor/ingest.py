"""Ingest: match source files to what the pipeline expects, and turn them into the first versions."""

from __future__ import annotations

import fnmatch
import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import polars as pl

from astro_async._core.events import AnyEvent, FileIngested, RunCreated, RunIngested, VersionWritten
from astro_async._core.records import RunRecord
from astro_async._core.selection import has_something_to_do
from astro_async._executor.clock import format_time
from astro_async._executor.invocation import Services, check_params
from astro_async._frames.columns import refuse_reserved
from astro_async._frames.csv_convert import convert_csv
from astro_async._frames.parquet import WrittenFrame, write_frame
from astro_async._store.catalogue import load_summaries
from astro_async._store.checksum import read_tail_crc32
from astro_async._store.ingest_store import IngestStore, hold_ingest_gate
from astro_async._store.layout import ingested_path
from astro_async._threads import in_thread
from astro_async.exceptions import AstroError, IngestError, RunRefusedError, StepError, StorageError
from astro_async.ingest_spec import IngestFileSpec
from astro_async.pipeline import ExecutionMode, Pipeline

__all__ = ["ingest_source", "match_files"]

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
    is_serial = ExecutionMode(pipeline.execution_mode) is ExecutionMode.SERIAL
    matched = await in_thread(match_files, list(specs.values()), source)
    gate = None
    if is_serial:
        gate = await in_thread(hold_ingest_gate, pipeline_dir, disk=services.disk, now=format_time(now))
    try:
        if is_serial:
            _refuse_while_incomplete(pipeline_dir)
        return await _ingest(pipeline, matched, source, pipeline_dir, params, services, logger)
    finally:
        if gate is not None:
            gate.release()


def match_files(specs: list[IngestFileSpec], source: str) -> dict[str, str]:
    """Return the source file of each spec, by ingest name; absent optional ones are left out.

    Raises:
        IngestError: The source is no directory; a required file is missing; a pattern matches several
            files, or a file several patterns; a file or folder is unexpected. All problems are named.
    """
    if not os.path.isdir(source):
        kind = "is a file, not a directory" if os.path.exists(source) else "does not exist"
        raise IngestError(f"source {source} {kind}: give the directory that holds the files")
    entries = sorted(entry for entry in os.listdir(source) if not entry.startswith("."))
    folders = [entry for entry in entries if os.path.isdir(os.path.join(source, entry))]
    files = [entry for entry in entries if entry not in folders]
    problems = [f"there is a subdirectory {folder!r}: put the files side by side" for folder in folders]
    matched: dict[str, str] = {}
    taken: dict[str, list[str]] = {entry: [] for entry in files}
    for spec in specs:
        found = [entry for entry in files if fnmatch.fnmatchcase(entry, spec.source_pattern)]
        for entry in found:
            taken[entry].append(spec.name)
        if len(found) == 1:
            matched[spec.name] = os.path.join(os.path.abspath(source), found[0])
        elif found:
            problems.append(f"{spec.name!r} ({spec.source_pattern}) matches {', '.join(found)}: leave one")
        elif not spec.optional:
            problems.append(f"{spec.name!r} ({spec.source_pattern}) is missing")
    for entry, names in taken.items():
        if not names:
            problems.append(f"{entry} is not expected: remove it, or add an IngestFileSpec for it")
        elif len(names) > 1:
            problems.append(f"{entry} matches {' and '.join(map(repr, names))}: make the patterns differ")
    if not matched and not problems:
        problems.append("it is empty")
    if problems:
        raise IngestError(f"source {source} does not fit the pipeline: {'; '.join(problems)}")
    return matched


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
) -> RunRecord:
    specs = pipeline.file_specs()
    created = services.clock()
    store = await in_thread(IngestStore, pipeline_dir, disk=services.disk, now=format_time(created))
    written: dict[str, WrittenFrame] = {}
    try:
        await _convert_all(specs, matched, store, written)
        run_date = created.date().isoformat()
        events = await in_thread(
            _first_events, pipeline, matched, written, source, params, store, run_date, services
        )
        run = await in_thread(store.publish, events)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await in_thread(store.abandon)
        raise
    for notice in store.notices:
        logger.warning("%s", notice)
    return run


async def _convert_all(
    specs: Mapping[str, IngestFileSpec],
    matched: Mapping[str, str],
    store: IngestStore,
    written: dict[str, WrittenFrame],
) -> None:
    """Convert all files; the errors of all of them are told, in the order of the pipeline."""
    limiter = anyio.CapacityLimiter(_CONCURRENT_FILES)
    failures: dict[str, AstroError] = {}

    async def convert(name: str, path: str) -> None:
        try:
            call = functools.partial(_convert, specs[name], path, store)
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


def _convert(spec: IngestFileSpec, path: str, store: IngestStore) -> WrittenFrame:
    target = store.staged_path(spec.name)
    if spec.preprocess is None:
        return convert_csv(path, target, dialect=spec.dialect(), schema=spec.column_types())
    return _write_preprocessed(spec, path, target)


def _write_preprocessed(spec: IngestFileSpec, path: str, target: str) -> WrittenFrame:
    assert spec.preprocess is not None
    try:
        frame = spec.preprocess(Path(path))
    except Exception as error:
        raise IngestError(f"{path}: preprocess raised {type(error).__name__}: {error}") from error
    if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
        raise IngestError(f"{path}: preprocess returned {type(frame).__name__}, not a Polars DataFrame")
    columns = frame.collect_schema()
    schema = spec.column_types()
    try:
        refuse_reserved(columns.names())
        if schema is not None:
            missing = [name for name in schema if name not in columns]
            if missing:
                raise IngestError(f"{path}: preprocess returned no column {', '.join(map(repr, missing))}")
            frame = frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
        return write_frame(frame, target)
    except pl.exceptions.PolarsError as error:
        raise IngestError(f"{path}: what preprocess returned does not fit the schema: {error}") from error
    except StepError as error:
        raise IngestError(f"{path}: {error}") from error


def _first_events(
    pipeline: Pipeline,
    matched: Mapping[str, str],
    written: Mapping[str, WrittenFrame],
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
        frame = written[name]
        events.append(
            FileIngested(
                seq=len(events) + 1,
                time=now,
                run_id=store.run_id,
                name=name,
                source_path=os.fsencode(path).decode("utf-8", "backslashreplace"),
                source_size_bytes=os.stat(path).st_size,
                version=VersionWritten(
                    ingested_path(name),
                    frame.rows,
                    frame.columns,
                    frame.size_bytes,
                    read_tail_crc32(f"{store.directory}/{ingested_path(name)}"),
                ),
                private=pipeline.file_specs()[name].private,
            )
        )
    events.append(RunIngested(seq=len(events) + 1, time=now, run_id=store.run_id))
    return events
