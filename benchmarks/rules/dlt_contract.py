"""dlt: a Pydantic model as contract, by which rows are discarded."""

from __future__ import annotations

import os
import tempfile
from typing import Literal

import dlt  # type: ignore[import-not-found, unused-ignore]
from pydantic import BaseModel, Field

from benchmarks.rules.task import COLUMNS, ROWS, Answer, tell


class Row(BaseModel):
    """The rules about one row; there is none about several."""

    id: int
    score: float = Field(ge=0)
    code: Literal["A", "B"]


class RowOrNull(Row):
    """The rules, where a score may be missing."""

    score: float | None = Field(ge=0)  # type: ignore[assignment]


def main() -> None:
    """Load the rows in both ways."""
    lenient = load(RowOrNull)
    tell("dlt", Answer(good=load(Row), bad_where_null_passes=sorted({3, 4} - set(lenient))))


def load(model: type[Row]) -> list[int]:
    """Load the rows into DuckDB, and return the ids that arrive."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = dlt.resource(
            [dict(zip(COLUMNS, row, strict=True)) for row in ROWS],
            name="rows",
            columns=model,
            schema_contract={"data_type": "discard_row", "columns": "discard_row"},
        )
        pipeline = dlt.pipeline(
            "rows", destination=dlt.destinations.duckdb("rows.duckdb"), pipelines_dir=folder, progress=None
        )
        pipeline.run(rows)
        with pipeline.sql_client() as client:
            return [row[0] for row in client.execute_sql("SELECT id FROM rows")]


if __name__ == "__main__":
    main()
