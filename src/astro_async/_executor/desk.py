"""The repair desk: parked rows go out to a person, come back corrected, or are left out for good.

A decision is a patch in the run: the rows as they were, where they stood, and what stands there instead.
It changes what the step sees of its input, never the snapshot. It is recorded whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from astro_async._core.decisions import Waiting, waiting_patches
from astro_async._core.events import FileFlow, RowsPatched
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus
from astro_async._executor.clock import format_time
from astro_async._executor.parked import ParkedRows
from astro_async._frames.amendments import Amendment, compare_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.desk_files import Separator, file_format, read_rows, write_rows
from astro_async._frames.parquet import load_frame, read_schema, refused_by_disk, remove_files, write_frame
from astro_async._frames.patches import build_patch, merge_decisions
from astro_async._store.atomic import PRIVATE_MODE, Disk
from astro_async._store.run_store import RunStore
from astro_async._store.staging import StagedFile, Staging
from astro_async.exceptions import DeskError, RunRefusedError, UnknownNameError

__all__ = [
    "Decision",
    "choose_rows",
    "compare_file",
    "export_rows",
    "parse_ranges",
    "record_decision",
    "refuse_while_running",
]

_PUBLIC_MODE: Final = 0o666


@dataclass(frozen=True, slots=True)
class Decision:
    """What was recorded.

    Attributes:
        run_id: The run.
        step_id: The step.
        file: The file.
        rows: How many rows it decides about.
        replaced: How many of them had been decided about already, since they were set aside.
        waiting: All that is decided now and waits for the step to start again.
    """

    run_id: str
    step_id: str
    file: str
    rows: int
    replaced: int
    waiting: Waiting


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
) -> int:
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
        How many rows were written.

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
    return rows.height


# -- back --------------------------------------------------------------------------------------


def compare_file(parked: ParkedRows, path: str) -> Amendment:
    """Read rows that came back and find what changed in them. Blocks; changes nothing.

    Raises:
        DeskError: The file cannot be read, or does not fit the parked rows.
    """
    return compare_rows(parked.rows, read_rows(path, parked.schema))


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
    wanted = [placed.filter(pl.col(ROW_COLUMN).is_between(each.start, each.stop - 1)) for each in positions]
    for each, found in zip(positions, wanted, strict=True):
        if found.height != len(each):
            there = set(found[ROW_COLUMN].to_list())
            lost = next(position for position in each if position not in there)
            raise DeskError(
                f"no row {lost} of {parked.flow.name!r} is parked by step {parked.step.step_id!r}: "
                f"the numbers are those in {ROW_COLUMN} of `astro quarantine export`. Nothing is stored"
            )
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


def record_decision(
    pipeline_dir: str,
    run_id: RunId,
    step_id: str,
    name: str,
    *,
    original: pl.DataFrame,
    replacement: pl.DataFrame | None,
    positions: pl.Series,
    because: str | None,
    disk: Disk,
    clock: Callable[[], datetime],
    attempt: int | None = None,
) -> Decision:
    """Keep, under the run's lock, what is to stand in place of rows that a step set aside. Blocks.

    Of two decisions about one row, the later one counts.

    Args:
        pipeline_dir: Where runs are kept.
        run_id: The run.
        step_id: A step that set rows of the file aside.
        name: The file.
        original: The rows as they were set aside.
        replacement: What is to stand there instead, row by row; None leaves them out.
        positions: Their positions in the step's snapshot, null where not known.
        because: Why, in the operator's words.
        disk: The seam.
        clock: Tells the time, in UTC.
        attempt: The attempt that set the rows aside; None stands for the last one.

    Raises:
        RunRefusedError: The step has set no rows of that file aside, or has run since.
        QuarantineError: The rows do not fit the file.
        RunLockedError: An invocation is on the run.
        StorageError: The disk refuses; nothing is decided then.
    """
    now = format_time(clock())
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        flow, current = _find_flow(store.record, step_id, name, attempt)
        patch = build_patch(original, replacement, positions, _schema_of(store.directory, flow))
        waiting = waiting_patches(store.record, step_id, name)
        earlier = [load_frame(f"{store.directory}/{each.path}") for each in waiting]
        merged = merge_decisions([*earlier, patch])
        counted = _count(merged)
        staging = Staging(store.directory, "desk", 0, disk)
        path = staging.next_path()
        written = write_frame(patch, path)
        event = RowsPatched(
            seq=store.record.seq + 1,
            time=now,
            run_id=run_id,
            step_id=step_id,
            attempt=current,
            file=name,
            path=store.next_patch_path(step_id, name),
            rows=written.rows,
            discarded=written.rows if replacement is None else 0,
            because=because,
            amended_waiting=counted.amended,
            discarded_waiting=counted.discarded,
        )
        store.record_patch(StagedFile(path, written.rows, written.columns, written.size_bytes), event)
        staging.discard()
        store.finish()
        decided_before = merge_decisions(earlier).height if earlier else 0
        replaced = decided_before + patch.height - merged.height
        return Decision(run_id, step_id, name, written.rows, replaced, counted)
    finally:
        store.close()


def _count(patch: pl.DataFrame) -> Waiting:
    discarded = patch.get_column("replacement").null_count()
    return Waiting(patch.height - discarded, discarded)


def _find_flow(record: RunRecord, step_id: str, name: str, attempt: int | None) -> tuple[FileFlow, int]:
    step = record.steps.get(step_id)
    flows = [] if step is None else [flow for flow in step.files if flow.name == name and flow.parts]
    if step is None or not flows:
        raise RunRefusedError(f"step {step_id!r} of run {record.run_id} has set no rows of {name!r} aside")
    if attempt not in (None, step.attempt):
        raise RunRefusedError(
            f"step {step_id!r} of run {record.run_id} has run again meanwhile: export its rows again, "
            "and give those back. Nothing is stored"
        )
    return flows[0], step.attempt


def _schema_of(directory: str, flow: FileFlow) -> pl.Schema:
    read = f"{directory}/{flow.read}"
    schema = dict(read_schema(read if os.path.exists(read) else f"{directory}/{flow.parts[0].path}"))
    schema.pop(REASON_COLUMN, None)
    return pl.Schema(schema)
