"""Write the two sides of a frame to two Parquet files in one streamed pass.

One sink partitions by one materialised Boolean column. Two filters or two sinks would each evaluate the
verdict for themselves, and then a random one puts rows on both sides or on neither.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO

import polars as pl
from polars.io.partition import FileProviderArgs

from astro_async._frames.parquet import (
    WrittenFrame,
    describe_file,
    new_file,
    polars_errors,
    refuse_unwritable,
    write_frame,
)

__all__ = ["WrittenSides", "write_sides"]


@dataclass(frozen=True, slots=True)
class WrittenSides:
    """The two files of one pass; without rows the false side has no file."""

    true: WrittenFrame
    false: WrittenFrame


def write_sides(plan: pl.LazyFrame, key: str, *, true_path: str, false_path: str) -> WrittenSides:
    """Write the rows for which the Boolean column `key` is true to one file, the others to another.

    The key itself is left out. Order is kept on both sides, and memory is bounded. The true side always
    gets its file, be it empty; a false side without rows has none. When anything fails, neither file is left.

    Raises:
        StepError: Parquet cannot hold a column.
        StorageError: The disk refused.
    """
    schema = plan.collect_schema()
    columns = pl.Schema({name: dtype for name, dtype in schema.items() if name != key})
    refuse_unwritable(columns)
    with new_file(true_path) as true_file, new_file(false_path) as false_file:

        def choose_file(args: FileProviderArgs) -> IO[bytes]:
            return true_file if args.partition_keys.item() else false_file

        target = pl.PartitionBy(
            # Not used, for every file is given.
            os.path.dirname(os.path.abspath(true_path)),
            file_path_provider=choose_file,
            key=key,
            include_key=False,
            # One file a side: a second one would be written over the first.
            approximate_bytes_per_file=None,
        )
        with polars_errors(f"{true_path} or {false_path}", "written"):
            plan.sink_parquet(target, maintain_order=True, engine="streaming")
    if not os.path.getsize(true_path):
        os.remove(true_path)
        write_frame(pl.DataFrame(schema=columns), true_path)
    if os.path.getsize(false_path):
        return WrittenSides(true=describe_file(true_path), false=describe_file(false_path))
    os.remove(false_path)
    nothing = WrittenFrame(rows=0, columns=len(columns), size_bytes=0)
    return WrittenSides(true=describe_file(true_path), false=nothing)
