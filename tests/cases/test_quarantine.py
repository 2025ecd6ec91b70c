"""Cases 1 to 13: rows that are set aside, each with a reason, none lost and none doubled."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest

from astro_async import (
    AstroFile,
    Expectation,
    IngestFileSpec,
    Pipeline,
    RunResult,
    StepContext,
    StepFiles,
    expect,
    ingest,
    list_runs,
    read_run,
    run,
)
from astro_async._executor.invocation import Services
from astro_async._frames.parquet import load_frame, load_parts
from astro_async._store.atomic import PUBLISHED_MODE
from astro_async._store.staging import StagedFile, StagedPart
from astro_async.exceptions import FileAccessError, IngestError, QuarantineError, StepError
from astro_async.testing import ingest_frames, read_file, read_filtered, read_quarantine
from cases.support import (
    REASON,
    Report,
    Scores,
    VolatileDisk,
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

NOT_NEGATIVE = "score must not be negative"

Split = Callable[[StepContext, AstroFile, tuple[Expectation, ...]], None]


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: what is decided here is decided in worker threads."""
    return "asyncio"


def split_eagerly(ctx: StepContext, file: AstroFile, rules: tuple[Expectation, ...]) -> None:
    file.save_in_place(ctx.quarantine.split(file, file.load(), *rules))


def split_lazily(ctx: StepContext, file: AstroFile, rules: tuple[Expectation, ...]) -> None:
    file.save_in_place_lazy(ctx.quarantine.split(file, file.scan(), *rules))


def checking(*rules: Any, how: str, **options: Any) -> Pipeline:
    """Make a pipeline with a step `validate` that judges the rows, in one of the ways there are."""
    pipeline = make_pipeline()
    if how == "check":
        pipeline.add_check("validate", rules, Scores, **options)
        return pipeline
    split: Split = {"eager": split_eagerly, "lazy": split_lazily}[how]

    def validate(ctx: StepContext, files: StepFiles) -> None:
        split(ctx, files[0], rules)

    pipeline.add_step("validate", validate, Scores, **options)
    return pipeline


in_every_way = pytest.mark.parametrize("how", ["check", "eager", "lazy"])


def good(pipeline_dir: Path, result: RunResult, column: str = "score") -> list[Any]:
    """Return a column of the rows that later steps see."""
    return read_file(pipeline_dir, id_of(result), "scores")[column].to_list()


def bad(pipeline_dir: Path, result: RunResult, column: str = "score") -> list[tuple[Any, str]]:
    """Return a column of the rows that `validate` set aside, each value with its reason."""
    return quarantined(pipeline_dir, id_of(result), "validate", column)


def assert_failed_and_nobody_quarantined(pipeline_dir: Path, result: RunResult, *words: str) -> None:
    """The step failed, says why, and left nothing behind: no part, no version, no staging."""
    assert statuses(result) == {"validate": "failed"}
    assert (record_of(result).status, result.exit_code) == ("failed", 1)
    for word in words:
        assert word in detail_of(result, "validate")
    assert step_of(result, "validate").files == ()
    directory = run_directory(pipeline_dir, id_of(result))
    assert files_below(directory, "quarantine", "versions", "snapshots", "staging") == []
    assert manifest_of(pipeline_dir, id_of(result))["rows_quarantined"] == 0


# -- the user's own step ---------------------------------------------------------------------------


def step_validate(_ctx: StepContext, files: list[AstroFile]) -> None:
    file = files[0]
    df = file.load()
    bad = df.filter(pl.col("score") < 0)
    good = df.filter(pl.col("score") >= 0)
    if not bad.is_empty():
        _ctx.quarantine.quarantine_rows(file, bad, reason="negative score")
    file.save_in_place(good)


