"""Removing runs, and versions that nobody needs.

A run is first renamed to a hidden name, which is one operation, and then removed: whoever looks sees all of
it or none. What a process left that died in between is removed by the next clean-up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from astro_async._core.events import VersionsDropped
from astro_async._core.lineage import droppable_versions
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.retention import count_undecided, refuse_removal
from astro_async._store import layout
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import existing_run_directory
from astro_async._store.journal import read_run
from astro_async._store.lock import acquire_run_lock
from astro_async._store.recovery import remove_litter, scan_litter
from astro_async._store.run_store import RunStore
from astro_async.exceptions import RunRefusedError

__all__ = [
    "drop_old_versions",
    "measure_droppable",
    "measure_run",
    "remove_leftovers",
    "remove_run",
    "scan_leftovers",
]

_PREFIX: Final = ".removed-"


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


def remove_run(pipeline_dir: str, run_id: RunId, *, disk: Disk, now: str, unfinished: bool = False) -> None:
    """Remove a run with all that belongs to it, except its statistics. Blocks.

    Killed at any moment, it leaves the run whole or hidden, never half there.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run.
        disk: The seam.
        now: The time, for the lock's holder.
        unfinished: Whether one may go that did not come to a good end.

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
        record = read_run(directory).record
        why = refuse_removal(record.status, count_undecided(record), unfinished=unfinished)
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


def measure_droppable(directory: str, run: RunRecord) -> int:
    """Return how many bytes `drop_old_versions` would free, with what a process left that died doing it."""
    droppable = sum(version.size_bytes for version in droppable_versions(run))
    litter = 0
    for path in scan_litter(directory, run):
        try:
            found = os.lstat(f"{directory}/{path}")
        except FileNotFoundError:
            continue
        # A second name of a file that stays frees nothing.
        litter += found.st_size if found.st_nlink == 1 else 0
    return droppable + litter


def drop_old_versions(pipeline_dir: str, run_id: RunId, *, disk: Disk, now: str) -> None:
    """Remove all versions of a completed run but the last ones; its records keep naming them. Blocks.

    Raises:
        RunNotFoundError: There is no such run.
        RunLockedError: A process is on it.
        RunRefusedError: It is not completed: a retry may need them.
        StorageError: The disk refuses.
    """
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        why = refuse_removal(store.record.status, count_undecided(store.record))
        if why is not None:
            raise RunRefusedError(f"run {run_id} keeps its versions, for a retry may need them: it {why}")
        remove_litter(store.directory, store.record, disk)
        versions = droppable_versions(store.record)
        if versions:
            store.drop_versions(
                VersionsDropped(
                    seq=store.record.seq + 1,
                    time=now,
                    run_id=run_id,
                    paths=[version.path for version in versions],
                    size_bytes=sum(version.size_bytes for version in versions),
                )
            )
    finally:
        store.close()
