"""Walk the records of a text that has faults, so that good ones after a bad one survive. Bounded memory.

Of a record that a quote has thrown out of step only the first line is bad: reading takes up again at the
next line. This is Python speed, for files that the fast reader has refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_records import bytes_of, is_blank, skip_lines, walk_quoted
from astro_async._frames.escapes import ESCAPED

__all__ = ["NUL", "SourceRecord", "describe_undecodable", "iter_csv_records"]

NUL: Final = "a NUL character"
_UNCLOSED: Final = "a quoted field begins here and is not closed"
_STRAY: Final = "a quote character in a field that is not quoted, or text after a closing quote"


class SourceRecord(NamedTuple):
    """One record of a source.

    Attributes:
        line: The physical line on which it begins, from 1.
        next_line: The line on which reading goes on.
        raw: Its bytes in the copy that is read, with the line end.
        row: How a CSV text has it that is free of faults; nothing of a record with faults.
        faults: What is wrong with it, before any value is looked at.
    """

    line: int
    next_line: int
    raw: bytes
    row: bytes
    faults: tuple[str, ...]


def describe_undecodable(encoding: str) -> str:
    """Say what is wrong with a record that could not be decoded."""
    return f"bytes that are not {encoding}"


def iter_csv_records(
    path: str, dialect: CsvDialect, *, first_line: int, width: int, encoding: str
) -> Iterator[SourceRecord]:
    """Yield the records of an escaped UTF-8 text, in order; blank lines are none, unless it has one column.

    Args:
        path: What `open_escaped` made.
        dialect: Separator and quote character.
        first_line: How many physical lines stand before the data.
        width: How many fields a record should have.
        encoding: What messages call the encoding of the source.
    """
    separator, quote = bytes_of(dialect)
    with open(path, "rb") as file:
        skip_lines(file, first_line)
        number = first_line
        while line := file.readline():
            number += 1
            if quote is not None and quote in line:
                raw, lines, fault = _read_quoted(file, line, separator, quote, width)
            elif width > 1 and is_blank(line, separator):
                continue
            else:
                raw, lines, fault = line, 1, _judge_width(line.count(separator) + 1, width)
            faults = () if fault is None else (fault,)
            if b"\0" in raw:
                faults = (NUL, *faults)
            if ESCAPED.search(raw):
                faults = (describe_undecodable(encoding), *faults)
            yield SourceRecord(number, number + lines, raw, b"" if faults else raw, faults)
            number += lines - 1


def _judge_width(fields: int, width: int) -> str | None:
    if fields == width:
        return None
    columns = "1 column" if width == 1 else f"{width} columns"
    return f"too {'few' if fields < width else 'many'} fields: the file has {columns}"


def _read_quoted(
    file: IO[bytes], line: bytes, separator: bytes, quote: bytes, width: int
) -> tuple[bytes, int, str | None]:
    """Read on from a line with quotes: the bytes of its record, how many lines it has, what is wrong."""
    fields, is_open, is_loose, is_broken = walk_quoted(line, separator, quote, is_open=False)
    if not is_open:
        # Quotes within a field are text, as long as they come in pairs: others mislead the reader.
        if is_broken or (is_loose and line.count(quote) % 2):
            return line, 1, _STRAY
        return line, 1, _judge_width(fields, width)
    second = file.tell()
    lines = 1
    # Nothing is kept: a quote that is never closed reaches to the end of the file.
    while is_open and not (is_loose or is_broken) and (more := file.readline()):
        found, is_open, is_loose, is_broken = walk_quoted(more, separator, quote, is_open=True)
        fields += found - 1
        lines += 1
    fault = _judge_width(fields, width)
    end = file.tell()
    file.seek(second)
    # Of a line that is a good record by itself, the quote before it has nothing to say.
    if is_open or is_loose or is_broken or (fault and _stands_alone(file, separator, quote, width)):
        file.seek(second)
        return line, 1, _UNCLOSED
    file.seek(second)
    return line + file.read(end - second), lines, fault


def _stands_alone(file: IO[bytes], separator: bytes, quote: bytes, width: int) -> bool:
    line = file.readline()
    return walk_quoted(line, separator, quote, is_open=False) == (width, False, False, False)
