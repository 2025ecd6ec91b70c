"""What type checkers see of the public names: run by pytest, and checked by mypy with the rest.

A comment `type: ignore` here says that a mistake is found; mypy complains if it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import polars as pl
import pytest

import astro_async
from astro_async import (
    AstroFile,
    AstroFileSpec,
    EventStream,
    Expectation,
    IngestFileSpec,
    Pipeline,
    Retry,
    RunRecord,
    RunResult,
    RunStatus,
    RunSummary,
    StepContext,
    StepFiles,
    StopSwitch,
    expect,
)
from astro_async.testing import ingest_frames, read_file

RULE = expect("the score is negative", pl.col("score") >= 0, null="pass")


class Scores(AstroFileSpec):
    ingest_name = "scores"


pipeline = Pipeline(
    "typed",
    ingest_files=[IngestFileSpec("scores", "*.csv", {"score": pl.Int64})],
    limits={"database": 2},
)


@pipeline.step(Scores, limits="database", retries=Retry(2, delay_s=0.1))
def validate(ctx: StepContext, files: StepFiles) -> None:
    file = files["scores"]
    assert_type(file, AstroFile)
    assert_type(files[0], AstroFile)
    assert_type(files[:1], Sequence[AstroFile])
    assert_type(file.load(), pl.DataFrame)
    good = ctx.quarantine.split(file, file.scan(), RULE)
    assert_type(good, pl.LazyFrame)
    assert_type(ctx.quarantine.split(file, file.load()), pl.DataFrame)
    file.save_in_place_lazy(good)
    assert_type(file.save_to("processed", "scores.parquet", file.load(), activate=False), Path)


@pipeline.step(Scores(readonly=True), depends_on=validate)
async def look(ctx: StepContext, files: StepFiles) -> int:
    frame = await files["scores"].aload()
    assert_type(frame, pl.DataFrame)
    return frame.height


@pytest.mark.anyio
async def test_the_names_have_the_types_that_they_say(tmp_path: Path) -> None:
    assert_type(RULE, Expectation)
    run_id = await ingest_frames(pipeline, {"scores": pl.DataFrame({"score": [1, -1]})}, tmp_path)
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id, stop=StopSwitch())
    assert_type(result, RunResult)
    assert_type(result.status, RunStatus | None)
    assert_type(result.record, RunRecord | None)
    assert result.exit_code == 3
    assert_type(read_file(tmp_path, run_id, "scores"), pl.DataFrame)
    runs, notices = astro_async.list_runs(tmp_path)
    assert_type(runs, list[RunSummary])
    assert_type(notices, list[str])
    async with astro_async.stream(pipeline, pipeline_dir=tmp_path) as events:
        assert_type(events, EventStream)
        assert_type([event.seq async for event in events], list[int])


@pytest.mark.anyio
async def test_a_decorated_function_keeps_its_type() -> None:
    # Were it not typed, a wrong call would pass.
    with pytest.raises(TypeError):
        await look(3)  # type: ignore[call-arg, arg-type]


def test_mistakes_are_found() -> None:
    with pytest.raises(ValueError, match="null="):
        expect("x", pl.col("x") > 0, null="drop")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a Polars expression"):
        expect("x", True)  # type: ignore[arg-type]
    with pytest.raises(astro_async.AstroError, match="engine"):
        pipeline.add_step("x", validate, Scores, engine="cluster")  # type: ignore[arg-type]
