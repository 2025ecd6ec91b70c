"""A run opened for running: one holder, and checkpoints that tell the truth."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from astro_async._core.events import AnyEvent, parse_event
from astro_async._core.manifest import restore_record
from astro_async._core.names import RunId
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.atomic import Disk
from astro_async._store.journal import read_manifest, read_run
from astro_async._store.layout import statistics_path
from astro_async._store.run_store import RunStore
from astro_async._store.statistics import load_statistics
from astro_async.exceptions import JournalError, RunLockedError, RunNotFoundError, StorageError
from core.samples import TIME, node
from store.disks import FullDisk, RefusingDisk, WatchedDisk
from store.samples import Night, fold_all, ingest, run_folder, tree
from store.test_lock import another_process

HOLD = """
import sys
from astro_async._store.atomic import Disk
from astro_async._store.run_store import RunStore
store = RunStore.open(sys.argv[1], sys.argv[2], disk=Disk(), now="2026-01-02")
print("held", flush=True)
sys.stdin.readline()
"""
NODES = [node("a", writes=["f"]), node("b", writes=["f"], after=["a"])]


@pytest.fixture
def run_id(tmp_path: Path) -> RunId:
    return ingest(tmp_path, "f")


def test_a_run_that_another_process_holds_is_refused(tmp_path: Path, run_id: RunId) -> None:
    with another_process(HOLD, str(tmp_path), run_id) as process:
        with pytest.raises(RunLockedError) as caught:
            RunStore.open(str(tmp_path), run_id, disk=Disk(), now=TIME)
        for word in (f"run {run_id}", f"process {process.pid}", socket.gethostname(), "since 2026-01-02"):
            assert word in str(caught.value)


def test_a_run_is_free_at_once_after_kill_9_of_its_holder(tmp_path: Path, run_id: RunId) -> None:
    with another_process(HOLD, str(tmp_path), run_id) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        Night(tmp_path, run_id).store.close()


def test_a_run_that_is_not_there(tmp_path: Path, run_id: RunId) -> None:
    with pytest.raises(RunNotFoundError, match="there is no run 'zzzzz'"):
        RunStore.open(str(tmp_path), RunId("zzzzz"), disk=Disk(), now=TIME)
    assert sorted(os.listdir(tmp_path / ".working")) == [run_id]


def test_a_run_that_cannot_be_read_is_given_back_and_leaves_no_file_open(
    tmp_path: Path, run_id: RunId
) -> None:
    journal = run_folder(tmp_path, run_id) / "events.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:10])
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    with pytest.raises(JournalError):
        Night(tmp_path, run_id)
    after = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    journal.write_bytes(whole)
    Night(tmp_path, run_id).store.close()
    assert len(after) == len(before)


def test_a_damaged_manifest_is_rebuilt_and_said(tmp_path: Path, run_id: RunId) -> None:
    manifest = run_folder(tmp_path, run_id) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    night = Night(tmp_path, run_id)
    assert night.run.status is RunStatus.INGESTED
    assert [notice.split(" (")[0] for notice in night.store.take_notices()] == [
        "the manifest was rebuilt from the journal"
    ]
    night.checkpoint()
    assert restore_record(read_manifest(str(night.folder))) == night.run
    night.die()


def test_a_checkpoint_syncs_data_then_journal_then_writes_the_manifest(tmp_path: Path, run_id: RunId) -> None:
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    night.run_step("a", version=b"version", parts=[b"part"], positions=True, filtered=b"gone")
    disk.operations.clear()
    night.checkpoint()
    journal = disk.first("sync", f"{night.folder}/events.jsonl")
    for path in (
        "versions/f/a.1.parquet",
        "quarantine/a/f.part-00001.parquet",
        "quarantine/a/f.part-00001.rows",
        "filtered/a/f.parquet",
    ):
        file = f"{night.folder}/{path}"
        assert disk.first("sync", file) < disk.first("sync", os.path.dirname(file)) < journal
        assert disk.first("sync", os.path.dirname(os.path.dirname(file))) < journal
    assert journal < disk.first("write", f"{night.folder}/manifest.json")
    assert restore_record(read_manifest(str(night.folder))) == night.run
    night.die()


def test_a_file_whose_sync_failed_is_synced_before_a_manifest_names_it(tmp_path: Path, run_id: RunId) -> None:
    disk = RefusingDisk(lambda _operation, _path: False)
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    night.run_step("a", version=b"version", parts=[b"part"])
    version = f"{night.folder}/versions/f/a.1.parquet"
    disk.choose = lambda operation, path: (operation, path) == ("sync", version)
    with pytest.raises(StorageError):
        night.checkpoint()
    disk.choose = lambda _operation, _path: False
    disk.operations.clear()
    night.checkpoint()
    manifest = disk.first("rename", f"{night.folder}/manifest.json")
    assert disk.first("sync", version) < manifest
    assert disk.first("sync", os.path.dirname(version)) < manifest
    night.die()


def test_a_checkpoint_vouches_for_what_was_in_the_journal_when_it_was_taken(
    tmp_path: Path, run_id: RunId
) -> None:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    checkpoint = night.store.take_checkpoint()
    before = fold_all(read_events(night.folder))
    night.start("a")
    night.store.write_checkpoint(checkpoint)
    assert restore_record(read_manifest(str(night.folder))) == before
    reading = read_run(str(night.folder))
    assert reading.record == night.run
    assert reading.durable_bytes < reading.journal_bytes
    night.die()


def read_events(folder: Path) -> list[AnyEvent]:
    return [parse_event(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def test_a_full_disk_leaves_the_last_good_records_and_is_resumed(tmp_path: Path, run_id: RunId) -> None:
    disk = FullDisk()
    disk.is_full = False
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    night.run_step("a", version=b"version")
    disk.is_full = True
    whole = (night.folder / "events.jsonl").read_bytes()
    with pytest.raises(StorageError, match="No space left"):
        night.start("b")
    night.die()
    assert (night.folder / "events.jsonl").read_bytes() == whole
    again = Night(tmp_path, run_id)
    assert again.run.steps["a"].status is StepStatus.COMPLETE
    assert again.run.steps["b"].status is StepStatus.PENDING
    again.die()


def test_statistics_that_cannot_be_written_stop_nothing(tmp_path: Path, run_id: RunId) -> None:
    disk = RefusingDisk(lambda _operation, path: path.endswith("stats.db"))
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    night.run_step("a", version=b"version")
    night.checkpoint()
    (notice,) = night.store.take_notices()
    assert "statistics are incomplete" in notice
    assert night.store.take_notices() == []
    assert read_run(str(night.folder)).durable_bytes == (night.folder / "events.jsonl").stat().st_size
    night.die()


def test_statistics_of_a_step_that_finished_before_a_kill_are_not_lost(tmp_path: Path, run_id: RunId) -> None:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"version")
    night.die()
    again = Night(tmp_path, run_id)
    again.commit(*NODES)
    again.run_step("b", read="versions/f/a.1.parquet")
    again.end()
    recorded = {
        (each.subject, each.action): each.value
        for each in load_statistics(statistics_path(str(tmp_path)), run_id)
    }
    assert recorded["b", "rows_in"] == 10
    assert recorded["a", "rows_in"] == 10


def test_the_end_of_a_run_links_the_last_versions_and_clears_up(tmp_path: Path, run_id: RunId) -> None:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"version a")
    night.run_step("b", read="versions/f/a.1.parquet", version=b"version b")
    night.end()
    assert tree(night.folder / "current") == {"f.parquet": b"version b"}
    assert os.path.samefile(night.folder / "current/f.parquet", night.folder / "versions/f/b.1.parquet")
    assert not (night.folder / "staging").exists()
    assert read_run(str(night.folder)).record.status is RunStatus.COMPLETED


def test_what_a_thread_left_behind_its_step_goes_with_the_run(tmp_path: Path, run_id: RunId) -> None:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    staging = night.folder / "staging"
    staging.mkdir()
    (staging / "a.1.7.parquet").write_bytes(b"late")
    night.store.finish()
    assert not staging.exists()


def test_numbers_that_a_dead_process_could_not_save_are_made_up_for(tmp_path: Path, run_id: RunId) -> None:
    path = Path(statistics_path(str(tmp_path)))
    path.rename(path.with_name("away"))
    path.mkdir()
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    night.checkpoint()
    # The manifest contains what the database does not know, and says so.
    assert read_manifest(str(night.folder)).lacks_statistics
    night.die()
    path.rmdir()
    path.with_name("away").rename(path)
    again = Night(tmp_path, run_id)
    again.checkpoint()
    assert not read_manifest(str(night.folder)).lacks_statistics
    durations = [each for each in load_statistics(str(path), run_id) if each.action == "duration_ms"]
    assert [each.subject for each in durations] == ["a"]
    again.die()


def test_numbers_of_a_database_that_went_away_are_written_anew(tmp_path: Path, run_id: RunId) -> None:
    path = Path(statistics_path(str(tmp_path)))
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    night.checkpoint()
    path.unlink()
    night.run_step("b", read="versions/f/a.1.parquet", version=b"w")
    night.checkpoint()
    found = {(each.subject, each.action) for each in load_statistics(str(path), run_id)}
    assert {("a", "duration_ms"), ("b", "duration_ms"), ("f", "row_count")} <= found
    night.die()


def test_a_database_that_is_busy_for_a_moment_is_no_news(tmp_path: Path, run_id: RunId) -> None:
    path = statistics_path(str(tmp_path))
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        night.checkpoint()
        # It waits for an instant only: a checkpoint is also what makes the journal durable.
        assert time.monotonic() - began < 3
        assert read_manifest(str(night.folder)).lacks_statistics
    night.checkpoint()
    assert not read_manifest(str(night.folder)).lacks_statistics
    assert night.store.take_notices() == []
    assert ("a", "duration_ms") in {(each.subject, each.action) for each in load_statistics(path, run_id)}
    night.die()
