"""Cases 14 to 22, 20a and 20e: running again what must run again, and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from textwrap import dedent

import anyio
import polars as pl
import pytest

from astro_async import Pipeline, RunResult, StepContext, StepFiles, expect, plan, run
from astro_async.exceptions import RunRefusedError
from astro_async.testing import ingest_frames, read_file, read_quarantine
from cases.support import (
    Report,
    Scores,
    attempts,
    detail_of,
    files_below,
    flow_of,
    id_of,
    ingest_and_run,
    make_pipeline,
    manifest_of,
    quarantined,
    record_of,
    run_directory,
    statuses,
    step_of,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: what runs again is decided without one."""
    return "asyncio"


def validate(ctx: StepContext, files: StepFiles) -> None:
    """Set negative scores aside, unless the run's parameters say that they are fine."""
    file, rows = files["scores"], files["scores"].load()
    bad = rows.filter(pl.col("score") < 0)
    if ctx.params.get("accept"):
        bad = bad.clear()
    if not bad.is_empty():
        ctx.quarantine.quarantine_rows(file, bad, reason="negative score")
    file.save_in_place(rows.join(bad, on=rows.columns, how="anti", maintain_order="left"))


def declare_validate(pipeline: Pipeline) -> None:
    pipeline.add_step("validate", validate, Scores)


class Work:
    """Steps that count how often they ran: the side effect by which cases 21 and 22 judge."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def tag(self, name: str) -> WorkStep:
        """Return a step that appends its name to the column `tags`, made on demand."""
        return WorkStep(self, name)

    def note(self, name: str) -> None:
        """Count a call."""
        with self._lock:
            self.calls[name] += 1


class WorkStep:
    """Appends its name to the column `tags` of each row."""

    def __init__(self, work: Work, name: str) -> None:
        self.work = work
        self.name = name

    def __call__(self, _ctx: StepContext, files: StepFiles) -> None:
        """Do it, and be counted."""
        self.work.note(self.name)
        plan = files[0].scan()
        if "tags" not in files[0].schema:
            plan = plan.with_columns(tags=pl.lit(""))
        files[0].save_in_place_lazy(plan.with_columns(pl.col("tags") + self.name))


SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [10, -20, 30]})


async def retry(pipeline: Pipeline, pipeline_dir: Path, result: RunResult, **params: object) -> RunResult:
    """Run the same run again, with new parameters if there are any."""
    return await run(pipeline, pipeline_dir=pipeline_dir, run_id=id_of(result), params=params or None)


def ids(pipeline_dir: Path, result: RunResult) -> list[int]:
    """Return the ids of the rows as they are now."""
    return read_file(pipeline_dir, id_of(result), "scores")["id"].to_list()


def assert_untouched_by_litter(pipeline_dir: Path, result: RunResult) -> None:
    """Everything under the run's own folders is named by its record."""
    record = record_of(result)
    named = set(record.named_paths())
    for step_id, step in record.steps.items():
        named.update(f"snapshots/{step_id}/{flow.name}.parquet" for flow in step.files)
    directory = run_directory(pipeline_dir, id_of(result))
    assert set(files_below(directory, "versions", "quarantine", "snapshots", "filtered", "staging")) <= named


async def test_14_no_doubles(tmp_path: Path) -> None:
    pipeline = make_pipeline(declare_validate)
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert ids(tmp_path, first) == [1, 3]
    second = await retry(pipeline, tmp_path, first, accept=True)
    assert read_file(tmp_path, id_of(first), "scores").equals(SCORES)
    assert (record_of(second).status, second.exit_code) == ("completed", 0)
    assert read_quarantine(tmp_path, id_of(first), "validate", "scores").is_empty()
    directory = run_directory(tmp_path, id_of(first))
    assert files_below(directory, "quarantine") == []
    assert files_below(directory, "versions") == ["versions/scores/validate.2.parquet"]
    assert_untouched_by_litter(tmp_path, second)


