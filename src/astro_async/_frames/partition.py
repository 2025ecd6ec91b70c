"""Write the two sides of a frame to two Parquet files in one streamed pass.

One sink takes the true side. The rows of the other leave the plan at the one place where the verdict is made:
two filters or two sinks would each evaluate it for themselves, and then a random one puts rows on both
sides or on neither. A sink that partitions would hold far more to keep the order on both sides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import polars as pl
from polars.io.plugins import register_io_source

from astro_async._frames.columns import RESERVED_PREFIX, ROW_COLUMN
from astro_async._frames.parquet import (
    WrittenFrame,
    refuse_unwritable,
    refused_by_disk,
    remove_files,
    write_frame,
)
from astro_async.exceptions import ConservationError

__all__ = ["Divide", "WrittenSides", "write_sides"]

# So much of the false side is held in memory; beyond that it waits on the disk.
_HELD_BYTES = 32 * 2**20
_IS_TRUE = f"{RESERVED_PREFIX}is_true"

# Takes a batch of the plan, and returns for each row whether it is on the true side, and the rows of the
# false side as they are to be written. It is called on any thread, in any order.
Divide = Callable[[pl.DataFrame], tuple[pl.Series, pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class WrittenSides:
    """The two files of one pass; without rows the false side has no file."""

    true: WrittenFrame
    false: WrittenFrame


def write_sides(
    plan: pl.LazyFrame,
    divide: Divide,
    *,
    true_schema: pl.Schema,
    false_schema: pl.Schema,
    true_path: str,
    false_path: str,
) -> WrittenSides:
    """Write the rows that `divide` calls true to one file, and what it makes of the others to another.

    Order is kept on both sides. Memory is bounded by a few batches and `_HELD_BYTES`; a larger false side
    passes over the disk twice, beside `false_path`. The true side always gets its file, be it empty; a
    false side without rows has none. When anything fails, neither file is left.

    Args:
        plan: The rows, whose column `_astro_row` numbers them from 0, and whatever else `divide` looks at.
        divide: Called once for each batch; a batch is a run of neighbouring rows.
        true_schema: The columns of `plan` that the true side keeps.
        false_schema: The columns that `divide` makes.
        true_path: Where the true side goes.
        false_path: Where the false side goes.

    Raises:
        ConservationError: A row came twice, or not at all.
        StepError: Parquet cannot hold a column.
        StorageError: The disk refused.
    """
    refuse_unwritable(true_schema)
    aside = _Aside(false_schema, f"{false_path}.aside")

    def judge(rows: pl.Series) -> pl.Series:
        batch = rows.struct.unnest()
        is_true, false_rows = divide(batch)
        if batch.height:
            aside.add(batch.get_column(ROW_COLUMN)[0], batch.height, false_rows)
        return is_true

    # The verdict is a column before it is a filter: Polars tries a filter that it pushes into a scan on the
    # statistics of row groups too, which are no rows.
    verdict = pl.struct(pl.all()).map_batches(judge, return_dtype=pl.Boolean(), is_elementwise=True)
    true_side = plan.with_columns(verdict.alias(_IS_TRUE)).filter(_IS_TRUE).select(true_schema.names())
    try:
        true = write_frame(true_side, true_path)
        try:
            rows_seen = aside.finish()
            if true.rows + aside.rows != rows_seen:
                raise ConservationError(
                    f"{rows_seen} rows went in, but {true.rows} and {aside.rows} rows came out"
                )
            false = aside.write(false_path)
        except BaseException:
            remove_files(true_path)
            raise
    finally:
        remove_files(aside.path)
    return WrittenSides(true=true, false=false)


@dataclass(slots=True, eq=False)
class _Aside:
    """The rows of the false side, put in order again as their batches come in, and held in bounded memory.

    They are held encoded: a few rows of a batch would keep all the texts of that batch in memory.
    """

    schema: pl.Schema
    path: str
    rows: int = 0
    _next_row: int = 0
    _early: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    _held: list[bytes] = field(default_factory=list)
    _held_bytes: int = 0
    _written: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, first_row: int, height: int, false_rows: pl.DataFrame) -> None:
        """Take the false rows of one batch, which had `height` rows from `first_row` on."""
        encoded = b""
        if false_rows.height:
            # A format that needs no query of its own, within which none may be started.
            encoded = false_rows.write_ipc_stream(None, compression="lz4").getvalue()
        # Nothing of Polars runs under the lock: a thread of its pool that waits here would be missing there.
        with self._lock:
            self._early[first_row] = height, false_rows.height, encoded
            while (ready := self._early.pop(self._next_row, None)) is not None:
                self._hold(*ready)

    def _hold(self, height: int, rows: int, encoded: bytes) -> None:
        self._next_row += height
        self.rows += rows
        if not rows:
            return
        self._held.append(encoded)
        self._held_bytes += len(encoded)
        if self._held_bytes > _HELD_BYTES:
            try:
                # Only the first time it must not be there yet.
                with open(self.path, "ab" if self._written else "xb") as file:
                    file.writelines(self._held)
            except OSError as error:
                raise refused_by_disk(self.path, "written", error) from error
            self._written += map(len, self._held)
            self._held, self._held_bytes = [], 0

    def finish(self) -> int:
        """Return how many rows came in.

        Raises:
            ConservationError: Rows are missing before the last ones, or some came twice.
        """
        if self._early:
            raise ConservationError(
                f"after {self._next_row} rows the next one is missing, though later ones came"
            )
        return self._next_row

    def write(self, path: str) -> WrittenFrame:
        """Write all rows, in order, to one file; without rows there is none."""
        if not self.rows:
            return WrittenFrame(rows=0, columns=len(self.schema), size_bytes=0)
        return write_frame(register_io_source(self._read, schema=self.schema), path)

    def _read(
        self, columns: list[str] | None, _predicate: object, _rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        for encoded in chain(self._read_back(), self._held):
            rows = pl.read_ipc_stream(encoded)
            yield rows if columns is None else rows.select(columns)

    def _read_back(self) -> Iterator[bytes]:
        if not self._written:
            return
        try:
            with open(self.path, "rb") as file:
                for size in self._written:
                    yield file.read(size)
        except OSError as error:
            raise refused_by_disk(self.path, "read", error) from error
