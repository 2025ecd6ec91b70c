"""Convert a CSV file to Parquet, streamed: one fast pass, and closer looks only where that pass trips.

The fast pass lets the CSV reader of Polars parse numbers. Its refusals are not final: values with blanks
around them, or `1` for true, are read by a second, more lenient pass. What this one refuses is explained.
Rows that the reader fills up with nulls in silence, because they are short, are found by counting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl
from polars._typing import PolarsDataType
from polars.exceptions import PolarsError

from astro_async._frames.csv_diagnosis import explain_failure, explain_width, find_short_record, scan_as_text
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import CsvLayout, read_layout, refuse_missing_columns
from astro_async._frames.csv_records import count_separators
from astro_async._frames.csv_text import copy_without_blank_lines, open_as_utf8
from astro_async._frames.csv_values import check_schema, is_read_natively, is_text, read_strictly
from astro_async._frames.parquet import WrittenFrame, removing_on_error, scan_frame, write_frame

__all__ = ["convert_csv"]


def convert_csv(
    source: str, target: str, *, dialect: CsvDialect, schema: Mapping[str, PolarsDataType] | None
) -> WrittenFrame:
    """Convert one CSV file to one Parquet file, in bounded memory.

    An unquoted empty field is null and `""` is empty text; in columns of other types both are null, and so
    are fields of nothing but blanks. Blank lines are left out, unless the file has one column, where such a
    line is a null. A file of a header alone is an empty table.

    Args:
        source: The CSV file.
        target: The Parquet file, which must not exist yet. It is not there after any error.
        dialect: How the source is written.
        schema: The columns to keep, in the order to keep them in, with their types; columns of the file that
            it does not name are left out. None keeps every column, as String.

    Raises:
        IngestError: The source is not what dialect and schema say. The message names file, line and column.
        PipelineError: The schema has a type that text cannot be read as.
        StorageError: Target or temporary file could not be written.
    """
    wanted = None if schema is None else check_schema(schema)
    with open_as_utf8(source, dialect=dialect, beside=target) as path, removing_on_error(target):
        utf8 = dialect if path == source else replace(dialect, encoding="utf-8")
        layout = read_layout(path, source, utf8, wanted)
        if wanted is None:
            wanted = pl.Schema(dict.fromkeys(layout.names, pl.String()))
        refuse_missing_columns(layout.names, wanted, source)
        return _Conversion(path, source, target, dialect, layout, wanted).run()


@dataclass(frozen=True, slots=True)
class _Conversion:
    """One conversion of a UTF-8 text whose columns are known."""

    path: str
    source: str
    target: str
    dialect: CsvDialect
    layout: CsvLayout
    schema: pl.Schema

    def run(self) -> WrittenFrame:
        written, tail_nulls = self._write(self.path, self.layout)
        if not tail_nulls or not self._may_have_short_records(written.rows):
            return written
        short, has_blank = find_short_record(self.path, self.dialect, self.layout)
        if short is not None:
            raise explain_width(self.source, short, len(self.layout.names))
        if not has_blank:
            return written
        os.unlink(self.target)
        with copy_without_blank_lines(
            self.path, dialect=self.dialect, first_line=self.layout.first_line, beside=self.target
        ) as data_path:
            written, _ = self._write(data_path, replace(self.layout, first_line=0))
        return written

    def _write(self, path: str, layout: CsvLayout) -> tuple[WrittenFrame, int]:
        """Write the target, and count the nulls in the last column of the file, where short records show."""
        native = {name: dtype for name, dtype in self.schema.items() if is_read_natively(dtype)}
        text = {name: dtype for name, dtype in native.items() if is_text(dtype)}
        # Where the reader parses nothing but text anyway, a second pass would be the first one again.
        for types in (native, text) if len(native) > len(text) else (text,):
            nulls = _NullCount(layout.names[-1])
            try:
                written = write_frame(self._plan(path, layout, types, nulls), self.target)
            except PolarsError:
                continue
            if layout.names[-1] in self.schema:
                nulls.count_in_file(self.target)
            return written, nulls.count
        # The error of Polars quotes the cell, so it does not travel with this one.
        raise explain_failure(
            self.path, self.source, dialect=self.dialect, layout=self.layout, schema=self.schema
        ) from None

    def _plan(
        self, path: str, layout: CsvLayout, types: dict[str, pl.DataType], nulls: _NullCount
    ) -> pl.LazyFrame:
        """Plan the pass: columns in `types` are parsed by the reader, the others from their text."""
        frame = scan_as_text(path, dialect=self.dialect, layout=layout, types=types)
        if len(self.schema) < len(layout.names):
            read = {name: types.get(name, pl.String()) for name in self.schema}
            frame = frame.map_batches(
                # Keeps the optimiser from reading some columns only: the reader would then not notice
                # records that are too long.
                lambda batch: nulls.count_in(batch).select(*read),
                schema=read,
                streamable=True,
            )
        return frame.select(
            pl.col(name) if name in types else read_strictly(name, dtype, self.dialect.nulls)
            for name, dtype in self.schema.items()
        )

    def _may_have_short_records(self, rows: int) -> bool:
        per_record = len(self.layout.names) - 1
        if per_record == 0:
            return False
        found = count_separators(self.path, self.dialect, first_line=self.layout.first_line)
        return found < rows * per_record


@dataclass(slots=True)
class _NullCount:
    """Counts the nulls of one column. A file without any has no record that is short."""

    column: str
    count: int = 0

    def count_in(self, batch: pl.DataFrame) -> pl.DataFrame:
        # Batches may come from several threads at once and an update may be lost. That is no matter: what
        # is asked is whether there are any.
        self.count += batch.get_column(self.column).null_count()
        return batch

    def count_in_file(self, path: str) -> None:
        self.count = scan_frame(path).select(pl.col(self.column).null_count()).collect().item()