async def test_the_step_of_the_seed(tmp_path: Path) -> None:
    pipeline = make_pipeline(lambda p: p.add_step("validate", step_validate, [Scores()]))
    frame = pl.DataFrame({"id": ["a", "b", "c"], "score": [1, -2, 3]})
    result = await ingest_and_run(pipeline, frame, tmp_path)

    assert read_file(tmp_path, id_of(result), "scores").rows() == [("a", 1), ("c", 3)]
    parked = read_quarantine(tmp_path, id_of(result), "validate", "scores")
    assert parked.schema == pl.Schema({"id": pl.String(), "score": pl.Int64(), REASON: pl.String()})
    assert parked.rows() == [("b", -2, "negative score")]

    directory = run_directory(tmp_path, id_of(result))
    assert files_below(directory, "quarantine") == ["quarantine/validate/scores.part-00001.parquet"]
    assert files_below(directory, "versions") == ["versions/scores/validate.1.parquet"]
    assert files_below(directory, "snapshots") == ["snapshots/validate/scores.parquet"]
    assert files_below(directory, "current") == ["current/scores.parquet"]
    snapshot, ingested = (
        directory / "snapshots/validate/scores.parquet",
        directory / "ingested/scores.parquet",
    )
    assert os.path.samefile(snapshot, ingested)
    assert load_frame(str(ingested)).rows() == frame.rows()

    manifest = manifest_of(tmp_path, id_of(result))
    assert (manifest["status"], manifest["rows_quarantined"], result.exit_code) == ("quarantined", 1, 3)
    (file,) = manifest["ingested_files"]
    assert (file["name"], file["row_count"], file["column_count"]) == ("scores", 3, 2)
    assert file["active_path"] == "versions/scores/validate.1.parquet"
    (state,) = manifest["step_states"]
    assert (state["step_id"], state["status"], state["attempt"]) == ("validate", "quarantined", 1)
    (flow,) = state["files"]
    assert (flow["read"], flow["rows_in"], flow["rows_out"]) == ("ingested/scores.parquet", 3, 2)
    assert (flow["rows_quarantined"], flow["reasons"]) == (1, {"negative score": 1})
    assert flow["published"]["path"] == "versions/scores/validate.1.parquet"


# -- rules -----------------------------------------------------------------------------------------


@in_every_way
async def test_01_null_falls_through(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"score": [5, -1, None]})
    strict = checking(expect(NOT_NEGATIVE, pl.col("score") >= 0), how=how)
    result = await ingest_and_run(strict, frame, tmp_path)
    assert good(tmp_path, result) == [5]
    assert bad(tmp_path, result) == [(-1, NOT_NEGATIVE), (None, NOT_NEGATIVE)]
    flow = flow_of(result, "validate")
    assert (flow.rows_in, flow.rows_out, flow.rows_quarantined) == (3, 1, 2)

    lenient = checking(expect(NOT_NEGATIVE, pl.col("score") >= 0, null="pass"), how=how)
    result = await ingest_and_run(lenient, frame, tmp_path)
    assert good(tmp_path, result) == [5, None]
    assert bad(tmp_path, result) == [(-1, NOT_NEGATIVE)]


@in_every_way
async def test_02_nan(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3, 4], "score": [1.5, float("nan"), -1.0, None]})
    # NaN is quarantined unless the author says otherwise: the default, and said aloud.
    for strict in (
        expect(NOT_NEGATIVE, pl.col("score") >= 0),
        expect(NOT_NEGATIVE, pl.col("score") >= 0, nan="quarantine"),
    ):
        result = await ingest_and_run(checking(strict, how=how), frame, tmp_path)
        assert good(tmp_path, result, "id") == [1]
        assert [value for value, _ in bad(tmp_path, result, "id")] == [2, 3, 4]

    lenient = expect(NOT_NEGATIVE, pl.col("score") >= 0, nan="pass")
    result = await ingest_and_run(checking(lenient, how=how), frame, tmp_path)
    assert good(tmp_path, result, "id") == [1, 2]
    assert [value for value, _ in bad(tmp_path, result, "id")] == [3, 4]


def coin_flips(ids: pl.Series) -> pl.Series:
    """Judge each row at random; twice the same only by chance."""
    return pl.Series([random.random() < 0.5 for _ in ids], dtype=pl.Boolean)


