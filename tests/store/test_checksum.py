"""The checksum of a published file."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from astro_async._store.checksum import TAIL_BYTES, read_tail_crc32
from astro_async.exceptions import StorageError


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 5_000])
def test_every_byte_of_a_file_counts(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_tail_crc32(str(path)) == zlib.crc32(content)


def test_of_a_larger_file_only_the_end_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        # Sparse: nothing of it is on disk but its two ends.
        file.write(b"head")
        file.seek(TAIL_BYTES)
        file.write(b"tail")
    tail = bytes(TAIL_BYTES - 4) + b"tail"
    assert read_tail_crc32(str(path)) == zlib.crc32(tail)
    with path.open("r+b") as file:
        file.write(b"HEAD")
    assert read_tail_crc32(str(path)) == zlib.crc32(tail)
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"!")
    assert read_tail_crc32(str(path)) != zlib.crc32(tail)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        read_tail_crc32(str(tmp_path / "file"))
