"""Turn NDJSON, one object a line, into the rows of a text, so that one way of reading values serves both.

A number keeps the digits it is written with. Nested values become JSON text, which a step can decode.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
import polars as pl

from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_text import encode_row, undecodable
from astro_async._frames.escapes import ESCAPED
from astro_async._frames.source_content import Content, SourceFacts, open_content, reading
from astro_async._frames.source_records import NUL, SourceRecord, describe_undecodable
from astro_async.exceptions import IngestError

__all__ = [
    "find_json_line",
    "iter_json_batches",
    "iter_json_records",
    "read_escaped_names",
    "read_json_names",
]


def _keep_digits(text: str) -> msgspec.Raw:
    return msgspec.Raw(text)


_DECODER: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_keep_digits)
_ENCODER: Final = msgspec.json.Encoder()
# Integers below it in size are those that Polars can write, which is faster.
_MOST: Final = 2**63
_NO_OBJECT: Final = "not one JSON object"


def read_json_names(
    source: str, content: Content, dialect: CsvDialect, facts: SourceFacts
) -> tuple[str, ...]:
    """Return the names of all objects, in the order of their first appearance; hashes the source.

    Raises:
        IngestError: A line is no JSON object, or there is none; the message names the line.
    """
    names: dict[str, None] = {}
    for _, record in _iter_records(source, content, dialect, facts):
        if not record.keys() <= names.keys():
            names.update(dict.fromkeys(record))
    if not names:
        raise IngestError(f"{source} has no JSON object with a name in it. Ask for the file again.")
    return tuple(names)


def iter_json_batches(
    source: str, content: Content, dialect: CsvDialect, names: tuple[str, ...], batch_rows: int
) -> Iterator[pl.DataFrame]:
    """Yield the values of the objects as text, a column for each name; null for null and for absent ones.

    Raises:
        IngestError: The source has changed since its names were read, and is no NDJSON any more.
    """
    records = (record for _, record in _iter_records(source, content, dialect, None))
    while batch := list(islice(records, batch_rows)):
        yield pl.DataFrame([_as_texts(name, [record.get(name) for record in batch]) for name in names])


def find_json_line(source: str, content: Content, dialect: CsvDialect, row: int) -> int:
    """Return the line, from 1, of an object, from 0; blank lines count."""
    for position, (line, _) in enumerate(_iter_records(source, content, dialect, None)):
        if position == row:
            return line
    raise IndexError(f"{source} has fewer than {row + 1} objects")


def read_escaped_names(path: str) -> tuple[str, ...]:
    """Return the names of all objects of an escaped text, whatever stands on its other lines."""
    names: dict[str, None] = {}
    with open(path, "rb") as file:
        for line in file:
            record, _ = _read_object(line, "")
            names.update(dict.fromkeys(record))
    return tuple(names)


def iter_json_records(path: str, names: tuple[str, ...], *, encoding: str) -> Iterator[SourceRecord]:
    """Yield the lines of an escaped text that are not blank, each as the row of a CSV text.

    Args:
        path: What `open_escaped` made.
        names: Whose values make a row.
        encoding: What messages call the encoding of the source.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            record, fault = _read_object(line, encoding)
            row = encode_row(_as_text(record.get(name)) for name in names) if fault is None else ""
            if "\0" in row:
                row, fault = "", NUL
            faults = () if fault is None else (fault,)
            yield SourceRecord(number, number + 1, line, row.encode(), faults)


def _read_object(line: bytes, encoding: str) -> tuple[dict[str, Any], str | None]:
    """Read the object of a line, or say what is wrong with it; a blank line has no names."""
    if ESCAPED.search(line):
        return {}, describe_undecodable(encoding)
    try:
        return _DECODER.decode(line), None
    except (msgspec.MsgspecError, UnicodeError):
        return {}, _NO_OBJECT


def _iter_records(
    source: str, content: Content, dialect: CsvDialect, facts: SourceFacts | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with reading(source, content), open_content(source, content, facts) as file:
            lines = io.TextIOWrapper(file, encoding=dialect.reading_encoding, newline="\n")
            for number, line in enumerate(lines, 1):
                text = line.removeprefix("\ufeff") if number == 1 else line
                if text.strip():
                    yield number, _DECODER.decode(text)
            # Whoever opened the file still wants to read the rest of it.
            lines.detach()
    except UnicodeError:
        raise undecodable(source, dialect, content) from None
    except msgspec.MsgspecError:
        # The error of the decoder may quote the line.
        raise IngestError(
            f"{source}, line {number}: not one JSON object. Each line must be an object such as "
            f'{{"name": "value"}}: mend the line, or ask for the file again.'
        ) from None


def _as_texts(name: str, values: list[Any]) -> pl.Series:
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {int} and all(value is None or abs(value) < _MOST for value in values):
        return pl.Series(name, values, dtype=pl.Int64).cast(pl.String)
    texts = values if kinds <= {str} else [_as_text(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _ENCODER.encode(value).decode()
