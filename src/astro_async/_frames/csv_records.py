"""Walk the records of a CSV file by physical line, in bounded memory, to say where something is wrong.

Counts lines and fields and never looks at values, so nothing of a cell can reach a message. This is Python
speed, for files in which the fast reader has found something: it works out the place, not the data. It reads
UTF-8 with LF or CRLF line ends; any one physical line must fit into memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import BinaryIO

from astro_async._frames.csv_dialect import CsvDialect

__all__ = [
    "Record",
    "bytes_of",
    "count_blank_lines_at_end",
    "count_separators",
    "find_line",
    "is_blank",
    "iter_data_lines",
    "iter_odd_records",
    "skip_lines",
    "walk_quoted",
]

_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16


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
    is_blank: bool = False
    is_open: bool = False
    has_stray_quote: bool = False


def iter_odd_records(
    path: str, dialect: CsvDialect, *, first_line: int, width: int
) -> Generator[Record, None, None]:
    """Yield, in order, the records of the data that have other than `width` fields or odd quotes.

    Args:
        path: A UTF-8 text file.
        dialect: Separator and quote character; the encoding is not looked at.
        first_line: How many physical lines stand before the data.
        width: How many fields a record should have.
    """
    separator, quote = bytes_of(dialect)
    separators = width - 1
    record: Record | None = None
    with open(path, "rb") as file:
        skip_lines(file, first_line)
        for number, line in enumerate(file, first_line + 1):
            if record is None and (quote is None or quote not in line):
                if line.count(separator) != separators:
                    yield Record(number, line.count(separator) + 1, is_blank=is_blank(line, separator))
                continue
            assert quote is not None
            fields, is_open, is_loose, is_broken = walk_quoted(
                line, separator, quote, is_open=record is not None
            )
            if record is None:
                record = Record(number, fields)
            else:
                # The field that a line end splits was counted on the line before.
                record.fields += fields - 1
            record.has_stray_quote = record.has_stray_quote or is_loose or is_broken
            if not is_open:
                if record.fields != width or record.has_stray_quote:
                    yield record
                record = None
    if record is not None:
        record.is_open = True
        yield record


def find_line(path: str, dialect: CsvDialect, *, first_line: int, row: int) -> int:
    """Find the physical line, from 1, where record `row` of the data, from 0, begins. Blank lines count."""
    with open(path, "rb") as file:
        skip_lines(file, first_line)
        for number, (_, begins_record) in enumerate(_iter_lines(file, dialect), first_line + 1):
            if begins_record:
                if row == 0:
                    return number
                row -= 1
    raise IndexError(f"{path} has {row} records too few")


def iter_data_lines(path: str, dialect: CsvDialect, *, first_line: int) -> Iterator[tuple[bytes, bool]]:
    """Yield each physical line of the data, and whether it is a blank line outside of quotes."""
    separator, _ = bytes_of(dialect)
    with open(path, "rb") as file:
        skip_lines(file, first_line)
        for line, begins_record in _iter_lines(file, dialect):
            yield line, begins_record and is_blank(line, separator)


def _iter_lines(file: BinaryIO, dialect: CsvDialect) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it begins a record."""
    separator, quote = bytes_of(dialect)
    is_open = False
    for line in file:
        yield line, not is_open
        if quote is not None and quote in line:
            _, is_open, _, _ = walk_quoted(line, separator, quote, is_open=is_open)


def bytes_of(dialect: CsvDialect) -> tuple[bytes, bytes | None]:
    return dialect.separator.encode(), dialect.quote_char.encode() if dialect.quote_char else None


def count_separators(path: str, dialect: CsvDialect, *, first_line: int) -> int:
    """Count the separators outside of quotes in the data, by pairing quotes and not by parsing.

    Exact where quotes stand around whole fields only. So a sum that adds up says that no record is short,
    and one that does not is a reason to look closer.
    """
    separator, quote = bytes_of(dialect)
    quoted = None if quote is None else re.compile(b"%b[^%b]*(?:%b|$)" % ((re.escape(quote),) * 3))
    count, is_open = 0, False
    with open(path, "rb") as file:
        skip_lines(file, first_line)
        while chunk := file.read(_CHUNK_BYTES):
            if quoted is None or quote is None or not (is_open or quote in chunk):
                count += chunk.count(separator)
                continue
            opened = quote + chunk if is_open else chunk
            # A chunk that ends between doubled quotes pairs them with the next one: the sum is the same.
            count += quoted.sub(b"", opened).count(separator)
            is_open = opened.count(quote) % 2 == 1
    return count


def skip_lines(file: BinaryIO, count: int) -> None:
    """Move past `count` physical lines and a byte order mark."""
    if file.read(3) != b"\xef\xbb\xbf":
        file.seek(0)
    for _ in range(count):
        file.readline()


def count_blank_lines_at_end(path: str, dialect: CsvDialect) -> int:
    """Count the blank lines after the last record, of those that the last 64 KiB hold."""
    separator, _ = bytes_of(dialect)
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().removesuffix(b"\n").split(b"\n")
    # The first line may be cut, and then what is left of it says nothing.
    return sum(1 for _ in takewhile(lambda line: is_blank(line, separator), reversed(lines[1:])))


def walk_quoted(
    line: bytes, separator: bytes, quote: bytes, *, is_open: bool
) -> tuple[int, bool, bool, bool]:
    """Count the fields of a line that has quotes, and judge the quotes.

    Returns:
        The fields; whether the line ends inside quotes; whether a quote stands in a field that is not quoted;
        whether text follows a closing quote.
    """
    line = line.rstrip(b"\r\n")
    fields, position, is_loose, is_broken = 1, 0, False, False
    if not is_open and line.startswith(quote):
        is_open, position = True, 1
    while True:
        if is_open:
            end = line.find(quote, position)
            while end >= 0 and line[end + 1 : end + 2] == quote:
                end = line.find(quote, end + 2)
            if end < 0:
                return fields, True, is_loose, is_broken
            is_open, position = False, end + 1
            if line[position : position + 1] not in (b"", separator):
                is_broken = True
        end = line.find(separator, position)
        is_loose = is_loose or quote in line[position : end if end >= 0 else len(line)]
        if end < 0:
            return fields, False, is_loose, is_broken
        fields, position = fields + 1, end + 1
        if line[position : position + 1] == quote:
            is_open, position = True, position + 1


def is_blank(line: bytes, separator: bytes) -> bool:
    # A separator that is itself a blank makes fields: a line of tabs in a TSV file is a row of nulls.
    return not line.strip() and separator not in line
