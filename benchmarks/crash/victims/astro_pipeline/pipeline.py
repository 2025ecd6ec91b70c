"""The pipeline that is killed, for astro-pipeline: 21 steps on two files, one of which parks rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandera.polars as pa  # type: ignore[import-not-found, unused-ignore]
import polars as pl
from astro.pipeline import (  # type: ignore[import-not-found, unused-ignore]
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
)

LIMIT = int((Path(__file__).parent / "limit.txt").read_text())


class Scores(AstroFileSpec):  # type: ignore[misc, unused-ignore]
    ingest_name = "scores"


class Teams(AstroFileSpec):  # type: ignore[misc, unused-ignore]
    ingest_name = "teams"


def tag(ctx: Any, files: Any) -> None:
    """Append the step to the trail of each row."""
    frame = files[0].load()
    trail = pl.col("trail") + "/" if "trail" in frame.columns else pl.lit("")
    files[0].save_in_place(frame.with_columns(trail=trail + ctx.step_id))


def check(ctx: Any, files: Any) -> None:
    """Park rows that are too low."""
    frame = files[0].load()
    bad = frame.filter(pl.col("score") < LIMIT)
    if bad.height:
        ctx.quarantine.quarantine_rows(files[0], bad, reason="score too low")
    files[0].save_in_place(frame.filter(pl.col("score") >= LIMIT))


def join(ctx: Any, files: Any) -> None:
    """Feed one file from the other."""
    totals = files[0].load().group_by("team").agg(pl.col("score").sum().alias("total"))
    files[1].save_in_place(files[1].load().join(totals, on="team", how="left", maintain_order="left"))


class Victim(Pipeline):  # type: ignore[misc, unused-ignore]
    name = "victim"
    ingest_files = (
        IngestFileSpec(
            "scores",
            "scores.csv",
            pa.DataFrameSchema({"id": pa.Column(int), "team": pa.Column(str), "score": pa.Column(int)}),
        ),
        IngestFileSpec(
            "teams",
            "teams.csv",
            pa.DataFrameSchema({"team": pa.Column(str), "city": pa.Column(str), "size": pa.Column(int)}),
        ),
    )

    def configure_steps(self) -> None:
        for number in range(8):
            self.add_step(f"Before {number}", tag, [Scores()], step_id=f"before-{number}")
        self.add_step("Check", check, [Scores()], step_id="check")
        for number in range(5):
            self.add_step(f"After {number}", tag, [Scores()], step_id=f"after-{number}", depends_on=["check"])
        self.add_step("Join", join, [Scores(), Teams()], step_id="join", depends_on=["check"])
        for number in range(6):
            self.add_step(f"Mark {number}", tag, [Teams()], step_id=f"mark-{number}", depends_on=["join"])


pipeline = Victim()
