"""Values as text and back, for files that a person edits. What is written reads back as it was.

An empty field is null; text that is empty is told apart by whoever writes the file. Lists, arrays and structs
are JSON. Decimals, and integers of any size, never pass through floats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from astro_async._frames.csv_values import bad_name, convert_text, describe_type, read_leniently
from astro_async._frames.dtypes import as_instance

__all__ = ["describe_text", "format_values", "parse_values"]

_SECONDS: Final = "%Y-%m-%d %H:%M:%S%.f"
_PLAIN: Final = (pl.Duration, pl.Binary, pl.Null)


def describe_text(dtype: pl.DataType) -> str:
    """Say which texts are values of a type, for an error message."""
    if dtype.is_nested():
        return f"JSON of {dtype}"
    if isinstance(dtype, pl.Duration):
        return f"{dtype} (a whole number of {dtype.time_unit}, such as 1500)"
    if isinstance(dtype, pl.Binary):
        return "Binary (pairs of hexadecimal digits)"
    return "nothing but null" if isinstance(dtype, pl.Null) else describe_type("", dtype)


def format_values(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the same columns as text; null stays null."""
    texts = frame.select(_as_text(pl.col(name), dtype).alias(name) for name, dtype in frame.schema.items())
    return texts.with_columns(
        pl.Series(name, [_to_json(value, dtype) for value in texts[name].to_list()], dtype=pl.String)
        for name, dtype in frame.schema.items()
        if dtype.is_nested()
    )


