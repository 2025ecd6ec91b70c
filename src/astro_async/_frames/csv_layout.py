"""Find out which columns a CSV file has, and where its data begins.

Reads the head of a file only. Names are names of columns, so messages quote them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from astro_async._frames.column_match import describe_count, quote_names
from astro_async._frames.columns import RESERVED_PREFIX
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_text import detect_line_end, undecodable
from astro_async._frames.source_content import reading
from astro_async.exceptions import IngestError

__all__ = ["CsvLayout", "name_columns", "read_layout"]


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """The columns of a file, in its order, and where its data begins.

    Attributes:
        names: What the columns are called once the dialect has had its say; unique.
        first_line: How many physical lines stand before the data: skipped, blank, or the header.
    """

    names: tuple[str, ...]
    first_line: int


def read_layout(
    path: str,
    source: str,
    dialect: CsvDialect,
    names_if_headerless: Iterable[str] | None = None,
    errors: str = "strict",
) -> CsvLayout:
    """Read names and place of the data from the head of a file.

    Blanks around a name are dropped. A file without header for which there are no names at all has
    `column_1`, `column_2` and so on.

    Args:
        path: The file to read.
        source: What messages call it.
        dialect: How `path` is written.
        names_if_headerless: Names for a file that has no header and no `column_names`.
        errors: How to decode bytes that are not text.

    Raises:
        IngestError: The file is empty, cannot be read or decoded, or has no header where one is expected; a
            name is empty, doubled, reserved or a pattern to Polars; there are more or fewer columns than
            names.
    """
    lines_before, fields, line_count = _read_first_record(path, source, dialect, errors)
    names = name_columns(fields, f"{source}, line {lines_before + 1}", dialect, names_if_headerless)
    return CsvLayout(names, lines_before + (line_count if dialect.has_header else 0))


def name_columns(
    fields: Sequence[str], place: str, dialect: CsvDialect, names_if_headerless: Iterable[str] | None = None
) -> tuple[str, ...]:
    """Say what columns are called, given the fields of the first record.

    Args:
        fields: The header, or the first row where there is none.
        place: What messages call it.
        dialect: Whether there is a header, and what replaces its names.
        names_if_headerless: Names where there is no header and no `column_names`.

    Raises:
        IngestError: As in `read_layout`.
    """
    headers = [field.strip() for field in fields]
    given = dialect.column_names
    if not dialect.has_header:
        headers = [f"column_{position}" for position in range(1, len(fields) + 1)]
        if given is None and names_if_headerless is not None:
            given = tuple(names_if_headerless)
    if given is not None:
        if len(given) != len(fields):
            raise IngestError(
                f"{place}: the line has {describe_count(fields, 'field')}, "
                f"but {describe_count(given, 'name')} for the columns: {quote_names(given)}. "
                f"Give one name for each column."
            )
        headers = list(given)
    names = [dialect.aliases.get(name, name) for name in headers]
    _check_names(names, headers, place)
    return tuple(names)


def _read_first_record(
    path: str, source: str, dialect: CsvDialect, errors: str
) -> tuple[int, list[str], int]:
    """Read the first record: how many lines stand before it, its fields, how many lines it spans."""
    with reading(source):
        line_end = detect_line_end(path, dialect, errors=errors)
    lines_before = 0
    try:
        with (
            reading(source),
            open(path, encoding=dialect.reading_encoding, errors=errors, newline=line_end) as file,
        ):
            lines = _without_mark(file)
            for line in lines:
                if lines_before >= dialect.skip_rows and line.strip():
                    fields, line_count = _parse_record(line, lines, dialect, source, lines_before + 1)
                    return lines_before, fields, line_count
                lines_before += 1
    except UnicodeError:
        raise undecodable(path, dialect) from None
    what = "header" if dialect.has_header else "data"
    skipped = f" after the {dialect.skip_rows} lines that skip_rows leaves out" if dialect.skip_rows else ""
    raise IngestError(f"{source} has {lines_before} lines, and no {what}{skipped}. Ask for the file again.")


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.removeprefix("\ufeff") if number == 0 else line


def _parse_record(
    line: str, following: Iterator[str], dialect: CsvDialect, source: str, number: int
) -> tuple[list[str], int]:
    text, line_count = line, 1
    quote = dialect.quote_char
    # Quotes come in pairs, also when doubled: an odd number of them is a field that goes on.
    while quote is not None and text.count(quote) % 2 == 1 and (more := next(following, None)) is not None:
        text += more
        line_count += 1
    reader = csv.reader(
        io.StringIO(text.rstrip("\r\n"), newline=""),
        delimiter=dialect.separator,
        quotechar=quote,
        quoting=csv.QUOTE_MINIMAL if quote is not None else csv.QUOTE_NONE,
        strict=True,
    )
    try:
        return next(reader), line_count
    except (csv.Error, StopIteration):
        raise IngestError(
            f"{source}, line {number}: the quotes of the first line do not come in pairs. Mend the line, or "
            f"set quote_char=None if quotes are ordinary text in this file."
        ) from None


def _check_names(names: list[str], headers: list[str], place: str) -> None:
    advice = "Mend the header, or name the columns with column_names."
    empty = [str(position) for position, name in enumerate(names, 1) if not name]
    if empty:
        raise IngestError(f"{place}: column {', '.join(empty)} has no name. {advice}")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        places = "; ".join(
            f"{name!r} is "
            + " and ".join(
                f"column {position}" + ("" if header == name else f" ({header!r})")
                for position, (header, other) in enumerate(zip(headers, names, strict=True), 1)
                if other == name
            )
            for name in doubled
        )
        raise IngestError(f"{place}: names that occur twice: {places}. {advice}")
    patterns = [name for name in names if _is_pattern(name)]
    if patterns:
        raise IngestError(
            f"{place}: names that Polars takes for patterns: {quote_names(patterns)}. "
            f"Name the columns with column_names."
        )
    reserved = [name for name in names if name.startswith(RESERVED_PREFIX)]
    if reserved:
        raise IngestError(
            f"{place}: names that begin with {RESERVED_PREFIX!r} are reserved: "
            f"{quote_names(reserved)}. {advice}"
        )


def _is_pattern(name: str) -> bool:
    """Say whether Polars would take the name for several columns wherever a step uses it."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))
