"""The checksum that tells a published file from one that was written over.

Of the last bytes only, so that it costs microseconds whatever the size of the file. In a Parquet file the
end is the footer, with the sizes and statistics of all column chunks: another content has another end. Of a
file that is no longer than the tail it covers every byte.
"""

from __future__ import annotations

import os
import zlib
from typing import Final

from astro_async._store.atomic import storage_errors

__all__ = ["TAIL_BYTES", "read_tail_crc32"]

TAIL_BYTES: Final = 65_536


def read_tail_crc32(path: str) -> int:
    """Return the CRC-32 of the last 65,536 bytes of a file, or of all of it if it is shorter. Blocks.

    Raises:
        StorageError: The file cannot be read.
    """
    with storage_errors("read", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(descriptor).st_size
            return zlib.crc32(os.pread(descriptor, TAIL_BYTES, max(0, size_bytes - TAIL_BYTES)))
        finally:
            os.close(descriptor)
