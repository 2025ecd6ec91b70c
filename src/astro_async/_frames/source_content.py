"""Open a source as the bytes of its table: find out what it is by its content, and decompress on the way.

Everything that is read through `open_content` passes a digest, so the bytes as delivered are hashed without
a second read. A name is never trusted: a `.gz` that a gateway has unpacked already is read as it is.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, Any, Final

from backports import zstd

from astro_async.exceptions import IngestError

__all__ = ["Content", "SourceFacts", "detect_content", "hash_source", "open_content", "reading"]

_CHUNK_BYTES: Final = 1 << 20


class Content(StrEnum):
    """What a file is, by its first bytes."""

    TEXT = "text"
    GZIP = "gzip"
    ZSTD = "zstd"
    PARQUET = "Parquet"
    XLSX = "an Excel workbook"


_MAGIC: Final = {b"\x1f\x8b": Content.GZIP, b"\x28\xb5\x2f\xfd": Content.ZSTD}
_HEAD_BYTES: Final = 16
_REFUSED: Final = {
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old kind (.xls): save it as .xlsx or CSV",
    b"\xfd7zXZ": "compressed with xz: deliver it plain, or compressed with gzip or zstd",
    b"7z\xbc\xaf": "a 7z archive: unpack it, and deliver the files themselves",
}


@dataclass(slots=True)
class SourceFacts:
    """What is learnt of a source while it is read.

    Attributes:
        digest: SHA-256 of its bytes as delivered; whole once the source was read to its end.
        is_hashed: Whether that is so.
        read_bytes: How many of its bytes have passed the digest; others may read it meanwhile.
        ignored: Columns that the schema does not name, in the order of the file.
        inserted: Columns of the schema that the file lacks, and that are null.
    """

    digest: Any = field(default_factory=hashlib.sha256)
    is_hashed: bool = False
    read_bytes: int = 0
    ignored: tuple[str, ...] = ()
    inserted: tuple[str, ...] = ()

    def take(self, piece: memoryview) -> None:
        """Hash the next bytes of the source."""
        self.digest.update(piece)
        self.read_bytes += len(piece)

    def restart(self) -> None:
        """Forget what was hashed, before the source is read anew."""
        self.digest = hashlib.sha256()
        self.is_hashed = False
        self.read_bytes = 0


def detect_content(source: str) -> Content:
    """Say what a file is.

    Raises:
        IngestError: It is empty, cannot be read, or is an archive or another thing that is no table.
    """
    with reading(source):
        with open(source, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if not head:
            raise IngestError(f"{source} is empty (0 bytes): not even a header. Ask for the file again.")
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            if _is_workbook(source):
                return Content.XLSX
            raise IngestError(
                f"{source} is a zip archive, not a table: unpack it, and deliver the files themselves, "
                f"plain or compressed with gzip or zstd."
            )
    return _judge(head, source)


def _judge(head: bytes, source: str) -> Content:
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise IngestError(f"{source} is {what}.")
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        raise IngestError(
            f"{source} is compressed with bzip2: deliver it plain, or compressed with gzip or zstd."
        )
    # A header may begin with a column PAR1; in Parquet, a control character follows.
    if head.startswith(b"PAR1") and head[4:5] in (b"", b"\x15"):
        return Content.PARQUET
    return next((content for magic, content in _MAGIC.items() if head.startswith(magic)), Content.TEXT)


def _is_workbook(source: str) -> bool:
    try:
        with zipfile.ZipFile(source) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except zipfile.BadZipFile:
        raise IngestError(
            f"{source} begins as a zip archive or an Excel workbook, and its end is missing: it was cut off. "
            f"Ask for the file again."
        ) from None


@contextmanager
def open_content(source: str, content: Content, facts: SourceFacts | None = None) -> Iterator[IO[bytes]]:
    """Open text, plain or compressed, for reading its bytes.

    Args:
        source: The file.
        content: What it is.
        facts: Is given the digest, if the block reads to the end.

    Raises:
        IngestError: The compressed data is damaged or cut off, or holds something that is no text.
    """
    with open(source, "rb", buffering=0) as raw:
        file: Any = raw if facts is None else io.BufferedReader(_HashedFile(raw, facts), _CHUNK_BYTES)
        opened: Any = file
        if content is Content.GZIP:
            opened = gzip.GzipFile(fileobj=file)
        elif content is Content.ZSTD:
            opened = zstd.ZstdFile(file)
        if opened is not file:
            with reading(source, content):
                # A buffer, so that looking at the head does not use it up.
                opened = io.BufferedReader(opened, _CHUNK_BYTES)
                _refuse_packed_twice(opened.peek(_HEAD_BYTES)[:_HEAD_BYTES], source, content)
        yield opened
        if facts is not None:
            # Zeros that pad an archive to the block of its tape.
            while file.read(_CHUNK_BYTES):
                pass
            facts.is_hashed = True


def _refuse_packed_twice(head: bytes, source: str, content: Content) -> None:
    inner = "zip" if head.startswith(b"PK\x03\x04") else _judge(head, source)
    if inner is not Content.TEXT:
        raise IngestError(f"{source}: inside its {content} data is {inner} data. Deliver it unpacked once.")


@contextmanager
def reading(source: str, content: Content = Content.TEXT) -> Iterator[None]:
    """Name the source in every error of reading it.

    Raises:
        IngestError: The source is missing or unreadable, or its compressed data is damaged.
    """
    try:
        yield
    except EOFError:
        raise IngestError(
            f"{source} ends in the middle of its {content} data: it was cut off. Ask for the file again."
        ) from None
    except (gzip.BadGzipFile, zlib.error, zstd.ZstdError):
        raise IngestError(f"{source}: its {content} data is damaged. Ask for the file again.") from None
    except OSError as error:
        raise IngestError(f"{source} could not be read: {error.strerror or error}") from error


def hash_source(source: str, facts: SourceFacts) -> None:
    """Read a file once more to hash it, where whatever read it could not do that on the way.

    Raises:
        IngestError: It cannot be read any more.
    """
    if not facts.is_hashed:
        facts.digest = hashlib.sha256()
        with reading(source), open(source, "rb", buffering=0) as raw:
            facts.digest = hashlib.file_digest(raw, "sha256")
        facts.is_hashed = True


class _HashedFile(io.RawIOBase):
    """A file whose bytes pass a digest as they are read."""

    def __init__(self, raw: io.FileIO, facts: SourceFacts) -> None:
        self._raw = raw
        self._facts = facts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._raw.readinto(buffer)
        self._facts.take(memoryview(buffer)[:size])
        return size