@in_every_way
@pytest.mark.parametrize(
    "rule",
    [
        pl.col("id").map_batches(coin_flips, return_dtype=pl.Boolean, is_elementwise=True),
        pl.col("id").shuffle() < 500,
    ],
    ids=["python", "shuffle"],
)
async def test_03_one_evaluation(how: str, rule: pl.Expr, tmp_path: Path) -> None:
    pipeline = checking(expect("unlucky", rule), how=how)
    result = await ingest_and_run(pipeline, pl.DataFrame({"id": range(1000)}), tmp_path)
    kept = good(tmp_path, result, "id")
    aside = [value for value, _ in bad(tmp_path, result, "id")]
    assert sorted(kept + aside) == list(range(1000))
    assert kept
    assert aside
    assert kept == sorted(kept)
    assert aside == sorted(aside)


@in_every_way
@pytest.mark.parametrize("rule", [pl.col("x").sum() > 5, pl.col("x") > pl.col("x").mean()], ids=str)
async def test_04_aggregating_rule(how: str, rule: pl.Expr, tmp_path: Path) -> None:
    frame = pl.DataFrame({"key": ["a", "a", "b"], "x": [1, 5, 2]})
    result = await ingest_and_run(checking(expect("too little", rule), how=how), frame, tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, "too little", "aggregates")
    assert read_file(tmp_path, id_of(result), "scores").equals(frame)


@in_every_way
async def test_04_aggregates_over_a_key_are_fine(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"key": ["a", "b", "a"], "x": [1, 2, 5]})
    rule = expect("too little", pl.col("x").sum().over("key") > 5)
    result = await ingest_and_run(checking(rule, how=how), frame, tmp_path)
    assert read_file(tmp_path, id_of(result), "scores").rows() == [("a", 1), ("a", 5)]
    assert bad(tmp_path, result, "key") == [("b", "too little")]


def raise_for_rows(series: pl.Series) -> pl.Series:
    """Fail as soon as there is a row to judge."""
    if series.len():
        raise LookupError("no such thing")
    return pl.Series([], dtype=pl.Boolean)


@in_every_way
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (pl.col("scroe") >= 0, ("'scroe'", "'score'")),
        (pl.col("score").map_batches(raise_for_rows, return_dtype=pl.Boolean), ("LookupError",)),
        (pl.col("score") + 1, ("not Boolean",)),
        (pl.col("score").head(1) >= 0, ("changes the height",)),
    ],
    ids=["missing column", "raising function", "not Boolean", "height"],
)
async def test_05_broken_rules(how: str, rule: pl.Expr, words: tuple[str, ...], tmp_path: Path) -> None:
    frame = pl.DataFrame({"score": [5, -1, None]})
    result = await ingest_and_run(checking(expect("broken rule", rule), how=how), frame, tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, *words)
    assert read_file(tmp_path, id_of(result), "scores").equals(frame)


async def test_05_a_broken_rule_after_a_good_one_quarantines_nobody(tmp_path: Path) -> None:
    rules = expect(NOT_NEGATIVE, pl.col("score") >= 0), expect("broken", pl.col("nowhere") > 0)
    result = await ingest_and_run(checking(*rules, how="check"), pl.DataFrame({"score": [-1]}), tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, "'nowhere'")


@in_every_way
async def test_06_two_rules_on_one_row(how: str, tmp_path: Path) -> None:
    rules = expect("a", pl.col("score") >= 0), expect("b", pl.col("score") > -5)
    frame = pl.DataFrame({"score": [1, -7]})
    result = await ingest_and_run(checking(*rules, how=how), frame, tmp_path)
    assert good(tmp_path, result) == [1]
    assert bad(tmp_path, result) == [(-7, "a; b")]
    assert flow_of(result, "validate").reasons == {"a": 1, "b": 1}
    assert flow_of(result, "validate").rows_quarantined == 1


async def test_07_a_reserved_column_is_refused_at_ingest(tmp_path: Path) -> None:
    pipeline = make_pipeline(lambda p: p.add_step("validate", step_validate, Scores))
    source = tmp_path / "source"
    source.mkdir()
    (source / "scores.csv").write_text("score,_astro_quarantine_reason\n5,mine\n")
    with pytest.raises(IngestError, match="_astro_quarantine_reason"):
        await ingest(pipeline, source, pipeline_dir=tmp_path)
    assert list_runs(tmp_path) == ([], [])
    assert [path.name for path in (tmp_path / ".working").iterdir()] == []

    frames = {"scores": pl.DataFrame({"score": [5], "_astro_row": [0]})}
    with pytest.raises(IngestError, match="_astro_row"):
        await ingest_frames(pipeline, frames, tmp_path)


