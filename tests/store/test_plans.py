"""Plans, patches and dropped versions: durable first, and only then is anything removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from astro_async._core.events import RowsPatched, VersionsDropped
from astro_async._core.lineage import droppable_versions
from astro_async._core.names import RunId
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.journal import read_run
from astro_async._store.staging import FileOutput
from astro_async.exceptions import StorageError
from core.samples import TIME, node
from store.disks import FullDisk, Killed, MortalDisk, RefusingDisk, WatchedDisk
from store.samples import Night, ingest, tree

NODES = [node("a", writes=["f"]), node("b", writes=["f"], after=["a"])]


@pytest.fixture
def run_id(tmp_path: Path) -> RunId:
    return ingest(tmp_path, "f")


def quarantined(tmp_path: Path, run_id: RunId) -> Path:
    """Leave a run whose step `a` is quarantined; return its folder."""
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"version", parts=[b"part"], positions=True, saved={"processed/x": b"saved"})
    night.end(RunStatus.QUARANTINED)
    return night.folder


def test_a_plan_is_durable_before_anything_is_removed(tmp_path: Path, run_id: RunId) -> None:
    folder = quarantined(tmp_path, run_id)
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    disk.operations.clear()
    night.commit(*NODES)
    journal, manifest = f"{folder}/events.jsonl", f"{folder}/manifest.json"
    written, synced = disk.first("append to", journal), disk.first("sync", journal)
    removed = [i for i, (operation, _) in enumerate(disk.operations) if operation.startswith("remove")]
    assert written < synced < removed[0]
    assert synced < disk.first("rename", manifest)
    assert {os.path.relpath(path, folder) for path in disk.paths("remove")} == {
        "versions/f/a.1.parquet",
        "versions/f/a.1.1.parquet",
        "quarantine/a/f.part-00001.parquet",
        "quarantine/a/f.part-00001.rows",
        "snapshots/a/f.parquet",
        "processed/x",
    }
    left = tree(folder)
    assert {path for path in left if path.split("/")[0] not in ("current", "ingested")} == {
        "events.jsonl",
        "manifest.json",
    }
    assert not (folder / "quarantine" / "a").exists()
    night.die()


@pytest.mark.parametrize("number", range(16))
def test_a_plan_stands_or_it_does_not(tmp_path: Path, run_id: RunId, number: int) -> None:
    folder = quarantined(tmp_path, run_id)
    before = tree(folder)
    disk = RefusingDisk(lambda _operation, _path: False)
    night = Night(tmp_path, run_id, disk=disk)
    opened = len(disk.operations)
    disk.choose = lambda _operation, _path: len(disk.operations) > opened + number
    with pytest.raises(StorageError):
        night.commit(*NODES)
    night.die()
    if read_run(str(folder)).record.steps["a"].status is StepStatus.QUARANTINED:
        after = tree(folder)
        assert {path: after[path] for path in before if path != "manifest.json"} == {
            path: content for path, content in before.items() if path != "manifest.json"
        }
    again = Night(tmp_path, run_id)
    again.commit(*NODES)
    again.run_step("a", version=b"again", saved={"processed/x": b"saved again"})
    again.run_step("b", read="versions/f/a.2.parquet", version=b"b")
    again.end()
    assert {path: content for path, content in tree(folder).items() if "/" in path} == {
        "ingested/f.parquet": b"as ingested: f",
        "versions/f/a.2.parquet": b"again",
        "versions/f/a.2.1.parquet": b"saved again",
        "versions/f/b.1.parquet": b"b",
        "processed/x": b"saved again",
        "snapshots/a/f.parquet": b"as ingested: f",
        "snapshots/b/f.parquet": b"again",
        "current/f.parquet": b"b",
    }


@pytest.mark.parametrize("moment", ["write", "remove"])
def test_a_name_of_a_forgotten_attempt_goes_even_if_the_process_dies_first(
    tmp_path: Path, run_id: RunId, moment: str
) -> None:
    folder = quarantined(tmp_path, run_id)
    disk = MortalDisk(lambda _operation, _path: False)
    night = Night(tmp_path, run_id, disk=disk)
    disk.choose = lambda operation, path: operation == moment and path.startswith(str(folder))
    with pytest.raises(Killed):
        night.commit(*NODES)
    night.die()
    again = Night(tmp_path, run_id)
    again.commit(*NODES)
    again.run_step("a", version=b"again")
    again.end()
    # The attempt that counts gave no such name, and nothing on record names it.
    assert not (folder / "processed/x").exists()


def test_a_name_that_a_step_gave_as_well_is_its_own_again(tmp_path: Path, run_id: RunId) -> None:
    nodes = [node("first", reads=["f"]), node("second", reads=["f"])]
    night = Night(tmp_path, run_id)
    night.commit(*nodes)
    night.run_step("first", saved={"processed/x": b"first"})
    night.run_step("second", saved={"processed/x": b"second"})
    night.end()
    again = Night(tmp_path, run_id)
    again.commit(nodes[0])
    again.end()
    assert list(again.run.steps) == ["first"]
    # As in a run that never had the second step.
    assert (again.folder / "processed/x").read_bytes() == b"first"


def test_a_name_is_that_of_the_last_step_in_serial_order(tmp_path: Path, run_id: RunId) -> None:
    night = Night(tmp_path, run_id)
    night.commit(node("first", reads=["f"]), node("second", reads=["f"]))
    night.start("first")
    late = FileOutput("f", "ingested/f.parquet", 10, saved={"processed/x": night.stage("first")(b"first")})
    night.run_step("second", saved={"processed/x": b"second"})
    (night.folder / "staging").mkdir(parents=True, exist_ok=True)
    (night.folder / "staging/first.1.1.parquet").write_bytes(b"first")
    night.settle("first", late)
    night.end()
    assert (night.folder / "processed/x").read_bytes() == b"second"


def versions_to_drop(tmp_path: Path, run_id: RunId) -> tuple[Path, VersionsDropped]:
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"version a")
    night.run_step("b", read="versions/f/a.1.parquet", version=b"version b")
    night.end()
    paths = [version.path for version in droppable_versions(night.run)]
    event = VersionsDropped(seq=night.run.seq + 1, time=TIME, run_id=run_id, paths=paths, size_bytes=9)
    return night.folder, event


KEPT = {
    "ingested/f.parquet": b"as ingested: f",
    "versions/f/b.1.parquet": b"version b",
    "snapshots/a/f.parquet": b"as ingested: f",
    "current/f.parquet": b"version b",
}


def test_dropping_versions_is_durable_before_they_go(tmp_path: Path, run_id: RunId) -> None:
    folder, event = versions_to_drop(tmp_path, run_id)
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    disk.operations.clear()
    night.store.drop_versions(event)
    night.die()
    gone = ["snapshots/b/f.parquet", "versions/f/a.1.parquet"]
    assert disk.paths("remove") == [f"{folder}/{path}" for path in gone]
    assert disk.first("sync", f"{folder}/events.jsonl") < disk.first("remove", f"{folder}/{gone[0]}")
    assert {path: content for path, content in tree(folder).items() if "/" in path} == KEPT
    # Nor does recovery miss them, or link to them.
    (folder / "manifest.json").unlink()
    Night(tmp_path, run_id).die()
    assert {path: content for path, content in tree(folder).items() if "/" in path} == KEPT


def test_dropped_versions_that_a_kill_left_are_removed_by_the_next_holder(
    tmp_path: Path, run_id: RunId
) -> None:
    folder, event = versions_to_drop(tmp_path, run_id)
    disk = MortalDisk(lambda operation, path: operation == "remove" and "/versions/" in path)
    night = Night(tmp_path, run_id, disk=disk)
    with pytest.raises(Killed):
        night.store.drop_versions(event)
    night.die()
    Night(tmp_path, run_id).die()
    assert {path: content for path, content in tree(folder).items() if "/" in path} == KEPT


def patch(night: Night, content: bytes) -> RowsPatched:
    """Record a patch of what step `a` was given."""
    path = night.store.next_patch_path("a", "f")
    event = RowsPatched(
        seq=night.run.seq + 1,
        time=TIME,
        run_id=night.run.run_id,
        step_id="a",
        file="f",
        path=path,
        rows=1,
        discarded=0,
    )
    try:
        night.store.record_patch(night.stage("a")(content), event)
    finally:
        night.clear_staging()
    return event


def test_patches_are_kept_in_order_and_outlive_retries(tmp_path: Path, run_id: RunId) -> None:
    folder = quarantined(tmp_path, run_id)
    night = Night(tmp_path, run_id)
    paths = [patch(night, content).path for content in (b"first", b"second")]
    assert night.store.patches() == {("a", "f"): [[f"{folder}/{path}" for path in paths]]}
    night.commit(*NODES)
    night.die()
    again = Night(tmp_path, run_id)
    assert [Path(path).read_bytes() for path in again.store.patches()["a", "f"][0]] == [b"first", b"second"]
    again.die()


def test_a_patch_is_synced_before_its_record_is_durable(tmp_path: Path, run_id: RunId) -> None:
    folder = quarantined(tmp_path, run_id)
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    disk.operations.clear()
    path = patch(night, b"patch").path
    assert disk.first("sync", f"{folder}/{path}") < disk.first("sync", f"{folder}/events.jsonl")
    night.die()


def test_a_patch_that_a_dead_process_recorded_is_synced_by_the_next(tmp_path: Path, run_id: RunId) -> None:
    folder = quarantined(tmp_path, run_id)
    night = Night(
        tmp_path, run_id, disk=MortalDisk(lambda operation, path: "sync" in operation and "/patches/" in path)
    )
    with pytest.raises(Killed):
        night.store.record_patch(
            night.stage("a")(b"patch PAR1"),
            RowsPatched(
                seq=night.run.seq + 1,
                time=TIME,
                run_id=run_id,
                step_id="a",
                file="f",
                path="patches/a/f.1.parquet",
                rows=1,
                discarded=0,
            ),
        )
    night.die()
    disk = WatchedDisk()
    again = Night(tmp_path, run_id, disk=disk)
    assert len(again.run.patches) == 1
    again.checkpoint()
    assert disk.first("sync", f"{folder}/patches/a/f.1.parquet") < disk.first(
        "rename", f"{folder}/manifest.json"
    )
    again.die()


def test_a_patch_that_could_not_be_recorded_is_not_in_the_way_of_the_next(
    tmp_path: Path, run_id: RunId
) -> None:
    folder = quarantined(tmp_path, run_id)
    disk = FullDisk()
    night = Night(tmp_path, run_id, disk=disk)
    with pytest.raises(StorageError, match="No space left"):
        patch(night, b"first")
    night.die()
    again = Night(tmp_path, run_id)
    assert again.run.patches == []
    path = patch(again, b"second").path
    assert (folder / path).read_bytes() == b"second"
    again.die()


def test_a_patch_whose_name_alone_outlived_a_power_cut_is_not_in_the_way(
    tmp_path: Path, run_id: RunId
) -> None:
    folder = quarantined(tmp_path, run_id)
    night = Night(tmp_path, run_id)
    path = patch(night, b"first").path
    night.die()
    # Neither a plan nor a staging folder tells that something was being decided.
    litter = folder / path.replace(".1.", ".2.")
    litter.write_bytes(b"never recorded")
    again = Night(tmp_path, run_id)
    assert not litter.exists()
    assert (folder / path).read_bytes() == b"first"
    assert (folder / patch(again, b"second").path).read_bytes() == b"second"
    again.die()


def test_a_plan_is_durable_before_the_first_file_is_published(tmp_path: Path, run_id: RunId) -> None:
    """A power cut may leave files without their lines: only the plan tells that they are litter."""
    disk = WatchedDisk()
    night = Night(tmp_path, run_id, disk=disk)
    night.commit(*NODES)
    journal = f"{night.folder}/events.jsonl"
    night.run_step("a", version=b"version")
    assert disk.first("sync", journal) < disk.first("publish", f"{night.folder}/versions/f/a.1.parquet")
