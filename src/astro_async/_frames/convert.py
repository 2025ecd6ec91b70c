"""Turn one source file into one Parquet file, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import polars as pl
from polars._typing import PolarsDataType

from astro_async._frames.bad_rows import BadRowPolicy, ParkedPart, Parking
from astro_async._frames.column_match import ColumnDifferenceError, ColumnRules
from astro_async._frames.csv_convert import convert_csv, convert_text
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import CsvLayout, name_columns, read_layout
from astro_async._frames.csv_text import encode_row, open_escaped, write_temporary
from astro_async._frames.csv_values import check_schema
from astro_async._frames.escapes import has_escapes
from astro_async._frames.ndjson_text import (
    find_json_line,
    iter_json_batches,
    iter_json_records,
    read_escaped_names,
    read_json_names,
)
from astro_async._frames.parquet import WrittenFrame
from astro_async._frames.parquet_convert import convert_parquet
from astro_async._frames.source_content import Content, SourceFacts, detect_content
from astro_async._frames.source_records import SourceRecord, iter_csv_records
from astro_async._frames.xlsx_text import load_sheet_rows
from astro_async.exceptions import IngestError, PipelineError

__all__ = ["ConvertedSource", "SourceFormat", "SourceReading", "convert_source"]


class SourceFormat(StrEnum):
    """What a source file is written as."""

    CSV = "csv"
    TSV = "tsv"
    NDJSON = "ndjson"
    PARQUET = "parquet"
    XLSX = "xlsx"


_BY_NAME: Final = {
    ".tsv": SourceFormat.TSV,
    ".tab": SourceFormat.TSV,
    ".ndjson": SourceFormat.NDJSON,
    ".jsonl": SourceFormat.NDJSON,
    ".parquet": SourceFormat.PARQUET,
    ".pq": SourceFormat.PARQUET,
    ".xlsx": SourceFormat.XLSX,
}
_BY_CONTENT: Final = {Content.PARQUET: SourceFormat.PARQUET, Content.XLSX: SourceFormat.XLSX}
_COMPRESSED: Final = frozenset({".gz", ".gzip", ".zst", ".zstd"})
_BATCH_ROWS: Final = 10_000

# How the text is written that NDJSON and workbooks are turned into.
_PLAIN_TEXT: Final = CsvDialect()


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How to read one source.

    Attributes:
        dialect: How text in it is written.
        format: What it is; None finds out by its content and its name.
        sheet: Which sheet of a workbook; None if it has one.
        rules: What becomes of columns that only one of file and schema has.
        has_separator: Whether the separator of the dialect was chosen, and so counts for TSV too.
        bad_rows: How many rows that cannot be read may be parked; None refuses the source for one.
    """

    dialect: CsvDialect
    format: SourceFormat | None = None
    sheet: str | None = None
    rules: ColumnRules = field(default_factory=ColumnRules)
    has_separator: bool = False
    bad_rows: BadRowPolicy | None = None


@dataclass(frozen=True, slots=True)
class ConvertedSource:
    """What became of a source.

    Attributes:
        frame: The Parquet file.
        parked: What was parked; None if every row could be read.
    """

    frame: WrittenFrame
    parked: ParkedPart | None = None


