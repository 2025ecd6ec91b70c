"""Convert a CSV file to Parquet, streamed: one fast pass, and closer looks only where that pass trips.

The quick pass takes values as programs write them. Its refusals are not final: blanks around a value, `1`
for true or a time without seconds are read by a lenient pass. What that one refuses is explained.
Rows that the reader fills up with nulls in silence, because they are short, are found by counting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl
from polars._typing import PolarsDataType
from polars.exceptions import PolarsError

from astro_async._frames.column_match import ColumnRules, compare_columns, refuse_differences
from astro_async._frames.csv_diagnosis import explain_failure, explain_width, find_short_record, scan_as_text
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import CsvLayout, read_layout
from astro_async._frames.csv_records import count_blank_lines_at_end, count_separators
from astro_async._frames.csv_text import copy_without_blank_lines, open_as_utf8
from astro_async._frames.csv_values import (
    check_schema,
    is_read_natively,
    is_text,
    read_leniently,
    read_quickly,
    refuse_bad,
)
from astro_async._frames.parquet import WrittenFrame, remove_files, scan_frame, write_frame
from astro_async._frames.source_content import SourceFacts, detect_content

__all__ = ["convert_csv", "convert_text"]


def convert_csv(
    source: str,
    target: str,
    *,
    dialect: CsvDialect,
    schema: Mapping[str, PolarsDataType] | None,
    rules: ColumnRules = ColumnRules(),  # noqa: B008 - frozen
    facts: SourceFacts | None = None,
) -> WrittenFrame:
    """Convert one CSV file, plain or compressed, to one Parquet file, in bounded memory.

    An unquoted empty field is null and `""` is empty text; in columns of other types both are null, and so
    are fields of nothing but blanks. Blank lines are left out, unless the file has one column, where such a
    line is a null. A file of a header alone is an empty table.

    Args:
        source: The CSV file.
        target: The Parquet file, which must not exist yet. It is not there after any error.
        dialect: How the source is written.
        schema: The columns to keep, in the order to keep them in, with their types. None keeps every column,
            as String.
        rules: What becomes of columns that only one of file and schema has.
        facts: Is given what is learnt of the source on the way.

    Raises:
        IngestError: The source is not what dialect and schema say. The message names file, line and column.
        PipelineError: The schema has a type that text cannot be read as, or no use for a form of the dialect.
        StorageError: Target or temporary file could not be written.
    """
    facts = SourceFacts() if facts is None else facts
    wanted = None if schema is None else check_schema(schema)
    dialect.forms.check(wanted)
    content = detect_content(source)
    with open_as_utf8(source, dialect=dialect, beside=target, content=content, facts=facts) as path:
        utf8 = dialect if path == source else replace(dialect, encoding="utf-8")
        layout = read_layout(path, source, utf8, wanted)
        return convert_text(
            path, source, target, dialect=dialect, layout=layout, schema=wanted, rules=rules, facts=facts
        )


def convert_text(
    path: str,
    source: str,
    target: str,
    *,
    dialect: CsvDialect,
    layout: CsvLayout,
    schema: pl.Schema | None,
    rules: ColumnRules,
    facts: SourceFacts,
    locate: Callable[[int], str] | None = None,
) -> WrittenFrame:
    """Convert a UTF-8 text of known columns, as `convert_csv` does.

    Args:
        path: The text.
        source: What it was made from, and what messages call it.
        target: The Parquet file, which must not exist yet.
        dialect: How the text is written.
        layout: Its columns, by the names that the schema has for them.
        schema: The columns to keep, checked; None keeps all, as String.
        rules: What becomes of columns that only one of text and schema has.
        facts: Is given those columns.
        locate: Says where in the source a row, from 0, of the text stands; by default by its line.
    """
    if schema is None:
        schema = pl.Schema(dict.fromkeys(layout.names, pl.String()))
    difference = compare_columns(layout.names, schema)
    refuse_differences(difference, layout.names, source, rules)
    facts.ignored, facts.inserted = difference.extra, difference.missing
    return _Conversion(path, source, target, dialect, layout, schema, locate).run()


@dataclass(frozen=True, slots=True)
class _Conversion:
    """One conversion of a UTF-8 text whose columns are known."""

    path: str
    source: str
    target: str
    dialect: CsvDialect
    layout: CsvLayout
    schema: pl.Schema
    locate: Callable[[int], str] | None

    @property
    def present(self) -> dict[str, pl.DataType]:
        """The columns of the schema that the text has; the others are null."""
        return {name: dtype for name, dtype in self.schema.items() if name in self.layout.names}

    def run(self) -> WrittenFrame:
        written, may_be_short = self._write(self.path, self.layout)
        try:
            if not may_be_short or len(self.layout.names) == 1:
                return written
            separators = count_separators(self.path, self.dialect, first_line=self.layout.first_line)
            if self._adds_up(written.rows, separators):
                return written
            full_rows = written.rows - count_blank_lines_at_end(self.path, self.dialect)
            if self._adds_up(full_rows, separators):
                return self._write_again(self.path, self.layout, full_rows)
            short, has_blank = find_short_record(self.path, self.dialect, self.layout)
            if short is not None:
                raise explain_width(self.source, short, len(self.layout.names))
            if not has_blank:
                return written
        except BaseException:
            remove_files(self.target)
            raise
        with copy_without_blank_lines(
            self.path, dialect=self.dialect, first_line=self.layout.first_line, beside=self.target
        ) as data_path:
            return self._write_again(data_path, replace(self.layout, first_line=0))

    def _write_again(self, path: str, layout: CsvLayout, row_limit: int | None = None) -> WrittenFrame:
        remove_files(self.target)
        written, _ = self._write(path, layout, row_limit)
        return written

    def _write(self, path: str, layout: CsvLayout, row_limit: int | None = None) -> tuple[WrittenFrame, bool]:
        """Write the target, and tell whether the last column has nulls, as that of a short record has."""
        last = layout.names[-1]
        for plan in (self._plan_quickly, self._plan_leniently):
            nulls = _NullSearch(last)
            try:
                written = write_frame(plan(path, layout, nulls, row_limit), self.target)
            except PolarsError:
                if all(map(is_text, self.present.values())):
                    break
                continue
            if last in self.schema:
                nulls.search_file(self.target)
            return written, nulls.found
        # The error of Polars quotes the cell, so it does not travel with this one.
        raise explain_failure(
            self.path,
            self.source,
            dialect=self.dialect,
            layout=self.layout,
            schema=self.present,
            locate=self.locate,
        ) from None

    def _plan_quickly(
        self, path: str, layout: CsvLayout, nulls: _NullSearch, row_limit: int | None
    ) -> pl.LazyFrame:
        """Plan the pass that reads well-formed values at speed and raises at all others."""
        forms = self.dialect.forms
        native: dict[str, pl.DataType] = {}
        quick: dict[str, pl.Expr] = {}
        slow: dict[str, pl.DataType] = {}
        for name, dtype in self.present.items():
            if forms.apply_to(name, dtype):
                slow[name] = dtype
            elif is_read_natively(dtype):
                native[name] = dtype
            elif (expression := read_quickly(name, dtype)) is not None:
                quick[name] = expression
            else:
                slow[name] = dtype
        frame = self._scan(path, layout, native, nulls, row_limit)
        frame = read_leniently(frame, slow, self.dialect.nulls, forms)
        read = {name: refuse_bad(name) for name in slow} | quick
        return frame.select(self._complete(read))

    def _plan_leniently(
        self, path: str, layout: CsvLayout, nulls: _NullSearch, row_limit: int | None
    ) -> pl.LazyFrame:
        """Plan the pass that reads every value there is, and raises where there is none."""
        frame = self._scan(path, layout, {}, nulls, row_limit)
        frame = read_leniently(frame, self.present, self.dialect.nulls, self.dialect.forms)
        return frame.select(
            self._complete(
                {name: refuse_bad(name) for name, dtype in self.present.items() if not is_text(dtype)}
            )
        )

    def _complete(self, read: Mapping[str, pl.Expr]) -> list[pl.Expr]:
        """Give the columns of the schema: as read, as they are, or null."""
        return [
            read.get(name, pl.col(name))
            if name in self.layout.names
            else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in self.schema.items()
        ]

    def _scan(
        self,
        path: str,
        layout: CsvLayout,
        native: dict[str, pl.DataType],
        nulls: _NullSearch,
        row_limit: int | None,
    ) -> pl.LazyFrame:
        """Scan the columns of the schema: those in `native` parsed by the reader, the others as text."""
        frame = scan_as_text(path, dialect=self.dialect, layout=layout, types=native, row_limit=row_limit)
        if len(self.present) == len(layout.names):
            return frame
        # Keeps the optimiser from reading some columns only: the reader would then not notice records that
        # are too long.
        return frame.map_batches(
            lambda batch: nulls.search(batch).select(*self.present),
            schema={name: native.get(name, pl.String()) for name in self.present},
            streamable=True,
        )

    def _adds_up(self, rows: int, separators: int) -> bool:
        """Say whether that many rows account for all separators, so that none of them is short or blank."""
        return separators >= rows * (len(self.layout.names) - 1)


@dataclass(slots=True)
class _NullSearch:
    """Looks for nulls in one column. A file without any has no record that is short."""

    column: str
    found: bool = False

    def search(self, batch: pl.DataFrame) -> pl.DataFrame:
        # Batches may come from several threads at once. A flag that only ever rises loses no find; a count
        # could, when two threads add to what both have read.
        if batch.get_column(self.column).null_count():
            self.found = True
        return batch

    def search_file(self, path: str) -> None:
        self.found = bool(scan_frame(path).select(pl.col(self.column).null_count()).collect().item())