# -- parts -----------------------------------------------------------------------------------------


async def test_08_parts_have_one_schema(tmp_path: Path) -> None:
    def validate(ctx: StepContext, files: StepFiles) -> None:
        file = files["scores"]
        ctx.quarantine.quarantine_rows(
            file, pl.DataFrame({"id": pl.Series([1], dtype=pl.Int32), "name": [None]}), reason="all null"
        )
        ctx.quarantine.rows(
            file, pl.LazyFrame({"extra": [True], "name": ["Bo"], "id": [2]}), reason="order, and one more"
        )
        ctx.quarantine.quarantine_row(file, {"name": "Cy", "id": 3, "extra": 0}, reason="a mapping")
        file.save_in_place(file.load().clear())

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    frame = pl.DataFrame({"id": [1, 2, 3], "name": [None, "Bo", "Cy"]})
    result = await ingest_and_run(pipeline, frame, tmp_path)

    parked = read_quarantine(tmp_path, id_of(result), "validate", "scores")
    assert parked.schema == pl.Schema({**frame.schema, REASON: pl.String()})
    assert parked.rows() == [
        (1, None, "all null"),
        (2, "Bo", "order, and one more"),
        (3, "Cy", "a mapping"),
    ]
    directory = run_directory(tmp_path, id_of(result))
    paths = [str(directory / part.path) for part in flow_of(result, "validate").parts]
    assert [load_frame(path).schema for path in paths] == [parked.schema] * 3
    # Any reader may read all of them at once.
    assert pl.read_parquet(directory / "quarantine/validate/*.parquet").equals(parked)


async def test_08_rows_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    errors: list[str] = []

    def validate(ctx: StepContext, files: StepFiles) -> None:
        file = files[0]
        for rows in (
            pl.DataFrame({"id": [1]}),
            pl.DataFrame({"id": [2**40], "price": [Decimal("1.50")]}),
            pl.DataFrame({"id": ["x"], "price": [Decimal("1.50")]}),
            pl.DataFrame({"id": [1], "price": [1.5]}),
        ):
            with pytest.raises(QuarantineError) as caught:
                ctx.quarantine.quarantine_rows(file, rows, reason="no")
            errors.append(str(caught.value))
        with pytest.raises(QuarantineError, match="'price'"):
            ctx.quarantine.quarantine_row(file, {"id": 1}, reason="no")

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    schema = pl.Schema({"id": pl.Int32(), "price": pl.Decimal(10, 2)})
    frame = pl.DataFrame({"id": [1], "price": [Decimal("1.50")]}, schema=schema)
    result = await ingest_and_run(pipeline, frame, tmp_path)
    assert statuses(result) == {"validate": "complete"}
    assert ["'price'" in error for error in errors] == [True, False, False, True]
    assert ["'id'" in error for error in errors] == [False, True, True, False]
    # Column names only: cells never reach a message.
    assert not any(str(2**40) in error or "1.5" in error for error in errors)
    assert files_below(run_directory(tmp_path, id_of(result)), "quarantine", "staging") == []


async def test_empty_reasons_and_empty_rows_are_errors_and_write_nothing(tmp_path: Path) -> None:
    def validate(ctx: StepContext, files: StepFiles) -> None:
        file, rows = files[0], files[0].load()
        for reason in ("", "  "):
            with pytest.raises(ValueError, match="reason is empty"):
                ctx.quarantine.quarantine_rows(file, rows, reason=reason)
        for empty in (rows.clear(), rows.lazy().filter(pl.lit(False))):
            with pytest.raises(ValueError, match="rows is empty"):
                ctx.quarantine.quarantine_rows(file, empty, reason="bad")

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [1]}), tmp_path)
    assert statuses(result) == {"validate": "complete"}
    assert step_of(result, "validate").files[0].parts == ()
    assert files_below(run_directory(tmp_path, id_of(result)), "quarantine", "versions", "staging") == []


