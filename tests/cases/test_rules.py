"""Ready-made rules, warnings, conditions, limits of a rule, and rows that add up, in runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import astro_async
from astro_async import (
    AstroFileSpec,
    Expectation,
    Pipeline,
    RunResult,
    StepContext,
    StepFiles,
    expect,
    expect_between,
    expect_foreign,
    expect_match,
    expect_unique,
    expect_values,
    read_run,
    run,
)
from astro_async._core.events import RuleCount
from astro_async._core.names import RunId
from astro_async._core.verification import unexplained_rows
from astro_async._executor.clock import utc_now
from astro_async._executor.decisions import record_decision
from astro_async._store.atomic import Disk
from astro_async.cli.documents import run_document
from astro_async.exceptions import PipelineError
from astro_async.testing import ingest_frames, read_file, read_quarantine
from cases.support import (
    REASON,
    Report,
    Scores,
    detail_of,
    flow_of,
    id_of,
    ingest_and_run,
    make_pipeline,
    record_of,
    statuses,
)
from cases.test_patches import decide
from cases.test_quarantine import (
    assert_failed_and_nobody_quarantined,
    bad,
    checking,
    good,
    in_every_way,
)

pytestmark = pytest.mark.anyio

ALWAYS = pl.lit(True)


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: what is decided here is decided in worker threads."""
    return "asyncio"


def statistics_of(pipeline_dir: Path, result: RunResult, step_id: str = "validate") -> dict[str, float]:
    """Return what the database says of the rules of a step."""
    with closing(sqlite3.connect(pipeline_dir / ".astro" / "stats.db")) as database:
        query = "SELECT action, value FROM statistics WHERE run_id = ? AND subject = ? AND action LIKE '%: %'"
        return dict(database.execute(query, (id_of(result), step_id)).fetchall())


# -- ready-made rules, as cases 1 to 6 -------------------------------------------------------------


@in_every_way
@pytest.mark.parametrize(
    ("rule", "lenient"),
    [
        (expect_between("score", 0), expect_between("score", 0, null="pass")),
        (expect_values("score", [5, 6]), expect_values("score", [5, None])),
        (
            expect("r", pl.col("score") >= 0, when=ALWAYS),
            expect("r", pl.col("score") >= 0, null="pass", when=ALWAYS),
        ),
    ],
    ids=["between", "values", "when"],
)
async def test_01_null(rule: Expectation, lenient: Expectation, how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"score": [5, -1, None]})
    result = await ingest_and_run(checking(rule, how=how), frame, tmp_path)
    assert good(tmp_path, result) == [5]
    assert bad(tmp_path, result) == [(-1, rule.reason), (None, rule.reason)]
    result = await ingest_and_run(checking(lenient, how=how), frame, tmp_path)
    assert good(tmp_path, result) == [5, None]
    assert bad(tmp_path, result) == [(-1, lenient.reason)]


@in_every_way
async def test_02_nan(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3, 4], "score": [1.5, float("nan"), -1.0, None]})
    for nan, kept in (("quarantine", [1]), ("pass", [1, 2])):
        rule = expect_between("score", 0, nan=nan)
        result = await ingest_and_run(checking(rule, how=how), frame, tmp_path)
        assert good(tmp_path, result, "id") == kept


@in_every_way
async def test_03_a_random_condition_is_evaluated_once(how: str, tmp_path: Path) -> None:
    seen: list[int] = []

    def flip(values: pl.Series) -> pl.Series:
        seen.extend(values)
        return values.hash() % 2 == 0

    chance = pl.col("id").map_batches(flip, return_dtype=pl.Boolean, is_elementwise=True)
    rules = [expect("unlucky", pl.col("id") < 0, when=chance), expect("odd", pl.col("id") % 2 == 0)]
    result = await ingest_and_run(checking(*rules, how=how), pl.DataFrame({"id": range(1000)}), tmp_path)
    kept, aside = good(tmp_path, result, "id"), [value for value, _ in bad(tmp_path, result, "id")]
    assert sorted(seen) == sorted(kept + aside) == list(range(1000))
    assert (kept, aside) == (sorted(kept), sorted(aside))


