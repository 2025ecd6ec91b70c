"""The repair desk as applications use it: what is decided about a row is what the step gets, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import polars as pl
import pytest

import astro_async
from astro_async import (
    AstroFileSpec,
    Decision,
    Expectation,
    IngestFileSpec,
    Pipeline,
    RunStatus,
    StepContext,
    StepFiles,
    amend,
    discard,
    expect,
    export_quarantine,
    preview_amendment,
    read_run,
)
from astro_async._core.decisions import Forecast, Waiting
from astro_async._executor.forecast import forecast_checks
from astro_async.exceptions import DeskError, RunLockedError, RunRefusedError, UnknownNameError
from astro_async.testing import ingest_frames, read_file, read_quarantine

pytestmark = pytest.mark.anyio

SCHEMA = {"name": pl.String, "score": pl.Int64}
LOW = expect("too low", pl.col("score") >= 0)
HIGH = expect("too high", pl.col("score") <= 100)
FRAME = pl.DataFrame({"name": ["b", "a", "a", "c", None], "score": [1, -1, -1, 2, -9]}, schema=SCHEMA)


def make_pipeline(*checks: Expectation, private: bool = False) -> Pipeline:
    spec = IngestFileSpec("scores", "scores.csv", SCHEMA, private=private)
    pipeline = Pipeline("p", ingest_files=[spec])
    for number, rule in enumerate(checks):
        pipeline.add_check(f"check {number}", rule, AstroFileSpec("scores"))
    return pipeline


class Desk:
    """One run, and a person at its desk."""

    def __init__(self, directory: Path, run_id: str) -> None:
        self.directory = directory
        self.run_id = run_id
        self.path = directory / "rows.csv"

    @classmethod
    async def open(cls, pipeline: Pipeline, frame: pl.DataFrame, directory: Path) -> Desk:
        desk = cls(directory, await ingest_frames(pipeline, {"scores": frame}, directory))
        await desk.run(pipeline)
        return desk

    async def run(self, pipeline: Pipeline) -> astro_async.RunResult:
        result = await astro_async.run(pipeline, pipeline_dir=self.directory, run_id=self.run_id)
        self.assert_conserved()
        return result

    def assert_conserved(self) -> None:
        for step in read_run(self.directory, self.run_id).steps.values():
            for flow in step.files:
                if flow.rows_out is None:
                    continue  # only read
                assert flow.rows_in == flow.rows_out + flow.rows_quarantined + flow.rows_discarded

    async def export(self, step_id: str) -> list[str]:
        await export_quarantine(
            self.path, pipeline_dir=self.directory, run_id=self.run_id, step_id=step_id, over_existing=True
        )
        return self.path.read_text().splitlines()

    async def amend(self, step_id: str, *lines: str) -> Decision | None:
        self.path.write_text("\n".join(["_astro_row,name,score", *lines]))
        return await amend(self.path, pipeline_dir=self.directory, run_id=self.run_id, step_id=step_id)

    async def discard(self, step_id: str, rows: Sequence[int] | None) -> Decision:
        return await discard(
            rows, because="looked", pipeline_dir=self.directory, run_id=self.run_id, step_id=step_id
        )

    def rows(self) -> list[tuple[object, ...]]:
        return read_file(self.directory, self.run_id, "scores").rows()


async def test_rows_go_out_with_their_places_and_come_back_corrected(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    assert await desk.export("check-0") == [
        "_astro_row,_astro_quarantine_reason,name,score",
        "1,too low,a,-1",
        "2,too low,a,-1",
        "4,too low,,-9",
    ]
    # The second of two twins, and a value set to null; the first twin is left out.
    decided = await desk.amend("check-0", "2,a,7", '4,"",9')
    assert decided is not None
    assert (decided.rows, decided.replaced, decided.waiting.amended) == (2, 0, 2)
    assert (await desk.discard("check-0", [1])).waiting == Waiting(2, 1)
    result = await desk.run(pipeline)
    assert result.status is RunStatus.COMPLETED
    assert desk.rows() == [("b", 1), ("a", 7), ("c", 2), ("", 9)]


async def test_a_value_set_to_null_lands(tmp_path: Path) -> None:
    pipeline = make_pipeline(expect("no ada", pl.col("name") != "ada", null="pass"))
    frame = pl.DataFrame({"name": ["ada", "bob"], "score": [1, 2]}, schema=SCHEMA)
    desk = await Desk.open(pipeline, frame, tmp_path)
    await desk.amend("check-0", "0,,")
    await desk.run(pipeline)
    assert desk.rows() == [(None, None), ("bob", 2)]


async def test_rows_without_a_change_are_no_decision(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    await desk.export("check-0")
    assert await amend(desk.path, pipeline_dir=tmp_path, run_id=desk.run_id) is None
    record = read_run(tmp_path, desk.run_id)
    assert record.patches == []
    result = await desk.run(pipeline)
    notice = [each for each in result.notices if "again" in each]
    assert len(notice) == 1
    assert "check-0 set the same number of rows aside for the same reasons again" in notice[0]
    assert "(its code is not compared)" in notice[0]


@pytest.mark.parametrize("change", ["decision", "params", "step"])
async def test_a_retry_with_something_changed_is_not_called_the_same(change: str, tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW), FRAME, tmp_path)
    if change == "decision":
        await desk.amend("check-0", "4,x,-10")
    pipeline = make_pipeline(LOW, HIGH) if change == "step" else make_pipeline(LOW)
    params = {"x": 1} if change == "params" else None
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=desk.run_id, params=params)
    assert result.status is RunStatus.QUARANTINED
    assert result.notices == ()


async def test_the_later_of_two_decisions_about_a_row_counts(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    await desk.amend("check-0", "1,a,10", "2,a,20")
    await desk.discard("check-0", [2, 4])
    # Both were decided before: one was to be left out, and now is not.
    third = await desk.amend("check-0", "1,first,11", "4,d,40")
    assert third is not None
    assert (third.rows, third.replaced, third.waiting) == (2, 2, Waiting(2, 1))
    assert read_run(tmp_path, desk.run_id).patches[-1].amended_waiting == 2
    await desk.run(pipeline)
    assert desk.rows() == [("b", 1), ("first", 11), ("c", 2), ("d", 40)]


async def test_a_row_that_is_parked_again_is_amended_from_what_it_is_now(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    await desk.amend("check-0", "2,a,-3")
    await desk.discard("check-0", [4])
    await desk.run(pipeline)
    assert (await desk.export("check-0"))[1:] == ["1,too low,a,-1", "2,too low,a,-3"]
    await desk.amend("check-0", "2,a,3")
    await desk.run(pipeline)
    assert read_quarantine(tmp_path, desk.run_id, "check-0", "scores").rows() == [("a", -1, "too low")]
    await desk.amend("check-0", "1,a,1")
    result = await desk.run(pipeline)
    assert result.status is RunStatus.COMPLETED
    assert desk.rows() == [("b", 1), ("a", 1), ("a", 3), ("c", 2)]
    # Decisions stay: a re-run from the unamended snapshot gives the same.
    again = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=desk.run_id, rerun=["check-0"])
    assert again.status is RunStatus.COMPLETED
    assert desk.rows() == [("b", 1), ("a", 1), ("a", 3), ("c", 2)]


def freely(set_aside: Callable[[StepContext, StepFiles, pl.DataFrame], pl.DataFrame]) -> Pipeline:
    pipeline = make_pipeline()

    def work(ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(set_aside(ctx, files, files[0].load()))

    pipeline.add_step("work", work, AstroFileSpec("scores"))
    return pipeline


def by_content_and_split(ctx: StepContext, files: StepFiles, frame: pl.DataFrame) -> pl.DataFrame:
    """The split takes one of two twins, and the step itself the other."""
    first = frame.with_row_index("n")
    twin = first.filter(pl.col("n") == 2)
    if twin.row(0)[1:] == ("a", -1):
        ctx.quarantine.quarantine_rows(files[0], twin, reason="by hand")
        only = expect("second row", (pl.int_range(pl.len()) != 1) | (pl.col("score") >= 0))
        ctx.quarantine.split(files[0], frame, only)
        return frame.filter(pl.int_range(pl.len()).is_in([0, 3, 4]))
    return frame


async def test_twins_of_a_free_form_step_have_places_of_their_own(tmp_path: Path) -> None:
    pipeline = freely(by_content_and_split)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    # The part by hand was first; it stands for the twin that the split did not take.
    assert (await desk.export("work"))[1:] == ["2,by hand,a,-1", "1,second row,a,-1"]
    await desk.amend("work", "1,a,1", "2,a,2")
    await desk.run(pipeline)
    assert desk.rows() == [("b", 1), ("a", 1), ("a", 2), ("c", 2), (None, -9)]


async def test_rows_that_a_step_had_changed_have_no_place_and_cannot_be_amended(tmp_path: Path) -> None:
    def park_changed(ctx: StepContext, files: StepFiles, frame: pl.DataFrame) -> pl.DataFrame:
        bad = frame.filter(pl.col("score") < 0)
        ctx.quarantine.quarantine_rows(files[0], bad.with_columns(score=pl.col("score") * 10), reason="low")
        return frame.filter(pl.col("score") >= 0)

    desk = await Desk.open(freely(park_changed), FRAME, tmp_path)
    assert (await desk.export("work"))[1:] == [",low,a,-10", ",low,a,-10", ",low,,-90"]
    assert await amend(desk.path, pipeline_dir=tmp_path, run_id=desk.run_id) is None
    with pytest.raises(DeskError, match="line 3: _astro_row is empty, and no such row was parked"):
        await desk.amend("work", ",a,-10", ",a,-11")
    with pytest.raises(DeskError, match="their places in its input are not known"):
        await desk.discard("work", None)
    assert read_run(tmp_path, desk.run_id).patches == []


async def test_what_does_not_fit_stores_nothing(tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW), FRAME, tmp_path)
    for lines in (["3,c,2"], ["1,a,1", "1,a,2"], ["1,a,x"], ["1,a"], ["1,a,1,"]):
        with pytest.raises(DeskError):
            await desk.amend("check-0", *lines)
    with pytest.raises(DeskError, match="no row 3 of 'scores' is parked"):
        await desk.discard("check-0", [1, 3])
    with pytest.raises(DeskError, match="no rows are named"):
        await desk.discard("check-0", [])
    with pytest.raises(DeskError, match="say why"):
        await discard(None, because=" ", pipeline_dir=tmp_path, run_id=desk.run_id)
    assert read_run(tmp_path, desk.run_id).patches == []
    assert not (tmp_path / ".working" / desk.run_id / "patches").exists()


async def test_a_preview_stores_nothing(tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW), FRAME, tmp_path)
    desk.path.write_text("_astro_row,name,score\n1,a,1\n2,x,\n")
    preview = await preview_amendment(desk.path, pipeline_dir=tmp_path, run_id=desk.run_id)
    assert [(each.column, each.rows, each.emptied) for each in preview.changes] == [
        ("name", 1, 0),
        ("score", 2, 1),
    ]
    assert read_run(tmp_path, desk.run_id).patches == []


async def test_rows_of_an_earlier_attempt_are_not_decided_about(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)
    parked = astro_async.desk.open_desk(tmp_path, desk.run_id, None, None)
    await desk.run(pipeline)
    with pytest.raises(RunRefusedError, match="has run again meanwhile"):
        astro_async.desk.store_discard(tmp_path, parked, None, because="late")
    assert read_run(tmp_path, desk.run_id).patches == []


async def test_a_run_that_goes_on_is_locked(tmp_path: Path) -> None:
    pipeline = make_pipeline(LOW)
    refused: list[str] = []

    async def meddle(ctx: StepContext, files: StepFiles) -> None:
        with pytest.raises(RunLockedError) as caught:
            await discard(None, because="now", pipeline_dir=tmp_path, run_id=ctx.run_id)
        refused.append(str(caught.value))

    pipeline.add_step("meddle", meddle, AstroFileSpec("scores", readonly=True))
    await Desk.open(pipeline, FRAME, tmp_path)
    assert len(refused) == 1
    assert "is locked by process" in refused[0]


async def test_rows_are_chosen_by_reason_and_limit(tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW), FRAME, tmp_path)

    async def export(path: Path, **options: object) -> int:
        return await export_quarantine(path, pipeline_dir=tmp_path, run_id=desk.run_id, **options)  # type: ignore[arg-type]

    assert await export(tmp_path / "two.csv", limit=2, separator=";", has_mark=True) == 2
    assert (tmp_path / "two.csv").read_bytes().startswith(b"\xef\xbb\xbf_astro_row;")
    assert await export(tmp_path / "all.xlsx", reason="low") == 3
    with pytest.raises(UnknownNameError, match="has the reason 'high'"):
        await export(tmp_path / "none.csv", reason="high")
    before = (tmp_path / "two.csv").read_bytes()
    with pytest.raises(DeskError, match=r"two\.csv exists: name another file, or say --force to replace it$"):
        await export(tmp_path / "two.csv")
    assert (tmp_path / "two.csv").read_bytes() == before
    assert await export(tmp_path / "two.csv", over_existing=True) == 3
    with pytest.raises(astro_async.exceptions.StorageError, match="nowhere"):
        await export(tmp_path / "nowhere" / "rows.csv")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["all.xlsx", "two.csv"]


@pytest.mark.parametrize("private", [True, False])
async def test_private_rows_are_for_their_owner_alone(private: bool, tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW, private=private), FRAME, tmp_path)
    await desk.amend("check-0", "1,a,1")
    desk.path.unlink()
    await desk.export("check-0")
    run = tmp_path / ".working" / desk.run_id
    held = [*run.glob("quarantine/*/*"), *run.glob("patches/*/*")]
    assert len(held) == 3
    modes = {path.stat().st_mode & 0o777 for path in held}
    assert modes == ({0o600} if private else {0o444})
    assert (desk.path.stat().st_mode & 0o077 == 0) is private
    # It is on record, and so survives a manifest that is read again.
    assert read_run(tmp_path, desk.run_id).files["scores"].private is private


async def test_a_forecast_judges_the_amended_input(tmp_path: Path) -> None:
    unique = expect("twins", pl.struct("name", "score").is_unique())
    pipeline = make_pipeline(unique, LOW)
    desk = await Desk.open(pipeline, FRAME, tmp_path)

    def forecast() -> dict[str, list[Forecast]]:
        record, plan = astro_async.plan(pipeline, pipeline_dir=tmp_path, run_id=desk.run_id)
        return dict(forecast_checks(pipeline, str(tmp_path), record, plan))

    before = read_run(tmp_path, desk.run_id)
    assert forecast()["check-0"] == [Forecast("scores", parked=2, passing=0)]
    # One twin corrected mends both; made equal to another row it spoils that one.
    await desk.amend("check-0", "1,z,9")
    assert forecast()["check-0"] == [Forecast("scores", parked=2, passing=2)]
    await desk.amend("check-0", "1,b,1")
    await desk.discard("check-0", [2])
    (first,), (second,) = forecast()["check-0"], forecast()["check-1"]
    assert first == Forecast("scores", parked=2, passing=0, discarded=1, new=1)
    assert second.problem == "check-0 makes scores anew before"
    assert read_run(tmp_path, desk.run_id).steps == before.steps
    broken = make_pipeline(expect("broken", pl.col("none") > 0), LOW)
    record, plan = astro_async.plan(broken, pipeline_dir=tmp_path, run_id=desk.run_id)
    assert "names columns that are not there" in str(
        forecast_checks(broken, str(tmp_path), record, plan)["check-0"][0].problem
    )


async def test_the_loop_goes_on_while_the_desk_works(tmp_path: Path) -> None:
    desk = await Desk.open(make_pipeline(LOW), FRAME, tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(desk.export, "check-0")
        group.start_soon(desk.discard, "check-0", [1])
    assert read_run(tmp_path, desk.run_id).patches[0].discarded == 1
