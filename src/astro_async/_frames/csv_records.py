"""Walk the records of a CSV file by physical line, in bounded memory, to say where something is wrong.

Counts lines and fields and never looks at values, so nothing of a cell can reach a message. This is Python
speed, for files in which the fast reader has found something: it works out the place, not the data. It reads
UTF-8 with LF or CRLF line ends; any one physical line must fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from astro_async._frames.csv_dialect import CsvDialect

__all__ = ["Record", "count_separators", "iter_data_lines", "iter_records"]

_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Record:
    """One record, which may span several physical lines.

    Attributes:
        line: Where it begins, from 1.
        fields: How many fields it has; a blank line has one.
        is_blank: It is one line of nothing but blanks.
        is_open: The file ends inside one of its quoted fields.
        has_stray_quote: A quote character stands inside an unquoted field, or text follows a closing quote.
    """

    line: int
    fields: int
    is_blank: bool
    is_open: bool = False
    has_stray_quote: bool = False


def iter_records(path: str, dialect: CsvDialect, *, first_line: int) -> Generator[Record, None, None]:
    """Yield the records of the data, in order.

    Args:
        path: A UTF-8 text file.
        dialect: Separator and quote character; the encoding is not looked at.
        first_line: How many physical lines stand before the data.
    """
    record: Record | None = None
    for number, (line, begins_record, fields, is_open, is_stray) in enumerate(
        _walk(path, dialect, first_line), first_line + 1
    ):
        if begins_record:
            if record is not None:
                yield record
            record = Record(number, fields, _is_blank(line, dialect))
        elif record is not None:
            # The field that a line end splits was counted on the line before.
            record.fields += fields - 1
        if record is not None:
            record.is_open = is_open
            record.has_stray_quote = record.has_stray_quote or is_stray
    if record is not None:
        yield record


def iter_data_lines(path: str, dialect: CsvDialect, *, first_line: int) -> Iterator[tuple[bytes, bool]]:
    """Yield each physical line of the data, and whether it is a blank line outside of quotes."""
    for line, begins_record, *_ in _walk(path, dialect, first_line):
        yield line, begins_record and _is_blank(line, dialect)


def count_separators(path: str, dialect: CsvDialect, *, first_line: int) -> int:
    """Count the separators outside of quotes in the data, by pairing quotes and not by parsing.

    Never more than the fields have between them; fewer where a quote character stands inside an unquoted
    field. So a sum that adds up proves that no record is short, and one that does not is only a reason to
    look closer.
    """
    separator = dialect.separator.encode()
    quote = dialect.quote_char.encode() if dialect.quote_char else None
    quoted = None if quote is None else re.compile(b"%b[^%b]*(?:%b|$)" % ((re.escape(quote),) * 3))
    count, is_open = 0, False
    with open(path, "rb") as file:
        _skip_lines(file, first_line)
        while chunk := file.read(_CHUNK_BYTES):
            if quoted is None or quote is None or not (is_open or quote in chunk):
                count += chunk.count(separator)
                continue
            opened = quote + chunk if is_open else chunk
            # A chunk that ends between doubled quotes pairs them with the next one: the sum is the same.
            count += quoted.sub(b"", opened).count(separator)
            is_open = opened.count(quote) % 2 == 1
    return count


def _walk(path: str, dialect: CsvDialect, first_line: int) -> Iterator[tuple[bytes, bool, int, bool, bool]]:
    """Yield for each line: itself, begins a record, fields, ends inside quotes, has a stray quote."""
    separator = dialect.separator.encode()
    quote = dialect.quote_char.encode() if dialect.quote_char else None
    is_open = False
    with open(path, "rb") as file:
        _skip_lines(file, first_line)
        for line in file:
            begins_record = not is_open
            if quote is None or (begins_record and quote not in line):
                yield line, True, line.count(separator) + 1, False, False
                continue
            fields, is_open, is_stray = _walk_quoted(line.rstrip(b"\r\n"), separator, quote, is_open=is_open)
            yield line, begins_record, fields, is_open, is_stray


def _skip_lines(file: BinaryIO, count: int) -> None:
    """Move past `count` physical lines and a byte order mark."""
    if file.read(3) != b"\xef\xbb\xbf":
        file.seek(0)
    for _ in range(count):
        file.readline()


def _walk_quoted(line: bytes, separator: bytes, quote: bytes, *, is_open: bool) -> tuple[int, bool, bool]:
    """Count the fields of a line that has quotes; say whether it ends inside them, and of stray ones."""
    fields, position, is_stray = 1, 0, False
    if not is_open and line.startswith(quote):
        is_open, position = True, 1
    while True:
        if is_open:
            end = line.find(quote, position)
            while end >= 0 and line[end + 1 : end + 2] == quote:
                end = line.find(quote, end + 2)
            if end < 0:
                return fields, True, is_stray
            is_open, position = False, end + 1
            is_stray = is_stray or line[position : position + 1] not in (b"", separator)
        end = line.find(separator, position)
        is_stray = is_stray or quote in line[position : end if end >= 0 else len(line)]
        if end < 0:
            return fields, False, is_stray
        fields, position = fields + 1, end + 1
        if line[position : position + 1] == quote:
            is_open, position = True, position + 1


def _is_blank(line: bytes, dialect: CsvDialect) -> bool:
    # A separator that is itself a blank makes fields: a line of tabs in a TSV file is a row of nulls.
    return not line.strip() and dialect.separator.encode() not in line
