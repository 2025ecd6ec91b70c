"""Random frames with nulls, NaN, signed zeros, twins, nested values and decimals."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import polars as pl
from hypothesis import strategies as st

SCHEMA = pl.Schema(
    {
        "n": pl.Int64(),
        "f": pl.Float64(),
        "t": pl.String(),
        "d": pl.Decimal(10, 2),
        "l": pl.List(pl.Float64()),
        "s": pl.Struct({"a": pl.Int64(), "b": pl.Float64()}),
        "e": pl.Enum(["red", "blue"]),
    }
)

# Few values for each column, so that twins and near-twins are common.
_FLOATS = st.sampled_from([None, float("nan"), 0.0, -0.0, 1.5, -2.0])
_ROWS = st.tuples(
    st.sampled_from([None, -1, 0, 7]),
    _FLOATS,
    st.sampled_from([None, "", "007", "a; b"]),
    st.sampled_from([None, Decimal("0.10"), Decimal("0.30"), Decimal("-1.00")]),
    st.one_of(st.none(), st.lists(_FLOATS, max_size=2)),
    st.one_of(st.none(), st.fixed_dictionaries({"a": st.sampled_from([None, 1]), "b": _FLOATS})),
    st.sampled_from([None, "red", "blue"]),
)


def frames(max_rows: int = 30) -> st.SearchStrategy[pl.DataFrame]:
    """Make a strategy for frames of `SCHEMA`, many of whose rows are twins."""
    few = st.lists(_ROWS, min_size=1, max_size=4).flatmap(
        lambda pool: st.lists(st.sampled_from(pool), max_size=max_rows)
    )
    return st.one_of(few, st.lists(_ROWS, max_size=max_rows)).map(
        lambda rows: pl.DataFrame(rows, schema=SCHEMA, orient="row")
    )


def contents(frame: pl.DataFrame) -> list[str]:
    """Print each row so that NaN equals itself and 0.0 differs from -0.0."""
    return [repr(_plain(row)) for row in frame.rows()]


def multiset(*parts: pl.DataFrame) -> Counter[str]:
    """Count the rows of all parts by content."""
    return Counter(row for part in parts for row in contents(part))


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
