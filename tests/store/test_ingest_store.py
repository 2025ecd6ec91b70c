"""A run to be: all of it appears, or nothing does, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from astro_async._core.names import check_run_id
from astro_async._core.status import RunStatus
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import load_run, load_summaries
from astro_async._store.ingest_store import IngestStore, hold_ingest_gate
from astro_async._store.journal import read_run
from astro_async._store.layout import list_run_ids, statistics_path
from astro_async._store.lock import is_locked
from astro_async._store.statistics import load_statistics
from astro_async.exceptions import RunLockedError, StorageError
from core.samples import TIME
from store.disks import WatchedDisk, refuse_from, refuse_only
from store.samples import fold_all, run_folder, tree, write_staged
from store.test_lock import another_process

INGEST = """
import sys
from astro_async._store.atomic import Disk
from astro_async._store.ingest_store import IngestStore
store = IngestStore(sys.argv[1], disk=Disk(), now="2026-01-02")
open(store.staged_path("f"), "w").write("half of it")
print("held", flush=True)
sys.stdin.readline()
"""


def make(folder: Path, disk: Disk | None = None) -> IngestStore:
    return IngestStore(str(folder), disk=disk or Disk(), now=TIME)


def visible(folder: Path) -> list[str]:
    summaries, notices = load_summaries(str(folder))
    assert notices == []
    return [summary.run_id for summary in summaries]


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder / ".working") if name.startswith(".")]


def test_nothing_is_visible_until_the_run_is_published(tmp_path: Path) -> None:
    store = make(tmp_path)
    events = write_staged(store, "f", "g")
    assert (list_run_ids(str(tmp_path)), visible(tmp_path)) == ([], [])
    record = store.publish(events)
    assert visible(tmp_path) == [store.run_id]
    assert hidden(tmp_path) == []
    assert record == fold_all(events) == load_run(str(tmp_path), store.run_id)
    folder = run_folder(tmp_path, store.run_id)
    assert {path: content for path, content in tree(folder).items() if "/" in path} == {
        "ingested/f.parquet": b"as ingested: f",
        "ingested/g.parquet": b"as ingested: g",
    }
    assert stat.S_IMODE((folder / "ingested/f.parquet").stat().st_mode) == 0o444


def test_a_published_run_is_whole_durable_and_free(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store = make(tmp_path, disk)
    events = write_staged(store, "f")
    hidden_folder = store.directory
    store.publish(events)
    folder = str(run_folder(tmp_path, store.run_id))
    reading = read_run(folder)
    assert reading.record.status is RunStatus.INGESTED
    assert (reading.journal_bytes, reading.torn, reading.manifest_damage) == (
        reading.durable_bytes,
        False,
        None,
    )
    assert not is_locked(f"{folder}/run.lock")
    appears = disk.first("rename", folder)
    for path in ("ingested/f.parquet", "ingested", "events.jsonl"):
        assert disk.first("sync", f"{hidden_folder}/{path}") < appears
    assert disk.first("rename", f"{hidden_folder}/manifest.json") < appears
    assert disk.operations[appears + 1] == ("sync", str(tmp_path / ".working"))


def test_the_numbers_of_an_ingest_are_recorded(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.publish(write_staged(store, "f"))
    recorded = load_statistics(statistics_path(str(tmp_path)), store.run_id)
    assert {(each.scope, each.subject, each.action, each.value) for each in recorded} == {
        ("file", "f", "row_count", 10),
        ("file", "f", "column_count", 2),
        ("file", "f", "source_size_bytes", 50),
        ("run", store.run_id, "files_ingested", 1),
    }


def test_numbers_that_cannot_be_written_are_a_notice_and_the_run_is_there(tmp_path: Path) -> None:
    (tmp_path / ".astro").write_bytes(b"in the way")
    store = make(tmp_path)
    store.publish(write_staged(store, "f"))
    assert visible(tmp_path) == [store.run_id]
    assert len(store.notices) == 1
    assert "statistics" in store.notices[0]


def test_an_abandoned_ingest_leaves_nothing(tmp_path: Path) -> None:
    store = make(tmp_path)
    write_staged(store, "f")
    store.abandon()
    store.abandon()
    assert os.listdir(tmp_path / ".working") == []


def test_abandoning_a_run_that_has_appeared_is_harmless(tmp_path: Path) -> None:
    store = make(tmp_path)
    store.publish(write_staged(store, "f"))
    before = tree(tmp_path)
    store.abandon()
    assert tree(tmp_path) == before


def test_ids_are_run_ids_and_distinct(tmp_path: Path) -> None:
    stores = [make(tmp_path) for _ in range(5)]
    assert len({check_run_id(store.run_id) for store in stores}) == 5
    for store in stores:
        store.abandon()


def count_operations(folder: Path) -> int:
    disk = WatchedDisk()
    store = make(folder, disk)
    store.publish(write_staged(store, "f", "g"))
    return len(disk.operations)


@pytest.mark.parametrize("refuse", [refuse_from, refuse_only])
def test_an_ingest_that_fails_anywhere_leaves_nothing_behind(tmp_path: Path, refuse: object) -> None:
    total = count_operations(tmp_path / "counting")
    assert total > 10
    visible_after: dict[int, list[str]] = {}
    for number in range(total):
        folder = tmp_path / str(number)
        disk = refuse_from(number) if refuse is refuse_from else refuse_only(number)
        store = None
        try:
            store = make(folder, disk)
            store.publish(write_staged(store, "f", "g"))
        except StorageError:
            if store is not None:
                store.abandon()
            visible_after[number] = visible(folder)
            # Whatever is left is out of the way of the next one.
            make(folder).abandon()
        else:
            assert visible(folder) == [store.run_id]
    assert {number: runs for number, runs in visible_after.items() if runs} == {}


def test_an_ingest_that_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    with another_process(INGEST, str(tmp_path)) as process:
        (left,) = hidden(tmp_path)
        other = make(tmp_path)
        # It is alive: nobody touches it.
        assert left in hidden(tmp_path)
        assert (tmp_path / ".working" / left / "ingested/f.parquet").read_bytes() == b"half of it"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert visible(tmp_path) == []
        store = make(tmp_path)
    assert sorted(hidden(tmp_path)) == sorted(f".ingest-{each.run_id}" for each in (other, store))
    other.abandon()
    store.abandon()


def test_a_folder_without_a_lock_is_spared_while_it_is_young(tmp_path: Path) -> None:
    young, old = (tmp_path / ".working" / f".ingest-{name}" for name in ("young", "older"))
    for folder in (young, old):
        (folder / "ingested").mkdir(parents=True)
    os.utime(old, (1, 1))
    make(tmp_path).abandon()
    assert hidden(tmp_path) == [".ingest-young"]


def test_what_is_no_ingest_is_not_touched(tmp_path: Path) -> None:
    names = [".ingest-", ".ingest-toolong", ".ingest-UPPER", ".other", ".ingest-a/../x", "notes"]
    kept = [name for name in names if "/" not in name]
    for name in kept:
        (tmp_path / ".working" / name).mkdir(parents=True)
        os.utime(tmp_path / ".working" / name, (1, 1))
    make(tmp_path).abandon()
    assert sorted(os.listdir(tmp_path / ".working")) == sorted(kept)


def test_one_ingest_at_a_time_goes_through_the_gate(tmp_path: Path) -> None:
    gate = hold_ingest_gate(str(tmp_path), disk=Disk(), now=TIME)
    with pytest.raises(RunLockedError, match="the ingest of this serial pipeline is locked by process"):
        hold_ingest_gate(str(tmp_path), disk=Disk(), now=TIME)
    gate.release()
    hold_ingest_gate(str(tmp_path), disk=Disk(), now=TIME).release()
    assert visible(tmp_path) == []


def test_a_working_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".working").write_bytes(b"in the way")
    with pytest.raises(StorageError, match=str(tmp_path)):
        make(tmp_path)
