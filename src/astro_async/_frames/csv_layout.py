"""Find out which columns a CSV file has, where its data begins, and which column is which of a schema.

Reads the head of a file only. Names are names of columns, so messages quote them.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from astro_async._frames.columns import RESERVED_PREFIX
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_text import detect_line_end, reading, undecodable
from astro_async.exceptions import IngestError

__all__ = ["CsvLayout", "read_layout", "refuse_missing_columns"]


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
    path: str, source: str, dialect: CsvDialect, names_if_headerless: Iterable[str] | None = None
) -> CsvLayout:
    """Read names and place of the data from the head of a file.

    Blanks around a name are dropped. A file without header for which there are no names at all has
    `column_1`, `column_2` and so on.

    Args:
        path: The file to read.
        source: What messages call it.
        dialect: How `path` is written.
        names_if_headerless: Names for a file that has no header and no `column_names`.

    Raises:
        IngestError: The file is empty, cannot be read or decoded, or has no header where one is expected; a
            name is empty, doubled, reserved or a pattern to Polars; there are more or fewer columns than
            names.
    """
    lines_before, fields, line_count = _read_first_record(path, source, dialect)
    names = [field.strip() for field in fields]
    given = dialect.column_names
    if not dialect.has_header:
        line_count = 0
        names = [f"column_{position}" for position in range(1, len(fields) + 1)]
        if given is None and names_if_headerless is not None:
            given = tuple(names_if_headerless)
    if given is not None:
        if len(given) != len(fields):
            raise IngestError(
                f"{source}, line {lines_before + 1}: the line has {_count(fields, 'field')}, "
                f"but {_count(given, 'name')} for the columns: {_quote(given)}. "
                f"Give one name for each column."
            )
        names = list(given)
    _check_names(names, source, lines_before + 1)
    return CsvLayout(tuple(names), lines_before + line_count)


def refuse_missing_columns(names: Collection[str], wanted: Collection[str], source: str) -> None:
    """Refuse a file that lacks columns of the schema.

    Raises:
        IngestError: Names the columns, and those of the file that look like them.
    """
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    unused = [name for name in names if name not in wanted]
    near = [
        f"{name!r} looks like {match!r}"
        for name in missing
        if (match := _find_near_miss(name, unused)) is not None
    ]
    hint = f" ({'; '.join(near)})" if near else ""
    raise IngestError(
        f"{source} lacks {_count(missing, 'column')} of the schema: {_quote(missing)}{hint}. It has: "
        f"{_quote(names)}. Mend the file, change the schema, or name the columns with column_names."
    )


def _read_first_record(path: str, source: str, dialect: CsvDialect) -> tuple[int, list[str], int]:
    """Read the first record: how many lines stand before it, its fields, how many lines it spans."""
    with reading(source):
        line_end = detect_line_end(path, dialect)
    lines_before = 0
    try:
        with reading(source), open(path, encoding=dialect.reading_encoding, newline=line_end) as file:
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


def _check_names(names: list[str], source: str, line: int) -> None:
    advice = "Mend the header, or name the columns with column_names."
    empty = [str(position) for position, name in enumerate(names, 1) if not name]
    if empty:
        raise IngestError(f"{source}, line {line}: column {', '.join(empty)} has no name. {advice}")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise IngestError(f"{source}, line {line}: names that occur twice: {_quote(doubled)}. {advice}")
    patterns = [name for name in names if _is_pattern(name)]
    if patterns:
        raise IngestError(
            f"{source}, line {line}: names that Polars takes for patterns: {_quote(patterns)}. "
            f"Name the columns with column_names."
        )
    reserved = [name for name in names if name.startswith(RESERVED_PREFIX)]
    if reserved:
        raise IngestError(
            f"{source}, line {line}: names that begin with {RESERVED_PREFIX!r} are reserved: "
            f"{_quote(reserved)}. {advice}"
        )


def _is_pattern(name: str) -> bool:
    """Say whether Polars would take the name for several columns wherever a step uses it."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _find_near_miss(name: str, candidates: list[str]) -> str | None:
    by_plain_name = {_plain(candidate): candidate for candidate in candidates}
    close = difflib.get_close_matches(_plain(name), by_plain_name, n=1, cutoff=0.8)
    return by_plain_name[close[0]] if close else None


def _plain(name: str) -> str:
    """Reduce a name to its letters and digits, without case: `Order No.` and `order_no` are the same."""
    return "".join(character for character in name.casefold() if character.isalnum()) or name


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"