async def test_15_twins(tmp_path: Path) -> None:
    def by_position(ctx: StepContext, files: StepFiles) -> None:
        rows = files[0].load()
        if not ctx.params.get("accept"):
            ctx.quarantine.quarantine_rows(files[0], rows.head(1), reason="the first one")
            rows = rows.slice(1)
        files[0].save_in_place(rows)

    pipeline = make_pipeline(lambda p: p.add_step("by position", by_position, Scores))
    frame = pl.DataFrame({"name": ["a", "a", "b"]})
    first = await ingest_and_run(pipeline, frame, tmp_path)
    assert read_file(tmp_path, id_of(first), "scores")["name"].to_list() == ["a", "b"]
    assert quarantined(tmp_path, id_of(first), "by-position", "name") == [("a", "the first one")]
    await retry(pipeline, tmp_path, first, accept=True)
    assert read_file(tmp_path, id_of(first), "scores")["name"].to_list() == ["a", "a", "b"]


async def test_16_later_work_is_kept(tmp_path: Path) -> None:
    work = Work()
    pipeline = make_pipeline(declare_validate, lambda p: p.add_step("add tag", work.tag("t"), Scores))
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert statuses(first) == {"validate": "quarantined", "add-tag": "complete"}
    assert record_of(first).status == "quarantined"
    assert read_file(tmp_path, id_of(first), "scores").rows() == [(1, 10, "t"), (3, 30, "t")]

    second = await retry(pipeline, tmp_path, first, accept=True)
    assert statuses(second) == {"validate": "complete", "add-tag": "complete"}
    assert read_file(tmp_path, id_of(first), "scores").rows() == [
        (1, 10, "t"),
        (2, -20, "t"),
        (3, 30, "t"),
    ]
    assert second.plan.by_reason() == {"quarantined": ["validate"], "input": ["add-tag"]}
    assert_untouched_by_litter(tmp_path, second)


PIPELINE_17 = dedent(
    """
    import polars as pl
    from astro_async import AstroFileSpec, IngestFileSpec, Pipeline

    SCORES = AstroFileSpec("scores")
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("scores", "*.csv"), IngestFileSpec("ids", "*.tsv")])

    @pipeline.step(SCORES)
    def process(ctx, files):
        files[0].save_to("processed", "scores.parquet", files[0].load().with_columns(processed=True))

    @pipeline.step(AstroFileSpec("ids"))
    def validate(ctx, files):
        if not ctx.params.get("accept"):
            ctx.quarantine.quarantine_rows(files[0], files[0].load(), reason="bad")

    @pipeline.step(SCORES, depends_on=validate)
    def report(ctx, files):
        files[0].save_in_place(files[0].load().with_columns(reported=True))
    """
)

RETRY_17 = dedent(
    """
    import sys, anyio
    from astro_async import load_pipeline, run

    async def main():
        result = await run(load_pipeline("."), params={"accept": True})
        assert result.status == "completed", result

    anyio.run(main)
    """
)


