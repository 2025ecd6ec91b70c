"""Bring rows to a given schema, or refuse: nothing is lost in silence.

The values of cells never appear in messages, only column names, dtypes and counts.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from astro_async._frames.dtypes import as_instance
from astro_async.exceptions import QuarantineError

__all__ = ["conform_rows"]

Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def conform_rows(rows: Rows, schema: pl.Schema) -> Rows:
    """Give rows the columns, order and dtypes of `schema`; other columns are left out.

    A cast is allowed when no value becomes null and every value comes back unchanged from the way there
    and back. Never allowed, whatever the values: text to a number, a date or a boolean; a decimal to or
    from a float; a number to or from a point in time; a time zone added or dropped.

    A LazyFrame whose dtypes already fit is only given a projection. Where dtypes differ it is evaluated
    once, streamed, to count what would be lost, and the returned plan evaluates it again: such a plan must
    give the same rows each time.

    Raises:
        QuarantineError: Columns are missing, or values do not cast; the message names all of them.
    """
    given = rows.collect_schema()
    missing = [name for name in schema if name not in given]
    if missing:
        raise QuarantineError(
            f"the rows lack {len(missing)} of the {len(schema)} columns of the source: "
            f"{', '.join(map(repr, missing))}"
        )
    changed = [name for name, dtype in schema.items() if given[name] != dtype]
    problems = [
        f"{name!r} ({given[name]} to {schema[name]})"
        for name in changed
        if not _may_cast(given[name], schema[name])
    ]
    problems += _find_losses(rows, given, schema, [name for name in changed if given[name] != pl.Null])
    if problems:
        raise QuarantineError(
            f"the rows do not fit the source without loss: {'; '.join(sorted(set(problems)))}. "
            f"Give these columns the dtype of the source first."
        )
    return rows.select(
        pl.col(name).cast(dtype) if name in changed else pl.col(name) for name, dtype in schema.items()
    )


def _find_losses(
    rows: pl.DataFrame | pl.LazyFrame, given: pl.Schema, schema: pl.Schema, names: list[str]
) -> list[str]:
    """Count, in one pass, the values of each column that a cast would change."""
    names = [name for name in names if _may_cast(given[name], schema[name])]
    if not names:
        return []
    counts = rows.lazy().select(_count_losses(name, given[name], schema[name]) for name in names)
    lost = counts.collect(engine="streaming").row(0, named=True)
    return [
        f"{name!r} ({given[name]} to {schema[name]}, {lost[name]} values)" for name in names if lost[name]
    ]


def _count_losses(name: str, source: pl.DataType, target: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    back = column.cast(target, strict=False).cast(source, strict=False)
    return column.ne_missing(back).sum().alias(name)


def _may_cast(source: pl.DataType, target: pl.DataType) -> bool:
    """Say whether values of one dtype may become another at all, before looking at any value."""
    if source == target or isinstance(source, pl.Null):
        return True
    if isinstance(source, pl.List | pl.Array) and isinstance(target, pl.List | pl.Array):
        same_kind = isinstance(source, pl.List) == isinstance(target, pl.List)
        return same_kind and _may_cast(as_instance(source.inner), as_instance(target.inner))
    if isinstance(source, pl.Struct) and isinstance(target, pl.Struct):
        ours = {field.name: as_instance(field.dtype) for field in source.fields}
        theirs = {field.name: as_instance(field.dtype) for field in target.fields}
        return list(ours) == list(theirs) and all(_may_cast(ours[name], theirs[name]) for name in ours)
    if isinstance(source, pl.Datetime) and isinstance(target, pl.Datetime):
        return (source.time_zone is None) == (target.time_zone is None)
    if any(isinstance(dtype, pl.Datetime) and dtype.time_zone is not None for dtype in (source, target)):
        # A zone has no place in a date or in text that is read back without it.
        return False
    return (_kind(source), _kind(target)) in _ALLOWED


# Text may hold anything, so everything that prints exactly may become text; the way back is closed.
_ALLOWED = frozenset(
    {
        ("integer", "integer"),
        ("integer", "float"),
        ("integer", "decimal"),
        ("integer", "text"),
        ("float", "integer"),
        ("float", "float"),
        ("float", "text"),
        ("decimal", "integer"),
        ("decimal", "decimal"),
        ("decimal", "text"),
        ("boolean", "boolean"),
        ("boolean", "text"),
        ("text", "text"),
        ("date", "datetime"),
        ("date", "text"),
        ("datetime", "date"),
        ("datetime", "text"),
        ("time", "text"),
        ("duration", "duration"),
    }
)


def _kind(dtype: pl.DataType) -> str:
    """Name the family of a dtype, within which and between which casts are judged."""
    families = {
        "integer": dtype.is_integer(),
        "float": dtype.is_float(),
        "decimal": dtype.is_decimal(),
        "text": isinstance(dtype, pl.String | pl.Categorical | pl.Enum),
        "boolean": isinstance(dtype, pl.Boolean),
        "date": isinstance(dtype, pl.Date),
        "datetime": isinstance(dtype, pl.Datetime),
        "time": isinstance(dtype, pl.Time),
        "duration": isinstance(dtype, pl.Duration),
    }
    return next((name for name, fits in families.items() if fits), str(dtype))
