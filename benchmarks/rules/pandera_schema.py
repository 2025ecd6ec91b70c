"""pandera on Polars: rows are dropped, or an error tells of them."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from benchmarks.rules.task import CODES, Answer, as_columns, count_reasons, tell, with_ids


def make_schema(*, drops: bool, nullable: bool = False) -> pa.DataFrameSchema:
    """Return the rules."""
    columns = {
        "id": pa.Column(int, unique=True),
        "score": pa.Column(float, pa.Check.ge(0), nullable=nullable),
        "code": pa.Column(str, pa.Check.isin(CODES)),
    }
    return pa.DataFrameSchema(columns, drop_invalid_rows=drops)


def main() -> None:
    """Judge the rows, in both ways."""
    rows = pl.DataFrame(as_columns())
    answer = Answer(positions=True)
    try:
        make_schema(drops=False).validate(rows, lazy=True)
    except pa.errors.SchemaErrors as error:
        cases = error.failure_cases
        answer.bad = with_ids(count_reasons(cases.select("index", "check").rows()))
    answer.good = make_schema(drops=True).validate(rows, lazy=True)["id"].to_list()
    lenient = make_schema(drops=True, nullable=True).validate(rows, lazy=True)["id"].to_list()
    answer.bad_where_null_passes = sorted({3, 4} - set(lenient))
    tell("pandera", answer)


if __name__ == "__main__":
    main()
