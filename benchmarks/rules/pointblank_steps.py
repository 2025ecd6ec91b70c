"""pointblank: each rule is a step, and each step has an extract of the rows that fail it."""

from __future__ import annotations

import pointblank as pb  # type: ignore[import-not-found, unused-ignore]
import polars as pl

from benchmarks.rules.task import CODES, Answer, as_columns, count_reasons, tell, with_ids


def main() -> None:
    """Judge the rows."""
    plan = pb.Validate(pl.DataFrame(as_columns())).rows_distinct("id").col_vals_ge("score", 0)
    judged = plan.col_vals_in_set("code", list(CODES)).interrogate()
    extracts = [judged.get_data_extracts(step, frame=True) for step in (1, 2, 3)]
    found = [
        (number - 1, step) for step, rows in enumerate(extracts) for number in rows["_row_num_"].to_list()
    ]
    good = judged.get_sundered_data(type="pass")["id"].to_list()
    lenient = pb.Validate(pl.DataFrame(as_columns())).col_vals_ge("score", 0, na_pass=True).interrogate()
    passes = sorted({3, 4} & set(lenient.get_data_extracts(1, frame=True)["id"].to_list()))
    bad = with_ids(count_reasons(found))
    tell("pointblank", Answer(good=good, bad=bad, bad_where_null_passes=passes, positions=True))


if __name__ == "__main__":
    main()
