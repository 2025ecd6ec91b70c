"""The runs of a pipeline directory, as a reader sees them. Takes no lock and changes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from astro_async._core.events import FileIngested, RunCreated, parse_event
from astro_async._core.manifest import (
    ManifestHead,
    parse_attention,
    parse_head,
    restore_record,
    snapshot_record,
    summarise,
)
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.selection import RunSummary, newest_first
from astro_async._core.status import RunStatus
from astro_async._store import layout
from astro_async._store.atomic import refuse_symlinks
from astro_async._store.journal import read_run
from astro_async._store.lock import is_locked
from astro_async.exceptions import AstroError, RunNotFoundError, StorageError

__all__ = ["existing_run_directory", "find_delivery", "load_attention", "load_run", "load_summaries"]


def load_summaries(pipeline_dir: str) -> tuple[list[RunSummary], list[str]]:
    """Return a summary of each run, newest first, and a notice for each that cannot be read."""
    summaries: list[RunSummary] = []
    notices: list[str] = []
    for run_id in layout.list_run_ids(pipeline_dir):
        directory = layout.run_directory(pipeline_dir, run_id)
        try:
            refuse_symlinks(layout.working_directory(pipeline_dir), run_id)
            # Asked first: a run that ends in between is told as it then stands.
            locked = is_locked(layout.lock_path(directory))
            head, is_behind = _read_head(directory, locked=locked)
            has_litter = os.path.isdir(f"{directory}/{layout.STAGING}")
            summaries.append(summarise(head, locked=locked, is_unfinished=is_behind or has_litter))
        except AstroError as error:
            notices.append(f"run {run_id} cannot be read: {error}")
    return newest_first(summaries), notices


def _read_head(directory: str, *, locked: bool) -> tuple[ManifestHead, bool]:
    """Return the head of a run as of now, and whether its manifest is behind its journal."""
    with contextlib.suppress(StorageError, OSError):
        with open(layout.manifest_path(directory), "rb") as file:
            head = parse_head(file.readline())
        if os.path.getsize(layout.events_path(directory)) == head.journal_bytes:
            return head, False
    # The journal is ahead: the run goes on, or its process died before it wrote the manifest. Or the first
    # line is not the head, which does not mean that the manifest is damaged.
    reading = read_run(directory, checks_content=not locked)
    head = snapshot_record(
        reading.record, journal_bytes=reading.journal_bytes, journal_crc32=reading.journal_crc32
    )
    return head, reading.journal_bytes != reading.durable_bytes or reading.torn


def find_delivery(pipeline_dir: str, digests: Mapping[str, str]) -> RunId | None:
    """Return the newest run that was made from these very files, if there is one.

    A run that cannot be read is passed over: this is asked for a courtesy.

    Args:
        pipeline_dir: The runs.
        digests: SHA-256 of each source file, by ingest name.
    """
    found: tuple[str, RunId] | None = None
    for run_id in layout.list_run_ids(pipeline_dir):
        with contextlib.suppress(AstroError, OSError):
            created_at, known = _load_digests(layout.run_directory(pipeline_dir, run_id))
            if known == digests and (found is None or created_at > found[0]):
                found = (created_at, run_id)
    return None if found is None else found[1]


def _load_digests(directory: str) -> tuple[str, dict[str, str | None]]:
    """Read from the first lines of a journal when the run was created, and from which bytes."""
    created_at = ""
    digests: dict[str, str | None] = {}
    with open(layout.events_path(directory), "rb") as file:
        for line in file:
            event = parse_event(line)
            if isinstance(event, FileIngested):
                digests[event.name] = event.source_sha256
            elif isinstance(event, RunCreated):
                created_at = event.time
            else:
                break
    return created_at, digests


def existing_run_directory(pipeline_dir: str, run_id: RunId) -> str:
    """Return the folder of a run that exists.

    Raises:
        RunNotFoundError: There is no such run.
        SymlinkError: It is a symbolic link; `.working` itself may be one, to a larger disk.
    """
    directory = layout.run_directory(pipeline_dir, run_id)
    if not os.path.isdir(directory):
        hint = layout.command_line("list", pipeline_dir)
        raise RunNotFoundError(f"there is no run {run_id!r} in {pipeline_dir}: `{hint}` shows the runs")
    refuse_symlinks(layout.working_directory(pipeline_dir), run_id)
    return directory


def load_attention(
    pipeline_dir: str, run_id: RunId, *, above: int
) -> tuple[RunRecord, dict[str, int]] | None:
    """Return of the state of a run what needs attention, and its steps by status.

    Of its steps the record has those that did not simply go well or wait, and those that made the active
    version of a file. Of a run of very many steps that costs a tenth of `load_run`.

    Args:
        pipeline_dir: The runs.
        run_id: The run.
        above: How many steps it must have more than.

    Returns:
        None where it has no more, or where the manifest is not all there is to know, or cannot be read so.
        `load_run` tells then.

    Raises:
        RunNotFoundError: There is no such run.
    """
    directory = existing_run_directory(pipeline_dir, run_id)
    locked = is_locked(layout.lock_path(directory))
    with contextlib.suppress(AstroError, OSError):
        with open(layout.manifest_path(directory), "rb") as file:
            manifest = parse_attention(file, above=above)
        if manifest is None or os.path.getsize(layout.events_path(directory)) != manifest.journal_bytes:
            return None
        record = restore_record(manifest)
        if record.status is RunStatus.RUNNING and not locked:
            record.status = RunStatus.INTERRUPTED
        return record, manifest.step_counts
    return None


def load_run(pipeline_dir: str, run_id: RunId) -> RunRecord:
    """Return the state of a run as of now, whether or not it is running.

    One that says `running` while nobody holds its lock is `interrupted`.

    Raises:
        RunNotFoundError: There is no such run.
        JournalError: It is damaged.
        StorageError: It cannot be read.
    """
    directory = existing_run_directory(pipeline_dir, run_id)
    locked = is_locked(layout.lock_path(directory))
    record = read_run(directory, checks_content=not locked).record
    if record.status is RunStatus.RUNNING and not locked:
        record.status = RunStatus.INTERRUPTED
    return record