@in_every_way
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (expect("r", pl.col("id") > 0, when=pl.col("id").sum() > 5), "aggregates"),
        (expect_unique(["id", "nope"]), "'nope'"),
        (expect_match("id", "a"), "does not fit"),
        (expect("r", ALWAYS, when=pl.col("id") + 1), "not Boolean"),
        (expect("r", ALWAYS, when=pl.col("id").head(1) > 0), "changes the height"),
        (
            expect("r", ALWAYS, when=pl.col("id").map_elements(lambda _: 1 / 0, return_dtype=pl.Boolean)),
            "'r' raised ZeroDivisionError",
        ),
    ],
)
async def test_04_05_a_broken_rule_parks_nobody(
    rule: Expectation, words: str, how: str, tmp_path: Path
) -> None:
    other = expect("small", pl.col("id") > 1)
    result = await ingest_and_run(checking(other, rule, how=how), pl.DataFrame({"id": [1, 2]}), tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, words)


@in_every_way
async def test_06_each_rule_has_its_count_also_when_it_is_zero(how: str, tmp_path: Path) -> None:
    rules = [
        expect_unique("id"),
        expect_between("score", 0),
        expect_values("score", [1, -1]),
        expect("even", pl.col("score") % 2 == 0, severity="warn"),
    ]
    frame = pl.DataFrame({"id": ["a", "a", "b"], "score": [1, -1, 1]})
    result = await ingest_and_run(checking(*rules, how=how), frame, tmp_path)
    assert good(tmp_path, result) == [1]
    assert bad(tmp_path, result) == [
        (1, "id is there more than once"),
        (-1, "id is there more than once; score is out of bounds"),
    ]
    flow = flow_of(result, "validate")
    assert flow.reasons == {"id is there more than once": 2, "score is out of bounds": 1}
    assert flow.rules == (
        RuleCount("id is there more than once", 2),
        RuleCount("score is out of bounds", 1),
        RuleCount("score is none of the values allowed", 0),
        RuleCount("even", 3, "warn"),
    )
    assert statistics_of(tmp_path, result) == {
        "rows_failing: id is there more than once": 2,
        "rows_failing: score is out of bounds": 1,
        "rows_failing: score is none of the values allowed": 0,
        "rows_warned: even": 3,
    }
    assert read_run(tmp_path, id_of(result)) == record_of(result)


@in_every_way
async def test_a_retry_replaces_the_count_of_a_rule(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"score": [5, -1]})
    result = await ingest_and_run(checking(expect("low", pl.col("score") >= 0), how=how), frame, tmp_path)
    assert statistics_of(tmp_path, result) == {"rows_failing: low": 1}
    mended = checking(expect("low", pl.col("score") >= -1), how=how)
    result = await run(mended, pipeline_dir=tmp_path, run_id=id_of(result))
    assert (statuses(result), good(tmp_path, result)) == ({"validate": "complete"}, [5, -1])
    assert statistics_of(tmp_path, result) == {"rows_failing: low": 0}
    assert astro_async.verify(tmp_path, id_of(result)).faults == ()


# -- warnings --------------------------------------------------------------------------------------


@in_every_way
async def test_a_warning_never_blocks(how: str, tmp_path: Path) -> None:
    rules = [expect("low", pl.col("score") >= 0, severity="warn"), expect_unique("score", severity="warn")]
    pipeline = checking(*rules, how=how, max_quarantined=0)
    pipeline.add_step("after", lambda ctx, files: None, Scores, depends_on="validate")
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [-1, -1, None, 3]}), tmp_path)
    assert statuses(result) == {"validate": "complete", "after": "complete"}
    assert (record_of(result).status, result.exit_code) == ("completed", 0)
    assert good(tmp_path, result) == [-1, -1, None, 3]
    flow = flow_of(result, "validate")
    assert (flow.parts, flow.reasons, flow.rows_quarantined) == ((), {}, 0)
    assert [(rule.rows, rule.severity) for rule in flow.rules] == [(3, "warn"), (2, "warn")]


