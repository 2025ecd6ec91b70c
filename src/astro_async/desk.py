"""The repair desk for applications: parked rows out, corrected rows back, rows left out, decisions withdrawn.

What the commands `astro quarantine export`, `amend`, `discard` and `withdraw` do. Needs no pipeline; works in
threads, so an event loop goes on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from astro_async._core.decisions import choose_decided
from astro_async._core.names import RunId
from astro_async._executor.clock import format_time
from astro_async._executor.decisions import (
    DecidedRows,
    Decision,
    load_decided,
    record_decision,
    record_withdrawal,
)
from astro_async._executor.desk import choose_rows, compare_file, export_rows, refuse_while_running
from astro_async._executor.invocation import Services
from astro_async._executor.parked import ParkedRows, load_parked
from astro_async._frames.amendments import Amendment, ColumnChange
from astro_async._frames.columns import ROW_COLUMN
from astro_async._store.layout import run_directory
from astro_async._threads import in_thread
from astro_async.exceptions import DeskError
from astro_async.reading import read_run

__all__ = [
    "Amendment",
    "ColumnChange",
    "DecidedRows",
    "Decision",
    "amend",
    "discard",
    "export_quarantine",
    "open_decisions",
    "open_desk",
    "preview_amendment",
    "store_amendment",
    "store_discard",
    "store_withdrawal",
    "withdraw",
]

PathLike = str | os.PathLike[str]


async def export_quarantine(
    path: PathLike,
    *,
    pipeline_dir: PathLike = ".",
    run_id: str,
    step_id: str | None = None,
    file: str | None = None,
    reason: str | None = None,
    limit: int = 0,
    separator: Literal[",", ";"] = ",",
    has_mark: bool = False,
    over_existing: bool = False,
    services: Services | None = None,
) -> int:
    """Write the rows that a step has parked to a file, for a person to correct.

    `_astro_row` is the position of the row in the step's input, null where the step had changed the row
    before it set it aside. Takes no lock.

    Args:
        path: Ends as `.csv`, `.parquet` or `.xlsx`. Appears whole, or not at all.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; `"latest"` for the newest.
        step_id: The step; may be left out where only one has rows.
        file: The file; may be left out where only one of the step has rows.
        reason: Only rows whose reasons contain this.
        limit: At most so many rows; 0 for all.
        separator: Between the fields of a CSV file.
        has_mark: Begin a CSV file with a byte order mark, which some spreadsheets need.
        over_existing: Replace an existing file.
        services: For tests.

    Returns:
        How many rows were written.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing is parked, nothing of that name, or more than one.
        DeskError: The file exists, or its format cannot hold a value, or no row has that reason.
        StorageError: The disk refuses.
    """

    def export() -> int:
        parked = load_parked(os.fspath(pipeline_dir), read_run(pipeline_dir, run_id), step_id, file)
        return export_rows(
            parked,
            os.fspath(path),
            reason=reason,
            limit=limit,
            separator=separator,
            has_mark=has_mark,
            over_existing=over_existing,
            disk=(services or Services()).disk,
        ).height

    return await in_thread(export)


async def preview_amendment(
    path: PathLike,
    *,
    pipeline_dir: PathLike = ".",
    run_id: str,
    step_id: str | None = None,
    file: str | None = None,
) -> Amendment:
    """Find what a person changed in exported rows, and change nothing. Takes no lock.

    Args:
        path: What `export_quarantine` wrote, corrected.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; `"latest"` for the newest.
        step_id: The step; may be left out where only one has rows.
        file: The file; may be left out where only one of the step has rows.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing of that name is parked, or more than one.
        DeskError: The file does not fit the parked rows.
        StorageError: The disk refuses.
    """

    def look() -> Amendment:
        parked = load_parked(os.fspath(pipeline_dir), read_run(pipeline_dir, run_id), step_id, file)
        return compare_file(parked, os.fspath(path))

    return await in_thread(look)


async def amend(
    path: PathLike,
    *,
    pipeline_dir: PathLike = ".",
    run_id: str,
    step_id: str | None = None,
    file: str | None = None,
    because: str | None = None,
    services: Services | None = None,
) -> Decision | None:
    """Give corrected rows back: from its next attempt on, the step is given them so.

    Rows that are as they were parked, or missing from the file, stay as they are, and so do earlier decisions
    about them, which `preview_amendment` tells. A later decision about a row replaces an earlier one.

    Args:
        path: What `export_quarantine` wrote, corrected.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; `"latest"` for the newest.
        step_id: The step; may be left out where only one has rows.
        file: The file; may be left out where only one of the step has rows.
        because: Why; kept with the decision.
        services: For tests.

    Returns:
        What was recorded; None if nothing is different in the file.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing of that name is parked, or more than one; the step has run meanwhile.
        DeskError: The file does not fit the parked rows; nothing is stored.
        RunLockedError: The run is going on.
        StorageError: The disk refuses. What was on the record by then stands, as `quarantine stats` tells.
    """

    def decide() -> Decision | None:
        parked = open_desk(pipeline_dir, run_id, step_id, file, services=services)
        amendment = compare_file(parked, os.fspath(path))
        if not amendment.rows:
            return None
        return store_amendment(pipeline_dir, parked, amendment, because=because, services=services)

    return await in_thread(decide)


async def discard(
    rows: Iterable[int] | None,
    *,
    because: str,
    pipeline_dir: PathLike = ".",
    run_id: str,
    step_id: str | None = None,
    file: str | None = None,
    services: Services | None = None,
) -> Decision:
    """Leave parked rows out: from its next attempt on, the step is not given them any more.

    Args:
        rows: Their positions, as `_astro_row` of an export has them; None for all that have one.
        because: Why; kept with the decision.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; `"latest"` for the newest.
        step_id: The step; may be left out where only one has rows.
        file: The file; may be left out where only one of the step has rows.
        services: For tests.

    Returns:
        What was recorded.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing of that name is parked, or more than one; the step has run meanwhile.
        DeskError: No row is parked at a position, or `because` is empty; nothing is stored.
        RunLockedError: The run is going on.
        StorageError: The disk refuses. What was on the record by then stands, as `quarantine stats` tells.
    """
    chosen = None if rows is None else [range(row, row + 1) for row in rows]

    def decide() -> Decision:
        parked = open_desk(pipeline_dir, run_id, step_id, file, services=services)
        return store_discard(pipeline_dir, parked, chosen, because=because, services=services)

    return await in_thread(decide)


async def withdraw(
    rows: Iterable[int] | None,
    *,
    because: str | None = None,
    pipeline_dir: PathLike = ".",
    run_id: str,
    step_id: str,
    file: str | None = None,
    services: Services | None = None,
) -> Decision:
    """Take back all that was decided about rows: the next attempt of the step is given them as they came.

    It needs no parked rows: the way out where a step fails because a row is gone that was decided about. Of a
    step that has completed with those decisions, the next run runs it again.

    Args:
        rows: The positions at which they were decided about; None for all decided rows of the step and file.
        because: Why; kept with the decision.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; `"latest"` for the newest.
        step_id: The step.
        file: The file; may be left out where only rows of one are decided.
        services: For tests.

    Returns:
        What was recorded: `was_amended` and `was_discarded` count what is taken back.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing is decided there, or about several files; the step has run meanwhile; the
            decisions have been removed to free them.
        DeskError: Nothing is decided about one of the rows; nothing is stored.
        RunLockedError: The run is going on.
        StorageError: The disk refuses; nothing is withdrawn then.
    """
    chosen = None if rows is None else [range(row, row + 1) for row in rows]

    def decide() -> Decision:
        decided = open_decisions(pipeline_dir, run_id, step_id, file, services=services)
        return store_withdrawal(pipeline_dir, decided, chosen, because=because, services=services)

    return await in_thread(decide)


# -- the same in steps, for a dialogue ---------------------------------------------------------


def open_desk(
    pipeline_dir: PathLike,
    run_id: str,
    step_id: str | None,
    file: str | None,
    *,
    services: Services | None = None,
) -> ParkedRows:
    """Load parked rows to decide about. Blocks; takes no lock, but refuses a run that is going on.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing is parked, nothing of that name, or more than one.
        RunLockedError: The run is going on.
        StorageError: A part is missing or torn.
    """
    services = services or Services()
    directory = os.fspath(pipeline_dir)
    record = read_run(directory, run_id)
    refuse_while_running(directory, record, disk=services.disk, now=format_time(services.clock()))
    return load_parked(directory, record, step_id, file)


def store_amendment(
    pipeline_dir: PathLike,
    parked: ParkedRows,
    amendment: Amendment,
    *,
    because: str | None,
    services: Services | None = None,
) -> Decision:
    """Record an amendment of rows that `open_desk` gave. Blocks; takes the lock of the run.

    Raises:
        As `amend`.
    """
    services = services or Services()
    return record_decision(
        os.fspath(pipeline_dir),
        RunId(parked.record.run_id),
        parked.step.step_id,
        parked.flow.name,
        original=amendment.original,
        replacement=amendment.replacement,
        positions=amendment.positions,
        because=because,
        disk=services.disk,
        clock=services.clock,
        attempt=parked.step.attempt,
    )


def store_discard(
    pipeline_dir: PathLike,
    parked: ParkedRows,
    rows: list[range] | None,
    *,
    because: str,
    services: Services | None = None,
) -> Decision:
    """Record that rows which `open_desk` gave are left out. Blocks; takes the lock of the run.

    Raises:
        As `discard`.
    """
    if not because.strip():
        raise DeskError("because is empty: say why these rows are left out; it stays on the record")
    if rows == []:
        raise DeskError("no rows are named: name some, or all")
    services = services or Services()
    chosen = choose_rows(parked, rows)
    return record_decision(
        os.fspath(pipeline_dir),
        RunId(parked.record.run_id),
        parked.step.step_id,
        parked.flow.name,
        original=chosen.select(list(parked.schema)),
        replacement=None,
        positions=chosen[ROW_COLUMN],
        because=because,
        disk=services.disk,
        clock=services.clock,
        attempt=parked.step.attempt,
    )


def open_decisions(
    pipeline_dir: PathLike,
    run_id: str,
    step_id: str,
    file: str | None,
    *,
    services: Services | None = None,
) -> DecidedRows:
    """Load the rows about which decisions stand. Blocks; takes no lock, but refuses a run that is going on.

    Raises:
        RunNotFoundError: There is no such run.
        RunRefusedError: Nothing is decided, or about several files, or the decisions have been removed.
        RunLockedError: The run is going on.
        StorageError: A patch is missing or torn.
    """
    services = services or Services()
    directory = os.fspath(pipeline_dir)
    record = read_run(directory, run_id)
    refuse_while_running(directory, record, disk=services.disk, now=format_time(services.clock()))
    step, name = choose_decided(record, step_id, file)
    rows = load_decided(run_directory(directory, record.run_id), record, step_id, name)
    return DecidedRows(record, step, name, rows)


def store_withdrawal(
    pipeline_dir: PathLike,
    decided: DecidedRows,
    rows: list[range] | None,
    *,
    because: str | None,
    services: Services | None = None,
) -> Decision:
    """Record that decisions which `open_decisions` gave are withdrawn. Blocks; takes the lock of the run.

    Raises:
        As `withdraw`.
    """
    if rows == []:
        raise DeskError("no rows are named: name some, or all")
    services = services or Services()
    return record_withdrawal(
        os.fspath(pipeline_dir),
        RunId(decided.record.run_id),
        decided.step.step_id,
        decided.name,
        positions=rows,
        because=because,
        disk=services.disk,
        clock=services.clock,
        attempt=decided.step.attempt,
    )
