"""The repair desk: parked rows go out to a person, and what comes back is read and compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import polars as pl

from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus
from astro_async._executor.parked import ParkedRows
from astro_async._frames.amendments import Amendment, compare_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.desk_files import Separator, file_format, read_rows, write_rows
from astro_async._frames.parquet import refused_by_disk, remove_files
from astro_async._store.atomic import PRIVATE_MODE, Disk
from astro_async._store.run_store import RunStore
from astro_async.exceptions import DeskError, RunRefusedError, UnknownNameError

__all__ = [
    "choose_rows",
    "compare_file",
    "export_rows",
    "parse_ranges",
    "refuse_while_running",
    "take_rows",
]

_PUBLIC_MODE: Final = 0o666


# -- out ---------------------------------------------------------------------------------------


def export_rows(
    parked: ParkedRows,
    path: str,
    *,
    reason: str | None = None,
    limit: int = 0,
    separator: Separator = ",",
    has_mark: bool = False,
    over_existing: bool = False,
    disk: Disk,
) -> pl.DataFrame:
    """Write parked rows to a file; whoever looks sees all of it or nothing. Blocks.

    Args:
        parked: The rows.
        path: Ends as `.csv`, `.parquet` or `.xlsx`. A private file gets mode 0600.
        reason: Only rows whose reasons contain this.
        limit: At most so many; 0 for all.
        separator: Between fields of a CSV file.
        has_mark: Whether a CSV file begins with a byte order mark, which spreadsheets like.
        over_existing: Whether an existing file may be replaced.
        disk: The seam.

    Returns:
        The rows that were written, as in `ParkedRows.rows`.

    Raises:
        DeskError: The file exists, no row has that reason, or the format cannot hold a value.
        StorageError: The disk refuses.
    """
    kind = file_format(path)
    if not over_existing and os.path.lexists(path):
        raise DeskError(f"{path} exists: name another file, or say --force to replace it")
    rows = parked.rows
    if reason is not None:
        rows = rows.filter(pl.col(REASON_COLUMN).str.contains(reason, literal=True))
        if rows.is_empty():
            raise UnknownNameError(
                f"no row that step {parked.step.step_id!r} set aside of {parked.flow.name!r} has the reason "
                f"{reason!r}: `astro quarantine stats` lists the reasons"
            )
    rows = rows.head(limit) if limit else rows
    temporary = os.path.join(
        os.path.dirname(os.path.abspath(path)), f".{os.path.basename(path)}.{os.getpid()}.tmp"
    )
    mode = PRIVATE_MODE if parked.is_private else _PUBLIC_MODE
    disk.announce("write", temporary)
    try:
        # As it is opened it has its mode: at no time may others read what is private.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except OSError as error:
        raise refused_by_disk(path, "written", error.strerror or error) from error
    try:
        with open(descriptor, "wb") as file:
            write_rows(rows, file, kind, separator=separator, has_mark=has_mark)
        disk.replace(temporary, path, over_existing=over_existing)
    except OSError as error:
        remove_files(temporary)
        raise refused_by_disk(path, "written", error.strerror or error) from error
    except BaseException:
        remove_files(temporary)
        raise
    return rows


# -- back --------------------------------------------------------------------------------------


def compare_file(parked: ParkedRows, path: str) -> Amendment:
    """Read rows that came back and find what changed in them. Blocks; changes nothing.

    Raises:
        DeskError: The file cannot be read, or does not fit the parked rows.
    """
    return compare_rows(parked.rows, read_rows(path, parked.schema), parked.decided)


def choose_rows(parked: ParkedRows, positions: Sequence[range] | None) -> pl.DataFrame:
    """Return the parked rows at positions, or with None all that have one.

    Raises:
        DeskError: At one of them no row is parked, or no parked row has a position.
    """
    placed = parked.rows.filter(pl.col(ROW_COLUMN).is_not_null())
    if positions is None:
        if placed.is_empty():
            raise DeskError(
                f"step {parked.step.step_id!r} had changed these rows before it set them aside, so their "
                "places in its input are not known, and they cannot be left out of it: mend the step"
            )
        return placed
    return take_rows(
        placed,
        positions,
        f"of {parked.flow.name!r} is parked by step {parked.step.step_id!r}: "
        f"the numbers are those in {ROW_COLUMN} of `astro quarantine export`. Nothing is stored",
    )


def take_rows(rows: pl.DataFrame, positions: Sequence[range], what_lacks: str) -> pl.DataFrame:
    """Return the rows at positions, each once; what lacks one of them is told in the error."""
    wanted = [rows.filter(pl.col(ROW_COLUMN).is_between(each.start, each.stop - 1)) for each in positions]
    for each, found in zip(positions, wanted, strict=True):
        if found.height != len(each):
            there = set(found[ROW_COLUMN].to_list())
            lost = next(position for position in each if position not in there)
            raise DeskError(f"no row {lost} {what_lacks}")
    return pl.concat(wanted).unique(subset=ROW_COLUMN, maintain_order=True)


def parse_ranges(text: str) -> list[range]:
    """Read positions such as `3,7-9`.

    Raises:
        DeskError: It is no such list.
    """
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise DeskError(f"{text!r} is no list of rows such as 3,7-9")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise DeskError(f"{part.strip()!r} ends before it begins: write the smaller number first")
    return ranges


def refuse_while_running(pipeline_dir: str, record: RunRecord, *, disk: Disk, now: str) -> None:
    """Refuse to decide anything about a run that is going on.

    Raises:
        RunLockedError: Names who is on it.
    """
    if record.status is RunStatus.RUNNING:
        RunStore.open(pipeline_dir, record.run_id, disk=disk, now=now).close()
        raise RunRefusedError(f"run {record.run_id} has just ended: give the command again")
