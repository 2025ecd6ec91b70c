"""What authors declare of a source file: how to find it, how to read it, what its columns are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pydantic
from pydantic.dataclasses import dataclass

from astro_async._frames.csv_dialect import CsvDialect
from astro_async.exceptions import PipelineError

__all__ = ["IngestFileSpec"]


@dataclass(
    frozen=True, config=pydantic.ConfigDict(arbitrary_types_allowed=True, extra="forbid", strict=False)
)
class IngestFileSpec:
    """One source file that a pipeline expects.

    Attributes:
        name: The ingest name, by which steps refer to the file.
        source_pattern: A glob for the file's name in the source directory, such as `"orders_*.csv"`.
            Exactly one file must match.
        schema: Column names and their Polars types. Columns are matched by header name and come in this
            order; others are left out. None: all columns, as text.
        encoding: Any that Python knows; a byte order mark is understood.
        has_header: Whether the first line names the columns.
        column_names: Names the columns of a file without header, or renames those of one with.
        separator: One character.
        quote_char: One character, or None if nothing is quoted.
        skip_rows: Lines before the header to leave out.
        null_values: Texts that stand for null, in all columns, beside the empty field.
        preprocess: Reads the file instead: given its path, returns the rows.
        optional: The file may be absent: steps are given None for it, and a step all of whose files are
            absent is `skipped`.
        private: Nobody but the owner may read parked rows of the file, decisions about them, or exports:
            they get mode 0600. What is ingested and published is not hidden by this.
    """

    name: str
    source_pattern: str
    schema: Any = None
    encoding: str = "utf-8"
    has_header: bool = True
    column_names: tuple[str, ...] | None = None
    separator: str = ","
    quote_char: str | None = '"'
    skip_rows: int = 0
    null_values: tuple[str, ...] | str = ()
    preprocess: Callable[[Path], pl.DataFrame] | None = None
    optional: bool = False
    private: bool = False

    def dialect(self) -> CsvDialect:
        """Return how to read the file as CSV.

        Raises:
            PipelineError: The options contradict each other or cannot be met.
        """
        return CsvDialect(
            encoding=self.encoding,
            has_header=self.has_header,
            column_names=self.column_names,
            separator=self.separator,
            quote_char=self.quote_char,
            skip_rows=self.skip_rows,
            null_values=self.null_values,
        )

    def column_types(self) -> dict[str, Any] | None:
        """Return the declared columns, or None if all are text.

        Raises:
            PipelineError: `schema` is not a mapping of names to Polars types.
        """
        if self.schema is None:
            return None
        if not isinstance(self.schema, Mapping) or not self.schema:
            raise PipelineError(
                f"ingest file {self.name!r}: schema is a mapping of column names to Polars types, such as "
                f"{{'score': pl.Int64}}, not {type(self.schema).__name__}"
            )
        for column, dtype in self.schema.items():
            if not isinstance(column, str) or not _is_dtype(dtype):
                raise PipelineError(
                    f"ingest file {self.name!r}: column {column!r} has {dtype!r} for a type; "
                    "give a Polars type such as pl.Int64"
                )
        return dict(self.schema)


def _is_dtype(dtype: object) -> bool:
    return isinstance(dtype, pl.DataType) or (isinstance(dtype, type) and issubclass(dtype, pl.DataType))
