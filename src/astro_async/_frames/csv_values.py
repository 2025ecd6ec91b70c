"""Read the text of a field as a value of a declared type: exactly, or not at all.

Pure expressions. No type is guessed from the data and nothing is rounded: more decimals than the type
holds, a day in a form other than ISO 8601, or a local time that a clock change skips or repeats is a value
that does not parse. Where a file writes numbers or days in another way, its `ValueForms` say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from polars._typing import PolarsDataType

from astro_async._frames.columns import RESERVED_PREFIX
from astro_async._frames.value_forms import (
    PLAIN_FORMS,
    UNIT_DIGITS,
    YEAR,
    YEAR_IN_NS,
    ValueForms,
    read_formatted,
    read_number_text,
)
from astro_async.exceptions import PipelineError

__all__ = [
    "bad_name",
    "check_schema",
    "convert_text",
    "describe_type",
    "is_read_natively",
    "is_text",
    "read_leniently",
    "read_quickly",
    "refuse_bad",
]

_DAY = f"{YEAR}-[0-9]{{2}}-[0-9]{{2}}"
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
    """Say whether the CSV reader of Polars itself reads the type as this module does, only less leniently.

    It rounds decimals, takes `01/02/2020` for the first of February, and drops offsets: not those.
    """
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, pl.Boolean | pl.Enum) or is_text(dtype)


def describe_type(name: str, dtype: pl.DataType, forms: ValueForms = PLAIN_FORMS) -> str:
    """Say which texts are values of a column, for an error message."""
    if forms.apply_to(name, dtype):
        return forms.describe(name, dtype)
    if isinstance(dtype, pl.Decimal):
        return (
            f"{dtype} (at most {dtype.precision} digits, {dtype.scale} of them after the point, no exponent)"
        )
    if isinstance(dtype, pl.Datetime):
        digits = UNIT_DIGITS[dtype.time_unit]
        zone = (
            "without an offset"
            if dtype.time_zone is None
            else f"an offset, or a local time of {dtype.time_zone}"
        )
        years = ", years 1680 to 2261" if dtype.time_unit == "ns" else ""
        return f"{dtype} (YYYY-MM-DD HH:MM:SS, at most {digits} decimals, {zone}{years})"
    if isinstance(dtype, pl.Date):
        return f"{dtype} (YYYY-MM-DD)"
    if isinstance(dtype, pl.Time):
        return f"{dtype} (HH:MM:SS)"
    if isinstance(dtype, pl.Boolean):
        return f"{dtype} (true, false, 1 or 0)"
    if isinstance(dtype, pl.Enum):
        return f"Enum of {len(dtype.categories)} categories"
    return str(dtype)


def read_quickly(name: str, dtype: pl.DataType) -> pl.Expr | None:
    """Build what reads the commonest texts of a type at speed, and raises at all others.

    What it gives for a text is what `read_leniently` gives. None where a type has no such shortcut.
    """
    text = pl.col(name)
    if isinstance(dtype, pl.Decimal):
        has_loss = text.str.contains(rf"\.[0-9]{{{dtype.scale}}}[0-9]*[1-9]|[eE]")
        return _spoiled(text, has_loss).cast(dtype).alias(name)
    if isinstance(dtype, pl.Date):
        return _spoiled(text, ~text.str.contains(f"^{_DAY}$")).str.to_date("%Y-%m-%d").alias(name)
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is None:
        is_other = ~text.str.contains(f"^{_day(dtype)} [0-9]{{2}}:[0-9]{{2}}:[0-5][0-9]$")
        return (
            _spoiled(text, is_other)
            .str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit=dtype.time_unit)
            .alias(name)
        )
    return None


def read_leniently(
    frame: pl.LazyFrame,
    types: Mapping[str, pl.DataType],
    nulls: Sequence[str],
    forms: ValueForms = PLAIN_FORMS,
) -> pl.LazyFrame:
    """Read columns of text as values, null where a text is none; raises nothing.

    A field that is empty, blank or one of `nulls` is null. Text columns are left as the CSV reader made them.

    Returns:
        The frame with the values in their columns, and for each column of `types` that is not text a Boolean
        under `bad_name`: text is there, but no value.
    """
    typed = {name: dtype for name, dtype in types.items() if not is_text(dtype)}
    # In steps, because the engine would compute an expression anew wherever another one contains it.
    return (
        frame.with_columns(_clean(pl.col(name), dtype, nulls).alias(name) for name, dtype in typed.items())
        .with_columns(_read(name, dtype, forms).alias(_value_name(name)) for name, dtype in typed.items())
        .with_columns(
            (pl.col(name).is_not_null() & pl.col(_value_name(name)).is_null()).alias(bad_name(name))
            for name in typed
        )
        .with_columns(
            *(pl.col(_value_name(name)).alias(name) for name in typed),
            *(pl.col(name).cast(dtype) for name, dtype in types.items() if is_text(dtype)),
        )
    )


def convert_text(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Build what reads one text of a type, within a list or struct too; null where it is none."""
    return text.cast(dtype, strict=False) if is_text(dtype) else _convert(_clean(text, dtype, ()), dtype)