async def test_a_read_only_file_refuses_saves_and_quarantine(tmp_path: Path) -> None:
    def look(ctx: StepContext, files: StepFiles) -> None:
        file, rows = files[0], files[0].load()
        with pytest.raises(FileAccessError, match="readonly"):
            ctx.quarantine.quarantine_rows(file, rows, reason="bad")
        with pytest.raises(FileAccessError, match="readonly"):
            file.save_in_place(rows)
        with pytest.raises(FileAccessError, match="readonly"):
            file.save_to("processed", "copy.parquet", rows)
        file.save_to("processed", "copy.parquet", rows.reverse(), activate=False)

    pipeline = make_pipeline(lambda p: p.add_step("look", look, Scores(readonly=True)))
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [1, 2]}), tmp_path)
    assert statuses(result) == {"look": "complete"}
    assert good(tmp_path, result) == [1, 2]
    copy = run_directory(tmp_path, id_of(result)) / "processed/copy.parquet"
    assert load_frame(str(copy))["score"].to_list() == [2, 1]


async def test_rows_of_a_file_of_another_step_are_refused(tmp_path: Path) -> None:
    kept: list[AstroFile] = []

    def first(_ctx: StepContext, files: StepFiles) -> None:
        kept.append(files[0])

    def second(ctx: StepContext, files: StepFiles) -> None:
        with pytest.raises(StepError, match="file of this step"):
            ctx.quarantine.quarantine_rows(kept[0], files[0].load(), reason="bad")
        with pytest.raises(FileAccessError, match="after its step had ended"):
            kept[0].save_in_place(files[0].load())

    pipeline = make_pipeline(
        lambda p: p.add_step("first", first, Scores), lambda p: p.add_step("second", second, Scores)
    )
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [1]}), tmp_path)
    assert statuses(result) == {"first": "complete", "second": "complete"}


def assert_200_parts(pipeline_dir: Path, result: RunResult) -> None:
    """Each of 200 rows is in a part of its own, and the numbers have no gap."""
    parts = flow_of(result, "validate").parts
    names = [f"quarantine/validate/scores.part-{number:05d}.parquet" for number in range(1, 201)]
    assert [part.path for part in parts] == names
    assert [part.rows for part in parts] == [1] * 200
    assert files_below(run_directory(pipeline_dir, id_of(result)), "quarantine") == names
    rows = bad(pipeline_dir, result, "id")
    assert sorted(rows) == [(number, f"row {number}") for number in range(200)]


async def test_09_200_threads_in_one_step(tmp_path: Path) -> None:
    together = threading.Barrier(200, timeout=30)

    def validate(ctx: StepContext, files: StepFiles) -> None:
        def set_aside(number: int) -> None:
            together.wait()
            ctx.quarantine.quarantine_row(files[0], {"id": number}, reason=f"row {number}")

        with ThreadPoolExecutor(200) as threads:
            list(threads.map(set_aside, range(200)))
        files[0].save_in_place(files[0].load().clear())

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"id": range(200)}), tmp_path)
    assert_200_parts(tmp_path, result)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_09_200_tasks_in_one_step(tmp_path: Path) -> None:
    async def validate(ctx: StepContext, files: StepFiles) -> None:
        async def set_aside(number: int) -> None:
            await ctx.quarantine.aquarantine_row(files[0], {"id": number}, reason=f"row {number}")

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(set_aside, number)
        await files[0].asave_in_place((await files[0].aload()).clear())

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"id": range(200)}), tmp_path)
    assert_200_parts(tmp_path, result)


class SparseDisk(VolatileDisk):
    """Takes files without content for published; the others are published as ever."""

    def publish(self, staged: str, path: str, *, mode: int = PUBLISHED_MODE) -> None:
        """Publish a file if there is anything in it."""
        if os.path.getsize(staged):
            super().publish(staged, path, mode=mode)


