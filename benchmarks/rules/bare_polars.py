"""Polars alone, which the tools that judge frames are given their rows by."""

from __future__ import annotations

import polars as pl

from benchmarks.rules.task import LINES, Answer, tell


def main() -> None:
    """Read the file with everything that lets it go on."""
    answer = Answer()
    schema = {"id": pl.Int64, "score": pl.Float64, "code": pl.String}
    try:
        rows = pl.read_csv(LINES.encode(), schema=schema, ignore_errors=True)
        answer.lines_good = rows["id"].to_list()
    except pl.exceptions.PolarsError:
        answer.refuses = True
    tell("polars", answer)


if __name__ == "__main__":
    main()
