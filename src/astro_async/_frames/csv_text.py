"""Turn a source into UTF-8 text with line feeds, without loading it, and refuse bytes that are not text.

A source that is so already is used in place. Otherwise a copy is made beside the target and removed
afterwards, whatever happens: of compressed text, of text in another encoding, and of text with a footer.
Values are not looked at here.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_records import iter_data_lines
from astro_async._frames.escapes import ESCAPING
from astro_async._frames.parquet import refused_by_disk
from astro_async._frames.source_content import Content, SourceFacts, open_content, reading
from astro_async.exceptions import IngestError

__all__ = [
    "copy_without_blank_lines",
    "detect_line_end",
    "encode_row",
    "find_undecodable_line",
    "open_as_utf8",
    "open_escaped",
    "undecodable",
    "write_temporary",
]

_CHUNK_BYTES = 1 << 20
# Small enough to stay in the processor's cache between the copy out of the kernel and the search.
_SEARCH_BYTES = 1 << 17
_HEAD_CHARACTERS = 1 << 16
_NEEDS_QUOTES: Final = re.compile(r'^\s*$|[",\n\r]')


@contextmanager
def open_as_utf8(
    source: str, *, dialect: CsvDialect, beside: str, content: Content, facts: SourceFacts
) -> Iterator[str]:
    """Give the path of a UTF-8 text of the source: the source itself, or a temporary copy.

    Line numbers of the copy are those of the source.

    Raises:
        IngestError: The source is missing, damaged, has NUL bytes, or bytes that its encoding does not know.
        StorageError: The copy could not be written.
    """
    line_end = detect_line_end(source, dialect, content)
    if content is Content.TEXT and dialect.is_utf8 and line_end == "\n" and not dialect.skip_footer:
        with reading(source):
            _refuse_nul_bytes(source, facts)
        yield source
        return
    chunks = _decode_chunks(source, dialect, line_end, content, facts)
    with write_temporary(chunks, beside=beside) as path:
        if dialect.skip_footer:
            _cut_footer(path, source, dialect.skip_footer)
        yield path


@contextmanager
def open_escaped(
    source: str, *, dialect: CsvDialect, beside: str, content: Content, facts: SourceFacts
) -> Iterator[str]:
    """Give the path of a temporary copy as UTF-8, in which bytes that are not text are escaped.

    Line numbers of the copy are those of the source. `escapes.ESCAPED` finds the lines with such bytes.

    Raises:
        IngestError: The source is missing or damaged.
        StorageError: The copy could not be written.
    """
    line_end = detect_line_end(source, dialect, content, ESCAPING)
    chunks = _decode_chunks(source, dialect, line_end, content, facts, ESCAPING)
    with write_temporary(chunks, beside=beside) as path:
        if dialect.skip_footer:
            _cut_footer(path, source, dialect.skip_footer)
        yield path


@contextmanager
def write_temporary(chunks: Iterable[bytes], *, beside: str) -> Iterator[str]:
    """Give the path of a temporary file that holds the chunks.

    Raises:
        StorageError: It could not be written.
    """
    with _temporary_file(beside) as path:
        _write_chunks(path, chunks)
        yield path


@contextmanager
def copy_without_blank_lines(
    text_path: str, *, dialect: CsvDialect, first_line: int, beside: str
) -> Iterator[str]:
    """Give the path of a temporary copy of the data alone, without lines of nothing but blanks.

    Raises:
        StorageError: The copy could not be written.
    """
    lines = iter_data_lines(text_path, dialect, first_line=first_line)
    with write_temporary((line for line, is_blank in lines if not is_blank), beside=beside) as path:
        yield path


def encode_row(cells: Iterable[str | None]) -> str:
    """Write one row as CSV, with its line feed: an unquoted empty field is null, `""` is empty text."""
    return ",".join("" if cell is None else _quoted(cell) for cell in cells) + "\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _NEEDS_QUOTES.search(cell) else cell


def detect_line_end(
    source: str, dialect: CsvDialect, content: Content = Content.TEXT, errors: str = "strict"
) -> str:
    r"""Tell `"\r"` (old Macintosh files) from `"\n"` (CRLF too) by the first 64 Ki characters.

    Raises:
        IngestError: The source has bytes that its encoding does not know.
    """
    try:
        with reading(source, content), open_content(source, content) as file:
            text = io.TextIOWrapper(file, encoding=dialect.reading_encoding, errors=errors, newline="")
            head = text.read(_HEAD_CHARACTERS)
    except UnicodeError:
        raise undecodable(source, dialect, content) from None
    # One at the very end may be half of a CRLF.
    return "\r" if "\r" in head[:-1] and "\n" not in head else "\n"


def undecodable(source: str, dialect: CsvDialect, content: Content = Content.TEXT) -> IngestError:
    """Make the error for a source with bytes that its encoding does not know."""
    with reading(source, content), open_content(source, content) as file:
        mark = file.read(4)
    if dialect.is_utf8 and mark.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return IngestError(f"{source} begins as UTF-16 does, not {dialect.encoding}: set encoding='utf-16'.")
    line = find_undecodable_line(source, dialect.encoding, content)
    place = source if line is None else f"{source}, line {line}"
    return IngestError(
        f"{place}: bytes that are not {dialect.encoding}. Set the encoding that the file was written in, "
        f"such as 'cp1252' or 'latin-1', or have the line mended."
    )


def find_undecodable_line(source: str, encoding: str, content: Content = Content.TEXT) -> int | None:
    """Find the physical line of the first bytes that the encoding does not know; None if there are none."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    with reading(source, content), open_content(source, content) as file:
        while chunk := file.read(_CHUNK_BYTES):
            state = decoder.getstate()
            try:
                line += decoder.decode(chunk).count("\n")
            except UnicodeError:
                decoder.setstate(state)
                return line + _count_lines_before_error(decoder, chunk)
        try:
            decoder.decode(b"", final=True)
        except UnicodeError:
            return line
    return None


