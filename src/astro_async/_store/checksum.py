"""The checksum that tells a published file from one that was written over or has decayed.

Of the last bytes only, so that its cost is bounded: about a hundredth of writing the file, up to that of
16 MiB. That is every byte of most files. The end of a larger Parquet file is its footer,
with the sizes and statistics of all column chunks, and the pages before it: another content has another end.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

from astro_async._store.atomic import storage_errors

__all__ = ["TAIL_BYTES", "read_tail_crc32"]

# Part of the format: a record without it would have to say how much its checksum covers.
TAIL_BYTES: Final = 16 << 20

_CHUNK_BYTES: Final = 1 << 18


def read_tail_crc32(path: str) -> int:
    """Return the CRC-32 of the last 16 MiB of a file, or of all of it if it is shorter. Blocks.

    Raises:
        StorageError: The file cannot be read.
    """
    with storage_errors("read", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            offset = max(0, os.fstat(descriptor).st_size - TAIL_BYTES)
            crc = 0
            while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
                crc = zlib.crc32(chunk, crc)
                offset += len(chunk)
            return crc
        finally:
            os.close(descriptor)
