"""`keep_versions=False`: a completed run keeps the last versions only, and says so when more is asked."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline
from astro_async.context import StepContext
from astro_async.exceptions import RunRefusedError
from astro_async.files import StepFiles
from astro_async.testing import ingest_frames, read_file

pytestmark = pytest.mark.anyio


def make_pipeline() -> Pipeline:
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("a", "a.csv")], keep_versions=False)
    for number in (1, 2, 3):

        def add(ctx: StepContext, files: StepFiles, number: int = number) -> None:
            frame = files[0].load().with_columns(pl.lit(number).alias(f"c{number}"))
            if number == 2:
                files[0].save_to("processed", "two.parquet", frame)
            else:
                files[0].save_in_place(frame)

        pipeline.add_step(f"s{number}", add, AstroFileSpec("a"))
    return pipeline


async def test_only_the_last_versions_stay(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    run_id = await ingest_frames(pipeline, {"a": pl.DataFrame({"x": ["1"]})}, tmp_path)
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert result.exit_code == 0
    run = tmp_path / ".working" / run_id
    # The first is gone with the snapshot that linked to it; the second has a name of the author's own.
    assert sorted(path.name for path in (run / "versions" / "a").iterdir()) == [
        "s2.1.parquet",
        "s3.1.parquet",
    ]
    assert not (run / "snapshots" / "s2").exists()
    assert pl.read_parquet(run / "processed" / "two.parquet").columns == ["x", "c1", "c2"]
    assert read_file(tmp_path, run_id, "a").columns == ["x", "c1", "c2", "c3"]
    assert astro_async.read_run(tmp_path, run_id).dropped == {"versions/a/s1.1.parquet"}


async def test_what_needs_a_dropped_version_is_refused_and_told_where_to_begin(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    run_id = await ingest_frames(pipeline, {"a": pl.DataFrame({"x": ["1"]})}, tmp_path)
    await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    with pytest.raises(RunRefusedError, match=r"'s2' needs versions/a/s1\.1\.parquet.*--rerun s1"):
        await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=["s2"])
    again = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=["s1"])
    assert again.exit_code == 0
    assert read_file(tmp_path, run_id, "a").columns == ["x", "c1", "c2", "c3"]