def _count_lines_before_error(decoder: codecs.IncrementalDecoder, chunk: bytes) -> int:
    # Byte by byte: where an error points to differs from decoder to decoder, and this is done once.
    lines = 0
    for position in range(len(chunk)):
        try:
            lines += decoder.decode(chunk[position : position + 1]).count("\n")
        except UnicodeError:
            break
    return lines


def _refuse_nul_bytes(source: str, facts: SourceFacts) -> None:
    buffer = bytearray(_SEARCH_BYTES)
    view = memoryview(buffer)
    with open(source, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            position = buffer.find(b"\0", 0, size)
            if position >= 0:
                line = _count_newlines(source, file.tell() - size + position) + 1
                raise _nul_error(source, line)
            facts.take(view[:size])
    facts.is_hashed = True


def _count_newlines(source: str, size: int) -> int:
    count = 0
    with open(source, "rb") as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK_BYTES))):
            count += chunk.count(b"\n")
            size -= len(chunk)
    return count


def _nul_error(source: str, line: int) -> IngestError:
    return IngestError(
        f"{source}, line {line}: a NUL character, which text does not have. The file is UTF-16 without "
        f"its mark (set encoding='utf-16-le'), or damaged: ask for it again."
    )


def _decode_chunks(
    source: str,
    dialect: CsvDialect,
    line_end: str,
    content: Content,
    facts: SourceFacts,
    errors: str = "strict",
) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(dialect.reading_encoding)(errors)
    line, is_first = 1, True
    with reading(source, content), open_content(source, content, facts) as file:
        while True:
            chunk = file.read(_CHUNK_BYTES)
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeError:
                raise undecodable(source, dialect, content) from None
            if is_first and text:
                text, is_first = text.removeprefix("\ufeff"), False
            if line_end == "\r":
                text = text.replace("\r", "\n")
            if errors == "strict" and "\0" in text:
                raise _nul_error(source, line + text[: text.index("\0")].count("\n"))
            line += text.count("\n")
            yield text.encode("utf-8", "surrogatepass")
            if not chunk:
                break


def _cut_footer(path: str, source: str, line_count: int) -> None:
    """Cut the last lines off a UTF-8 text; blank lines after the last of them go too, and are not counted."""
    begins: deque[int] = deque()
    with open(path, "r+b") as file:
        position = blank = 0
        for line in file:
            begins.append(position)
            position += len(line)
            blank = 0 if line.strip() else blank + 1
            # So many that the footer is among them once the blank lines at the end are known.
            while len(begins) > line_count + blank:
                begins.popleft()
        if len(begins) < line_count + blank:
            raise IngestError(
                f"{source} has {len(begins) - blank} lines, and skip_footer leaves out {line_count}. "
                f"Ask for the file again."
            )
        file.truncate(begins[0])


@contextmanager
def _temporary_file(beside: str) -> Iterator[str]:
    try:
        descriptor, path = tempfile.mkstemp(
            prefix=".csv-", suffix=".tmp", dir=os.path.dirname(os.path.abspath(beside))
        )
        os.close(descriptor)
    except OSError as error:
        raise refused_by_disk(f"a temporary file beside {beside}", "written", error) from error
    try:
        yield path
    finally:
        os.unlink(path)


def _write_chunks(path: str, chunks: Iterable[bytes]) -> None:
    with _open_new(path) as file:
        # Reading errors come out of the iterator, already named; only what the writes raise is the disk's.
        for chunk in chunks:
            try:
                file.write(chunk)
            except OSError as error:
                raise refused_by_disk(path, "written", error) from error


@contextmanager
def _open_new(path: str) -> Iterator[IO[bytes]]:
    try:
        file = open(path, "wb")  # noqa: SIM115 - closed below, where its own error can be told from others
    except OSError as error:
        raise refused_by_disk(path, "written", error) from error
    try:
        yield file
    except BaseException:
        _close_quietly(file)
        raise
    try:
        file.close()
    except OSError as error:
        raise refused_by_disk(path, "written", error) from error


def _close_quietly(file: IO[bytes]) -> None:
    try:
        file.close()
    except OSError:
        # The error on its way up is the first, and says more than this one would.
        return