async def test_17_the_active_path_survives(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE_17)
    from astro_async import load_pipeline

    pipeline = load_pipeline(tmp_path)
    frames = {"scores": SCORES, "ids": pl.DataFrame({"id": [1]})}
    first = await ingest_and_run(pipeline, frames, tmp_path)
    assert statuses(first) == {"process": "complete", "validate": "quarantined", "report": "blocked"}
    assert (record_of(first).status, first.exit_code) == ("failed", 3)
    processed = run_directory(tmp_path, id_of(first)) / "processed/scores.parquet"
    assert pl.read_parquet(processed)["processed"].to_list() == [True] * 3

    done = await anyio.run_process([sys.executable, "-c", RETRY_17], cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    rows = read_file(tmp_path, id_of(first), "scores")
    assert rows.columns == ["id", "score", "processed", "reported"]
    assert rows.drop("processed", "reported").equals(SCORES)
    assert pl.read_parquet(processed).columns == ["id", "score", "processed"]
    active = {
        file["name"]: file["active_path"] for file in manifest_of(tmp_path, id_of(first))["ingested_files"]
    }
    assert active == {"scores": "versions/scores/report.1.parquet", "ids": "ingested/ids.parquet"}


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("keep_going", [False, True])
async def test_18_failed_and_quarantined_together(keep_going: bool, tmp_path: Path) -> None:
    def break_down(ctx: StepContext, _files: StepFiles) -> None:
        if not ctx.params.get("accept"):
            raise RuntimeError("not yet")

    work = Work()
    pipeline = make_pipeline(
        declare_validate,
        lambda p: p.add_step("break down", break_down, Report),
        lambda p: p.add_step("after failure", work.tag("f"), Report, depends_on="break-down"),
        lambda p: p.add_step("after quarantine", work.tag("q"), Scores, depends_on="validate"),
        lambda p: p.add_step("after both", work.tag("b"), Scores, depends_on=["after-failure", "validate"]),
        files=("scores", "report"),
    )
    run_id = await ingest_frames(pipeline, {"scores": SCORES, "report": SCORES}, tmp_path)

    async def go(**params: object) -> RunResult:
        with anyio.fail_after(30):
            return await run(
                pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=8, keep_going=keep_going, params=params
            )

    first = await go()
    assert statuses(first) == {
        "validate": "quarantined",
        "break-down": "failed",
        "after-failure": "blocked",
        "after-quarantine": "blocked",
        "after-both": "blocked",
    }
    assert (record_of(first).status, first.exit_code) == ("failed", 1)
    assert "RuntimeError: not yet" in detail_of(first, "break-down")
    assert "break-down" in detail_of(first, "after-failure")
    assert "validate" in detail_of(first, "after-quarantine")

    again = await go()
    assert statuses(again) == statuses(first)
    assert work.calls == Counter()

    done = await go(accept=True)
    assert set(statuses(done).values()) == {"complete"}
    assert read_file(tmp_path, run_id, "scores").equals(SCORES.with_columns(tags=pl.lit("qb")))
    assert read_file(tmp_path, run_id, "report").equals(SCORES.with_columns(tags=pl.lit("f")))


async def test_19_a_retry_that_quarantines_again(tmp_path: Path) -> None:
    pipeline = make_pipeline(declare_validate)
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    second = await retry(pipeline, tmp_path, first)
    assert quarantined(tmp_path, id_of(first), "validate", "id") == [(2, "negative score")]
    assert step_of(second, "validate").attempt == 2
    assert ids(tmp_path, second) == [1, 3]
    directory = run_directory(tmp_path, id_of(first))
    assert files_below(directory, "quarantine") == ["quarantine/validate/scores.part-00001.parquet"]
    assert flow_of(second, "validate").read == "ingested/scores.parquet"
    assert flow_of(second, "validate").rows_in == 3
    assert_untouched_by_litter(tmp_path, second)


async def test_20_a_retry_with_nothing_changed(tmp_path: Path) -> None:
    work = Work()
    pipeline = make_pipeline(
        declare_validate,
        lambda p: p.add_step("tag", work.tag("t"), Scores),
        lambda p: p.add_step("publish", work.tag("p"), Scores, depends_on="validate"),
    )
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    rows = read_file(tmp_path, id_of(first), "scores")
    for _ in range(3):
        again = await retry(pipeline, tmp_path, first)
        assert statuses(again) == statuses(first)
        assert statuses(again) == {"validate": "quarantined", "tag": "complete", "publish": "blocked"}
        assert (again.exit_code, first.exit_code) == (3, 3)
        assert read_file(tmp_path, id_of(first), "scores").equals(rows)
        assert quarantined(tmp_path, id_of(first), "validate", "id") == [(2, "negative score")]
        assert_untouched_by_litter(tmp_path, again)


async def test_21_completed_steps_are_not_run_again(tmp_path: Path) -> None:
    work = Work()

    def look(_ctx: StepContext, _files: StepFiles) -> None:
        work.note("look")

    pipeline = make_pipeline(
        lambda p: p.add_step("before", work.tag("a"), Scores),
        lambda p: p.add_step("elsewhere", work.tag("e"), Report),
        declare_validate,
        lambda p: p.add_step("after", work.tag("z"), Scores),
        lambda p: p.add_step("look", look, Scores(readonly=True)),
        files=("scores", "report"),
    )
    first = await ingest_and_run(pipeline, {"scores": SCORES, "report": SCORES}, tmp_path)
    assert work.calls == Counter({"a": 1, "e": 1, "z": 1, "look": 1})
    for number in (2, 3):
        again = await retry(pipeline, tmp_path, first)
        # Only what stands on data that may have changed runs again; what published nothing does not.
        assert work.calls == Counter({"a": 1, "e": 1, "z": number, "look": 1})
        assert again.plan.by_reason() == {"quarantined": ["validate"], "input": ["after"]}
        assert any("look" in notice and "versions/scores/after" in notice for notice in again.notices)
    done = await retry(pipeline, tmp_path, first, accept=True)
    assert work.calls == Counter({"a": 1, "e": 1, "z": 4, "look": 1})
    assert attempts(done) == {"before": 1, "elsewhere": 1, "validate": 4, "after": 4, "look": 1}
    assert read_file(tmp_path, id_of(first), "scores")["tags"].to_list() == ["az"] * 3
    with pytest.raises(RunRefusedError, match="completed"):
        await retry(pipeline, tmp_path, first)
    assert work.calls == Counter({"a": 1, "e": 1, "z": 4, "look": 1})


async def test_21_a_check_that_found_nothing_is_judged_again_when_its_input_changes(tmp_path: Path) -> None:
    pipeline = make_pipeline(
        declare_validate,
        lambda p: p.add_check("not too low", expect("too low", pl.col("score") > -10), Scores),
    )
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert statuses(first) == {"validate": "quarantined", "not-too-low": "complete"}
    second = await retry(pipeline, tmp_path, first, accept=True)
    assert statuses(second) == {"validate": "complete", "not-too-low": "quarantined"}
    assert quarantined(tmp_path, id_of(first), "not-too-low", "id") == [(2, "too low")]
    assert ids(tmp_path, second) == [1, 3]


async def test_21_rerun_names_a_completed_step(tmp_path: Path) -> None:
    work = Work()
    pipeline = make_pipeline(
        *(lambda p, name=name: p.add_step(name, work.tag(name), Scores) for name in ("a", "b", "c"))
    )
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    with pytest.raises(RunRefusedError, match="'nowhere'"):
        await run(pipeline, pipeline_dir=tmp_path, run_id=id_of(first), rerun=["nowhere"])
    _, what = plan(pipeline, pipeline_dir=tmp_path, run_id=id_of(first), rerun=["b"])
    assert what.by_reason() == {"named": ["b"], "input": ["c"]}
    again = await run(pipeline, pipeline_dir=tmp_path, run_id=id_of(first), rerun=["b"])
    assert (again.status, again.exit_code) == ("completed", 0)
    assert work.calls == Counter({"a": 1, "b": 2, "c": 2})
    assert read_file(tmp_path, id_of(first), "scores")["tags"].to_list() == ["abc"] * 3
    assert_untouched_by_litter(tmp_path, again)


def lines_of(work: Work, *names: str) -> Pipeline:
    """Make a pipeline of tagging steps on one file; the step `v` quarantines."""
    pipeline = make_pipeline()
    for name in names:
        pipeline.add_step(name, validate if name == "v" else work.tag(name), Scores)
    return pipeline


@pytest.mark.parametrize(
    ("before", "after", "ran_again", "tags"),
    [
        ("ac", "abc", "bc", "abc"),
        ("abc", "ac", "c", "ac"),
        ("abc", "axc", "xc", "axc"),
        ("abc", "acb", "cb", "acb"),
        ("abc", "ab", "", "ab"),
        ("ab", "abc", "c", "abc"),
    ],
    ids=["inserted", "removed", "renamed", "swapped", "last removed", "appended"],
)
async def test_22_pipeline_edited(before: str, after: str, ran_again: str, tags: str, tmp_path: Path) -> None:
    work = Work()
    first = await ingest_and_run(lines_of(work, *before), SCORES, tmp_path)
    assert read_file(tmp_path, id_of(first), "scores")["tags"].to_list() == [before] * 3
    work.calls.clear()
    second = await retry(lines_of(work, *after), tmp_path, first)
    assert list(statuses(second)) == list(after)
    assert set(statuses(second).values()) == {"complete"}
    assert work.calls == Counter(ran_again)
    assert read_file(tmp_path, id_of(first), "scores").equals(SCORES.with_columns(tags=pl.lit(tags)))
    assert [state["step_id"] for state in manifest_of(tmp_path, id_of(first))["step_states"]] == list(after)
    assert_untouched_by_litter(tmp_path, second)


async def test_22_a_removed_quarantined_step_gives_its_rows_back(tmp_path: Path) -> None:
    work = Work()
    first = await ingest_and_run(lines_of(work, "a", "v", "c"), SCORES, tmp_path)
    assert ids(tmp_path, first) == [1, 3]
    second = await retry(lines_of(work, "a", "c"), tmp_path, first)
    assert (second.status, statuses(second)) == ("completed", {"a": "complete", "c": "complete"})
    assert read_file(tmp_path, id_of(first), "scores").equals(SCORES.with_columns(tags=pl.lit("ac")))
    assert work.calls == Counter({"a": 1, "c": 2})
    assert files_below(run_directory(tmp_path, id_of(first)), "quarantine") == []
    assert manifest_of(tmp_path, id_of(first))["rows_quarantined"] == 0


async def test_22_a_step_that_comes_back_goes_on_counting(tmp_path: Path) -> None:
    """A version's name is never used twice, not even by a step that was away."""
    work = Work()
    first = await ingest_and_run(lines_of(work, "a", "b", "c"), SCORES, tmp_path)
    await retry(lines_of(work, "a", "c"), tmp_path, first)
    third = await retry(lines_of(work, "a", "b", "c"), tmp_path, first)
    assert attempts(third) == {"a": 1, "b": 2, "c": 3}
    assert read_file(tmp_path, id_of(first), "scores")["tags"].to_list() == ["abc"] * 3
    assert_untouched_by_litter(tmp_path, third)


async def test_20a_a_reader_that_feeds_another_file(tmp_path: Path) -> None:
    def join(_ctx: StepContext, files: StepFiles) -> None:
        files["report"].save_in_place(files["report"].load().join(files["scores"].load(), on="id"))

    pipeline = make_pipeline(
        declare_validate,
        lambda p: p.add_step("join", join, [Scores(readonly=True), Report]),
        files=("scores", "report"),
    )
    names = pl.DataFrame({"id": [1, 2, 3], "name": ["Ann", "Bo", "Cy"]})
    first = await ingest_and_run(pipeline, {"scores": SCORES, "report": names}, tmp_path)
    assert statuses(first) == {"validate": "quarantined", "join": "complete"}
    assert read_file(tmp_path, id_of(first), "report")["name"].to_list() == ["Ann", "Cy"]
    second = await retry(pipeline, tmp_path, first, accept=True)
    assert second.plan.by_reason() == {"quarantined": ["validate"], "input": ["join"]}
    assert read_file(tmp_path, id_of(first), "report").rows() == [
        (1, "Ann", 10),
        (2, "Bo", -20),
        (3, "Cy", 30),
    ]
    assert read_file(tmp_path, id_of(first), "scores").equals(SCORES)


# -- versions that somebody has removed -------------------------------------------------------------


def add_one(_ctx: StepContext, files: StepFiles) -> None:
    files[0].save_in_place(files[0].load().with_columns(pl.col("score") + 1))


def declare_two_files(pipeline: Pipeline) -> None:
    pipeline.add_step("raise scores", add_one, Scores)
    pipeline.add_step("raise report", add_one, Report)
    for name, spec in (("scores", Scores), ("report", Report)):
        rules = expect("too low", pl.col("score") > 0)
        pipeline.add_check(f"check {name}", rules, spec, depends_on=f"raise-{name}")


async def refused(pipeline: Pipeline, tmp_path: Path, run_id: str, *rerun: str) -> str:
    """Return why a run is refused, and see that nothing has been done."""
    directory = run_directory(tmp_path, run_id)
    journal = (directory / "events.jsonl").read_bytes()
    with pytest.raises(RunRefusedError) as refusal:
        await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=rerun)
    with pytest.raises(RunRefusedError) as forecast:
        plan(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=rerun)
    assert str(forecast.value) == str(refusal.value)
    assert (directory / "events.jsonl").read_bytes() == journal
    assert not (directory / "staging").exists()
    return str(refusal.value)


