"""Putting right what can be made anew from the journal of a run, under the run's lock.

The manifest, the statistics, the links, and files that no record names: all of it is derived. Data files are
not: what is lost or changed there a step makes again, and nothing here pretends otherwise.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from astro_async._core.lineage import named_by
from astro_async._core.manifest import dump_manifest
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._store import layout
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import existing_run_directory
from astro_async._store.inspection import Records, inspect_records, inspect_statistics, scan_links
from astro_async._store.lock import HeldLock, acquire_run_lock
from astro_async._store.recovery import remove_litter, scan_litter
from astro_async._store.run_store import RunStore
from astro_async._store.statistics import rebuild_run
from astro_async.exceptions import StorageError, SymlinkError

__all__ = ["repair_run"]

# What SQLite says of tables that have the names of ours, and other columns.
_OTHER_TABLES: Final = ("no such column", "has no column", " columns but ")


def repair_run(pipeline_dir: str, run_id: RunId, *, disk: Disk, now: str) -> list[str]:
    """Make anew, from the journal, what is derived from it; return what was done, in words. Blocks.

    Nothing is done to a run whose journal is damaged: what its records name is not known then.

    Raises:
        RunNotFoundError: There is no such run.
        RunLockedError: Another process is on the run.
        StorageError: The disk refuses.
    """
    directory = existing_run_directory(pipeline_dir, run_id)
    lock = acquire_run_lock(directory, run_id, disk=disk, since=now)
    try:
        records = inspect_records(directory)
        if records.run is None or not records.is_sound:
            return []
        done: list[str] = []
        if records.true_manifest is not None:
            # Before all else: the store goes by it. What it vouches for is durable first.
            for path in sorted(named_by(records.run)):
                if os.path.isfile(f"{directory}/{path}"):
                    disk.sync(f"{directory}/{path}")
            disk.sync(layout.events_path(directory))
            disk.write_file(layout.manifest_path(directory), dump_manifest(records.true_manifest))
            done.append(f"{layout.MANIFEST} was written anew from the journal")
        # The store clears up when it opens, if a process has died: so look first.
        links = scan_links(directory, records.run)
        litter = [*scan_litter(directory, records.run)]
        if os.path.isdir(f"{directory}/{layout.STAGING}"):
            litter.append(layout.STAGING)
        done += _repair_store(pipeline_dir, directory, disk, lock, links, is_behind=records.is_behind)
        done += [f"{path} was removed: no record names it" for path in litter]
        done += _repair_statistics(pipeline_dir, inspect_records(directory), disk)
        return done
    finally:
        lock.release()


def _repair_store(
    pipeline_dir: str, directory: str, disk: Disk, lock: HeldLock, links: dict[str, str], *, is_behind: bool
) -> list[str]:
    store = RunStore(pipeline_dir, directory, disk, lock)
    try:
        done = store.take_notices()
        remove_litter(directory, store.record, disk)
        done += _remake_links(store, links)
        if is_behind:
            store.write_checkpoint(store.take_checkpoint())
        disk.remove_directory(f"{directory}/{layout.STAGING}")
    finally:
        store.close()
    return done


def _remake_links(store: RunStore, links: dict[str, str]) -> list[str]:
    done = []
    for link, path in links.items():
        try:
            store.publisher.link_where_other({link: path})
        except SymlinkError as error:
            done.append(f"{link} was not made: {error}")
        else:
            done.append(f"{link} was linked to {path}")
    return done


def _repair_statistics(pipeline_dir: str, records: Records, disk: Disk) -> list[str]:
    if records.run is None or not list(inspect_statistics(pipeline_dir, records)):
        return []
    path = layout.statistics_path(pipeline_dir)
    try:
        _rebuild(path, records.run, records, disk)
    except StorageError as error:
        if not _is_damaged(error):
            raise
        disk.set_aside(path)
        for name in (f"{path}-wal", f"{path}-shm"):
            disk.remove(name)
        for run_id in layout.list_run_ids(pipeline_dir):
            other = inspect_records(layout.run_directory(pipeline_dir, run_id))
            if other.run is not None:
                _rebuild(path, other.run, other, disk)
        return [f"the statistics of all runs were rebuilt; what could not be read is now {path}.damaged"]
    return ["the statistics of the run were rebuilt from the journal"]


def _rebuild(path: str, run: RunRecord, records: Records, disk: Disk) -> None:
    rebuild_run(path, run, list(records.statistics), disk=disk)


def _is_damaged(error: StorageError) -> bool:
    # What is only locked, full or not there is an OperationalError; and so are tables of another program.
    cause = error.__cause__
    if isinstance(cause, sqlite3.OperationalError):
        return any(words in str(cause) for words in _OTHER_TABLES)
    return isinstance(cause, sqlite3.DatabaseError)
