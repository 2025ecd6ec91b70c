"""The pipeline that is killed, for doit: the same 21 steps as tasks that make files from files.

doit has no quarantine: the check writes the rows that it parks to a file of their own, and runs again when
its limit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

Work = Callable[[str, list[str], list[str]], None]


def tag(name: str, reads: list[str], writes: list[str]) -> None:
    """Append the step to the trail of each row."""
    frame = read(reads[0])
    trail = pl.col("trail") + "/" if "trail" in frame.columns else pl.lit("")
    frame.with_columns(trail=trail + name).write_parquet(writes[0])


def check(name: str, reads: list[str], writes: list[str]) -> None:
    """Park rows that are too low."""
    limit = int(Path("limit.txt").read_text())
    frame = read(reads[0])
    frame.filter(pl.col("score") >= limit).write_parquet(writes[0])
    frame.filter(pl.col("score") < limit).write_parquet(writes[1])


def join(name: str, reads: list[str], writes: list[str]) -> None:
    """Feed one file from the other."""
    totals = read(reads[0]).group_by("team").agg(pl.col("score").sum().alias("total"))
    read(reads[1]).join(totals, on="team", how="left", maintain_order="left").write_parquet(writes[0])


def read(path: str) -> pl.DataFrame:
    """Read a file of the source, or of a task."""
    return pl.read_csv(path) if path.endswith(".csv") else pl.read_parquet(path, glob=False)


def task_step() -> Iterator[dict[str, Any]]:
    """Declare the tasks; doit finds this function by its name."""
    Path("made").mkdir(exist_ok=True)

    def task(name: str, work: Work, reads: list[str], writes: list[str], *more: str) -> dict[str, Any]:
        return {
            "name": name,
            "actions": [(work, [name, reads, writes])],
            "file_dep": [*reads, *more],
            "targets": writes,
        }

    last = "source/scores.csv"
    for number in range(8):
        yield task(f"before-{number}", tag, [last], [f"made/before-{number}.parquet"])
        last = f"made/before-{number}.parquet"
    yield task("check", check, [last], ["made/check.parquet", "made/parked.parquet"], "limit.txt")
    last = "made/check.parquet"
    for number in range(5):
        yield task(f"after-{number}", tag, [last], [f"made/after-{number}.parquet"])
        last = f"made/after-{number}.parquet"
    yield task("join", join, [last, "source/teams.csv"], ["made/join.parquet"])
    last = "made/join.parquet"
    for number in range(6):
        yield task(f"mark-{number}", tag, [last], [f"made/mark-{number}.parquet"])
        last = f"made/mark-{number}.parquet"
