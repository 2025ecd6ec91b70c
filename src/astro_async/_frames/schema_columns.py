"""Take the columns and types of a schema, whoever's: a mapping, Pandera's or dataframely's.

Neither of the two libraries is imported here: whoever hands in such a schema has imported it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from astro_async.exceptions import PipelineError

__all__ = ["SchemaColumns", "read_schema_columns"]

_BATCH_ROWS: Final = 250_000


@dataclass(frozen=True, slots=True)
class SchemaColumns:
    """What a schema says of the columns of a file.

    Attributes:
        types: Polars types by column, in order.
        extra: What it says of columns that it does not name, if anything.
        optional: Columns that a file need not have.
        find_failures: Given rows of these types, counts those that fail its checks, by check in words; None
            where it says nothing but types.
        batch_rows: How many rows at a time it can judge; None: only all of them.
    """

    types: dict[str, Any]
    extra: Literal["ignore", "raise"] | None = None
    optional: frozenset[str] = frozenset()
    find_failures: Callable[[pl.DataFrame], dict[str, int]] | None = None
    batch_rows: int | None = None


def read_schema_columns(schema: Any, name: str) -> SchemaColumns:
    """Return the columns of a schema.

    Args:
        schema: A mapping of names to Polars types; a `DataFrameSchema` or `DataFrameModel` of
            `pandera.polars`; a `Schema` of dataframely.
        name: The ingest name, for messages.

    Raises:
        PipelineError: It is none of these, has no columns, or one without a Polars type.
    """
    if isinstance(schema, Mapping):
        columns = SchemaColumns(dict(schema))
    elif _is_of(schema, "pandera"):
        columns = _read_pandera(schema, name)
    elif _is_of(schema, "dataframely"):
        columns = SchemaColumns(
            {column: given.dtype for column, given in schema.columns().items()},
            # Its rules may be about groups of rows.
            find_failures=lambda frame: {
                str(rule).replace("|", ": "): count
                for rule, count in schema.filter(frame)[1].counts().items()
            },
        )
    else:
        raise PipelineError(
            f"ingest file {name!r}: schema is a mapping of column names to Polars types, such as "
            f"{{'score': pl.Int64}}, or a Pandera or dataframely schema, not {type(schema).__name__}"
        )
    if not columns.types:
        raise PipelineError(f"ingest file {name!r}: the schema has no columns; leave it out for all, as text")
    for column, dtype in columns.types.items():
        if not isinstance(column, str) or not _is_dtype(dtype):
            raise PipelineError(
                f"ingest file {name!r}: column {column!r} has {dtype!r} for a type; "
                "give a Polars type such as pl.Int64"
            )
    return columns


def _is_of(schema: Any, package: str) -> bool:
    """Say whether a schema, or a class of schemas, is one of a package's."""
    kinds = schema.__mro__ if inspect.isclass(schema) else type(schema).__mro__
    return any(kind.__module__.partition(".")[0] == package for kind in kinds)


def _read_pandera(given_schema: Any, name: str) -> SchemaColumns:
    is_model = inspect.isclass(given_schema)
    schema: Any = given_schema.to_schema() if is_model else given_schema
    types: dict[str, Any] = {}
    for column, given in schema.columns.items():
        if given.regex:
            raise PipelineError(
                f"ingest file {name!r}: column {column!r} of the Pandera schema is a pattern; name "
                f"each column"
            )
        # A column without a type is text, as every column is where there is no schema.
        types[column] = pl.String() if given.dtype is None else getattr(given.dtype, "type", None)
    extra: Literal["ignore", "raise"] | None = "raise" if schema.strict is True else None
    is_unique = bool(schema.unique) or any(given.unique for given in schema.columns.values())
    return SchemaColumns(
        types,
        extra,
        frozenset(column for column, given in schema.columns.items() if not given.required),
        functools.partial(_find_pandera_failures, schema),
        None if is_unique else _BATCH_ROWS,
    )


def _find_pandera_failures(schema: Any, frame: pl.DataFrame) -> dict[str, int]:
    try:
        schema.validate(frame, lazy=True)
    except Exception as error:
        cases = getattr(error, "failure_cases", None)
        if not isinstance(cases, pl.DataFrame):
            raise
        counts = cases.group_by("column", "check", maintain_order=True).len()
        return {f"{column}: {check}": count for column, check, count in counts.iter_rows()}
    return {}


def _is_dtype(dtype: object) -> bool:
    return isinstance(dtype, pl.DataType) or (isinstance(dtype, type) and issubclass(dtype, pl.DataType))