async def test_a_version_that_is_missing_is_made_anew_by_its_step(tmp_path: Path) -> None:
    pipeline = make_pipeline(declare_two_files, files=("scores", "report"))
    result = await ingest_and_run(pipeline, {"scores": SCORES, "report": SCORES}, tmp_path)
    run_id, directory = id_of(result), run_directory(tmp_path, id_of(result))
    assert statuses(result)["check-scores"] == statuses(result)["check-report"] == "quarantined"
    before = quarantined(tmp_path, run_id, "check-scores", "score")
    assert len(before) == 1
    (directory / "versions/scores/raise-scores.1.parquet").unlink()
    assert await refused(pipeline, tmp_path, run_id) == (
        f"versions/scores/raise-scores.1.parquet is missing from run {run_id}, and step 'check-scores' would "
        f"read it: step 'raise-scores' made it, and `astro run {run_id} --rerun raise-scores` makes it anew"
    )
    # What another step makes is missing too: one command makes both.
    (directory / "versions/report/raise-report.1.parquet").unlink()
    message = await refused(pipeline, tmp_path, run_id, "raise-scores")
    assert f"`astro run {run_id} --rerun raise-scores --rerun raise-report` makes it anew" in message
    again = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=["raise-scores", "raise-report"])
    assert statuses(again) == statuses(result)
    assert quarantined(tmp_path, run_id, "check-scores", "score") == before
    raised = pl.read_parquet(directory / "versions/scores/raise-scores.2.parquet")
    assert raised.equals(SCORES.with_columns(pl.col("score") + 1))