# -- limits ----------------------------------------------------------------------------------------


@in_every_way
@pytest.mark.parametrize(
    ("limit", "bad_rows", "words"),
    [
        ({"max_fraction": 0.05}, 5, None),
        (
            {"max_fraction": 0.05},
            6,
            "6 of 100 rows of 'scores' break the rule 'low', more than max_fraction=0.05",
        ),
        ({"max_rows": 5}, 5, None),
        ({"max_rows": 5}, 6, "6 rows break the rule 'low', more than max_rows=5"),
        ({"max_rows": 0}, 0, None),
        ({"max_fraction": 0.0}, 0, None),
    ],
)
async def test_13_the_limit_of_a_rule(
    limit: dict[str, Any], bad_rows: int, words: str | None, how: str, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"score": [-1] * bad_rows + [5] * (80 - bad_rows) + [99] * 20})
    rules = [expect("low", pl.col("score") >= 0, **limit), expect("high", pl.col("score") < 99)]
    result = await ingest_and_run(checking(*rules, how=how), frame, tmp_path)
    assert len(bad(tmp_path, result)) == bad_rows + 20
    if words is None:
        assert statuses(result) == {"validate": "quarantined"}
        assert good(tmp_path, result) == [5] * (80 - bad_rows)
        return
    # The parts are kept to read; nothing else of the step is.
    assert statuses(result) == {"validate": "failed"}
    assert detail_of(result, "validate") == f"{words}; they are kept to read"
    flow = flow_of(result, "validate")
    assert (flow.published, flow.rows_out) == (None, 100)
    assert (result.exit_code, good(tmp_path, result)) == (1, frame["score"].to_list())
    # Nothing of a limit is left for the next attempt.
    result = await run(checking(rules[1], how=how), pipeline_dir=tmp_path, run_id=id_of(result))
    assert (statuses(result), len(bad(tmp_path, result))) == ({"validate": "quarantined"}, 20)


async def test_the_limit_of_a_rule_counts_rows_over_files_and_a_share_of_each(tmp_path: Path) -> None:
    frames = {
        "scores": pl.DataFrame({"score": [-1, 1, 1, 1]}),
        "report": pl.DataFrame({"score": [-1, -1, 1, 1]}),
    }
    for limit, status in ((2, "failed"), (3, "quarantined")):
        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_check("validate", expect("low", pl.col("score") >= 0, max_rows=limit), [Scores, Report])
        assert statuses(await ingest_and_run(pipeline, frames, tmp_path)) == {"validate": status}
    pipeline = make_pipeline(files=("scores", "report"))
    pipeline.add_check("validate", expect("low", pl.col("score") >= 0, max_fraction=0.3), [Scores, Report])
    result = await ingest_and_run(pipeline, frames, tmp_path)
    assert "2 of 4 rows of 'report' break the rule 'low'" in detail_of(result, "validate")


# -- keys of another file --------------------------------------------------------------------------


async def test_keys_of_another_file(tmp_path: Path) -> None:
    frames = {
        "scores": pl.DataFrame({"who": [1, 2, 3, None], "score": [1, 2, 3, 4]}),
        "report": pl.DataFrame({"id": [1, 3, 3]}),
    }

    def make(known: list[int]) -> Pipeline:
        pipeline = make_pipeline(files=("scores", "report"))

        def correct(ctx: StepContext, files: StepFiles) -> None:
            files[0].save_in_place(files[0].load().filter(pl.col("id").is_in(known)))

        pipeline.add_step("correct", correct, Report)
        rule = expect_foreign("who", Report, "id", null="pass")
        pipeline.add_check("validate", rule, [Scores(), Report(readonly=True)])
        return pipeline

    result = await ingest_and_run(make([1]), frames, tmp_path)
    assert statuses(result) == {"correct": "complete", "validate": "quarantined"}
    assert good(tmp_path, result, "who") == [1, None]
    assert bad(tmp_path, result, "who") == [(2, "who is not in report"), (3, "who is not in report")]
    # It looks at what the earlier step made of the other file; a retry does so again.
    result = await run(make([1, 3]), pipeline_dir=tmp_path, run_id=id_of(result), rerun=["correct"])
    assert good(tmp_path, result, "who") == [1, 3, None]
    assert bad(tmp_path, result, "who") == [(2, "who is not in report")]


