"""Decisions about single rows, as the repair desk records them: cases 20c and 20d."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, RunStatus, StepStatus, expect, read_run
from astro_async._core.names import RunId
from astro_async._executor.clock import utc_now
from astro_async._executor.decisions import record_decision
from astro_async._store.atomic import Disk
from astro_async.testing import ingest_frames, read_file, read_quarantine

pytestmark = pytest.mark.anyio

SCHEMA = {"name": pl.String, "score": pl.Int64}


def make_pipeline(*checks: str) -> Pipeline:
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("scores", "scores.csv", SCHEMA)])
    rules = {
        "low": expect("too low", pl.col("score") >= 0),
        "high": expect("too high", pl.col("score") <= 100),
    }
    for name in checks:
        pipeline.add_check(name, rules[name], AstroFileSpec("scores"))
    return pipeline


def decide(directory: Path, run_id: str, step_id: str, rows: pl.DataFrame, new: pl.DataFrame | None) -> None:
    record = read_run(directory, run_id)
    part = record.steps[step_id].files[0].parts[0]
    assert part.positions is not None
    places = pl.read_parquet(directory / ".working" / run_id / part.positions, glob=False)["_astro_row"]
    parked = read_quarantine(directory, run_id, step_id, "scores").drop("_astro_quarantine_reason")
    chosen = [parked.rows().index(row) for row in rows.rows()]
    record_decision(
        str(directory),
        RunId(run_id),
        step_id,
        "scores",
        original=rows,
        replacement=new,
        positions=places.gather(chosen),
        because="looked at it",
        disk=Disk(),
        clock=utc_now,
    )


async def test_20c_one_of_two_twins_is_discarded_once(tmp_path: Path) -> None:
    pipeline = make_pipeline("low")
    frame = pl.DataFrame({"name": ["b", "a", "a", "c"], "score": [1, -1, -1, 2]}, schema=SCHEMA)
    run_id = await ingest_frames(pipeline, {"scores": frame}, tmp_path)
    await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    one = frame.slice(1, 1)
    decide(tmp_path, run_id, "low", one, None)
    for attempt in (2, 3):
        result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
        assert result.status is RunStatus.QUARANTINED
        assert result.record is not None
        flow = result.record.steps["low"].files[0]
        assert result.record.steps["low"].attempt == attempt
        assert (flow.rows_in, flow.rows_out, flow.rows_quarantined, flow.rows_discarded) == (4, 2, 1, 1)
        parked = read_quarantine(tmp_path, run_id, "low", "scores")
        assert parked.rows() == [("a", -1, "too low")]
        places = tmp_path / ".working" / run_id / str(flow.parts[0].positions)
        # In the snapshot, of which row 1 is left out.
        assert pl.read_parquet(places, glob=False)["_astro_row"].to_list() == [2]
    relaxed = Pipeline("p", ingest_files=[IngestFileSpec("scores", "scores.csv", SCHEMA)])
    relaxed.add_check("low", expect("too low", pl.col("score") >= -1), AstroFileSpec("scores"))
    result = await astro_async.run(relaxed, pipeline_dir=tmp_path, run_id=run_id)
    assert result.status is RunStatus.COMPLETED
    assert read_file(tmp_path, run_id, "scores").rows() == [("b", 1), ("a", -1), ("c", 2)]


async def test_20d_amendments_of_two_steps_on_one_file_land_on_their_rows(tmp_path: Path) -> None:
    pipeline = make_pipeline("low", "high")
    frame = pl.DataFrame({"name": ["a", "b", "c", "d", "e"], "score": [-5, 1, 500, -7, 500]}, schema=SCHEMA)
    run_id = await ingest_frames(pipeline, {"scores": frame}, tmp_path)
    await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    low = pl.DataFrame({"name": ["a", "d"], "score": [5, None]}, schema=SCHEMA)
    decide(tmp_path, run_id, "low", frame.gather([0, 3]), low.with_columns(score=pl.Series([5, 7])))
    # These rows move: two rows that stood before them come back.
    high = pl.DataFrame({"name": ["c", "e"], "score": [50, 60]}, schema=SCHEMA)
    decide(tmp_path, run_id, "high", frame.gather([2, 4]), high)
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert result.status is RunStatus.COMPLETED
    assert read_file(tmp_path, run_id, "scores").rows() == [
        ("a", 5),
        ("b", 1),
        ("c", 50),
        ("d", 7),
        ("e", 60),
    ]
    assert result.record is not None
    assert {step.status for step in result.record.steps.values()} == {StepStatus.COMPLETE}


async def test_a_patch_whose_rows_are_gone_fails_the_step(tmp_path: Path) -> None:
    pipeline = make_pipeline("low")
    frame = pl.DataFrame({"name": ["a"], "score": [-1]}, schema=SCHEMA)
    run_id = await ingest_frames(pipeline, {"scores": frame}, tmp_path)
    await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    record_decision(
        str(tmp_path),
        RunId(run_id),
        "low",
        "scores",
        original=pl.DataFrame({"name": ["z"], "score": [9]}, schema=SCHEMA),
        replacement=None,
        positions=pl.Series([0]),
        because=None,
        disk=Disk(),
        clock=utc_now,
    )
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert result.exit_code == 1
    assert result.record is not None
    detail = result.record.steps["low"].detail or ""
    assert "1 of 1 decided rows are not in the file any more as they were" in detail
    assert f"`astro quarantine withdraw {run_id} low --file scores --rows 0` takes back" in detail
    assert read_file(tmp_path, run_id, "scores").equals(frame)