def convert_source(
    source: str,
    target: str,
    *,
    how: SourceReading,
    schema: Mapping[str, PolarsDataType] | None,
    facts: SourceFacts,
    claim_part: Callable[[], str],
) -> ConvertedSource:
    """Convert one source file to one Parquet file, which must not exist yet and is not there after any error.

    Text and Parquet are streamed, in bounded memory; a sheet of a workbook is held in memory.

    Args:
        source: The source file.
        target: The Parquet file.
        how: How to read it.
        schema: The columns to keep, with their types; None for all.
        facts: Is given what is learnt of the source on the way.
        claim_part: Returns the path of a file for rows that are parked; called only if there are any.

    Raises:
        IngestError: The source is not what it should be. The message names file, place and column.
        PipelineError: The schema or the reading makes no sense, or needs an extra that is not installed.
        StorageError: Target or temporary file could not be written.
    """
    content = detect_content(source)
    chosen = _choose_format(source, content, how.format)
    if chosen is SourceFormat.TSV and not how.has_separator:
        how = replace(how, dialect=replace(how.dialect, separator="\t"))
    if how.bad_rows is None:
        return ConvertedSource(_convert(source, target, content, chosen, how, schema, facts))
    if chosen not in (SourceFormat.CSV, SourceFormat.TSV, SourceFormat.NDJSON):
        raise PipelineError(
            f"{source} is {chosen.upper()}, of which no rows can be parked: leave out on_bad_rows, and set "
            f"rows aside in a step"
        )
    try:
        return ConvertedSource(_convert(source, target, content, chosen, how, schema, facts))
    except ColumnDifferenceError:
        raise
    except IngestError as error:
        facts.restart()
        wanted = None if schema is None else check_schema(schema)
        open_records = _open_ndjson_records if chosen is SourceFormat.NDJSON else _open_csv_records
        with open_records(source, target, content, how.dialect, wanted, facts) as found:
            if found is None:
                raise
            parking = Parking(
                source=source,
                file_name=os.path.basename(source),
                target=target,
                claim_part=claim_part,
                policy=how.bad_rows,
                records=found.records,
                layout=found.layout,
                dialect=found.dialect,
                schema=wanted,
                rules=how.rules,
                error=error,
            )
            return ConvertedSource(*parking.run(facts))


def _convert(
    source: str,
    target: str,
    content: Content,
    chosen: SourceFormat,
    how: SourceReading,
    schema: Mapping[str, PolarsDataType] | None,
    facts: SourceFacts,
) -> WrittenFrame:
    """Convert a source of which every row can be read."""
    dialect = how.dialect
    if chosen is SourceFormat.PARQUET:
        return convert_parquet(source, target, dialect=dialect, schema=schema, rules=how.rules, facts=facts)
    if chosen in (SourceFormat.CSV, SourceFormat.TSV):
        return convert_csv(source, target, dialect=dialect, schema=schema, rules=how.rules, facts=facts)
    wanted = None if schema is None else check_schema(schema)
    dialect.forms.check(wanted)
    convert = _convert_workbook if chosen is SourceFormat.XLSX else _convert_ndjson
    return convert(source, target, content, how, wanted, facts)


class _Records(NamedTuple):
    """The records of a source with rows to park; the attributes are those of `Parking`."""

    records: Callable[[], Iterator[SourceRecord]]
    layout: CsvLayout
    dialect: CsvDialect


@contextmanager
def _open_csv_records(
    source: str,
    target: str,
    content: Content,
    given: CsvDialect,
    schema: pl.Schema | None,
    facts: SourceFacts,
) -> Iterator[_Records | None]:
    """Give the records; None if not even the header can be read."""
    with open_escaped(source, dialect=given, beside=target, content=content, facts=facts) as path:
        dialect = replace(given, encoding="utf-8")
        layout = read_layout(path, source, dialect, schema, "surrogatepass")
        if any("\0" in name or has_escapes(name) for name in layout.names):
            yield None
            return
        records = partial(
            iter_csv_records,
            path,
            dialect,
            first_line=layout.first_line,
            width=len(layout.names),
            encoding=given.encoding,
        )
        yield _Records(records, layout, dialect)


@contextmanager
def _open_ndjson_records(
    source: str,
    target: str,
    content: Content,
    given: CsvDialect,
    _schema: pl.Schema | None,
    facts: SourceFacts,
) -> Iterator[_Records | None]:
    """Give the records; None if no line is an object."""
    dialect = replace(given, skip_footer=0)
    with open_escaped(source, dialect=dialect, beside=target, content=content, facts=facts) as path:
        keys = read_escaped_names(path)
        if not keys:
            yield None
            return
        names = name_columns(keys, source, replace(dialect, has_header=True, column_names=None))
        records = partial(iter_json_records, path, keys, encoding=dialect.encoding)
        plain = replace(_PLAIN_TEXT, null_values=dialect.nulls, forms=dialect.forms)
        yield _Records(records, CsvLayout(names, 0), plain)


