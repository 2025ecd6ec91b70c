"""Say why a CSV file could not be converted: which line, which column, what was expected.

The second, slower look at a file that the fast pass refused, in bounded memory. Messages hold places, names
of columns and counts, and never what a cell holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import polars as pl
from polars.exceptions import PolarsError

from astro_async._frames.columns import ROW_COLUMN
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import CsvLayout
from astro_async._frames.csv_records import Record, find_line, iter_odd_records
from astro_async._frames.csv_text import find_undecodable_line, undecodable
from astro_async._frames.csv_values import bad_name, describe_type, is_text, read_leniently
from astro_async._frames.value_forms import ValueForms
from astro_async.exceptions import IngestError

__all__ = [
    "BadColumn",
    "BadValuesError",
    "count_bad",
    "explain_bad_values",
    "explain_failure",
    "explain_width",
    "find_short_record",
    "scan_as_text",
]


@dataclass(frozen=True, slots=True)
class BadColumn:
    """Values of one column that do not parse.

    Attributes:
        place: Where the first of them is, such as `line 7`.
        count: How many there are.
        expected: What they should look like.
    """

    place: str
    count: int
    expected: str


class BadValuesError(IngestError):
    """Values of a source that are none of their type.

    Attributes:
        columns: Where they are, by column.
    """

    def __init__(self, message: str, columns: Mapping[str, BadColumn]) -> None:
        super().__init__(message)
        self.columns = columns


def scan_as_text(
    path: str,
    *,
    dialect: CsvDialect,
    layout: CsvLayout,
    types: Mapping[str, pl.DataType],
    index: str | None = None,
    row_limit: int | None = None,
) -> pl.LazyFrame:
    """Scan the data of a UTF-8 file with the types given, all other columns as String.

    Columns have the names and the order of the layout. An unquoted empty field is null, `""` is empty text.
    """
    return pl.scan_csv(
        path,
        has_header=False,
        skip_lines=layout.first_line,
        schema={name: types.get(name, pl.String()) for name in layout.names},
        separator=dialect.separator,
        quote_char=dialect.quote_char,
        null_values=list(dialect.nulls) or None,
        row_index_name=index,
        n_rows=row_limit,
        # A first record that is short is found by counting, as any other.
        missing_columns="insert",
        raise_if_empty=False,
        glob=False,
    )


def explain_failure(
    path: str,
    source: str,
    *,
    dialect: CsvDialect,
    layout: CsvLayout,
    schema: Mapping[str, pl.DataType],
    locate: Callable[[int], str] | None,
) -> IngestError:
    """Make the error that says what is wrong with a file.

    Args:
        path: The UTF-8 text of the source.
        source: What messages call it.
        dialect: How it is written.
        layout: Its columns.
        schema: The types that its columns were read as; the others are not looked at.
        locate: Says where in the source a row of the text stands; None: by its line.
    """
    try:
        bad = _find_bad_values(path, dialect=dialect, layout=layout, schema=schema)
    except PolarsError:
        # Not even text: the fault is in the lines, not in the values.
        bad = {}
    if bad:

        def find_place(row: int) -> str:
            return f"line {find_line(path, dialect, first_line=layout.first_line, row=row)}"

        in_order = {name: schema[name] for name in layout.names if name in schema}
        return explain_bad_values(source, bad, in_order, dialect.forms, locate or find_place)
    if find_undecodable_line(path, "utf-8") is not None:
        return undecodable(source, dialect)
    with closing(
        iter_odd_records(path, dialect, first_line=layout.first_line, width=len(layout.names))
    ) as records:
        return _explain_structure(source, records, dialect, len(layout.names))


def find_short_record(path: str, dialect: CsvDialect, layout: CsvLayout) -> tuple[Record | None, bool]:
    """Find the first record with too few fields, and whether there are blank lines before it."""
    has_blank = False
    with closing(
        iter_odd_records(path, dialect, first_line=layout.first_line, width=len(layout.names))
    ) as records:
        for record in records:
            if record.is_blank:
                has_blank = True
            elif record.fields < len(layout.names):
                return record, has_blank
    return None, has_blank


def explain_width(source: str, record: Record, width: int) -> IngestError:
    """Make the error for a record with too many or too few fields."""
    fields = "1 field" if record.fields == 1 else f"{record.fields} fields"
    cause = "a separator inside a field needs quotes" if record.fields > width else "it may have been cut off"
    return IngestError(
        f"{source}, line {record.line}: {fields} where the file has {width} columns; {cause}. "
        f"Mend the line, or check separator and quote_char."
    )


def _find_bad_values(
    path: str, *, dialect: CsvDialect, layout: CsvLayout, schema: Mapping[str, pl.DataType]
) -> dict[str, tuple[int, int]]:
    """Find, for each column with values that do not parse, the first row of them and how many there are."""
    typed = {name: dtype for name, dtype in schema.items() if not is_text(dtype)}
    if not typed:
        return {}
    frame = scan_as_text(path, dialect=dialect, layout=layout, types={}, index=ROW_COLUMN)
    # Every column is read, whatever its type: of some columns only, the reader does not notice long records.
    frame = frame.map_batches(_keep_all, streamable=True)
    verdicts = read_leniently(frame, typed, dialect.nulls, dialect.forms)
    return count_bad(verdicts, typed)


def count_bad(verdicts: pl.LazyFrame, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Find, for each column with bad values, the first row of them, from 0, and how many there are.

    Args:
        verdicts: Has the row number, and for each column a verdict under `bad_name`.
        names: The columns.
    """
    facts = (
        verdicts.select(
            *(pl.col(bad_name(name)).sum().alias(f"count {position}") for position, name in enumerate(names)),
            *(
                pl.when(pl.col(bad_name(name))).then(pl.col(ROW_COLUMN)).min().alias(f"first {position}")
                for position, name in enumerate(names)
            ),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    return {
        name: (facts[f"first {position}"], facts[f"count {position}"])
        for position, name in enumerate(names)
        if facts[f"count {position}"]
    }


def _keep_all(batch: pl.DataFrame) -> pl.DataFrame:
    return batch


def explain_bad_values(
    source: str,
    bad: Mapping[str, tuple[int, int]],
    types: Mapping[str, pl.DataType],
    forms: ValueForms,
    locate: Callable[[int], str],
) -> BadValuesError:
    """Make the error for values that do not parse: where the first is, and how many there are."""
    order = list(types)
    first_column = min(bad, key=lambda name: (bad[name][0], order.index(name)))
    places = {
        name: BadColumn(locate(row), count, describe_type(name, types[name], forms))
        for name, (row, count) in bad.items()
    }
    first = places[first_column]
    others = [f"{name!r} ({bad[name][1]})" for name in bad if name != first_column]
    more = f" Other columns with such values: {', '.join(others)}." if others else ""
    values = "1 value" if first.count == 1 else f"{first.count} values, the first here,"
    does = "does" if first.count == 1 else "do"
    return BadValuesError(
        f"{source}, {first.place}, column {first_column!r}: {values} that {does} not parse; expected "
        f"{first.expected}.{more} Mend the file, declare another type, "
        f"or add what stands for nothing to null_values.",
        places,
    )


def _explain_structure(
    source: str, records: Iterator[Record], dialect: CsvDialect, width: int
) -> IngestError:
    stray: Record | None = None
    for record in records:
        if record.is_open:
            return IngestError(
                f"{source}, line {record.line}: a quoted field begins in this record and is never closed. "
                f"Mend the line, or set quote_char=None if quotes are ordinary text in this file."
            )
        if record.fields > width or (record.fields < width and not record.is_blank):
            return explain_width(source, record, width)
        if record.has_stray_quote and stray is None:
            stray = record
    if stray is not None:
        return IngestError(
            f"{source}, line {stray.line}: a quote character inside a field that is not quoted, or text "
            f"after a closing quote. Quote the whole field and double the quotes in it, or set "
            f"quote_char=None."
        )
    return IngestError(
        f"{source} could not be read as CSV with separator {dialect.separator!r} and quote_char "
        f"{dialect.quote_char!r}, and no line stands out. Check both."
    )