async def test_the_last_version_of_a_file_that_nobody_reads_is_missing(tmp_path: Path) -> None:
    pipeline = make_pipeline(declare_two_files, files=("scores", "report"))
    frames = {"scores": SCORES, "report": SCORES.with_columns(score=5)}
    run_id = id_of(await ingest_and_run(pipeline, frames, tmp_path))
    path = "versions/report/check-report.1.parquet"
    if not (run_directory(tmp_path, run_id) / path).exists():
        path = "versions/report/raise-report.1.parquet"
    (run_directory(tmp_path, run_id) / path).unlink()
    message = await refused(pipeline, tmp_path, run_id)
    assert message.startswith(f"{path} is missing from run {run_id}: step ")


async def test_an_ingested_version_that_is_missing_no_step_makes(tmp_path: Path) -> None:
    pipeline = make_pipeline(declare_validate)
    result = await ingest_and_run(pipeline, SCORES, tmp_path)
    run_id, source = id_of(result), record_of(result).source_directory
    (run_directory(tmp_path, run_id) / "ingested/scores.parquet").unlink()
    assert await refused(pipeline, tmp_path, run_id) == (
        f"ingested/scores.parquet is missing from run {run_id}, and step 'validate' would read it: no step "
        f"makes it, so restore it from a copy, or ingest {source} again"
    )


