"""Find rows again by their content: which row of a frame is this?

Null equals null and NaN equals NaN; 0.0 and -0.0 are different content. Among rows of equal content the
n-th one asked for is the n-th one of the frame, so identical twins stay as many as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from astro_async._frames.columns import RESERVED_PREFIX, ROW_COLUMN
from astro_async._frames.conform import conform_rows
from astro_async._frames.dtypes import as_instance, holds_floats

__all__ = ["describe_positions", "find_positions"]

_HASH = f"{RESERVED_PREFIX}hash"
_OCCURRENCE = f"{RESERVED_PREFIX}occurrence"


def describe_positions(positions: Sequence[int], *, most: int) -> str:
    """Return ascending positions such as `3,7-9`; of more than `most` ranges only the first so many."""
    ranges: list[list[int]] = []
    for position in positions:
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        elif len(ranges) < most:
            ranges.append([position, position])
        else:
            break
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def find_positions(source: pl.DataFrame | pl.LazyFrame, rows: pl.DataFrame) -> pl.Series:
    """Return, for each of `rows`, the position of that row in `source`, or null where it is not there.

    No position is given twice: a third twin where the source has two is not found. Extra columns of `rows`
    do not count. A LazyFrame is streamed; what is held in memory are the rows that may match.

    Returns:
        UInt64, named `_astro_row`, as long as `rows` and in its order.

    Raises:
        QuarantineError: `rows` lacks columns of the source, or has dtypes that do not cast without loss.
    """
    schema = source.collect_schema()
    wanted = conform_rows(rows, schema)
    if wanted.is_empty():
        return pl.Series(ROW_COLUMN, [], dtype=pl.UInt64)
    keys = _content_keys(schema)
    names = [key.meta.output_name() for key in keys]
    candidates = _find_candidates(source.lazy(), wanted, list(schema))
    known = _number_twins(candidates.select(ROW_COLUMN, *keys), names)
    asked = _number_twins(wanted.select(keys), names)
    found = asked.join(known, on=[*names, _OCCURRENCE], how="left", nulls_equal=True, maintain_order="left")
    return found.get_column(ROW_COLUMN).cast(pl.UInt64)


def _find_candidates(source: pl.LazyFrame, wanted: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Collect the rows whose hash is that of a wanted row, in order and with their positions.

    All twins of a row have its hash, so their count is right; that two different rows share a hash does no
    harm, for the comparison that decides is still to come.
    """
    content_hash = pl.struct(columns).hash().alias(_HASH)
    hashes = wanted.lazy().select(content_hash).unique()
    matching = (
        source.with_row_index(ROW_COLUMN)
        .with_columns(content_hash)
        .join(hashes, on=_HASH, how="semi", maintain_order="left")
    )
    return matching.drop(_HASH).collect(engine="streaming").sort(ROW_COLUMN)


def _number_twins(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).over(names).alias(_OCCURRENCE))


def _content_keys(schema: pl.Schema) -> list[pl.Expr]:
    """Make the columns whose equality is equality of content.

    Polars groups and joins 0.0 with -0.0, so the sign of zeros gets a column of its own.
    """
    keys = [pl.col(name).alias(f"{RESERVED_PREFIX}key_{number}") for number, name in enumerate(schema)]
    for number, (name, dtype) in enumerate(schema.items()):
        if holds_floats(dtype):
            keys.append(_is_negative_zero(pl.col(name), dtype).alias(f"{RESERVED_PREFIX}sign_{number}"))
    return keys


def _is_negative_zero(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return value.list.eval(_is_negative_zero(pl.element(), as_instance(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return value.arr.eval(_is_negative_zero(pl.element(), as_instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.struct(
            _is_negative_zero(value.struct.field(field.name), as_instance(field.dtype)).alias(field.name)
            for field in dtype.fields
            if holds_floats(field.dtype)
        )
    return (value == 0) & (1 / value < 0)
