"""After a crash: litter goes, links come back, and what a record names stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from astro_async._core.events import RunPlanned, StepInterrupted
from astro_async._core.names import RunId
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.journal import read_manifest
from astro_async._store.recovery import remove_litter, restore_links
from astro_async.exceptions import StorageError
from core.samples import node
from store.disks import Killed, MortalDisk, RefusingDisk, WatchedDisk
from store.samples import Night, ingest, run_folder, tree

NODES = [node("a", writes=["f"]), node("b", writes=["f"])]
DATA = ("versions", "quarantine", "filtered", "snapshots", "processed", "staging")


@pytest.fixture
def run_id(tmp_path: Path) -> RunId:
    return ingest(tmp_path, "f", "g")


def data(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in tree(folder).items() if path.split("/")[0] in DATA}


def busy_night(tmp_path: Path, run_id: RunId) -> Night:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step(
        "a",
        version=b"version a",
        parts=[b"part 1", b"part 2"],
        positions=True,
        saved={"processed/x.parquet": b"saved"},
        filtered=b"filtered",
    )
    return night


OF_A = {
    "versions/f/a.1.parquet": b"version a",
    "versions/f/a.1.1.parquet": b"saved",
    "quarantine/a/f.part-00001.parquet": b"part 1",
    "quarantine/a/f.part-00001.rows": b"rows of part 1PAR1",
    "quarantine/a/f.part-00002.parquet": b"part 2",
    "quarantine/a/f.part-00002.rows": b"rows of part 2PAR1",
    "filtered/a/f.parquet": b"filteredPAR1",
    "snapshots/a/f.parquet": b"as ingested: f",
    "processed/x.parquet": b"saved",
}


def test_what_records_name_stays_and_the_rest_goes(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    night.start("b")
    for path in (
        "staging/b.1.1.parquet",
        "versions/f/b.1.parquet",
        "versions/g/b.1.parquet",
        "quarantine/b/f.part-00001.parquet",
        "quarantine/a/f.part-00003.parquet",
        "filtered/b/f.parquet",
        "snapshots/b/f.parquet",
        "snapshots/a/f.parquet.1234.tmp",
    ):
        (night.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (night.folder / path).write_bytes(b"litter")
    night.die()
    again = Night(tmp_path, run_id)
    assert data(night.folder) == OF_A
    assert not (night.folder / "staging").exists()
    assert not (night.folder / "versions/g").exists()
    assert not (night.folder / "quarantine/b").exists()
    assert (night.folder / "ingested/g.parquet").read_bytes() == b"as ingested: g"
    assert again.run.steps["a"].status is StepStatus.QUARANTINED
    assert again.run.steps["b"].status is StepStatus.RUNNING
    again.store.close()


@pytest.mark.parametrize("damage", ["missing", "wrong"])
@pytest.mark.parametrize("link", ["snapshots/a/f.parquet", "processed/x.parquet"])
def test_links_are_made_anew(tmp_path: Path, run_id: RunId, link: str, damage: str) -> None:
    night = busy_night(tmp_path, run_id)
    night.die()
    (night.folder / link).unlink()
    if damage == "wrong":
        (night.folder / link).write_bytes(b"wrong")
    Night(tmp_path, run_id).store.close()
    assert data(night.folder) == OF_A


def test_a_run_that_ended_in_good_order_is_not_gone_through(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    night.run_step("b", read="versions/f/a.1.parquet", version=b"version b")
    night.end(RunStatus.QUARANTINED)
    disk = WatchedDisk()
    Night(tmp_path, run_id, disk=disk).store.close()
    assert not disk.paths("remove")
    assert not disk.paths("link")
    assert not disk.paths("sync")[1:]


def test_recovery_may_be_done_twice(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    run, disk, publisher = night.run, night.disk, night.store.publisher
    for _ in range(2):
        remove_litter(str(night.folder), run, disk)
        restore_links(run, publisher)
        assert data(night.folder) == OF_A
    night.die()


def test_a_version_that_only_a_reader_names_stays(tmp_path: Path, run_id: RunId) -> None:
    night = Night(tmp_path, run_id)
    nodes = [node("a", writes=["f"]), node("reader", reads=["f"])]
    night.commit(*nodes)
    night.run_step("a", version=b"version a", parts=[b"part"])
    night.run_step("reader", read="versions/f/a.1.parquet")
    night.commit(*nodes)
    night.die()
    assert night.run.steps["a"].status is StepStatus.PENDING
    Night(tmp_path, run_id).store.close()
    assert data(night.folder) == {"versions/f/a.1.parquet": b"version a"}


def test_recovery_that_cannot_remove_says_so_and_gives_the_lock_back(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    (night.folder / "versions/f/litter.parquet").write_bytes(b"litter")
    night.die()
    disk = RefusingDisk(lambda operation, _path: operation == "remove")
    with pytest.raises(StorageError):
        Night(tmp_path, run_id, disk=disk)
    Night(tmp_path, run_id).store.close()
    assert data(night.folder) == OF_A


def test_files_of_the_lines_that_a_dead_process_wrote_are_synced(tmp_path: Path, run_id: RunId) -> None:
    busy_night(tmp_path, run_id).die()
    disk = WatchedDisk()
    again = Night(tmp_path, run_id, disk=disk)
    again.checkpoint()
    manifest = disk.first("rename", f"{again.folder}/manifest.json")
    written = [path for path in OF_A if not path.startswith(("snapshots", "processed"))]
    for path in written:
        assert disk.first("sync", f"{again.folder}/{path}") < manifest
        assert disk.first("sync", os.path.dirname(f"{again.folder}/{path}")) < manifest
    again.die()


def plan_and_die(tmp_path: Path, run_id: RunId) -> Night:
    """Die between the line of a plan and the manifest that contains it."""
    busy_night(tmp_path, run_id).die()
    is_open = False
    disk = MortalDisk(
        lambda operation, path: is_open and operation == "write" and path.endswith("manifest.json")
    )
    night = Night(tmp_path, run_id, disk=disk)
    is_open = True
    with pytest.raises(Killed):
        night.commit(*NODES)
    night.die()
    return night


def test_a_kill_between_a_plan_and_its_manifest_is_resumed(tmp_path: Path, run_id: RunId) -> None:
    plan_and_die(tmp_path, run_id)
    night = Night(tmp_path, run_id)
    assert night.run.steps["a"].status is StepStatus.PENDING
    night.commit(*NODES)
    night.run_step("a", version=b"again", parts=[b"part"])
    night.checkpoint()
    night.die()
    assert (night.folder / "versions/f/a.2.parquet").read_bytes() == b"again"


def test_what_a_plan_forgets_goes_only_when_its_line_is_synced(tmp_path: Path, run_id: RunId) -> None:
    plan_and_die(tmp_path, run_id)
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    removed = [path for path in disk.paths("remove") if path.startswith(f"{night.folder}/versions")]
    assert removed
    assert disk.first("sync", f"{night.folder}/events.jsonl") < disk.first("remove", removed[0])
    night.die()


def test_the_run_can_be_moved(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    night.checkpoint()
    night.die()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".working").mkdir(parents=True)
    night.folder.rename(run_folder(elsewhere, run_id))
    moved = Night(elsewhere, run_id)
    moved.commit(*NODES)
    moved.run_step("a", version=b"again")
    moved.run_step("b", read="versions/f/a.2.parquet", version=b"version b")
    moved.end()
    assert data(moved.folder) == {
        "versions/f/a.2.parquet": b"again",
        "versions/f/b.1.parquet": b"version b",
        "snapshots/a/f.parquet": b"as ingested: f",
        "snapshots/b/f.parquet": b"again",
    }


def test_a_disk_that_filled_up_during_a_publication_is_no_obstacle_once_there_is_space(
    tmp_path: Path, run_id: RunId
) -> None:
    disk = RefusingDisk(lambda operation, path: operation == "link" and "/snapshots/" in path)
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    with pytest.raises(StorageError):
        night.run_step("a", version=b"version a", parts=[b"part"])
    night.clear_staging()
    interrupt(night, "a")
    night.end(RunStatus.INTERRUPTED)
    again = Night(tmp_path, run_id)
    again.commit(*NODES)
    again.run_step("a", version=b"again", parts=[b"part again"])
    again.end(RunStatus.QUARANTINED)
    assert data(again.folder) == {
        "versions/f/a.2.parquet": b"again",
        "quarantine/a/f.part-00001.parquet": b"part again",
        "snapshots/a/f.parquet": b"as ingested: f",
    }


def interrupt(night: Night, step_id: str) -> None:
    night.tell(
        StepInterrupted(
            seq=night.run.seq + 1,
            time="2026-01-02T03:04:05.000000Z",
            run_id=night.run.run_id,
            step_id=step_id,
            detail="no space left",
        )
    )


def test_a_torn_tail_is_cut_off_and_said(tmp_path: Path, run_id: RunId) -> None:
    night = busy_night(tmp_path, run_id)
    night.die()
    journal = night.folder / "events.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"kind":"step_star')
    again = Night(tmp_path, run_id)
    assert journal.read_bytes() == whole
    assert again.store.take_notices() == ["the end of the journal was torn and has been dropped"]
    again.tell(
        RunPlanned(
            seq=again.run.seq + 1,
            time="t",
            run_id=run_id,
            again={},
            params={},
            jobs=1,
            pid=1,
            host="",
        )
    )
    again.die()
    assert journal.read_bytes().count(b"\n") == whole.count(b"\n") + 1


def test_the_manifest_is_brought_up_to_date_even_if_nothing_is_left_to_do(
    tmp_path: Path, run_id: RunId
) -> None:
    disk = MortalDisk(lambda operation, path: operation == "rename" and path.endswith("manifest.json"))
    night = busy_night(tmp_path, run_id)
    night.die()
    with pytest.raises(Killed):
        Night(tmp_path, run_id, disk=disk)
    assert (night.folder / "manifest.json.tmp").exists()
    again = Night(tmp_path, run_id)
    seq = again.run.seq
    again.die()
    assert read_manifest(str(again.folder)).journal_seq == seq
    assert not (night.folder / "manifest.json.tmp").exists()
