"""Decisions that are taken back: the row is judged again as it came."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import astro_async
from astro_async import (
    AstroFileSpec,
    Decision,
    IngestFileSpec,
    Pipeline,
    RunStatus,
    amend,
    discard,
    expect,
    list_runs,
    plan,
    read_run,
    verify,
    withdraw,
)
from astro_async._core.decisions import Waiting, count_waiting
from astro_async._core.waiting import explain_waiting
from astro_async._executor.forecast import forecast_checks
from astro_async.desk import open_decisions, store_withdrawal
from astro_async.exceptions import DeskError, RunRefusedError
from astro_async.testing import ingest_frames, read_file, read_quarantine

pytestmark = pytest.mark.anyio

SCHEMA = {"id": pl.Int64, "score": pl.Int64}
FRAME = pl.DataFrame({"id": [0, 1, 2, 3], "score": [5, -1, -2, -3]}, schema=SCHEMA)


def scores_file() -> list[IngestFileSpec]:
    return [IngestFileSpec("scores", "scores.csv", SCHEMA)]


def make_pipeline(lowest: int = 0, gone: int = 99, label: str = "check") -> Pipeline:
    """A filter, and a check of what it leaves."""
    pipeline = Pipeline("p", ingest_files=scores_file())
    pipeline.add_filter("drop", AstroFileSpec("scores"), remove=pl.col("id") == gone)
    pipeline.add_check(label, expect("too low", pl.col("score") >= lowest), AstroFileSpec("scores"))
    return pipeline


class Desk:
    """One run with three parked rows, and a person at its desk."""

    def __init__(self, directory: Path, run_id: str) -> None:
        self.directory = directory
        self.run_id = run_id
        self.where = {"pipeline_dir": directory, "run_id": run_id, "step_id": "check"}

    @classmethod
    async def open(cls, directory: Path) -> Desk:
        desk = cls(directory, await ingest_frames(make_pipeline(), {"scores": FRAME}, directory))
        await desk.run(make_pipeline())
        return desk

    async def run(self, pipeline: Pipeline, *, rerun: tuple[str, ...] = ()) -> astro_async.RunResult:
        result = await astro_async.run(pipeline, pipeline_dir=self.directory, run_id=self.run_id, rerun=rerun)
        assert verify(self.directory, self.run_id).findings == ()
        return result

    async def amend(self, *lines: str) -> Decision:
        path = self.directory / "rows.csv"
        path.write_text("\n".join(["_astro_row,id,score", *lines]))
        decided = await amend(path, **self.where)  # type: ignore[arg-type]
        assert decided is not None
        return decided

    async def discard(self, *rows: int) -> Decision:
        return await discard(rows, because="looked", **self.where)  # type: ignore[arg-type]

    async def withdraw(self, *rows: int) -> Decision:
        decided = await withdraw(rows or None, because="a slip", **self.where)  # type: ignore[arg-type]
        assert verify(self.directory, self.run_id).findings == ()
        return decided

    def waiting(self) -> Waiting:
        return count_waiting(read_run(self.directory, self.run_id), "check", "scores")

    def rows(self) -> list[tuple[object, ...]]:
        return read_file(self.directory, self.run_id, "scores").rows()

    def parked(self) -> list[tuple[object, ...]]:
        return read_quarantine(self.directory, self.run_id, "check", "scores").rows()


async def test_a_row_that_an_earlier_step_removes_since_is_no_dead_end(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10", "2,2,20")
    await desk.discard(3)
    without = make_pipeline(gone=1)
    for _ in range(2):
        result = await desk.run(without, rerun=("drop",))
        assert result.exit_code == 1
        assert result.record is not None
        detail = result.record.steps["check"].detail or ""
        assert "1 of 3 decided rows are not in the file any more" in detail
        assert f"`astro quarantine withdraw {desk.run_id} check --file scores --rows 1`" in detail
    decided = await desk.withdraw(1)
    assert (decided.rows, decided.was_amended, decided.was_discarded) == (1, 1, 0)
    assert decided.waiting == desk.waiting() == Waiting(0, 0, 1)
    result = await desk.run(without)
    assert result.status is RunStatus.COMPLETED
    # The other two decisions stand, at the places to which their rows have moved.
    assert desk.rows() == [(0, 5), (2, 20)]
    assert [patch.because for patch in read_run(tmp_path, desk.run_id).patches] == [None, "looked", "a slip"]


@pytest.mark.parametrize("is_completed", [False, True], ids=["waiting", "completed"])
async def test_decisions_are_not_forgotten_with_a_step_that_is_gone(
    is_completed: bool, tmp_path: Path
) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10", "2,2,20")
    await desk.discard(3)
    if is_completed:
        assert (await desk.run(make_pipeline())).status is RunStatus.COMPLETED
    renamed, removed = make_pipeline(label="control"), Pipeline("p", ingest_files=scores_file())
    removed.add_filter("drop", AstroFileSpec("scores"), remove=pl.col("id") == 99)
    before = read_run(tmp_path, desk.run_id)
    message = (
        "'check' is no step of the pipeline any more, but decisions stand for it about 3 rows of 'scores' "
        f"(astro quarantine stats {desk.run_id}), and nothing would apply them: give the step its old name "
        f"back (step_id='check'), or take them back: astro quarantine withdraw {desk.run_id} check --file "
        "scores --all"
    )
    told = explain_waiting(renamed.graph(before.files), before, "check")
    (reason,) = told
    assert reason.endswith("the next `astro run` is refused while decisions about its rows stand")
    for pipeline in (renamed, removed):
        with pytest.raises(RunRefusedError, match=f"^{re.escape(message)}$"):
            plan(pipeline, pipeline_dir=tmp_path, run_id=desk.run_id)
        with pytest.raises(RunRefusedError, match=f"^{re.escape(message)}$"):
            await desk.run(pipeline)
    assert read_run(tmp_path, desk.run_id) == before
    # With its old name, the step is given them.
    assert (await desk.run(make_pipeline(), rerun=("check",))).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, 10), (2, 20)]
    # Withdrawn, they hold nothing up.
    await desk.withdraw(3)
    with pytest.raises(RunRefusedError, match="about 2 rows of 'scores'"):
        await desk.run(renamed)
    await desk.withdraw()
    assert (await desk.run(renamed)).status is RunStatus.QUARANTINED
    assert read_quarantine(tmp_path, desk.run_id, "control", "scores")["id"].to_list() == [1, 2, 3]
    assert (await desk.run(removed)).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, -1), (2, -2), (3, -3)]


async def test_decisions_about_a_file_that_the_step_no_longer_touches(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10")
    other = Pipeline("p", ingest_files=scores_file())

    @other.step(step_id="check")
    def check(ctx: object, files: object) -> None:
        pass

    with pytest.raises(RunRefusedError, match=r"'check' does not touch 'scores' any more, .* about 1 row of"):
        await desk.run(other)
    await desk.withdraw()
    assert (await desk.run(other)).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, -1), (2, -2), (3, -3)]


async def test_all_lost_rows_are_named_as_ranges(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10", "2,2,20", "3,3,30")
    emptied = Pipeline("p", ingest_files=scores_file())
    emptied.add_filter("drop", AstroFileSpec("scores"), remove=pl.col("id") > 0)
    emptied.add_check("check", expect("too low", pl.col("score") >= 0), AstroFileSpec("scores"))
    result = await desk.run(emptied, rerun=("drop",))
    assert result.record is not None
    assert "--rows 1-3`" in (result.record.steps["check"].detail or "")
    await desk.withdraw()
    assert (await desk.run(emptied)).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5)]


async def test_a_decision_that_waits_is_taken_back(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10", "2,2,20")
    await desk.discard(3)
    assert desk.waiting() == Waiting(2, 1, 0)
    decided = await desk.withdraw(2, 3)
    assert (decided.was_amended, decided.was_discarded, decided.waiting) == (1, 1, Waiting(1, 0, 0))
    forecast = forecast_checks(
        make_pipeline(),
        str(tmp_path),
        read_run(tmp_path, desk.run_id),
        plan(make_pipeline(), pipeline_dir=tmp_path, run_id=desk.run_id)[1],
    )["check"]
    assert [(each.parked, each.passing, each.discarded) for each in forecast] == [(3, 1, 0)]
    # Decided anew, the row counts as decided once.
    again = await desk.amend("2,2,21")
    assert (again.replaced, again.waiting) == (0, Waiting(2, 0, 0))
    await desk.withdraw(2)
    await desk.run(make_pipeline())
    assert desk.parked() == [(2, -2, "too low"), (3, -3, "too low")]
    assert desk.rows() == [(0, 5), (1, 10)]


async def test_a_step_that_completed_with_a_decision_runs_again_without_it(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,10")
    await desk.discard(2, 3)
    assert (await desk.run(make_pipeline())).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, 10)]
    with pytest.raises(RunRefusedError, match="is completed"):
        await desk.run(make_pipeline())
    assert (await desk.withdraw(1, 3)).waiting == Waiting(0, 0, 2)
    record = read_run(tmp_path, desk.run_id)
    assert (record.status, record.detail) == (
        RunStatus.INTERRUPTED,
        "decisions that it was completed with have been withdrawn",
    )
    assert [run.is_decided for run in list_runs(tmp_path)[0]] == [True]
    _, planned = plan(make_pipeline(), pipeline_dir=tmp_path, run_id=desk.run_id)
    assert planned.by_reason() == {"withdrawn": ["check"]}
    # Without being named: it has something to do.
    result = await astro_async.run(make_pipeline(), pipeline_dir=tmp_path)
    assert (result.run_id, result.status) == (desk.run_id, RunStatus.QUARANTINED)
    assert desk.parked() == [(1, -1, "too low"), (3, -3, "too low")]
    assert (await desk.run(make_pipeline(lowest=-9))).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, -1), (3, -3)]
    assert not plan(make_pipeline(), pipeline_dir=tmp_path, run_id=desk.run_id)[1].has_work


async def test_all_that_was_decided_about_a_row_goes_whenever_it_was(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    await desk.amend("1,1,-11", "2,2,20")
    await desk.run(make_pipeline())
    assert desk.parked() == [(1, -11, "too low"), (3, -3, "too low")]
    await desk.amend("1,1,10", "3,3,30")
    decided = await desk.withdraw(1)
    assert decided.waiting == Waiting(1, 0, 1)
    # What is parked is what an earlier decision made, which counts no more.
    with pytest.raises(RunRefusedError, match="what was decided before about row 1 of 'scores' has been wi"):
        await desk.discard(1)
    assert (await desk.discard(3)).waiting == Waiting(0, 1, 1)
    await desk.run(make_pipeline())
    assert desk.parked() == [(1, -1, "too low")]
    assert (await desk.amend("1,1,1")).waiting == Waiting(1, 0, 0)
    assert (await desk.run(make_pipeline())).status is RunStatus.COMPLETED
    assert desk.rows() == [(0, 5), (1, 1), (2, 20)]


async def test_what_cannot_be_withdrawn(tmp_path: Path) -> None:
    desk = await Desk.open(tmp_path)
    with pytest.raises(RunRefusedError, match="nothing is decided about rows of step 'check'"):
        await desk.withdraw()
    await desk.discard(1, 3)
    with pytest.raises(DeskError, match=r"no row 2 of 'scores' is decided for step 'check', but 1,3\."):
        await desk.withdraw(1, 2)
    call = partial(withdraw, None, pipeline_dir=tmp_path, run_id=desk.run_id)
    with pytest.raises(RunRefusedError, match="'none' is no step of run"):
        await call(step_id="none")
    with pytest.raises(RunRefusedError, match="nothing is decided about rows of 'x' for step 'check', but"):
        await call(step_id="check", file="x")
    with pytest.raises(DeskError, match="no rows are named"):
        await withdraw([], pipeline_dir=tmp_path, run_id=desk.run_id, step_id="check")
    decided = open_decisions(tmp_path, desk.run_id, "check", None)
    assert decided.rows.rows() == [(1, True), (3, True)]
    await desk.run(make_pipeline())
    with pytest.raises(RunRefusedError, match="has run again meanwhile"):
        store_withdrawal(tmp_path, decided, None, because=None)
    assert len(read_run(tmp_path, desk.run_id).patches) == 1
    await desk.withdraw()
    with pytest.raises(RunRefusedError, match="nothing is decided about rows of step 'check'"):
        await desk.withdraw()
