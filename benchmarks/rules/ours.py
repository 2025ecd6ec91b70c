"""astro_async: a check, its quarantine, corrections that are given back, and lines that cannot be read."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import polars as pl

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, expect, expect_unique, expect_values
from astro_async.testing import ingest_frames, read_file
from benchmarks.rules.task import CODES, LINES, Answer, as_columns, tell

RULES = [expect_unique("id"), expect("below zero", pl.col("score") >= 0), expect_values("code", CODES)]


async def judge_where_null_passes(folder: str, answer: Answer) -> None:
    """Judge the rows where a score may be missing."""
    pipeline = Pipeline("rows", ingest_files=[IngestFileSpec("rows", "rows.csv")])
    rule = expect("below zero", pl.col("score") >= 0, null="pass")
    pipeline.add_check("Check", rule, AstroFileSpec("rows"))
    run_id = await ingest_frames(pipeline, {"rows": pl.DataFrame(as_columns())}, folder)
    await astro_async.run(pipeline, pipeline_dir=folder, run_id=run_id)
    good = read_file(folder, run_id, "rows")["id"].to_list()
    answer.bad_where_null_passes = sorted({3, 4} - set(good))


async def judge_rows(folder: str, answer: Answer) -> None:
    """Park the bad rows, then correct all of them and run again."""
    pipeline = Pipeline("rows", ingest_files=[IngestFileSpec("rows", "rows.csv")])
    pipeline.add_check("Check", RULES, AstroFileSpec("rows"))
    run_id = await ingest_frames(pipeline, {"rows": pl.DataFrame(as_columns())}, folder)
    await astro_async.run(pipeline, pipeline_dir=folder, run_id=run_id)
    answer.good = read_file(folder, run_id, "rows")["id"].to_list()
    parked = f"{folder}/parked.parquet"
    await astro_async.export_quarantine(parked, pipeline_dir=folder, run_id=run_id)
    bad = pl.read_parquet(parked)
    answer.bad = list(bad.select("id", pl.col("_astro_quarantine_reason").str.split("; ").list.len()).rows())
    answer.positions = bad["_astro_row"].null_count() == 0
    ids = pl.int_range(100, 100 + pl.len(), dtype=pl.Int64)
    bad.with_columns(ids.alias("id"), score=pl.lit(1.0), code=pl.lit("A")).write_parquet(parked)
    await astro_async.amend(parked, pipeline_dir=folder, run_id=run_id, step_id="check")
    await astro_async.run(pipeline, pipeline_dir=folder, run_id=run_id)
    answer.repaired = read_file(folder, run_id, "rows")["id"].to_list()


async def read_lines(folder: str, answer: Answer) -> None:
    """Ingest the file."""
    source = Path(folder, "source")
    source.mkdir()
    (source / "rows.csv").write_text(LINES)
    schema = {"id": pl.Int64, "score": pl.Float64, "code": pl.String}
    spec = IngestFileSpec("rows", "rows.csv", schema, on_bad_rows="quarantine")
    record = await astro_async.ingest(Pipeline("lines", ingest_files=[spec]), source, pipeline_dir=folder)
    answer.lines_good = read_file(folder, record.run_id, "rows")["id"].to_list()
    (part,) = Path(folder).glob(f".working/{record.run_id}/quarantine/ingest/*.parquet")
    answer.lines_bad = list(pl.read_parquet(part).select("line", "raw_text").rows())


async def main() -> None:
    """Do all of it, each in a folder of its own."""
    answer = Answer()
    for each in (judge_rows, judge_where_null_passes, read_lines):
        with tempfile.TemporaryDirectory() as folder:
            await each(folder, answer)
    tell("astro-async", answer)


if __name__ == "__main__":
    asyncio.run(main())