async def test_20e_published_files_are_read_only(tmp_path: Path) -> None:
    modes: list[int] = []

    def look(_ctx: StepContext, files: StepFiles) -> None:
        modes.append(stat.S_IMODE(files[0].active_path.stat().st_mode))
        if os.geteuid() != 0:  # modes do not bind root
            with pytest.raises(PermissionError):
                files[0].load().clear().write_parquet(files[0].active_path)

    work = Work()
    pipeline = make_pipeline(
        lambda p: p.add_step("first", look, Scores),
        declare_validate,
        lambda p: p.add_step("second", look, Scores),
        lambda p: p.add_step("tag", work.tag("t"), Scores),
    )
    result = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert modes == [0o444, 0o444]
    directory = run_directory(tmp_path, id_of(result))
    published = files_below(directory, "ingested", "versions", "quarantine", "snapshots", "current")
    assert len(published) == 7
    assert {stat.S_IMODE((directory / path).stat().st_mode) for path in published} == {0o444}


# -- 20b and 31: kill -9 ---------------------------------------------------------------------------


def sweep(case: str, where: Path) -> list[str]:
    """Run `killed.py`, which kills a process at each operation in turn, and return what it saw."""
    script = Path(__file__).with_name("killed.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), case, str(where)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", ["rerun", "quarantine", "retry"])
def test_20b_and_31_kill_9_at_every_operation(case: str, tmp_path: Path) -> None:
    """`rerun` is case 20b, `quarantine` is case 31, `retry` kills the repair of a quarantined run."""
    seen = sweep(case, tmp_path)
    killed = [line for line in seen if line.endswith(" killed")]
    survived = [line for line in seen if line.endswith(" survived")]
    # A slow machine writes a checkpoint more or less.
    assert len(killed) > 40
    assert len(survived) < 8
    operations = {line.partition(":")[0] for line in seen}
    assert {"append to", "publish", "link", "remove", "rename", "sync", "write"} <= operations
