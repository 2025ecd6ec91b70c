"""Die or fail at any operation on the disk, then run again: the end is that of a run that never stumbled."""

from __future__ import annotations

import errno
import itertools
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from astro_async import plan
from astro_async._core.records import RunRecord
from astro_async._core.status import StepStatus
from astro_async.exceptions import StorageError
from crash.faults import FAULTS, CountedDisk, Fault, FaultyDisk, MortalDisk, choose_operations, is_death
from crash.reference import (
    ACTS,
    JOBS,
    Author,
    Stage,
    assert_no_litter,
    assert_verified,
    prepare,
    read_state,
    settled_since,
)


@dataclass
class Scene:
    """What stands before an act, and what an undisturbed one makes of it."""

    act: str
    folder: Path
    base: Stage
    journal: bytes
    undisturbed: dict[str, object]
    operations: int
    links: int

    def copy(self, name: str) -> Stage:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        directory = shutil.copytree(self.base.directory, self.folder / name, symlinks=True)
        author = Author(directory / "ledger.txt", ACTS[: ACTS.index(self.act)])
        return Stage(directory, author, self.base.run_id)


@pytest.fixture(params=ACTS, scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    act: str = request.param
    folder = tmp_path_factory.mktemp("scene")
    base = prepare(folder / "base", ACTS[: ACTS.index(act)])
    scene = Scene(act, folder, base, base.journal.read_bytes(), {}, 0, 0)
    for only in ("link", None):
        disk = CountedDisk(only)
        stage = scene.copy(f"undisturbed-{only}")
        stage.perform(act, disk)
        scene.undisturbed = read_state(stage)
        scene.links, scene.operations = scene.operations, disk.count
    assert scene.operations > 20
    return scene


def test_the_undisturbed_history(tmp_path: Path) -> None:
    state = read_state(prepare(tmp_path / "all", ACTS))
    # All pass the relaxed check, and 4 is dropped by the filter.
    assert state["scores"] == {"id": [1, 2, 3], "score": [5, -1, 7], "rank": [2, 1, 3], "tag": ["t"] * 3}
    assert state["processed/totals.parquet"] == {"team": ["a", "b"], "score": [12, -1]}
    assert state["status"] == "completed"


def test_death_at_every_operation(scene: Scene) -> None:
    for operation in choose_operations(scene.operations, f"death {scene.act}", 20):
        stage = scene.copy("dies")
        try:
            stage.perform(scene.act, MortalDisk(operation))
        except BaseException as error:
            if not is_death(error):
                raise
        resume(scene, stage, f"died at operation {operation} of {scene.act}")
        assert_verified(stage)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_at_every_operation(scene: Scene, fault: Fault) -> None:
    told: list[bool] = []
    for operation in choose_operations(scene.operations, f"{fault} {scene.act}", 4):
        stage = scene.copy("fails")
        disk = FaultyDisk(fault, operation)
        try:
            stage.perform(scene.act, disk)
        except StorageError as error:
            told.append(disk.is_told_by(error))
        else:
            # Such as the log, which harms nobody; or the process had ended before.
            assert read_state(stage) == scene.undisturbed
        resume(scene, stage, f"{fault} at operation {operation} of {scene.act}")
    assert told
    assert all(told)


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EXDEV], ids=errno.errorcode.get)
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "lasting"])
def test_where_no_link_can_be_made_nothing_is_noticed(scene: Scene, code: int, *, lasts: bool) -> None:
    fault = Fault(code, lasts)
    for link in choose_operations(scene.links, f"{fault} {scene.act}", 2):
        stage = scene.copy("copies")
        disk = FaultyDisk(fault, link, only="link")
        result = stage.perform(scene.act, disk)
        assert disk.failed_paths
        assert result is not None
        # What it says besides has nothing to do with links.
        assert not [notice for notice in result.notices if "link" in notice]
        assert read_state(stage) == scene.undisturbed
        assert_no_litter(stage)


def resume(scene: Scene, stage: Stage, told: str) -> None:
    """Give the plain command once: all is as if nothing had happened, and no step ran without need."""
    before, after = scene.journal, stage.journal.read_bytes()
    assert after.startswith(before), told
    after = after[: after.rindex(b"\n") + 1]
    calls = stage.author.calls() - scene.base.author.calls()
    in_flight = calls - settled_since(after, len(before))
    assert in_flight.total() <= JOBS, told
    pipeline = stage.author.pipeline()
    record, planned = plan(pipeline, pipeline_dir=stage.directory, run_id=stage.run_id)
    stage.run()
    again: Counter[str] = stage.author.calls() - scene.base.author.calls() - calls
    assert max(again.values(), default=0) <= 1, told
    # What is recorded complete stands, unless its work stands on what runs again.
    assert again.keys() <= set(planned.again), told
    order = [step.step_id for step in pipeline.steps]
    complete = {step_id for step_id in order if has_completed(record, step_id)}
    undoubted = set(itertools.takewhile(complete.__contains__, order))
    assert not again.keys() & undoubted, told
    assert read_state(stage) == scene.undisturbed, told
    assert_no_litter(stage)


def has_completed(record: RunRecord, step_id: str) -> bool:
    return step_id in record.steps and record.steps[step_id].status is StepStatus.COMPLETE