def parse_values(
    texts: pl.DataFrame, schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """Read columns of text as values of a schema.

    Returns:
        The values, null where a text is none; and for each column where there are any, which rows those are.
    """
    plain = {name: dtype for name, dtype in schema.items() if not dtype.is_nested()}
    simple = {name: dtype for name, dtype in plain.items() if not isinstance(dtype, _PLAIN)}
    read = read_leniently(texts.select(list(simple)).lazy(), simple, ()).collect()
    values = {name: read[name] for name in simple}
    bad = {name: read[bad_name(name)] for name in simple if bad_name(name) in read}
    for name, dtype in schema.items():
        if name in simple:
            continue
        parse = _parse_nested if dtype.is_nested() else _parse_plain
        values[name], bad[name] = parse(texts[name], dtype)
    parsed = pl.DataFrame([values[name].alias(name) for name in schema])
    return parsed, {name: is_bad for name, is_bad in bad.items() if is_bad.any()}


def _as_text(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return value.list.eval(_as_text(pl.element(), as_instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return value.arr.to_list().list.eval(_as_text(pl.element(), as_instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        fields = (
            _as_text(value.struct.field(field.name), as_instance(field.dtype)).alias(field.name)
            for field in dtype.fields
        )
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Datetime):
        return _datetime_as_text(value, dtype)
    if isinstance(dtype, pl.Duration):
        return value.cast(pl.Int64).cast(pl.String)
    if isinstance(dtype, pl.Time):
        return value.dt.strftime("%H:%M:%S%.f")
    return value.bin.encode("hex") if isinstance(dtype, pl.Binary) else value.cast(pl.String)


def _datetime_as_text(value: pl.Expr, dtype: pl.Datetime) -> pl.Expr:
    if dtype.time_zone is None:
        return value.dt.strftime(_SECONDS)
    # The offset says which of two equal local times it is; those of old days have seconds, which have no
    # place in it, so such an instant is told in UTC.
    offset = value.dt.base_utc_offset() + value.dt.dst_offset()
    instant = value.dt.convert_time_zone("UTC").dt.strftime(f"{_SECONDS}+00:00")
    is_whole = (offset.dt.total_milliseconds() % 60_000) == 0
    return pl.when(is_whole).then(value.dt.strftime(f"{_SECONDS}%:z")).otherwise(instant)


def _as_value(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return text.list.eval(_as_value(pl.element(), as_instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        inner = text.list.eval(_as_value(pl.element(), as_instance(dtype.inner)))
        return inner.list.to_array(dtype.shape[0])
    if isinstance(dtype, pl.Struct):
        fields = (
            _as_value(text.struct.field(field.name), as_instance(field.dtype)).alias(field.name)
            for field in dtype.fields
        )
        return pl.when(text.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Duration):
        return text.cast(pl.Int64, strict=False).cast(dtype)
    if isinstance(dtype, pl.Binary):
        return text.str.decode("hex", strict=False)
    if isinstance(dtype, pl.Null):
        return text.replace_strict({}, default=None, return_dtype=pl.Null)
    return convert_text(text, dtype)


def _parse_plain(texts: pl.Series, dtype: pl.DataType) -> tuple[pl.Series, pl.Series]:
    values = texts.to_frame().select(_as_value(pl.col(texts.name), dtype).cast(dtype)).to_series()
    return values, texts.is_not_null() & values.is_null()


def _parse_nested(texts: pl.Series, dtype: pl.DataType) -> tuple[pl.Series, pl.Series]:
    shaped = [_from_json(text, dtype) for text in texts.to_list()]
    nested = pl.Series(texts.name, shaped, dtype=_text_type(dtype))
    frame = nested.to_frame()
    values = frame.select(_as_value(pl.col(texts.name), dtype).cast(dtype).alias(texts.name)).to_series()
    back = values.to_frame().select(_as_text(pl.col(texts.name), dtype)).to_series().to_list()
    # A text inside that is no value has become null there.
    lost = [
        text is not None and (given is None or not _is_same_shape(given, now))
        for text, given, now in zip(texts, shaped, back, strict=True)
    ]
    return values, pl.Series(texts.name, lost, dtype=pl.Boolean)


def _text_type(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(_text_type(as_instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _text_type(as_instance(field.dtype)) for field in dtype.fields})
    return pl.String()


def _to_json(value: Any, dtype: pl.DataType) -> str | None:
    return None if value is None else _json(value, dtype)


def _json(value: Any, dtype: pl.DataType) -> str:
    if value is None:
        return "null"
    if isinstance(dtype, pl.List | pl.Array):
        return f"[{', '.join(_json(each, as_instance(dtype.inner)) for each in value)}]"
    if isinstance(dtype, pl.Struct):
        fields = (
            f"{_quote(field.name)}: {_json(value[field.name], as_instance(field.dtype))}"
            for field in dtype.fields
        )
        return f"{{{', '.join(fields)}}}"
    is_number = dtype.is_numeric() and value not in ("NaN", "inf", "-inf")
    return str(value) if is_number or isinstance(dtype, pl.Boolean) else _quote(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _from_json(text: str | None, dtype: pl.DataType) -> Any:
    """Return nested texts of the shape of a type; None where it has no such shape."""
    if text is None:
        return None
    try:
        return _shape(json.loads(text, parse_int=str, parse_float=str, parse_constant=str), dtype)
    except (ValueError, RecursionError):
        return None


def _shape(value: Any, dtype: pl.DataType) -> Any:
    if value is None:
        return None
    if isinstance(dtype, pl.List | pl.Array):
        is_of_size = isinstance(value, list) and (isinstance(dtype, pl.List) or len(value) == dtype.shape[0])
        if not is_of_size:
            raise ValueError("not such a list")
        return [_shape(each, as_instance(dtype.inner)) for each in value]
    if isinstance(dtype, pl.Struct):
        names = [field.name for field in dtype.fields]
        if not isinstance(value, dict) or value.keys() != set(names):
            raise ValueError("not such fields")
        return {field.name: _shape(value[field.name], as_instance(field.dtype)) for field in dtype.fields}
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        raise ValueError("not a single value")
    return value


def _is_same_shape(given: Any, back: Any) -> bool:
    if isinstance(given, list):
        return back is not None and all(map(_is_same_shape, given, back))
    if isinstance(given, dict):
        return back is not None and all(_is_same_shape(each, back[name]) for name, each in given.items())
    return given is not None if back is not None else given is None
