"""Write, read and stream Parquet files.

Files are named exactly: a path is never a glob, and never hive-partitioned. Nothing here chooses a name,
syncs to disk, renames or publishes; that is the store's work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

import polars as pl
from polars.exceptions import PolarsError

from astro_async._frames.columns import REASON_COLUMN
from astro_async._frames.dtypes import as_instance
from astro_async.exceptions import StepError, StorageError

__all__ = [
    "WrittenFrame",
    "count_rows",
    "describe_file",
    "iter_frame",
    "load_frame",
    "load_parts",
    "new_file",
    "polars_errors",
    "read_schema",
    "refuse_unwritable",
    "refused_by_disk",
    "remove_files",
    "scan_frame",
    "write_frame",
]

# Polars hands on what the operating system said only as text at the end of its own error. Matching that
# text is the one way to tell a full disk from a frame that cannot be encoded.
_OS_ERROR = re.compile(r"\(os error \d+\)")
# Who streams a file holds several of its row groups, decoded, at once.
_ROW_GROUP_ROWS = 32_768
_TORN_FILE = "File out of specification"


@dataclass(frozen=True, slots=True)
class WrittenFrame:
    """What one written Parquet file holds."""

    rows: int
    columns: int
    size_bytes: int


def write_frame(frame: pl.DataFrame | pl.LazyFrame, path: str) -> WrittenFrame:
    """Write one frame to one Parquet file, which must not exist yet.

    A LazyFrame is streamed to the file in its own order and never collected. When anything fails, no file
    is left behind. Errors of the author's own plan are raised as they are.

    Raises:
        StepError: Parquet cannot hold a column; the message names the columns and their dtypes.
        StorageError: The disk refused; the message names the path.
    """
    schema = frame.collect_schema()
    refuse_unwritable(schema)
    with new_file(path) as file, polars_errors(path, "written"):
        if isinstance(frame, pl.DataFrame):
            frame.write_parquet(file, row_group_size=_ROW_GROUP_ROWS)
        else:
            frame.sink_parquet(file, row_group_size=_ROW_GROUP_ROWS, maintain_order=True, engine="streaming")
    if isinstance(frame, pl.DataFrame):
        # To read it from the footer costs as much as to write a small file.
        return WrittenFrame(rows=frame.height, columns=frame.width, size_bytes=os.path.getsize(path))
    return describe_file(path)


def describe_file(path: str) -> WrittenFrame:
    """Read from its footer what one Parquet file holds.

    Raises:
        StorageError: The file is missing, unreadable or torn.
    """
    columns, rows = len(read_schema(path)), count_rows(path)
    return WrittenFrame(rows=rows, columns=columns, size_bytes=os.path.getsize(path))


def load_frame(path: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Load one Parquet file, or some of its columns, into memory.

    Raises:
        StorageError: The file is missing, unreadable or torn.
    """
    with polars_errors(path, "read"):
        chosen = None if columns is None else list(columns)
        return pl.read_parquet(path, columns=chosen, glob=False, hive_partitioning=False)


def scan_frame(path: str) -> pl.LazyFrame:
    """Scan one Parquet file lazily; nothing is read until the frame is evaluated."""
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def read_schema(path: str) -> pl.Schema:
    """Read the column names and dtypes of one Parquet file from its footer.

    Raises:
        StorageError: The file is missing, unreadable or torn.
    """
    with polars_errors(path, "read"):
        return scan_frame(path).collect_schema()


def count_rows(path: str) -> int:
    """Count the rows of one Parquet file from its footer, without reading the rows.

    Raises:
        StorageError: The file is missing, unreadable or torn.
    """
    with polars_errors(path, "read"):
        rows = scan_frame(path).select(pl.len()).collect().item()
    return int(rows)