async def test_10_part_100000_comes_after_99999(tmp_path: Path) -> None:
    """Only the parts that are looked at are written, for nobody waits for a hundred thousand writes."""
    many = 100_001
    written = [1, 2, 9_999, 10_000, 99_998, 99_999, 100_000, 100_001]
    empty = tmp_path / "empty"
    empty.touch()

    def validate(_ctx: StepContext, files: StepFiles) -> None:
        file = files[0]
        for number in range(1, many + 1):
            staged = StagedFile(str(empty), 1, 2, 0)
            if number in written:
                staged = file.stage(pl.DataFrame({"id": [number], REASON: ["bad"]}), needs_write=True)
            file.output.parts.append(StagedPart(staged, None))

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    services = Services(disk=SparseDisk())
    result = await ingest_and_run(pipeline, pl.DataFrame({"id": [0]}), tmp_path, services=services)

    # As a reader has it, from the disk.
    flow = read_run(tmp_path, id_of(result)).steps["validate"].files[0]
    assert len(flow.parts) == flow.rows_quarantined == many
    assert [part.path for part in flow.parts[99_997:]] == [
        f"quarantine/validate/scores.part-{number}.parquet"
        for number in ("99998", "99999", "100000", "100001")
    ]
    assert flow.parts[0].path == "quarantine/validate/scores.part-00001.parquet"
    directory = run_directory(tmp_path, id_of(result))
    # By text part 100000 would come before part 99998.
    paths = [str(directory / part.path) for part in flow.parts]
    some = [path for path in paths if os.path.exists(path)]
    assert load_parts(some, pl.Schema({"id": pl.Int64()}))["id"].to_list() == written
    assert sorted(some) != some


async def test_11_unwritable_columns(tmp_path: Path) -> None:
    class Thing:
        """What Parquet cannot hold."""

    def save(_ctx: StepContext, files: StepFiles) -> None:
        files["report"].save_in_place(pl.DataFrame({"score": [9]}))
        things = pl.Series("thing", [Thing(), Thing()], dtype=pl.Object)
        files["scores"].save_in_place(files["scores"].load().with_columns(things))

    pipeline = make_pipeline(lambda p: p.add_step("save", save, [Report, Scores]), files=("report", "scores"))
    frame = pl.DataFrame({"score": [1, 2]})
    result = await ingest_and_run(pipeline, {"scores": frame, "report": frame}, tmp_path)
    assert statuses(result) == {"save": "failed"}
    assert "'thing' (Object)" in detail_of(result, "save")
    # Nothing of the step is published, what it had written well included.
    assert files_below(run_directory(tmp_path, id_of(result)), "versions", "staging", "snapshots") == []
    assert read_file(tmp_path, id_of(result), "report")["score"].to_list() == [1, 2]


async def test_11_unwritable_rows_in_quarantine(tmp_path: Path) -> None:
    def validate(ctx: StepContext, files: StepFiles) -> None:
        things = pl.DataFrame({"score": pl.Series([object()], dtype=pl.Object)})
        ctx.quarantine.quarantine_rows(files[0], things, reason="bad")

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [1, 2]}), tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, "'score'", "Object")


@in_every_way
async def test_12_empty_frame_in(how: str, tmp_path: Path) -> None:
    rules = expect(NOT_NEGATIVE, pl.col("score") >= 0)
    pipeline = checking(rules, how=how, max_quarantined_fraction=0.05)
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": []}, schema={"score": pl.Int64}), tmp_path)
    assert (statuses(result), record_of(result).status) == ({"validate": "complete"}, "completed")
    flow = flow_of(result, "validate")
    assert (flow.rows_in, flow.rows_out, flow.rows_quarantined, flow.parts) == (0, 0, 0, ())
    assert read_file(tmp_path, id_of(result), "scores").schema == pl.Schema({"score": pl.Int64()})
    assert files_below(run_directory(tmp_path, id_of(result)), "quarantine", "staging") == []


@in_every_way
async def test_13_share_limit(how: str, tmp_path: Path) -> None:
    pipeline = checking(expect(NOT_NEGATIVE, pl.col("score") >= 0), how=how, max_quarantined_fraction=0.05)
    five = pl.DataFrame({"score": [-1] * 5 + [1] * 95})
    result = await ingest_and_run(pipeline, five, tmp_path)
    assert (statuses(result), result.exit_code) == ({"validate": "quarantined"}, 3)
    assert len(good(tmp_path, result)) == 95
    assert len(bad(tmp_path, result)) == 5

    six = pl.DataFrame({"score": [-1] * 6 + [1] * 94})
    result = await ingest_and_run(pipeline, six, tmp_path)
    assert (statuses(result), result.exit_code) == ({"validate": "failed"}, 1)
    assert "6 of 100" in detail_of(result, "validate")
    assert bad(tmp_path, result) == [(-1, NOT_NEGATIVE)] * 6
    # The parts are kept to read; the version is not.
    assert flow_of(result, "validate").published is None
    assert len(good(tmp_path, result)) == 100

    # A retry of the failed step keeps nothing of the old parts beside its own.
    again = await run(pipeline, pipeline_dir=tmp_path, run_id=id_of(result))
    assert bad(tmp_path, again) == [(-1, NOT_NEGATIVE)] * 6
    assert step_of(again, "validate").attempt == 2


