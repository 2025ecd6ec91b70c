"""Look inside a Polars expression: what it reads, and whether it judges rows one by one.

An expression is walked through `Expr.meta.pop`, which also works where it holds Python functions (those
cannot be serialised). Nothing here evaluates an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
from polars.exceptions import PolarsError

__all__ = [
    "calls_python",
    "columns_read",
    "columns_tested_for_nan",
    "find_aggregate",
    "find_height_change",
    "selects_columns",
]

_OPERATION = re.compile(r"\.([a-z_0-9.]+)[(\[]")

# Polars says whether a node is scalar, except above a Python function or a selector, where it cannot resolve
# the dtypes. For those the name decides.
_AGGREGATES = frozenset(
    {
        "all",
        "all_ignore_nulls",
        "any",
        "any_ignore_nulls",
        "approx_n_unique",
        "arg_max",
        "arg_min",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "corr",
        "count",
        "cov",
        "entropy",
        "first",
        "get",
        "has_nulls",
        "implode",
        "item",
        "kurtosis",
        "last",
        "len",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "n_unique",
        "nan_max",
        "nan_min",
        "null_count",
        "pearson_corr",
        "product",
        "quantile",
        "skew",
        "spearman_rank_corr",
        "std",
        "sum",
        "var",
    }
)
_CHANGES_HEIGHT = frozenset(
    {
        "arg_true",
        "arg_unique",
        "bottom_k",
        "drop_nans",
        "drop_nulls",
        "explode",
        "filter",
        "gather",
        "gather_every",
        "head",
        "limit",
        "mode",
        "sample",
        "slice",
        "tail",
        "top_k",
        "unique",
        "unique_counts",
        "value_counts",
    }
)
# Their first input may aggregate: the result is spread over the rows of each group or window again.
_WINDOWS = frozenset({"over", "rolling"})
# Only their first input is of the frame; the rest runs within the list of each row.
_INNER_EVALUATIONS = frozenset({"list.eval", "list.agg", "arr.eval", "arr.agg"})
_RANGES = frozenset({"int_range", "int_ranges", "linear_space", "date_range", "datetime_range"})
_NAN_TESTS = frozenset({"is_nan", "is_not_nan", "fill_nan", "is_finite", "is_infinite"})


@dataclass(frozen=True, slots=True)
class _Node:
    expr: pl.Expr
    text: str
    operation: str
    inputs: tuple[pl.Expr, ...]


def find_aggregate(expr: pl.Expr) -> str | None:
    """Return the text of the first part that folds the whole frame into one value, or None.

    An aggregate inside `.over(…)` or `.rolling(…)`, within a list (`list.eval`), as the set of `is_in`, or
    `pl.len()` as the end of a range is fine. A Python function that declares `returns_scalar=True` looks
    like any other function here and is not found.
    """
    node = _open(expr)
    if node.text == "len()":
        return node.text
    inputs = node.inputs
    if _is_aggregate(node):
        return node.text
    if node.operation in _WINDOWS:
        inputs = inputs[1:]
    elif node.operation in _INNER_EVALUATIONS:
        inputs = inputs[:1]
    elif node.operation in _RANGES:
        inputs = tuple(part for part in inputs if str(part) != "len()")
    elif node.operation == "is_in":
        inputs = inputs[:1] + tuple(_unwrap_set(part) for part in inputs[1:])
    found = (find_aggregate(part) for part in inputs)
    return next((text for text in found if text is not None), None)


def find_height_change(expr: pl.Expr) -> str | None:
    """Return the text of the first part that drops or adds rows (`filter`, `head`, `drop_nulls`), or None."""
    node = _open(expr)
    if node.operation in _CHANGES_HEIGHT:
        return node.text
    inputs = node.inputs
    if node.operation == "is_in" or node.operation in _INNER_EVALUATIONS:
        inputs = inputs[:1]
    elif node.operation in _WINDOWS or _is_aggregate(node):
        return None
    found = (find_height_change(part) for part in inputs)
    return next((text for text in found if text is not None), None)


def columns_read(expr: pl.Expr, schema: pl.Schema) -> list[str]:
    """List the columns of `schema` that an expression reads, selectors resolved, in the order of `schema`."""
    names: set[str] = set()
    for node in _walk(expr):
        if node.expr.meta.is_column():
            names.update(node.expr.meta.root_names())
            continue
        if node.inputs or not _reads_rows(node):
            continue
        try:
            names.update(pl.LazyFrame(schema=schema).select(node.expr).collect_schema().names())
        except PolarsError:
            # A leaf with no meaning outside its list or struct: `pl.element()`, `pl.field("a")`.
            continue
    return [name for name in schema if name in names]


def columns_tested_for_nan(expr: pl.Expr, schema: pl.Schema) -> list[str]:
    """List the columns about whose NaN the expression itself asks, with `is_nan` and its kin."""
    names: set[str] = set()
    for node in _walk(expr):
        if node.operation in _NAN_TESTS:
            names.update(columns_read(node.expr, schema))
    return [name for name in schema if name in names]


def calls_python(expr: pl.Expr) -> bool:
    """Say whether an expression holds a Python function, whose doings Polars knows nothing of."""
    return any(node.operation == "python_udf" for node in _walk(expr))


def selects_columns(expr: pl.Expr) -> bool:
    """Say whether an expression selects columns by pattern, position or dtype rather than by name."""
    leaves = (node for node in _walk(expr) if not node.inputs and _reads_rows(node))
    return any("cs." in leaf.text and not leaf.expr.meta.root_names() for leaf in leaves)


def _walk(expr: pl.Expr) -> Iterator[_Node]:
    node = _open(expr)
    yield node
    for part in node.inputs:
        yield from _walk(part)


def _open(expr: pl.Expr) -> _Node:
    # `pop` gives the inputs last one first.
    inputs = tuple(reversed(expr.meta.pop()))
    text = str(expr)
    operation = ""
    if inputs and text.startswith(first := str(inputs[0])):
        match = _OPERATION.match(text, len(first))
        operation = match.group(1) if match else ""
    return _Node(expr, text, operation, inputs)


def _is_aggregate(node: _Node) -> bool:
    """Say whether this very node, not something within it, turns rows into one value."""
    if not node.inputs or not any(map(_depends_on_rows, node.inputs)):
        return False
    try:
        if not node.expr.meta.is_scalar():
            return False
        return not all(part.meta.is_scalar() for part in node.inputs if _depends_on_rows(part))
    except PolarsError:
        return node.operation in _AGGREGATES


def _depends_on_rows(expr: pl.Expr) -> bool:
    return any(not node.inputs and _reads_rows(node) for node in _walk(expr))


def _reads_rows(leaf: _Node) -> bool:
    return not leaf.expr.meta.is_literal()


def _unwrap_set(expr: pl.Expr) -> pl.Expr:
    node = _open(expr)
    return node.inputs[0] if node.operation == "implode" else expr
