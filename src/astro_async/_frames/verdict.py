"""One rule about rows, and the check that it really judges each row for itself.

A broken rule is the author's fault, never the row's: everything wrong with a rule raises `RuleError`
before any row is judged, as far as it can be known from the expression and the schema.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import polars as pl
from polars.exceptions import ColumnNotFoundError

from astro_async._frames.expression import (
    columns_read,
    columns_tested_for_nan,
    find_aggregate,
    find_height_change,
)
from astro_async.exceptions import RuleError

__all__ = ["RowRule", "check_row_wise", "describe_missing", "floats_judged_for_nan"]


@dataclass(frozen=True, slots=True, eq=False)
class RowRule:
    """A reason, and what is true for rows to which the reason does not apply.

    Attributes:
        reason: The author's words for a row that breaks the rule.
        valid: True for a good row: an expression, or the verdicts of all rows, made elsewhere.
        null_is_good: Whether a row is good when `valid` is null for it.
        nan_is_good: Whether NaN in a floating column that `valid` reads passes; otherwise such a row is bad.
        nan_is_value: NaN is a value like any other: only `valid` decides about it.
        when: True for rows that the rule is about; None means all. A null is not true.
        only_warns: Rows that break the rule are counted, and stay good.
    """

    reason: str
    valid: pl.Expr | pl.Series
    null_is_good: bool = False
    nan_is_good: bool = False
    nan_is_value: bool = False
    when: pl.Expr | None = None
    only_warns: bool = False


def check_row_wise(rule: RowRule, schema: pl.Schema) -> None:
    """Check that a rule fits a schema and judges each row for itself.

    Functions that look at other rows but keep the height are fine: `.over(…)`, `is_unique`, `rank`,
    `shift`, sorting, cumulative sums. Not found here: a Python function that declares
    `returns_scalar=True` or that returns fewer rows than it was given.

    Raises:
        RuleError: The rule names a missing column, is not Boolean, gives more than one column, aggregates
            over the frame, or changes its height.
    """
    if isinstance(rule.valid, pl.Expr):
        _check_expression(f"the rule {rule.reason!r}", rule.valid, schema)
    if rule.when is not None:
        _check_expression(f"`when` of the rule {rule.reason!r}", rule.when, schema)


def _check_expression(what: str, expr: pl.Expr, schema: pl.Schema) -> None:
    # Polars names the element of a list "" among the roots; a column of that name is checked below.
    missing = [name for name in expr.meta.root_names() if name and name not in schema]
    if missing:
        raise RuleError(f"{what} {describe_missing(missing, schema)}")
    _check_shape(what, expr)
    _check_dtype(what, expr, schema)


def describe_missing(missing: list[str], schema: pl.Schema) -> str:
    """Say which columns are missing, and which existing ones may have been meant."""
    near = [match for name in dict.fromkeys(missing) for match in _near_misses(name, schema.names())]
    hint = f" Did you mean {' or '.join(map(repr, dict.fromkeys(near)))}?" if near else ""
    return f"names columns that are not there: {', '.join(map(repr, dict.fromkeys(missing)))}.{hint}"


def floats_judged_for_nan(rule: RowRule, schema: pl.Schema) -> list[str]:
    """List the floating columns whose NaN the rule's `nan_is_good` decides.

    These are the floating columns that the expression reads, without those about whose NaN it asks itself.
    """
    if rule.nan_is_value or not isinstance(rule.valid, pl.Expr):
        return []
    asked = columns_tested_for_nan(rule.valid, schema)
    read = columns_read(rule.valid, schema)
    return [name for name in read if schema[name].is_float() and name not in asked]


def _near_misses(name: str, known: list[str]) -> list[str]:
    same = [other for other in known if other.strip().casefold() == name.strip().casefold()]
    return same or difflib.get_close_matches(name, known, n=2)


def _check_shape(what: str, expr: pl.Expr) -> None:
    if aggregate := find_aggregate(expr):
        raise RuleError(
            f"{what} aggregates over the whole frame in `{aggregate}`, so one value would "
            f"judge every row. Put `.over(…)` behind the aggregate, or compare with a constant."
        )
    if change := find_height_change(expr):
        raise RuleError(
            f"{what} changes the height of the frame in `{change}`; a rule gives one verdict for each row"
        )


def _check_dtype(what: str, expr: pl.Expr, schema: pl.Schema) -> None:
    try:
        verdict = pl.LazyFrame(schema=schema).select(expr).collect_schema()
    except ColumnNotFoundError as error:
        raise RuleError(f"{what} names a column that is not there: {error}") from error
    except Exception as error:
        # Polars raises its own errors here, and also whatever a Python function raises while it is
        # asked for its dtype. Either way the rule is broken.
        raise RuleError(f"{what} does not fit the columns: {error}") from error
    if len(verdict) != 1:
        raise RuleError(
            f"{what} gives {len(verdict)} columns ({', '.join(map(repr, verdict))}); "
            f"join them with pl.all_horizontal(…) or pl.any_horizontal(…)"
        )
    dtype = verdict.dtypes()[0]
    if not isinstance(dtype, pl.Boolean | pl.Unknown):
        raise RuleError(f'{what} is {dtype}, not Boolean; write a comparison such as pl.col("score") >= 0')