def refuse_bad(name: str) -> pl.Expr:
    """Build what hands on a column of `read_leniently`, and raises if one of its texts was no value."""
    # The cast cannot succeed, so it raises exactly where a field is bad; elsewhere it sees only nulls.
    proof = pl.when(pl.col(bad_name(name))).then(pl.lit("?")).cast(pl.Int8)
    return pl.when(proof.is_null()).then(pl.col(name)).alias(name)


def bad_name(name: str) -> str:
    """Name the column that says which texts of a column are no value."""
    return f"{RESERVED_PREFIX}bad {name}"


def _value_name(name: str) -> str:
    return f"{RESERVED_PREFIX}value {name}"


def _clean(column: pl.Expr, dtype: pl.DataType, nulls: Sequence[str]) -> pl.Expr:
    if isinstance(dtype, pl.Enum):
        return column if "" in dtype.categories else _without([""], column)
    return _without(["", *nulls], column.str.strip_chars())


def _spoiled(text: pl.Expr, is_refused: pl.Expr) -> pl.Expr:
    """Put text that no conversion takes where the given is refused; null stays null."""
    return pl.when(is_refused).then(pl.lit("?")).otherwise(text)


def _without(texts: Sequence[str], column: pl.Expr) -> pl.Expr:
    is_null = column == "" if list(texts) == [""] else column.is_in(list(texts))
    return pl.when(is_null).then(None).otherwise(column)


def _read(name: str, dtype: pl.DataType, forms: ValueForms) -> pl.Expr:
    text = pl.col(name)
    if not forms.apply_to(name, dtype):
        return _convert(text, dtype)
    if dtype.is_temporal():
        return read_formatted(text, dtype, forms.formats_of(name))
    return _convert(read_number_text(text, dtype, forms), dtype)


def _convert(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Enum):
        return text.cast(dtype, strict=False)
    if isinstance(dtype, pl.Boolean):
        words = {"true": True, "1": True, "false": False, "0": False}
        return text.str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)
    if isinstance(dtype, pl.Decimal):
        shaped = _shaped(text, rf"[+-]?[0-9]*(?:\.[0-9]{{0,{dtype.scale}}}0*)?")
        return shaped.cast(dtype, strict=False)
    if isinstance(dtype, pl.Date):
        return _shaped(text, _DAY).str.to_date("%Y-%m-%d", strict=False)
    if isinstance(dtype, pl.Time):
        full = _with_seconds(_shaped(text, _clock(9)), 5)
        return full.str.to_time("%H:%M:%S%.f", strict=False)
    if isinstance(dtype, pl.Datetime):
        return _convert_datetime(text, dtype)
    return text.cast(dtype, strict=False)


def _convert_datetime(text: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    shape = rf"{_day(dtype)}(?:[T ]{_clock(UNIT_DIGITS[dtype.time_unit])})?"
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


def _day(dtype: pl.Datetime) -> str:
    return _DAY.replace(YEAR, YEAR_IN_NS) if dtype.time_unit == "ns" else _DAY


def _shaped(text: pl.Expr, pattern: str) -> pl.Expr:
    return pl.when(text.str.contains(f"^(?:{pattern})$")).then(text)


def _clock(digits: int) -> str:
    # Zeros beyond what the type holds lose nothing.
    return rf"[0-9]{{2}}:[0-9]{{2}}(?::[0-5][0-9](?:\.[0-9]{{1,{digits}}}0*)?)?"


def _with_seconds(text: pl.Expr, size_without: int) -> pl.Expr:
    return pl.when(text.str.len_bytes() == size_without).then(text + ":00").otherwise(text)
