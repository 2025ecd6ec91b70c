"""Case 38: tonight's files are never held up by yesterday's undecided rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async import IngestFileSpec, Pipeline, expect, ingest, list_runs, run
from astro_async.exceptions import RunRefusedError
from astro_async.testing import ingest_frames, read_file
from cases.support import Scores, id_of, manifest_of, quarantined, run_directory, statuses

pytestmark = pytest.mark.anyio

BAD = pl.DataFrame({"id": [1, 2], "score": [10, -20]})
GOOD = pl.DataFrame({"id": [3, 4], "score": [30, 40]})


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: which run is meant is decided without one."""
    return "asyncio"


def make_pipeline(**options: Any) -> Pipeline:
    """Make the nightly pipeline: a check, and a step behind it."""
    specs = [IngestFileSpec("scores", "scores*.csv", {"id": pl.Int64, "score": pl.Int64})]
    pipeline = Pipeline("nightly", ingest_files=specs, **options)
    pipeline.add_check("validate", expect("negative", pl.col("score") >= 0), Scores)
    pipeline.add_step(
        "total",
        lambda _ctx, files: files[0].save_in_place(files[0].load().with_columns(total=pl.col("score").sum())),
        Scores,
        depends_on="validate",
    )
    return pipeline


def fingerprint(directory: Path) -> dict[str, bytes]:
    """Return everything in a run but its lock and log."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith(("run.", "astro.log"))
    }


async def test_38_monday_waits_and_tuesday_completes(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    monday = await ingest_frames(pipeline, {"scores": BAD}, tmp_path)
    first = await run(pipeline, pipeline_dir=tmp_path)
    assert (id_of(first), first.status, first.exit_code) == (monday, "failed", 3)
    assert first.waiting == ()
    before = fingerprint(run_directory(tmp_path, monday))

    tuesday = await ingest_frames(pipeline, {"scores": GOOD}, tmp_path)
    second = await run(pipeline, pipeline_dir=tmp_path)
    assert (id_of(second), second.status, second.exit_code) == (tuesday, "completed", 0)
    assert statuses(second) == {"validate": "complete", "total": "complete"}
    assert read_file(tmp_path, tuesday, "scores").equals(GOOD.with_columns(total=pl.lit(70, dtype=pl.Int64)))
    (waiting,) = second.waiting
    assert (waiting.run_id, waiting.status, waiting.rows_quarantined) == (monday, "failed", 1)

    # Monday is untouched, to the byte.
    assert quarantined(tmp_path, monday, "validate", "id") == [(2, "negative")]
    assert fingerprint(run_directory(tmp_path, monday)) == before
    assert [summary.run_id for summary in list_runs(tmp_path)[0]] == [tuesday, monday]

    # With nothing newer to do, Monday's turn comes; by name it comes at any time.
    third = await run(pipeline, pipeline_dir=tmp_path)
    assert (id_of(third), third.exit_code, third.waiting) == (monday, 3, ())
    fourth = await run(pipeline, pipeline_dir=tmp_path, run_id=monday)
    assert (id_of(fourth), fourth.exit_code) == (monday, 3)
    assert manifest_of(tmp_path, tuesday)["status"] == "completed"


async def test_38_a_source_that_is_ingested_and_run(tmp_path: Path) -> None:
    """What `astro run --source DIR` does: ingest, and run just that."""
    pipeline = make_pipeline()
    runs: list[str] = []
    for night, frame in (("monday", BAD), ("tuesday", GOOD)):
        source = tmp_path / night
        source.mkdir()
        frame.write_csv(source / f"scores-{night}.csv")
        record = await ingest(pipeline, source, pipeline_dir=tmp_path)
        assert record.status == "ingested"
        assert (record.files["scores"].row_count, record.files["scores"].column_count) == (2, 2)
        assert record.files["scores"].source_path == str(source / f"scores-{night}.csv")
        result = await run(pipeline, pipeline_dir=tmp_path, run_id=record.run_id)
        runs.append(id_of(result))
    monday, tuesday = runs
    assert manifest_of(tmp_path, tuesday)["status"] == "completed"
    assert [summary.run_id for summary in result.waiting] == [monday]
    assert quarantined(tmp_path, monday, "validate", "id") == [(2, "negative")]


async def test_38_a_serial_pipeline_refuses_tuesday_until_monday_is_done(tmp_path: Path) -> None:
    pipeline = make_pipeline(execution_mode="serial")
    monday = await ingest_frames(pipeline, {"scores": BAD}, tmp_path)
    for _ in range(2):
        with pytest.raises(RunRefusedError, match=monday) as caught:
            await ingest_frames(pipeline, {"scores": GOOD}, tmp_path)
        # The ways out are named.
        assert f"astro run {monday}" in str(caught.value)
        assert "parallel" in str(caught.value)
        await run(pipeline, pipeline_dir=tmp_path)
    assert [summary.run_id for summary in list_runs(tmp_path)[0]] == [monday]

    # Without the check Monday's row is good, and Tuesday may come.
    lenient = Pipeline("nightly", ingest_files=pipeline.ingest_files, execution_mode="serial")
    done = await run(lenient, pipeline_dir=tmp_path, run_id=monday)
    assert done.status == "completed"
    assert read_file(tmp_path, monday, "scores").equals(BAD)
    tuesday = await ingest_frames(pipeline, {"scores": GOOD}, tmp_path)
    result = await run(pipeline, pipeline_dir=tmp_path)
    assert (id_of(result), result.status) == (tuesday, "completed")


async def test_when_no_run_has_anything_to_do(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    for _ in range(2):
        result = await run(pipeline, pipeline_dir=tmp_path)
        assert (result.run_id, result.status, result.exit_code, result.plan.has_work) == (
            None,
            None,
            0,
            False,
        )
    run_id = await ingest_frames(pipeline, {"scores": GOOD}, tmp_path)
    assert (await run(pipeline, pipeline_dir=tmp_path)).status == "completed"
    result = await run(pipeline, pipeline_dir=tmp_path)
    assert (result.run_id, result.exit_code) == (None, 0)
    for named in (run_id, "latest"):
        with pytest.raises(RunRefusedError, match="nothing to do"):
            await run(pipeline, pipeline_dir=tmp_path, run_id=named)
    # An edited pipeline gives a completed run something to do.
    pipeline.add_filter("small", pl.col("score") < 35, Scores)
    again = await run(pipeline, pipeline_dir=tmp_path, run_id="latest")
    assert (id_of(again), again.status) == (run_id, "completed")
    assert read_file(tmp_path, run_id, "scores")["id"].to_list() == [4]
