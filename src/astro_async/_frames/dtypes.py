"""What the dtypes of nested columns are made of."""

from __future__ import annotations

import polars as pl
from polars.datatypes import DataTypeClass

__all__ = ["as_instance", "holds_floats"]


def as_instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    """Return `pl.Int64()` for `pl.Int64`, and an instance as it is; nested dtypes hold either."""
    return dtype() if isinstance(dtype, type) else dtype


def holds_floats(dtype: pl.DataType | DataTypeClass) -> bool:
    """Say whether a dtype is floating or has floats anywhere inside."""
    whole = as_instance(dtype)
    if isinstance(whole, pl.List | pl.Array):
        return holds_floats(whole.inner)
    if isinstance(whole, pl.Struct):
        return any(holds_floats(field.dtype) for field in whole.fields)
    return whole.is_float()