def load_parts(paths: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    """Load quarantine parts as one frame, in the order given.

    Args:
        paths: The parts, in the order of the journal. No paths give an empty frame of the right dtypes.
        schema: The schema of the source file, without the reason column.

    Returns:
        The source columns and the reason (String) as the last column.

    Raises:
        StorageError: A part is missing, unreadable or torn.
    """
    full = pl.Schema({**schema, REASON_COLUMN: pl.String()})
    if not paths:
        return pl.DataFrame(schema=full)
    with polars_errors(f"{paths[0]} and {len(paths) - 1} more", "read"):
        # A list of paths keeps its order, where a glob would read part 100000 before part 99999.
        parts = pl.read_parquet(list(paths), glob=False, hive_partitioning=False)
    return parts.select(pl.col(name).cast(dtype) for name, dtype in full.items())


def iter_frame(source: str | pl.LazyFrame, batch_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a file or plan in order, in batches of exactly `batch_rows` and one smaller last one.

    Memory is bounded by a few batches, whatever the size of the source. An empty source yields nothing.

    Raises:
        ValueError: `batch_rows` is less than one.
        StorageError: The source file is missing, unreadable or torn.
    """
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, not {batch_rows}")
    return _iter_batches(source, batch_rows)


def _iter_batches(source: str | pl.LazyFrame, batch_rows: int) -> Iterator[pl.DataFrame]:
    plan = scan_frame(source) if isinstance(source, str) else source
    name = source if isinstance(source, str) else "the frame"
    waiting: list[pl.DataFrame] = []
    waiting_rows = 0
    with polars_errors(name, "read"):
        chunks = iter(plan.collect_batches(chunk_size=batch_rows, maintain_order=True, engine="streaming"))
    while True:
        # Only the pull is guarded: an error that the consumer of a batch throws in is not the disk's.
        with polars_errors(name, "read"):
            chunk = next(chunks, None)
        if chunk is None:
            break
        # The engine treats chunk_size as a hint, so the batches are cut to size here.
        waiting.append(chunk)
        waiting_rows += chunk.height
        if waiting_rows < batch_rows:
            continue
        joined = pl.concat(waiting)
        whole_rows = joined.height - joined.height % batch_rows
        yield from joined.head(whole_rows).iter_slices(batch_rows)
        waiting, waiting_rows = [joined.slice(whole_rows)], joined.height - whole_rows
    if waiting_rows:
        yield pl.concat(waiting)


def refuse_unwritable(schema: pl.Schema) -> None:
    """Refuse columns that Parquet cannot hold: Python objects and structs without fields, nested or not.

    Raises:
        StepError: Names every such column and its dtype.
    """
    unwritable = [f"{name!r} ({dtype})" for name, dtype in schema.items() if not _is_writable(dtype)]
    if unwritable:
        raise StepError(
            f"Parquet cannot hold: {', '.join(unwritable)}. Cast or drop these columns before saving."
        )


def _is_writable(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.Struct):
        return bool(dtype.fields) and all(_is_writable(as_instance(field.dtype)) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _is_writable(as_instance(dtype.inner))
    return not isinstance(dtype, pl.Object | pl.Unknown)


def refused_by_disk(path: str, verb: str, reason: object) -> StorageError:
    """Return the error for a file that could not be `read` or `written`: which, why, and what to do."""
    # What cannot be read may well be lost.
    advice = "Nothing recorded is lost: put" if verb == "written" else "Put"
    return StorageError(
        f"{path} could not be {verb}: {reason}. {advice} this right and give the command again"
    )


@contextmanager
def polars_errors(path: str, verb: str) -> Iterator[None]:
    """Turn what Polars raises for an unwilling disk or a torn file into a `StorageError`; let others pass."""
    try:
        yield
    except (OSError, PolarsError) as error:
        text = str(error)
        # Polars writes "(os error 2)". "[Errno 2]" is Python's, from a function within the plan that
        # missed a file of its own: that is the author's.
        of_disk = isinstance(error, OSError) and "[Errno " not in text
        if of_disk or _OS_ERROR.search(text) or (verb == "read" and _TORN_FILE in text):
            raise refused_by_disk(path, verb, text) from error
        raise


@contextmanager
def new_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that must not exist yet for writing; when the block fails, remove it.

    Polars is given the open file, not its path: after an error its background tasks may still open a path,
    and so make anew what was just removed.

    Raises:
        StorageError: The file exists, or the disk refused.
    """
    try:
        file = open(path, "xb")  # noqa: SIM115 - closed below, where a failing close is told apart
    except OSError as error:
        raise refused_by_disk(path, "written", error) from error
    try:
        yield file
        _close(file, path)
    except BaseException:
        with suppress(OSError):
            file.close()
        remove_files(path)
        raise


def remove_files(*paths: str) -> None:
    """Remove files if they are there; what cannot be removed is litter of the attempt, to be swept later."""
    for path in paths:
        with suppress(OSError):
            os.remove(path)


def _close(file: IO[bytes], path: str) -> None:
    try:
        file.close()
    except OSError as error:
        # Some file systems tell of a full disk or a quota only now.
        raise refused_by_disk(path, "written", error) from error
