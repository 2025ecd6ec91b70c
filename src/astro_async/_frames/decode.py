"""Read Parquet files to see whether they can be read, and keep nothing of them.

Every page of every column is decoded, as a stream, so memory does not grow with the file.
"""

from __future__ import annotations

import polars as pl
from polars.exceptions import PanicException, PolarsError

from astro_async._frames.columns import REASON_COLUMN
from astro_async._frames.parquet import read_schema, scan_frame
from astro_async.exceptions import StorageError

__all__ = ["decode_file", "describe_mismatch"]


def decode_file(path: str) -> tuple[pl.Schema, int]:
    """Decode all of a Parquet file; return its schema and the number of rows that came out. Blocks.

    Raises:
        StorageError: It cannot be opened or decoded; the message says why and names no path.
    """
    try:
        frame = scan_frame(path)
        schema = frame.collect_schema()
        rows = sum(batch.height for batch in frame.collect_batches(maintain_order=False, engine="streaming"))
    # Polars panics, which is no Exception, where bytes make no sense to it at all.
    except (OSError, PolarsError, PanicException) as error:
        reason = " ".join(str(error).split())[:200]
        raise StorageError(f"it cannot be decoded ({reason})") from None
    return schema, rows


def describe_mismatch(schema: pl.Schema, like: str, *, has_reason: bool) -> str | None:
    """Compare the columns of a file with those of the version that its rows come from.

    Args:
        schema: What the file has.
        like: Absolute path of the version.
        has_reason: Whether the reason is to be one more column, the last.

    Returns:
        How they differ, in words; None if they do not, or if the version cannot be read, which is a matter of
        its own.
    """
    try:
        meant = dict(read_schema(like))
    except (StorageError, PolarsError, PanicException):
        return None
    if has_reason:
        meant[REASON_COLUMN] = pl.String()
    if list(schema.items()) == list(meant.items()):
        return None
    other = [name for name in {**meant, **schema} if schema.get(name) != meant.get(name)]
    return f"in {', '.join(map(repr, other))}" if other else "in the order of columns"
