"""A run that is being ingested: all of it appears, or nothing does.

Everything is written to a hidden folder beside the runs, which gets the run's name as the last act.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Sequence
from typing import Final

from astro_async._core.events import AnyEvent
from astro_async._core.manifest import dump_manifest, snapshot_record
from astro_async._core.names import INGEST_STEP, RUN_ID_ALPHABET, RUN_ID_LENGTH, RunId
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._core.statistics import Statistic, derive_statistics
from astro_async._store import layout
from astro_async._store.atomic import PRIVATE_MODE, PUBLISHED_MODE, Disk
from astro_async._store.journal import Journal
from astro_async._store.lock import HeldLock, acquire_lock, acquire_run_lock
from astro_async._store.log import RunLog
from astro_async._store.statistics import record_run
from astro_async.exceptions import RunLockedError, StorageError

__all__ = ["IngestStore", "hold_ingest_gate"]

_PREFIX: Final = ".ingest-"
_YOUNG_S: Final = 60.0
_TEMPORARY: Final = re.compile(rf"{re.escape(_PREFIX)}[a-z0-9]{{{RUN_ID_LENGTH}}}")


def hold_ingest_gate(pipeline_dir: str, *, disk: Disk, now: str) -> HeldLock:
    """Take the lock that lets one ingest at a time into a serial pipeline.

    Raises:
        RunLockedError: Another ingest is under way.
        StorageError: The disk refuses.
    """
    working = layout.working_directory(pipeline_dir)
    disk.make_directory(working)
    return acquire_lock(
        f"{working}/.ingest.lock",
        f"{working}/.ingest.holder.json",
        disk=disk,
        since=now,
        what="the ingest of this serial pipeline",
    )


class IngestStore:
    """The folder of a run to be.

    Attributes:
        run_id: Chosen so that no run has it.
        directory: Absolute path of the hidden folder.
        notices: What went wrong without harm to the run.
    """

    def __init__(self, pipeline_dir: str, *, disk: Disk, now: str) -> None:
        """Choose a run id and make the hidden folder.

        Raises:
            StorageError: The disk refuses.
        """
        self._pipeline_dir = pipeline_dir
        self._working = layout.working_directory(pipeline_dir)
        self._disk = disk
        self.notices: list[str] = []
        disk.make_directory(self._working)
        _remove_dead_ingests(self._working, disk)
        self.run_id = self._choose_id()
        self.directory = f"{self._working}/{_PREFIX}{self.run_id}"
        try:
            disk.make_directory(f"{self.directory}/ingested", is_kept=False)
            self._lock = acquire_run_lock(self.directory, self.run_id, disk=disk, since=now)
        except BaseException:
            self._remove()
            raise

    def _choose_id(self) -> RunId:
        source = random.SystemRandom()
        while True:
            run_id = RunId("".join(source.choices(RUN_ID_ALPHABET, k=RUN_ID_LENGTH)))
            taken = (f"{self._working}/{run_id}", f"{self._working}/{_PREFIX}{run_id}")
            if not any(os.path.lexists(path) for path in taken):
                return run_id

    def staged_path(self, name: str) -> str:
        """Return the absolute path to which a file is to be ingested."""
        path = f"{self.directory}/{layout.ingested_path(name)}"
        self._disk.announce("write", path)
        return path

    def claim_part(self, name: str) -> str:
        """Return the absolute path for rows of a file that are parked; its folder exists then.

        Raises:
            StorageError: The disk refuses.
        """
        path = f"{self.directory}/{layout.part_path(INGEST_STEP, name, 1)}"
        self._disk.make_directory(os.path.dirname(path), is_kept=False)
        self._disk.announce("write", path)
        return path

    def publish(self, events: Sequence[AnyEvent]) -> RunRecord:
        """Make the run appear, durably. Blocks.

        Args:
            events: The first events of the run, `run_created` to `run_ingested`.

        Raises:
            StorageError: The disk refuses; the run has not appeared.
        """
        run = start_record(events[0])
        statistics: list[Statistic] = []
        for event in events[1:]:
            fold(run, event)
            statistics += derive_statistics([event], run)
        for file in run.files.values():
            path = f"{self.directory}/{file.parquet_path}"
            self._disk.make_readonly(path)
            self._disk.sync(path)
        self._disk.sync(f"{self.directory}/ingested")
        self._publish_parts(run)
        journal = Journal(self.directory, self._disk)
        try:
            journal.append(events)
        finally:
            journal.close()
        self._disk.sync(layout.events_path(self.directory))
        manifest = snapshot_record(run, journal_bytes=journal.size_bytes, journal_crc32=journal.crc32)
        self._disk.write_file(layout.manifest_path(self.directory), dump_manifest(manifest))
        with contextlib.closing(RunLog(layout.log_path(self.directory), self._disk)) as log:
            log.write_statistics(self.run_id, statistics)
        # The first ingest of a pipeline has made the folder of runs, too.
        self._disk.sync(os.path.dirname(self._working))
        self._appear()
        self._lock.release()
        try:
            record_run(layout.statistics_path(self._pipeline_dir), run, statistics, disk=self._disk)
        except StorageError as error:
            # The run is there; its numbers can be rebuilt.
            self.notices.append(f"statistics are missing: {error}")
        return run

    def _publish_parts(self, run: RunRecord) -> None:
        has_parts = False
        for file in run.files.values():
            for part in file.parts:
                path = f"{self.directory}/{part.path}"
                self._disk.make_readonly(path, PRIVATE_MODE if file.private else PUBLISHED_MODE)
                self._disk.sync(path)
                has_parts = True
        if has_parts:
            self._disk.sync(f"{self.directory}/quarantine/{INGEST_STEP}")
            self._disk.sync(f"{self.directory}/quarantine")

    def _appear(self) -> None:
        visible = layout.run_directory(self._pipeline_dir, self.run_id)
        try:
            self._disk.rename_directory(self.directory, visible)
        except StorageError as error:
            # Renamed but not made durable: take it back, so that the error says what is.
            with contextlib.suppress(StorageError):
                self._disk.rename_directory(visible, self.directory)
            if not os.path.lexists(visible):
                raise
            # Nor can that be done: then the run is there, and an error would be no true answer.
            self.notices.append(f"a power cut may lose run {self.run_id}: {error}")

    def abandon(self) -> None:
        """Remove the hidden folder, whatever it holds; harmless once the run has appeared."""
        self._lock.release()
        self._remove()

    def _remove(self) -> None:
        # What the disk does not give up now, the next ingest removes.
        with contextlib.suppress(StorageError):
            self._disk.remove_tree(self.directory)


def _may_be_dead(path: str) -> bool:
    # The holder is noted once the lock is held. Without that note the folder is a moment old, and whoever
    # makes it may not have locked it yet; or it was left by a kill at that moment.
    try:
        return os.path.exists(layout.holder_path(path)) or time.time() - os.stat(path).st_mtime > _YOUNG_S
    except FileNotFoundError:
        return False


def _remove_dead_ingests(working: str, disk: Disk) -> None:
    """Remove what ingests left that were killed: their kernel lock is free."""
    for name in os.listdir(working):
        path = f"{working}/{name}"
        if _TEMPORARY.fullmatch(name) and _may_be_dead(path):
            try:
                lock = acquire_lock(
                    layout.lock_path(path), layout.holder_path(path), disk=disk, since="", what=name, wait_s=0
                )
            except (RunLockedError, StorageError):
                continue
            try:
                disk.remove_tree(path)
            finally:
                lock.release()
