"""Read the text of a field as a value of a declared type: exactly, or not at all.

Pure expressions. No type is guessed from the data and nothing is rounded: more decimals than the type
holds, a day in a form other than ISO 8601, or a local time that a clock change skips or repeats is a value
that does not parse. `EXPECTED` texts say what would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from polars._typing import PolarsDataType

from astro_async.exceptions import PipelineError

__all__ = ["check_schema", "describe_type", "is_read_natively", "is_text", "read_strictly", "read_value"]

_UNIT_DIGITS = {"ms": 3, "us": 6, "ns": 9}
_OFFSET = "(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"


def check_schema(schema: Mapping[str, PolarsDataType]) -> pl.Schema:
    """Return the schema with every type in full: `pl.Datetime` becomes `pl.Datetime("us")`.

    Raises:
        PipelineError: A type cannot be read from text, or is not said in full; all such columns are named.
    """
    checked: dict[str, pl.DataType] = {}
    problems = []
    for name, given in schema.items():
        try:
            dtype = given() if isinstance(given, type) else given
        except TypeError:
            problems.append(f"{name!r} ({given}: give its parameters)")
            continue
        if _is_readable(dtype):
            checked[name] = dtype
        else:
            problems.append(f"{name!r} ({dtype})")
    if not schema:
        raise PipelineError("the schema has no columns; leave it out to read every column as String")
    if problems:
        raise PipelineError(
            f"text cannot be read as these types: {', '.join(problems)}. Declare String and "
            f"convert in a step."
        )
    return pl.Schema(checked)


def _is_readable(dtype: pl.DataType) -> bool:
    others = (pl.Boolean, pl.Date, pl.Datetime, pl.Time, pl.String, pl.Categorical, pl.Enum)
    return dtype.is_numeric() or isinstance(dtype, others)


def is_text(dtype: pl.DataType) -> bool:
    """Say whether values of the type are the text of the field as it is, blanks included."""
    return isinstance(dtype, pl.String | pl.Categorical)


def is_read_natively(dtype: pl.DataType) -> bool:
    """Say whether the CSV reader of Polars itself reads the type as `read_value` does, only less leniently.

    It rounds decimals, takes `01/02/2020` for the first of February, and drops offsets: not those.
    """
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, pl.Boolean | pl.Enum) or is_text(dtype)


def describe_type(dtype: pl.DataType) -> str:
    """Say which texts are values of the type, for an error message."""
    if isinstance(dtype, pl.Decimal):
        return (
            f"{dtype} (at most {dtype.precision} digits, {dtype.scale} of them after the point, no exponent)"
        )
    if isinstance(dtype, pl.Datetime):
        digits = _UNIT_DIGITS[dtype.time_unit]
        zone = (
            "without an offset"
            if dtype.time_zone is None
            else f"an offset, or a local time of {dtype.time_zone}"
        )
        return f"{dtype} (YYYY-MM-DD HH:MM:SS, at most {digits} decimals, {zone})"
    if isinstance(dtype, pl.Date):
        return f"{dtype} (YYYY-MM-DD)"
    if isinstance(dtype, pl.Time):
        return f"{dtype} (HH:MM:SS)"
    if isinstance(dtype, pl.Boolean):
        return f"{dtype} (true, false, 1 or 0)"
    if isinstance(dtype, pl.Enum):
        return f"Enum of {len(dtype.categories)} categories"
    return str(dtype)


def read_value(name: str, dtype: pl.DataType, nulls: Sequence[str]) -> tuple[pl.Expr, pl.Expr]:
    """Build what reads a column of text: the values, and which fields are no value of the type.

    A field that is empty, blank or one of `nulls` is null and no error. In text columns only what the CSV
    reader has already found to be null is.

    Returns:
        The values, null where the text is none; and a Boolean, true where text is there but no value.
    """
    column = pl.col(name)
    if is_text(dtype):
        return column.cast(dtype), pl.lit(value=False)
    if isinstance(dtype, pl.Enum):
        text = column if "" in dtype.categories else _without([""], column)
        value = text.cast(dtype, strict=False)
    else:
        text = _without(["", *nulls], column.str.strip_chars())
        value = _convert(text, dtype)
    return value.alias(name), (text.is_not_null() & value.is_null()).alias(name)


def read_strictly(name: str, dtype: pl.DataType, nulls: Sequence[str]) -> pl.Expr:
    """Build what reads a column of text, and raises where a field is no value of the type."""
    value, is_bad = read_value(name, dtype, nulls)
    if is_text(dtype):
        return value
    # The cast cannot succeed, so it raises exactly where a field is bad; elsewhere it sees only nulls.
    proof = pl.when(is_bad).then(pl.lit("?")).cast(pl.Int8)
    return pl.when(proof.is_null()).then(value).alias(name)


def _without(texts: Sequence[str], column: pl.Expr) -> pl.Expr:
    is_null = column == "" if list(texts) == [""] else column.is_in(list(texts))
    return pl.when(is_null).then(None).otherwise(column)


def _convert(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Boolean):
        words = {"true": True, "1": True, "false": False, "0": False}
        return text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
    if isinstance(dtype, pl.Decimal):
        shaped = _shaped(text, rf"[+-]?[0-9]*(?:\.[0-9]{{0,{dtype.scale}}}0*)?")
        return shaped.cast(dtype, strict=False)
    if isinstance(dtype, pl.Date):
        return _shaped(text, "[0-9]{4}-[0-9]{2}-[0-9]{2}").str.to_date("%Y-%m-%d", strict=False)
    if isinstance(dtype, pl.Time):
        full = _with_seconds(_shaped(text, _clock(9)), 5)
        return full.str.to_time("%H:%M:%S%.f", strict=False)
    if isinstance(dtype, pl.Datetime):
        return _convert_datetime(text, dtype)
    return text.cast(dtype, strict=False)


def _convert_datetime(text: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    shape = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_clock(_UNIT_DIGITS[dtype.time_unit])})?"
    day = _shaped(text, shape)
    full = pl.when(day.str.len_bytes() == 10).then(day + "T00:00:00").otherwise(_with_seconds(day, 16))
    local = full.str.replace(" ", "T", literal=True).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S%.f", time_unit=dtype.time_unit, strict=False
    )
    if dtype.time_zone is None:
        return local
    # A local time that occurs twice or never is not known to be any one instant.
    placed = local.dt.replace_time_zone(dtype.time_zone, ambiguous="null", non_existent="null")
    with_offset = _shaped(text, shape + _OFFSET).str.replace(" ", "T", literal=True)
    instants = pl.coalesce(
        with_offset.str.to_datetime(form, time_unit=dtype.time_unit, strict=False)
        for form in ("%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z")
    )
    return pl.coalesce(placed, instants.dt.convert_time_zone(dtype.time_zone))


def _shaped(text: pl.Expr, pattern: str) -> pl.Expr:
    return pl.when(text.str.contains(f"^(?:{pattern})$")).then(text)


def _clock(digits: int) -> str:
    # Zeros beyond what the type holds lose nothing.
    return rf"[0-9]{{2}}:[0-9]{{2}}(?::[0-5][0-9](?:\.[0-9]{{1,{digits}}}0*)?)?"


def _with_seconds(text: pl.Expr, size_without: int) -> pl.Expr:
    return pl.when(text.str.len_bytes() == size_without).then(text + ":00").otherwise(text)
