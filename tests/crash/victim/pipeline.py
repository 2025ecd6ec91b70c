"""The pipeline that is killed: 23 steps of every kind, on three files.

How strict its rules are stands in `limit.txt` beside it: mending it is what lets parked rows come back.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, StepContext, StepFiles, expect

LIMIT = int((Path(__file__).parent / "limit.txt").read_text())

pipeline = Pipeline(
    "victim",
    ingest_files=[
        IngestFileSpec("scores", "scores.csv", {"id": pl.Int64, "team": pl.String, "score": pl.Int64}),
        IngestFileSpec("teams", "teams.csv", {"team": pl.String, "city": pl.String, "size": pl.Int64}),
        IngestFileSpec("notes", "notes.csv", optional=True),
    ],
)
scores, teams, notes = AstroFileSpec("scores"), AstroFileSpec("teams"), AstroFileSpec("notes")
scores_only, teams_only = AstroFileSpec("scores", readonly=True), AstroFileSpec("teams", readonly=True)


def mark(frame: pl.DataFrame, step_id: str) -> pl.DataFrame:
    """Append the step to the trail of each row: a step left out shows, and so does one done twice."""
    trail = pl.col("trail") + "/" if "trail" in frame.columns else pl.lit("")
    return frame.with_columns(trail=trail + step_id)


def tag(ctx: StepContext, files: StepFiles) -> None:
    """Append to the trail."""
    files[0].save_in_place(mark(files[0].load(), ctx.step_id))


def tag_lazily(ctx: StepContext, files: StepFiles) -> None:
    """Append to the trail, streamed."""
    files[0].sink(files[0].scan().with_columns(trail=pl.col("trail") + f"/{ctx.step_id}"))


async def tag_async(ctx: StepContext, files: StepFiles) -> None:
    """Append to the trail, on the event loop."""
    await files[0].asave_in_place(mark(await files[0].aload(), ctx.step_id))


def park_small(ctx: StepContext, files: StepFiles) -> None:
    """Set small teams aside, a part for each, by hand."""
    frame = files[0].load()
    for row in frame.filter(pl.col("size") < LIMIT + 3).iter_slices(1):
        ctx.quarantine.quarantine_rows(files[0], row, reason="too small")
    files[0].save_in_place(mark(frame.filter(pl.col("size") >= LIMIT + 3), ctx.step_id))


def count(ctx: StepContext, files: StepFiles) -> None:
    """Only look."""
    ctx.stats.record("rows_seen", files[0].row_count())


def join(ctx: StepContext, files: StepFiles) -> None:
    """Feed one file from another, and save the result under a name of its own."""
    totals = files["scores"].load().group_by("team").agg(pl.col("score").sum().alias("total"))
    joined = files["teams"].load().join(totals, on="team", how="left", maintain_order="left")
    files["teams"].save_to("processed", "teams.parquet", mark(joined, ctx.step_id))


def export(ctx: StepContext, files: StepFiles) -> None:
    """Save a copy that is not the version."""
    files[0].save_to("processed/export", "scores.parquet", files[0].load(), activate=False)


# Above the checks: each of these runs once, whatever happens, for nothing parks rows before them.
for number in range(4):
    pipeline.add_step(f"once {number}", tag, scores)
pipeline.add_step("once async", tag_async, scores)
pipeline.add_step("once process", tag, scores, engine="process")
pipeline.add_step("once teams", tag, teams)
pipeline.add_step("once seen", count, scores_only)

pipeline.add_check("check", expect("score too low", pl.col("score") >= LIMIT), scores)
pipeline.add_filter("drop voids", scores, remove=pl.col("score") == 50)
for number in range(2):
    pipeline.add_step(f"tag {number}", tag, scores)
pipeline.add_step("tag lazily", tag_lazily, scores)
pipeline.add_step("after check", tag, scores, depends_on="check")
pipeline.add_step("note", tag, notes)
pipeline.add_step("park small", park_small, teams)
pipeline.add_step("mark", tag, teams)
pipeline.add_step("join", join, [scores_only, teams], depends_on="after-check")
pipeline.add_step("mark process", tag, teams, engine="process")
pipeline.add_step("mark async", tag_async, teams)
pipeline.add_step("count teams", count, teams_only)
pipeline.add_step("export", export, scores_only)
pipeline.add_step("finish", tag, teams, depends_on=["join", "once-seen"])
