"""Which expressions may judge rows, and what is said of those that may not."""

from __future__ import annotations

import polars as pl
import pytest

from astro_async._frames.verdict import RowRule, check_row_wise
from astro_async.exceptions import RuleError

SCHEMA = pl.Schema(
    {
        "x": pl.Int64(),
        "y": pl.Int64(),
        "k": pl.String(),
        "f": pl.Float64(),
        "b": pl.Boolean(),
        "d": pl.Date(),
        "l": pl.List(pl.Int64()),
        "s": pl.Struct({"a": pl.Int64()}),
    }
)
x, y, lists = pl.col("x"), pl.col("y"), pl.col("l")
udf = x.map_elements(abs, return_dtype=pl.Int64)

AGGREGATING = {
    "sum": x.sum() > 5,
    "mean beside a column": x > x.mean(),
    "in then": pl.when(x > 0).then(x > x.max()).otherwise(True),
    "in when": pl.when(x.max() > 3).then(x > 0).otherwise(True),
    "any": (x > 0).any(),
    "all": (x > 0).all(),
    "first": x > x.first(),
    "len": pl.len() > 3,
    "len beside a column": pl.len() > x,
    "count": x.count() > 1,
    "n_unique": x.n_unique() > 1,
    "null_count": x.null_count() > 1,
    "quantile": x > x.quantile(0.5),
    "get": x > x.get(0),
    "std": x.std() > 1,
    "corr": pl.corr("x", "y") > 0,
    "implode": x.implode().list.sum() > 1,
    "fill_null": x.fill_null(x.mean()) > 0,
    "selector": pl.all_horizontal(pl.col("x", "y") > pl.col("x", "y").max()),
    "in struct": pl.struct(x.sum(), "y").struct.field("x") > 1,
    "with_fields": pl.col("s").struct.with_fields(pl.field("a").sum()).struct.field("a") > 1,
    "in the set": x.is_in(y.max().implode()),
    "beside over": x > x.max() + x.sum().over("k"),
    "over a function": udf.sum() > 5,
    "beside a function": udf > udf.mean(),
    "any of a function": (udf > 1).any(),
    "all of a function": (udf > 1).all(),
    "get of a function": udf > udf.get(0),
    "alias": (x > x.mean()).alias("sum"),
}
CHANGING_HEIGHT = {
    "head": x.head(1) > 0,
    "filter": x.filter(x > 0) > 0,
    "drop_nulls": x.drop_nulls() > 0,
    "unique": x.unique() > 0,
    "gather": x.gather([0]) > 0,
    "explode": lists.explode() > 0,
    "head of a function": udf.head(1) > 0,
}
ROW_WISE = {
    "comparison": x > 0,
    "literal": pl.lit(True),
    "boolean column": pl.col("b"),
    "over": x > x.mean().over("k"),
    "len over": pl.len().over("k") == 1,
    "over of a function": udf > udf.sum().over("k"),
    "rolling": x.sum().rolling("d", period="3d") > 1,
    "list.sum": lists.list.sum() > 3,
    "list.eval": lists.list.eval(pl.element().sum()).list.first() > 3,
    "list.filter": lists.list.filter(pl.element() > 1).list.len() > 0,
    "sum_horizontal": pl.sum_horizontal("x", "y") > 3,
    "is_unique": x.is_unique(),
    "is_duplicated": ~x.is_duplicated(),
    "rank": x.rank() > 1,
    "shift": x.shift() > 1,
    "cum_sum": x.cum_sum() > 1,
    "map_elements": x.map_elements(bool, return_dtype=pl.Boolean),
    "map_batches": x.map_batches(lambda s: s > 1, return_dtype=pl.Boolean),
    "range to len": pl.int_range(pl.len()).shuffle() > 1,
    "is_in": x.is_in([1, 2]),
    "is_in of a column": x.is_in(y.unique().implode()),
    "fold": pl.fold(pl.lit(0), lambda a, b: a + b, ["x", "y"]) > 0,
    "selector": pl.all_horizontal(pl.col("x", "y") > 1),
    "aggregate of a constant": pl.lit(pl.Series([1, 2])).max() > x,
}


@pytest.mark.parametrize("expr", AGGREGATING.values(), ids=AGGREGATING)
def test_aggregates_over_the_frame_are_refused(expr: pl.Expr) -> None:
    with pytest.raises(RuleError, match=r"'r' aggregates over the whole frame.*\.over"):
        check_row_wise(RowRule("r", expr), SCHEMA)


@pytest.mark.parametrize("expr", CHANGING_HEIGHT.values(), ids=CHANGING_HEIGHT)
def test_changes_of_height_are_refused(expr: pl.Expr) -> None:
    with pytest.raises(RuleError, match="'r' changes the height"):
        check_row_wise(RowRule("r", expr), SCHEMA)


@pytest.mark.parametrize("expr", ROW_WISE.values(), ids=ROW_WISE)
def test_what_gives_one_verdict_a_row_is_fine(expr: pl.Expr) -> None:
    check_row_wise(RowRule("r", expr), SCHEMA)


def test_a_missing_column_is_named_with_near_misses() -> None:
    with pytest.raises(RuleError, match=r"'score '.*Did you mean 'Score'"):
        check_row_wise(RowRule("r", pl.col("score ") > 1), pl.Schema({"Score": pl.Int64()}))


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        (x + 1, "is Int64, not Boolean"),
        (pl.lit(None), "is Null, not Boolean"),
        (pl.col("x", "y") > 1, "gives 2 columns"),
        (pl.col("d") > pl.lit("abc"), "does not fit"),
    ],
)
def test_what_is_not_one_boolean_is_refused(expr: pl.Expr, told: str) -> None:
    with pytest.raises(RuleError, match=told):
        check_row_wise(RowRule("r", expr), SCHEMA)