@pytest.mark.parametrize("lazy", [True, False])
async def test_keys_of_another_file_in_a_step(lazy: bool, tmp_path: Path) -> None:
    pipeline = make_pipeline(files=("scores", "report"))

    def validate(ctx: StepContext, files: StepFiles) -> None:
        scores, report = files
        assert scores is not None
        assert report is not None
        rules = [expect_foreign("who", report, "id")]
        if lazy:
            scores.save_in_place_lazy(ctx.quarantine.split(scores, scores.scan(), rules))
        else:
            scores.save_in_place(ctx.quarantine.split(scores, scores.load(), rules))

    pipeline.add_step("validate", validate, [Scores(), Report(readonly=True)])
    frames = {"scores": pl.DataFrame({"who": [1, 2]}), "report": pl.DataFrame({"id": [2]})}
    result = await ingest_and_run(pipeline, frames, tmp_path)
    assert (good(tmp_path, result, "who"), bad(tmp_path, result, "who")) == (
        [2],
        [(1, "who is not in report")],
    )


async def test_a_file_that_the_step_has_not(tmp_path: Path) -> None:
    pipeline = checking(expect_foreign("who", "report"), how="lazy")
    result = await ingest_and_run(pipeline, pl.DataFrame({"who": [1]}), tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, "no file 'report'")