@pytest.mark.parametrize(("limit", "status"), [(2, "quarantined"), (1, "failed"), (0, "failed")])
async def test_13_row_limit_counts_the_rows_of_all_files(limit: int, status: str, tmp_path: Path) -> None:
    pipeline = make_pipeline(
        lambda p: p.add_check(
            "validate", expect("bad", pl.col("score") > 0), [Scores, Report], max_quarantined=limit
        ),
        files=("scores", "report"),
    )
    frames = {"scores": pl.DataFrame({"score": [0, 1]}), "report": pl.DataFrame({"score": [2, -1]})}
    result = await ingest_and_run(pipeline, frames, tmp_path)
    assert statuses(result) == {"validate": status}
    for name, value in (("scores", 0), ("report", -1)):
        parked = read_quarantine(tmp_path, id_of(result), "validate", name)
        assert parked.rows() == [(value, "bad")]


# -- filters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["expression", "remove", "keep", "function"])
async def test_filters_remove_rows_and_keep_what_is_unknown(way: str, tmp_path: Path) -> None:
    pipeline = make_pipeline()
    match way:
        case "expression":
            pipeline.add_filter("drop tests", pl.col("score") < 0, Scores)
        case "remove":
            pipeline.add_filter("drop tests", Scores, remove=pl.col("score") < 0)
        case "keep":
            pipeline.add_filter("drop tests", Scores, keep=pl.col("score") >= 0)
        case _:
            pipeline.add_filter("drop tests", lambda rows: rows.filter(pl.col("score") < 0), Scores)
    frame = pl.DataFrame({"id": [1, 2, 2, 3], "score": [4, -1, -1, None]})
    result = await ingest_and_run(pipeline, frame, tmp_path)
    assert statuses(result) == {"drop-tests": "complete"}
    assert read_file(tmp_path, id_of(result), "scores").rows() == [(1, 4), (3, None)]
    assert read_filtered(tmp_path, id_of(result), "drop-tests", "scores").rows() == [(2, -1), (2, -1)]
    flow = flow_of(result, "drop-tests")
    assert (flow.rows_in, flow.rows_out, flow.rows_filtered, flow.rows_quarantined) == (4, 2, 2, 0)


async def test_a_filter_that_returns_one_of_two_twins_removes_one(tmp_path: Path) -> None:
    pipeline = make_pipeline(lambda p: p.add_filter("one", lambda rows: rows.head(1), Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"score": [7, 7, 8]}), tmp_path)
    assert good(tmp_path, result) == [7, 8]
    assert read_filtered(tmp_path, id_of(result), "one", "scores")["score"].to_list() == [7]


async def test_typed_ingest_keeps_its_types_through_quarantine(tmp_path: Path) -> None:
    """From a CSV file with a schema: codes stay text, empty text and null stay apart."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "scores.csv").write_text('code,note,score\n007,,1\n010,"",-2\n')
    schema = {"code": pl.String, "note": pl.String, "score": pl.Int32}
    pipeline = Pipeline("typed", ingest_files=[IngestFileSpec("scores", "*.csv", schema)])
    pipeline.add_check("validate", expect(NOT_NEGATIVE, pl.col("score") >= 0), Scores)
    record = await ingest(pipeline, source, pipeline_dir=tmp_path)
    result = await run(pipeline, pipeline_dir=tmp_path, run_id=record.run_id)
    assert read_file(tmp_path, record.run_id, "scores").rows() == [("007", None, 1)]
    parked = read_quarantine(tmp_path, record.run_id, "validate", "scores")
    assert parked.rows() == [("010", "", -2, NOT_NEGATIVE)]
    assert parked.schema == pl.Schema({**pl.Schema(schema), REASON: pl.String()})
    assert id_of(result) == record.run_id
