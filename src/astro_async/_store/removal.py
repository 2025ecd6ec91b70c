"""Removing runs, and of runs that are kept what nobody needs.

A run is first renamed to a hidden name, which is one operation, and then removed: whoever looks sees all of
it or none. What a process left that died in between is removed by the next clean-up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from astro_async._core.events import VersionsDropped
from astro_async._core.lineage import droppable_decisions, droppable_versions
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.retention import refuse_record
from astro_async._store import layout
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import existing_run_directory
from astro_async._store.journal import read_run
from astro_async._store.lock import acquire_run_lock
from astro_async._store.recovery import remove_litter, scan_litter
from astro_async._store.run_store import RunStore
from astro_async.exceptions import JournalError, RunRefusedError, SchemaVersionError, StorageError

__all__ = [
    "Droppable",
    "drop_files",
    "measure_droppable",
    "measure_run",
    "read_unless_damaged",
    "remove_leftovers",
    "remove_run",
    "scan_leftovers",
]

_PREFIX: Final = ".removed-"

Droppable = Literal["versions", "quarantine"]


def measure_run(directory: str) -> int:
    """Return how many bytes the files of a run take; one with several names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                found = os.lstat(f"{parent}/{name}")
            except FileNotFoundError:
                continue
            sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def read_unless_damaged(directory: str) -> RunRecord | None:
    """Return the record of a run; None if journal or manifest are damaged or lost.

    Raises:
        SchemaVersionError: A later version of astro_async has written it: it is whole.
        StorageError: The disk refuses.
    """
    try:
        return read_run(directory).record
    except SchemaVersionError:
        raise
    except StorageError as error:
        if isinstance(error, JournalError) or isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def remove_run(
    pipeline_dir: str,
    run_id: RunId,
    *,
    disk: Disk,
    now: str,
    unfinished: bool = False,
    unreadable: bool = False,
) -> None:
    """Remove a run with all that belongs to it, except its statistics. Blocks.

    Killed at any moment, it leaves the run whole or hidden, never half there.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run.
        disk: The seam.
        now: The time, for the lock's holder.
        unfinished: Whether one may go that did not come to a good end.
        unreadable: Whether one may go whose records are damaged or lost.

    Raises:
        RunNotFoundError: There is no such run.
        RunLockedError: A process is on it.
        RunRefusedError: It may not be removed: it is not completed, or has undecided rows.
        StorageError: The disk refuses.
    """
    directory = existing_run_directory(pipeline_dir, run_id)
    lock = acquire_run_lock(directory, run_id, disk=disk, since=now)
    try:
        # Looked at again: it may have been run since the operator was asked.
        record = read_unless_damaged(directory) if unreadable else read_run(directory).record
        why = None if record is None else refuse_record(record, unfinished=unfinished)
        if why is not None:
            raise RunRefusedError(f"run {run_id} is not removed: it {why}")
        hidden = f"{layout.working_directory(pipeline_dir)}/{_PREFIX}{run_id}"
        disk.remove_tree(hidden)
        disk.rename_directory(directory, hidden)
        disk.remove_tree(hidden)
    finally:
        lock.release()


def scan_leftovers(pipeline_dir: str) -> list[str]:
    """Return what is left of runs that were being removed when the process died."""
    working = layout.working_directory(pipeline_dir)
    if not os.path.isdir(working):
        return []
    return [f"{working}/{name}" for name in sorted(os.listdir(working)) if name.startswith(_PREFIX)]


def remove_leftovers(paths: Iterable[str], disk: Disk) -> None:
    """Remove what `scan_leftovers` found. Blocks.

    Raises:
        StorageError: The disk refuses.
    """
    for path in paths:
        disk.remove_tree(path)


def measure_droppable(directory: str, run: RunRecord, what: Droppable) -> int:
    """Return how many bytes `drop_files` would free, with what a process left that died doing it."""
    droppable = sum(size_bytes for _, size_bytes in _droppable(directory, run, what))
    return droppable + sum(_measure(directory, path) for path in scan_litter(directory, run))


def drop_files(pipeline_dir: str, run_id: RunId, what: Droppable, *, disk: Disk, now: str) -> None:
    """Remove files of a completed run that only a re-run needs; its records keep naming them. Blocks.

    Killed at any moment, they are all there or on record as removed; what is left of those is removed by the
    next one that takes the lock.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run.
        what: `versions` for all versions but the last ones; `quarantine` for what was decided about rows.
        disk: The seam.
        now: The time.

    Raises:
        RunNotFoundError: There is no such run.
        RunLockedError: A process is on it.
        RunRefusedError: It is not completed: a retry may need them.
        StorageError: The disk refuses.
    """
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        why = refuse_record(store.record)
        if why is not None:
            raise RunRefusedError(f"run {run_id} keeps its files, for a retry may need them: it {why}")
        remove_litter(store.directory, store.record, disk)
        files = list(_droppable(store.directory, store.record, what))
        if files:
            store.drop_versions(
                VersionsDropped(
                    seq=store.record.seq + 1,
                    time=now,
                    run_id=run_id,
                    paths=[path for path, _ in files],
                    size_bytes=sum(size_bytes for _, size_bytes in files),
                )
            )
    finally:
        store.close()


def _droppable(directory: str, run: RunRecord, what: Droppable) -> Iterator[tuple[str, int]]:
    if what == "versions":
        yield from ((version.path, version.size_bytes) for version in droppable_versions(run))
    else:
        yield from ((path, _measure(directory, path)) for path in droppable_decisions(run))


def _measure(directory: str, path: str) -> int:
    try:
        found = os.lstat(f"{directory}/{path}")
    except FileNotFoundError:
        return 0
    # A second name of a file that stays frees nothing.
    return found.st_size if found.st_nlink == 1 else 0