@pytest.mark.parametrize(
    ("rules", "files", "words"),
    [
        ([expect_foreign("a", "report")], [Scores()], "add AstroFileSpec.'report', readonly=True"),
        ([expect_foreign("a", "report")], [Scores(), Report()], "add AstroFileSpec.'report', readonly=True"),
        ([expect_unique("a")], [Scores(readonly=True)], "cannot set rows of 'scores' aside"),
        ([expect_foreign("a", "report")], [Report(readonly=True)], "no file to check"),
        ([], [Scores()], "needs rules"),
        ([pl.col("a") > 0], [Scores()], "an expression alone is no rule"),
    ],
)
def test_a_check_that_makes_no_sense(rules: Any, files: list[AstroFileSpec], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        make_pipeline(files=("scores", "report")).add_check("validate", rules, files)


# -- schemas ---------------------------------------------------------------------------------------


@in_every_way
async def test_a_schema_of_dataframely_is_a_rule(how: str, tmp_path: Path) -> None:
    dy = pytest.importorskip("dataframely", reason="the extra dataframely is not installed")
    schema = type("S", (dy.Schema,), {"id": dy.Int64(primary_key=True), "score": dy.Int64(min=0)})
    frame = pl.DataFrame({"id": [1, 1, 2], "score": [1, -1, 3], "note": ["a", None, "c"]})
    result = await ingest_and_run(checking(schema, how=how), frame, tmp_path)
    assert good(tmp_path, result, "note") == ["c"]
    assert bad(tmp_path, result, "note") == [("a", "primary_key"), (None, "primary_key; score: min")]


@in_every_way
async def test_a_schema_of_pandera_is_a_rule(how: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pandera.polars", reason="the extra pandera is not installed")
    schema = pa.DataFrameSchema({"score": pa.Column(int, pa.Check.ge(0, error="must not be negative"))})
    frame = pl.DataFrame({"score": [1, -1, 3], "note": ["a", "b", "c"]})
    result = await ingest_and_run(checking(schema, how=how), frame, tmp_path)
    assert good(tmp_path, result, "note") == ["a", "c"]
    assert bad(tmp_path, result, "note") == [("b", "score: must not be negative")]
    broken = pl.DataFrame({"other": [1]})
    result = await ingest_and_run(checking(schema, how=how), broken, tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, "score: column_in_dataframe")


async def test_a_random_plan_is_judged_as_it_is_split(tmp_path: Path) -> None:
    dy = pytest.importorskip("dataframely", reason="the extra dataframely is not installed")
    schema = type("S", (dy.Schema,), {"id": dy.Int64(min=500)})
    pipeline = make_pipeline()

    def validate(ctx: StepContext, files: StepFiles) -> None:
        shuffled = files[0].scan().with_columns(pl.col("id").shuffle())
        files[0].save_in_place_lazy(ctx.quarantine.split(files[0], shuffled, schema))

    pipeline.add_step("validate", validate, Scores)
    result = await ingest_and_run(pipeline, pl.DataFrame({"id": range(1000)}), tmp_path)
    assert sorted(good(tmp_path, result, "id")) == list(range(500, 1000))
    assert sorted(value for value, _ in bad(tmp_path, result, "id")) == list(range(500))


# -- rows that add up ------------------------------------------------------------------------------


async def test_rows_in_are_rows_out_parked_dropped_and_unexplained(tmp_path: Path) -> None:
    def shorten(ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().head(1))

    def make(low: int) -> Pipeline:
        pipeline = make_pipeline()
        pipeline.add_check("low", expect("too low", pl.col("score") >= low), Scores, on_quarantine="continue")
        pipeline.add_filter("tidy", pl.col("score") > 100, Scores)
        pipeline.add_step("shorten", shorten, Scores)
        return pipeline

    frame = pl.DataFrame({"name": ["a", "b", "c", "d", "e", "f"], "score": [1, -1, -2, 500, 2, 3]})
    run_id = await ingest_frames(make(0), {"scores": frame}, tmp_path)
    await run(make(0), pipeline_dir=tmp_path, run_id=run_id)
    decide(tmp_path, run_id, "low", frame.slice(1, 1), None)
    result = await run(make(-1), pipeline_dir=tmp_path, run_id=run_id)
    record = record_of(result)
    document = run_document(record, "d")
    names = ("rows_in", "rows_out", "rows_quarantined", "rows_discarded", "rows_filtered", "rows_unexplained")
    flows = {state["step_id"]: state["files"][0] for state in document["step_states"]}
    assert {step_id: [flow[name] for name in names] for step_id, flow in flows.items()} == {
        "low": [6, 4, 1, 1, None, 0],
        "tidy": [4, 3, 0, 0, 1, 0],
        "shorten": [3, 1, 0, 0, None, 2],
    }
    assert [unexplained_rows(step, step.files[0]) for step in record.steps.values()] == [0, 0, 2]
    verification = astro_async.verify(tmp_path, run_id)
    assert verification.faults == ()
    assert [(each.step_id, each.unexplained) for each in verification.differences] == [("shorten", 2)]
    parked = read_quarantine(tmp_path, run_id, "low", "scores")
    assert parked.select("name", REASON).rows() == [("c", "too low")]
    assert read_file(tmp_path, run_id, "scores")["name"].to_list() == ["a"]


async def test_a_discarded_row_counts_in_a_filter(tmp_path: Path) -> None:
    def park(ctx: StepContext, files: StepFiles) -> None:
        frame = files[0].load()
        ctx.quarantine.rows(files[0], frame.head(1), reason="first")
        files[0].save_in_place(frame.tail(-1))

    pipeline = make_pipeline()
    pipeline.add_step("tidy", park, Scores)
    frame = pl.DataFrame({"name": ["a", "b", "c"], "score": [1, 2, 300]})
    run_id = await ingest_frames(pipeline, {"scores": frame}, tmp_path)
    await run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    decide_unplaced(tmp_path, run_id, frame.head(1))
    filtering = make_pipeline()
    filtering.add_filter("tidy", pl.col("score") > 100, Scores)
    result = await run(filtering, pipeline_dir=tmp_path, run_id=run_id)
    flow = flow_of(result, "tidy")
    assert (flow.rows_in, flow.rows_out, flow.rows_discarded, flow.rows_filtered) == (3, 1, 1, 1)
    verification = astro_async.verify(tmp_path, run_id)
    assert (verification.faults, verification.differences) == ((), ())


def decide_unplaced(pipeline_dir: Path, run_id: str, rows: pl.DataFrame) -> None:
    """Discard rows of which nobody knows where they stood."""
    record_decision(
        str(pipeline_dir),
        RunId(run_id),
        "tidy",
        "scores",
        original=rows,
        replacement=None,
        positions=pl.Series([None] * rows.height, dtype=pl.UInt32),
        because="looked at it",
        disk=Disk(),
        clock=utc_now,
    )


@pytest.mark.parametrize("is_small", [True, False], ids=["in memory", "streamed"])
@pytest.mark.parametrize("kind", ["check", "filter"])
async def test_small_files_and_large_ones_are_judged_alike(
    kind: str, is_small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, values and verdicts, whether a file is taken into memory or not; none is lost."""
    if not is_small:
        monkeypatch.setattr("astro_async.files._SMALL_ROWS", 0)
    naive = pl.col("at") > pl.lit("2026-01-01").str.to_datetime()
    at = pl.Series("at", [], dtype=pl.Datetime("us", "UTC"))
    frames = {
        "scores": pl.DataFrame({"id": [1, 2, 3, 4], "score": [10.0, None, float("nan"), -1.0]}),
        "report": pl.DataFrame({"id": [1, 2], "score": [5.0, 6.0]}),
        "empty": pl.DataFrame({"id": pl.Series([], dtype=pl.Int64), "at": at}),
    }
    pipeline = make_pipeline(files=tuple(frames))
    for name in frames:
        rule = naive if name == "empty" else pl.col("score") >= 0
        if kind == "check":
            pipeline.add_check(f"judge {name}", expect("good", rule), AstroFileSpec(name))
        else:
            pipeline.add_filter(f"judge {name}", AstroFileSpec(name), keep=rule)
    result = await ingest_and_run(pipeline, frames, tmp_path, keep_going=True)
    parks = kind == "check"
    assert statuses(result) == {
        "judge-scores": "quarantined" if parks else "complete",
        "judge-report": "complete",
        # A rule that does not fit the columns shows where there is a row to judge.
        "judge-empty": "complete",
    }
    kept = read_file(tmp_path, id_of(result), "scores")["id"].to_list()
    assert kept == ([1] if parks else [1, 2, 3])
    flow = flow_of(result, "judge-scores")
    assert (flow.rows_in, flow.rows_out) == (4, len(kept))
    assert (flow.rows_quarantined, flow.rows_filtered) == ((3, None) if parks else (0, 1))
    for name in ("report", "empty"):
        # Nothing was set aside, so what was ingested is the version still.
        other = flow_of(result, f"judge-{name}", name)
        assert other.published is not None
        assert other.published.path == other.read == f"ingested/{name}.parquet"


async def test_a_rule_that_raises_is_named_once(tmp_path: Path) -> None:
    naive = pl.col("at") > pl.lit("2026-01-01").str.to_datetime()
    frame = pl.DataFrame({"at": [datetime(2026, 1, 2, tzinfo=UTC)]})
    pipeline = make_pipeline()
    pipeline.add_check("judge", expect("late", naive, when=pl.col("at").is_not_null()), Scores)
    result = await ingest_and_run(pipeline, frame, tmp_path)
    assert "the rule 'late' " in (detail := detail_of(result, "judge"))
    assert "'late' or 'late'" not in detail
