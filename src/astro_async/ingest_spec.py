"""What authors declare of a source file: how to find it, how to read it, what its columns are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
import pydantic
from pydantic.dataclasses import dataclass

from astro_async._frames.bad_rows import BadRowPolicy
from astro_async._frames.column_match import ColumnRules
from astro_async._frames.convert import SourceFormat, SourceReading
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.schema_columns import SchemaColumns, read_schema_columns
from astro_async._frames.value_forms import ValueForms
from astro_async.exceptions import PipelineError

__all__ = ["IngestFileSpec"]

Texts = tuple[str, ...] | str


@dataclass(
    frozen=True, config=pydantic.ConfigDict(arbitrary_types_allowed=True, extra="forbid", strict=False)
)
class IngestFileSpec:
    """One source file that a pipeline expects.

    Attributes:
        name: The ingest name, by which steps refer to the file.
        source_pattern: A glob for the file's name in the source directory, such as `"orders_*.csv"`.
            Exactly one file must match.
        schema: Column names and their Polars types: a mapping, or a Pandera or dataframely schema, of which
            the names and types are taken. Columns are matched by header name and come in this order. None:
            all columns, as text; those of Parquet as they are.
        encoding: Any that Python knows; a byte order mark is understood.
        has_header: Whether the first line names the columns.
        column_names: Names the columns of a file without header, or renames those of one with.
        separator: One character. None is a comma, and a tab in files named `.tsv` or `.tab`.
        quote_char: One character, or None if nothing is quoted.
        skip_rows: Lines before the header to leave out.
        skip_footer: Lines after the data to leave out; blank ones at the very end are not counted.
        null_values: Texts that stand for null, in all columns, beside the empty field.
        decimal_comma: Numbers have a comma before their decimals.
        thousands_separator: What may stand between the thousands of a number: `"."`, `","`, `" "`, `"'"` or
            `"_"`.
        date_formats: How days and times are written, if not as ISO 8601: formats to try in order, for all
            such columns or, in a mapping, for some.
        aliases: Names of columns by what a header may call them instead: `{"Qty": "quantity"}`.
        extra_columns: What becomes of columns that the schema does not name: `"ignore"` leaves them out, and
            says so; `"raise"` refuses the file. None is `"ignore"`, unless a Pandera schema is `strict`.
        missing_columns: What becomes of a file that lacks a column of the schema: `"raise"` refuses it;
            `"insert"` fills the column with nulls, and says so.
        format: `"csv"`, `"tsv"`, `"ndjson"`, `"parquet"` or `"xlsx"`. None finds out by content and name.
        sheet: The sheet of a workbook; None if it has only one.
        preprocess: Reads the file instead: given its path, returns the rows.
        optional: The file may be absent: steps are given None for it, and a step all of whose files are
            absent is `skipped`.
        on_bad_rows: What becomes of rows that cannot be read: `"raise"` refuses the file; `"quarantine"`
            parks them, with line and text, and keeps the others. For CSV, TSV and NDJSON.
        max_bad_rows: Refuse the file if more rows than this would be parked.
        max_bad_fraction: Refuse it if more than this share of its rows would be, from 0 to 1.
        private: Nobody but the owner may read parked rows of the file, decisions about them, or exports:
            they get mode 0600. What is ingested and published is not hidden by this.
    """

    name: str
    source_pattern: str
    schema: Any = None
    encoding: str = "utf-8"
    has_header: bool = True
    column_names: tuple[str, ...] | None = None
    separator: str | None = None
    quote_char: str | None = '"'
    skip_rows: int = 0
    skip_footer: int = 0
    null_values: Texts = ()
    decimal_comma: bool = False
    thousands_separator: str | None = None
    date_formats: Mapping[str, Texts] | Texts = ()
    aliases: Mapping[str, str] = pydantic.Field(default_factory=dict)
    extra_columns: Literal["ignore", "raise"] | None = None
    missing_columns: Literal["raise", "insert"] = "raise"
    format: Literal["csv", "tsv", "ndjson", "parquet", "xlsx"] | None = None
    sheet: str | None = None
    preprocess: Callable[[Path], pl.DataFrame] | None = None
    optional: bool = False
    private: bool = False
    on_bad_rows: Literal["raise", "quarantine"] = "raise"
    max_bad_rows: Annotated[int, pydantic.Field(ge=0)] | None = None
    max_bad_fraction: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None

    def reading(self) -> SourceReading:
        """Return how to read the file.

        Raises:
            PipelineError: The options contradict each other or cannot be met.
        """
        columns = self.columns()
        unknown = [name for name in self.aliases.values() if columns and name not in columns.types]
        if unknown:
            raise PipelineError(
                f"ingest file {self.name!r}: aliases lead to {', '.join(map(repr, unknown))}, "
                f"which the schema does not have"
            )
        dialect = CsvDialect(
            encoding=self.encoding,
            has_header=self.has_header,
            column_names=self.column_names,
            separator="," if self.separator is None else self.separator,
            quote_char=self.quote_char,
            skip_rows=self.skip_rows,
            skip_footer=self.skip_footer,
            null_values=self.null_values,
            aliases=self.aliases,
            forms=ValueForms(
                decimal_comma=self.decimal_comma,
                thousands_separator=self.thousands_separator,
                date_formats=_as_formats(self.date_formats),
            ),
        )
        return SourceReading(
            dialect,
            format=None if self.format is None else SourceFormat(self.format),
            sheet=self.sheet,
            rules=ColumnRules(
                extra=self.extra_columns or (columns and columns.extra) or "ignore",
                missing=self.missing_columns,
                optional=columns.optional if columns else frozenset(),
            ),
            has_separator=self.separator is not None,
            bad_rows=self._bad_rows(),
        )

    def _bad_rows(self) -> BadRowPolicy | None:
        if self.on_bad_rows == "quarantine":
            if self.preprocess is not None:
                raise PipelineError(
                    f"ingest file {self.name!r}: preprocess reads the file, so there are no rows to park: "
                    f"leave out on_bad_rows"
                )
            return BadRowPolicy(self.max_bad_rows, self.max_bad_fraction)
        if self.max_bad_rows is not None or self.max_bad_fraction is not None:
            raise PipelineError(
                f"ingest file {self.name!r}: max_bad_rows and max_bad_fraction are limits of "
                f"on_bad_rows='quarantine'"
            )
        return None

    def columns(self) -> SchemaColumns | None:
        """Return what the schema says, or None if there is none and all columns are text.

        Raises:
            PipelineError: `schema` is none that is understood.
        """
        return None if self.schema is None else read_schema_columns(self.schema, self.name)


def _as_formats(given: Mapping[str, Texts] | Texts) -> Mapping[str, tuple[str, ...]] | tuple[str, ...]:
    if isinstance(given, Mapping):
        return {column: _as_tuple(formats) for column, formats in given.items()}
    return _as_tuple(given)


def _as_tuple(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts
