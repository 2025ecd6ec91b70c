"""One run on disk, opened for running: its lock, its journal, its publications and its checkpoints."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from astro_async._core.decisions import group_patches
from astro_async._core.events import AnyEvent, RowsPatched, RunPlanned, VersionsDropped
from astro_async._core.lineage import Plan, forgotten_paths, named_by
from astro_async._core.manifest import Manifest, dump_manifest, snapshot_record
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, StepRecord, fold
from astro_async._core.statistics import Statistic, derive_statistics
from astro_async._core.status import RunStatus
from astro_async._store import layout
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import existing_run_directory
from astro_async._store.inspection import derive_all_statistics
from astro_async._store.journal import Journal, Reading, read_run
from astro_async._store.lock import HeldLock, acquire_run_lock
from astro_async._store.log import RunLog
from astro_async._store.publish import Publisher
from astro_async._store.recovery import (
    has_patch_litter,
    refuse_foreign_folders,
    remove_litter,
    restore_links,
)
from astro_async._store.staging import StagedFile
from astro_async._store.statistics import ROWS_A_STATEMENT, StatisticsDatabase
from astro_async.exceptions import JournalError, StorageError

__all__ = ["RunStore"]


class RunStore:
    """A run whose lock this process holds.

    `append` and `take_checkpoint` belong to the owner of the state; `publisher.publish`, `write_checkpoint`
    and `record_statistics` may be called from any thread, and the last two wait for each other.

    Attributes:
        directory: Absolute path of the run directory.
        record: The state of the run. The owner folds events into it; `append` only writes them.
        log: The run's `astro.log`.
        publisher: Gives files their final names.
        was_unfinished: Whether whoever had the run before died before all of it was written.
    """

    def __init__(self, pipeline_dir: str, directory: str, disk: Disk, lock: HeldLock) -> None:
        self.directory = directory
        self.disk = disk
        self._notices: list[str] = []
        self._lock = lock
        reading = read_run(directory, checks_prefix=True)
        self.record: RunRecord = reading.record
        self._appended_seq = self.record.seq
        # What a process that died had in its journal may have missed the statistics.
        self._unrecorded: deque[AnyEvent] = deque(reading.tail)
        self._statistics = StatisticsDatabase(layout.statistics_path(pipeline_dir), disk)
        self._unsaved: list[Statistic] = []
        self._statistics_error: str | None = None
        # Somebody may have died before they could be written.
        self._lacks_statistics = reading.lacks_statistics
        self._writing = threading.Lock()
        self.log = RunLog(layout.log_path(directory), disk)
        if reading.torn:
            disk.truncate(layout.events_path(directory), reading.journal_bytes)
            self._notices.append("the end of the journal was torn and has been dropped")
        if reading.manifest_damage is not None:
            self._notices.append(f"the manifest was rebuilt from the journal ({reading.manifest_damage})")
        self._journal = Journal(directory, disk, reading.journal_bytes, reading.journal_crc32)
        try:
            self.publisher = Publisher(directory, disk, self.record)
            self.was_unfinished = (
                reading.journal_bytes != reading.durable_bytes
                or reading.torn
                or os.path.isdir(f"{directory}/{layout.STAGING}")
            )
            if (
                self.was_unfinished
                or self.record.status is RunStatus.RUNNING
                # It says what went wrong, and that may have left something.
                or self.record.detail is not None
                or has_patch_litter(directory, self.record)
            ):
                self._recover(reading)
        except BaseException:
            self._journal.close()
            self.log.close()
            raise

    def _recover(self, reading: Reading) -> None:
        """Make durable what the process that died wrote, and remove what it left."""
        refuse_foreign_folders(self.directory)
        named = named_by(self.record)
        self._sync(f"{self.directory}/{path}" for path in reading.tail_paths if path in named)
        # A plan in the tail forgets files: only once it is durable may they go.
        self.disk.sync(layout.events_path(self.directory))
        remove_litter(self.directory, self.record, self.disk)
        restore_links(self.record, self.publisher)
        self.disk.remove_directory(f"{self.directory}/{layout.STAGING}")
        # If the run turns out to be completed, nobody else brings the manifest up to date.
        self.write_checkpoint(self.take_checkpoint())

    @classmethod
    def open(cls, pipeline_dir: str, run_id: RunId, *, disk: Disk, now: str) -> RunStore:
        """Take the lock of a run and read it, repairing what a crash left. Blocks.

        Raises:
            RunNotFoundError: There is no such run.
            RunLockedError: Another process holds its lock.
            JournalError: It is damaged beyond repair.
            StorageError: The disk refuses.
        """
        directory = existing_run_directory(pipeline_dir, run_id)
        lock = acquire_run_lock(directory, run_id, disk=disk, since=now)
        try:
            return cls(pipeline_dir, directory, disk, lock)
        except BaseException:
            lock.release()
            raise

    def take_notices(self) -> list[str]:
        """Return what was repaired, and what went wrong without harm to the run, in words, for the user.

        What this has returned it does not return again.
        """
        notices, self._notices = self._notices, []
        if self._statistics_error is not None:
            notices.append(f"statistics are incomplete: {self._statistics_error}")
            self._statistics_error = None
        return notices

    def close(self) -> None:
        """Close the journal and give the lock back. Nothing is synced here."""
        self._statistics.close()
        self._journal.close()
        self.log.close()
        self._lock.release()

    # -- the plan ------------------------------------------------------------------------------

    def commit_plan(self, event: RunPlanned, plan: Plan) -> None:
        """Make a plan durable, then remove what only its steps named. Blocks.

        Raises:
            StorageError: The disk refuses; the plan stands or it does not, nothing is in between.
        """
        forgotten = list(forgotten_paths(self.record, plan))
        links = list(self._forgotten_links(plan))
        self.append([event])
        fold(self.record, event)
        if not (forgotten or links):
            # Nothing to remove. Durable all the same: only this line tells that what a power cut leaves of a
            # run is unfinished.
            self._sync_pending()
            return
        # The manifest first: the lines before the plan name files that are about to go.
        self.write_checkpoint(self.take_checkpoint())
        parents = set()
        for path in [*forgotten, *links]:
            # Never through a symlink: it could lead out of the run.
            self.publisher.unlink(path)
            parents.add(os.path.dirname(f"{self.directory}/{path}"))
        self.disk.sync_removals(parents)
        self.publisher = Publisher(self.directory, self.disk, self.record)
        # A name that a step gave which stands may have been given by one that is forgotten, too.
        self.publisher.link_saved(self.record)

    def _forgotten_links(self, plan: Plan) -> Iterator[str]:
        for step_id in (*plan.again, *plan.removed):
            for flow in self.record.steps.get(step_id, StepRecord(step_id)).files:
                if flow.published is not None or flow.parts:
                    yield layout.snapshot_link(step_id, flow.name)
                yield from (saved.name for saved in flow.saved)

    # -- the journal and its checkpoints -------------------------------------------------------

    def append(self, events: Sequence[AnyEvent]) -> None:
        """Write events to the journal; they survive the death of the process at once.

        Raises:
            StorageError: The disk refuses; nothing was written.
        """
        self._journal.append(events)
        self._appended_seq = events[-1].seq
        self._unrecorded.extend(events)

    def take_checkpoint(self) -> Manifest | None:
        """Return the manifest that the next checkpoint is to write. Linear in steps, but shares the records.

        None while the state is ahead of the journal, which the disk would not take: a manifest must never
        hold what the journal does not.
        """
        if self.record.seq != self._appended_seq:
            return None
        return snapshot_record(
            self.record, journal_bytes=self._journal.size_bytes, journal_crc32=self._journal.crc32
        )

    @property
    def unrecorded(self) -> int:
        """How many events have not been looked at for statistics yet."""
        return len(self._unrecorded)

    def write_checkpoint(self, manifest: Manifest | None, *, is_last: bool = False) -> None:
        """Sync files, directories and journal, in this order, then write statistics and manifest. Blocks.

        Of the last one of an invocation statistics wait for a database that others are at.

        Raises:
            StorageError: The disk refuses.
        """
        if manifest is None:
            return
        with self._writing:
            self._sync_pending()
            # First the numbers: what the manifest contains, nobody derives them from again.
            self._record_statistics(takes_all=True, waits=is_last)
            # Not held open for longer: somebody may put another in its place.
            self._statistics.close()
            if self._lacks_statistics or self._unsaved:
                manifest = msgspec.structs.replace(manifest, lacks_statistics=True)
            self.disk.write_file(layout.manifest_path(self.directory), dump_manifest(manifest))

    def record_statistics(self) -> None:
        """Write most of what the events so far give rise to, to log and database; a checkpoint writes all.

        Blocks. Where it fails, the user is told.
        """
        with self._writing:
            self._record_statistics(takes_all=False, waits=False)

    def _record_statistics(self, *, takes_all: bool, waits: bool) -> None:
        events = [self._unrecorded.popleft() for _ in range(len(self._unrecorded))]
        statistics = derive_statistics(events, self.record)
        self.log.write_statistics(self.record.run_id, statistics)
        self._unsaved += statistics
        if self._lacks_statistics and not takes_all:
            # A checkpoint derives them all anew, from the journal.
            self._unsaved.clear()
        count = len(self._unsaved)
        if not takes_all:
            count -= count % ROWS_A_STATEMENT
            if not count:
                return
        try:
            self._save_statistics(self._unsaved[:count], waits=waits)
        except (StorageError, JournalError) as error:
            # They are in the journal, so they can be rebuilt: no reason to stop a run. What a busy or failing
            # disk did not take is tried again with the next ones.
            self._statistics_error = str(error)
        else:
            self._statistics_error = None
            del self._unsaved[:count]

    def _save_statistics(self, statistics: Sequence[Statistic], *, waits: bool) -> None:
        is_saved = not self._lacks_statistics and self._statistics.record(
            self.record, statistics, only_known=True, waits=waits
        )
        if not is_saved:
            # The database knows nothing of the run, or not all: it was moved away, or somebody died.
            self._lacks_statistics = True
            everything = derive_all_statistics(self.directory, self._journal.size_bytes)
            self._statistics.record(self.record, everything, waits=waits)
            self._lacks_statistics = False

    def patches(self) -> dict[tuple[str, str], list[list[str]]]:
        """Return, by step and file, the absolute paths of its patches; see `group_patches`."""
        grouped = group_patches(self.record.patches)
        return {key: layout.patch_paths(self.directory, groups) for key, groups in grouped.items()}

    def record_patch(self, staged: StagedFile, event: RowsPatched) -> None:
        """Keep a patch, and make it durable that it applies from now on. Blocks.

        Args:
            staged: The patch, finished.
            event: Names it by the path that `next_patch_path` gave.

        Raises:
            StorageError: The disk refuses; the patch is recorded or it is litter.
        """
        target = f"{self.directory}/{event.path}"
        self.disk.make_directory(os.path.dirname(target))
        self.disk.publish(staged.path, target, mode=self.publisher.parked_mode(event.file))
        self.publisher.unsynced.append(target)
        try:
            self.append([event])
        except StorageError:
            self.disk.remove(target)
            raise
        fold(self.record, event)
        self.write_checkpoint(self.take_checkpoint())

    def next_patch_path(self, step_id: str, name: str) -> str:
        """Return the relative path of the next patch of a step and file."""
        count = sum(patch.step_id == step_id and patch.file == name for patch in self.record.patches)
        return layout.patch_path(step_id, name, count + 1)

    def drop_versions(self, event: VersionsDropped) -> None:
        """Make it durable that versions are dropped, then remove them and their snapshots. Blocks.

        Raises:
            StorageError: The disk refuses. What is left is litter then, and removed another time.
        """
        self.append([event])
        fold(self.record, event)
        # The manifest comes last: until it does, the next holder of the lock sees the unfinished work.
        self._sync_pending()
        dropped = set(event.paths)
        links = [
            layout.snapshot_link(step_id, flow.name)
            for step_id, record in self.record.steps.items()
            for flow in record.files
            if flow.read in dropped
        ]
        parents = set()
        for path in [*links, *event.paths]:
            self.publisher.unlink(path)
            parents.add(os.path.dirname(f"{self.directory}/{path}"))
        self.disk.sync_removals(parents)
        self.write_checkpoint(self.take_checkpoint())

    def finish(self) -> None:
        """Make the links to what is last of each file, durably, and clear up. Blocks.

        Raises:
            StorageError: The disk refuses.
        """
        self.publisher.link_last(self.record)
        # Only now: until the run has ended, the next holder of the lock makes them anew.
        folders = set()
        for name in _take_all(self.publisher.unsynced_links):
            folders.add(self.directory)
            while name := os.path.dirname(name):
                folders.add(f"{self.directory}/{name}")
        for folder in sorted(folders):
            self.disk.sync(folder)
        # A thread that outlived its step may have left something after that.
        self.disk.remove_tree(f"{self.directory}/{layout.STAGING}")

    def _sync_pending(self) -> None:
        """Sync what was published, then the journal that names it."""
        taken = list(_take_all(self.publisher.unsynced))
        try:
            self._sync(taken)
        except StorageError:
            self.publisher.unsynced.extend(taken)
            raise
        self.disk.sync(layout.events_path(self.directory))

    def _sync(self, paths: Iterable[str]) -> None:
        parents = set()
        for path in paths:
            self.disk.sync(path)
            parents.add(os.path.dirname(path))
        for parent in sorted(parents):
            self.disk.sync(parent)
            # A new folder is only found again if the folder above it is synced too.
            self.disk.sync(os.path.dirname(parent))
        if parents:
            self.disk.sync(self.directory)


def _take_all(queue: deque[str]) -> Iterator[str]:
    while queue:
        yield queue.popleft()