def _choose_format(source: str, content: Content, given: SourceFormat | None) -> SourceFormat:
    """Say what a source is read as.

    Raises:
        IngestError: It is not what its name or the pipeline says.
    """
    by_content = _BY_CONTENT.get(content)
    stem, suffix = os.path.splitext(source.casefold())
    if suffix in _COMPRESSED:
        suffix = os.path.splitext(stem)[1]
    expected = given or by_content or _BY_NAME.get(suffix, SourceFormat.CSV)
    if expected is by_content:
        return expected
    if by_content is not None:
        raise IngestError(
            f"{source} is {content}, and the pipeline expects {expected.upper()}: change format=, or the "
            f"file."
        )
    if expected in _BY_CONTENT.values():
        compressed = f": its first bytes are those of {content}" if content is not Content.TEXT else ""
        raise IngestError(
            f"{source} should be {expected.upper()}, and does not begin as such a file does{compressed}. "
            f"Ask for the file again, or say with format= what it is."
        )
    return expected


def _convert_ndjson(
    source: str,
    target: str,
    content: Content,
    how: SourceReading,
    schema: pl.Schema | None,
    facts: SourceFacts,
) -> WrittenFrame:
    keys = read_json_names(source, content, how.dialect, facts)
    names = name_columns(keys, source, replace(how.dialect, has_header=True, column_names=None))
    batches = iter_json_batches(source, content, how.dialect, keys, _BATCH_ROWS)
    with write_temporary(_encode_batches(source, batches), beside=target) as path:
        return convert_text(
            path,
            source,
            target,
            dialect=replace(_PLAIN_TEXT, null_values=how.dialect.nulls, forms=how.dialect.forms),
            layout=CsvLayout(names, 0),
            schema=schema,
            rules=how.rules,
            facts=facts,
            locate=lambda row: f"line {find_json_line(source, content, how.dialect, row)}",
        )


def _convert_workbook(
    source: str,
    target: str,
    content: Content,
    how: SourceReading,
    schema: pl.Schema | None,
    facts: SourceFacts,
) -> WrittenFrame:
    dialect = how.dialect
    rows = dict(enumerate(load_sheet_rows(source, how.sheet), 1))
    places = [place for place, cells in rows.items() if place > dialect.skip_rows and any(cells)]
    places = places[: len(places) - dialect.skip_footer]
    if not places:
        raise IngestError(
            f"{source} has no {'header' if dialect.has_header else 'data'}: the sheet is empty."
        )
    # Formatted cells that were never filled are no columns.
    width = max(
        position for place in places for position, cell in enumerate(rows[place], 1) if cell is not None
    )
    first = [cell or "" for cell in rows[places[0]][:width]]
    names = name_columns(first, f"{source}, row {places[0]}", dialect, schema)
    if dialect.has_header:
        del places[0]
    data = (rows[place][:width] for place in places)
    with write_temporary(_encode_rows(source, data), beside=target) as path:
        return convert_text(
            path,
            source,
            target,
            dialect=replace(_PLAIN_TEXT, null_values=dialect.nulls, forms=dialect.forms),
            layout=CsvLayout(names, 0),
            schema=schema,
            rules=how.rules,
            facts=facts,
            locate=lambda row: f"row {places[row]}",
        )


def _encode_rows(source: str, rows: Iterable[list[str | None]]) -> Iterator[bytes]:
    """Write rows as CSV: an unquoted empty field is null, and `""` is empty text."""
    lines: list[str] = []
    for row in rows:
        lines.append(encode_row(row))
        if len(lines) == _BATCH_ROWS:
            yield _encode_lines(source, lines)
            lines.clear()
    yield _encode_lines(source, lines)


def _encode_batches(source: str, batches: Iterable[pl.DataFrame]) -> Iterator[bytes]:
    """Write texts as CSV, as `_encode_rows` does."""
    for batch in batches:
        if batch.width == 1:
            # A line of blanks alone must be quoted, lest it be taken for a blank line.
            yield from _encode_rows(source, ([text] for text in batch.to_series()))
            continue
        lines = batch.write_csv(include_header=False, quote_style="necessary")
        yield _encode_lines(source, [lines])


def _encode_lines(source: str, lines: list[str]) -> bytes:
    text = "".join(lines)
    if "\0" in text:
        raise IngestError(
            f"{source} has a NUL character in a value, which text does not have. Mend the file."
        )
    return text.encode()
