"""dataframely: `filter` returns the good rows and a report of the others."""

from __future__ import annotations

import dataframely as dy
import polars as pl

from benchmarks.rules.task import CODES, Answer, as_columns, tell


class Rows(dy.Schema):
    """The rules."""

    id = dy.Int64(primary_key=True)
    score = dy.Float64(nullable=False, min=0)
    code = dy.String(nullable=False, check=lambda code: code.is_in(CODES))


class RowsOrNull(Rows):
    """The rules, where a score may be missing."""

    score = dy.Float64(nullable=True, min=0)


def main() -> None:
    """Judge the rows."""
    good, failure = Rows.filter(pl.DataFrame(as_columns()))
    details = failure.details()
    rules = [name for name in details.columns if name not in ("id", "score", "code")]
    counts = details.select(pl.sum_horizontal(pl.col(rules).cast(pl.String) == "invalid"))
    bad = list(zip(details["id"].to_list(), counts.to_series().to_list(), strict=True))
    _, lenient = RowsOrNull.filter(pl.DataFrame(as_columns()))
    passes = sorted({3, 4} & set(lenient.invalid()["id"].to_list()))
    tell("dataframely", Answer(good=good["id"].to_list(), bad=bad, bad_where_null_passes=passes))


if __name__ == "__main__":
    main()
