"""What operators decide about parked rows, and what they take back: recorded whole or not at all.

A decision is a patch in the run: the rows as they were, where they stood, and what stands there instead. It
changes what the step sees of its input, never the snapshot. It stays on the record; withdrawn, it counts
no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from astro_async._core.decisions import (
    Waiting,
    choose_decided,
    count_waiting,
    given_patches,
    group_patches,
    waiting_group,
)
from astro_async._core.events import FileFlow, RowsPatched
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, StepRecord
from astro_async._executor.clock import format_time
from astro_async._executor.desk import take_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.parquet import load_frame, read_schema, write_frame
from astro_async._frames.patches import (
    IS_DISCARDED,
    build_patch,
    count_decisions,
    list_decisions,
    load_patches,
    merge_decisions,
)
from astro_async._frames.positions import describe_positions
from astro_async._store.atomic import Disk
from astro_async._store.layout import patch_paths
from astro_async._store.run_store import RunStore
from astro_async._store.staging import StagedFile, Staging
from astro_async.exceptions import RunRefusedError

__all__ = [
    "DecidedRows",
    "Decision",
    "choose_decisions",
    "load_decided",
    "record_decision",
    "record_withdrawal",
]

_MOST_RANGES: Final = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """What was recorded.

    Attributes:
        run_id: The run.
        step_id: The step.
        file: The file.
        rows: How many rows it decides about.
        waiting: All that is decided now and waits for the step to start again.
        was_amended: How many of the rows an earlier decision amends, which counts no more.
        was_discarded: How many an earlier decision leaves out.
    """

    run_id: str
    step_id: str
    file: str
    rows: int
    waiting: Waiting
    was_amended: int = 0
    was_discarded: int = 0

    @property
    def replaced(self) -> int:
        """How many of the rows had been decided about already."""
        return self.was_amended + self.was_discarded


@dataclass(frozen=True, slots=True, eq=False)
class DecidedRows:
    """The rows of a step and file about which decisions stand.

    Attributes:
        record: The run.
        step: The step.
        name: The file.
        rows: `_astro_row` (UInt64, the position at which a row was decided about, each once, ascending) and
            `is_discarded` (Boolean).
    """

    record: RunRecord
    step: StepRecord
    name: str
    rows: pl.DataFrame


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
        StorageError: The disk refuses. What was on the record by then stands, as `quarantine stats` tells.
    """
    now = format_time(clock())
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        flow, current = _find_flow(store.record, step_id, name, attempt)
        patch = build_patch(original, replacement, positions, _schema_of(store.directory, flow))
        _refuse_withdrawn(store, step_id, name, positions)
        (paths,) = patch_paths(store.directory, [waiting_group(store.record, step_id, name)])
        earlier = [load_frame(path) for path in paths]
        counted = Waiting(
            *count_decisions(merge_decisions([*earlier, patch])),
            count_waiting(store.record, step_id, name).withdrawn,
        )
        was_amended = was_discarded = 0
        if earlier:
            before = merge_decisions(earlier)
            was_amended, was_discarded = count_decisions(
                before.filter(pl.col(ROW_COLUMN).is_in(patch.get_column(ROW_COLUMN).drop_nulls().implode()))
            )
        event = RowsPatched(
            seq=store.record.seq + 1,
            time=now,
            run_id=run_id,
            step_id=step_id,
            attempt=current,
            file=name,
            path=store.next_patch_path(step_id, name),
            rows=patch.height,
            discarded=patch.height if replacement is None else 0,
            because=because,
            amended_waiting=counted.amended,
            discarded_waiting=counted.discarded,
            withdrawn_waiting=counted.withdrawn,
        )
        _store_patch(store, patch, event, disk)
        return Decision(run_id, step_id, name, patch.height, counted, was_amended, was_discarded)
    finally:
        store.close()


def _store_patch(store: RunStore, patch: pl.DataFrame, event: RowsPatched, disk: Disk) -> None:
    staging = Staging(store.directory, "desk", 0, disk)
    path = staging.next_path()
    written = write_frame(patch, path)
    store.record_patch(StagedFile(path, written.rows, written.columns, written.size_bytes), event)
    staging.discard()
    store.finish()


def _refuse_withdrawn(store: RunStore, step_id: str, name: str, positions: pl.Series) -> None:
    """Refuse a decision about rows as an earlier one had made them, which has been withdrawn since."""
    if not count_waiting(store.record, step_id, name).withdrawn:
        return
    given = load_patches(patch_paths(store.directory, given_patches(store.record, step_id, name)))
    standing = load_decided(store.directory, store.record, step_id, name).get_column(ROW_COLUMN)
    gone = pl.concat([patch.get_column(ROW_COLUMN) for patch in given]).unique()
    gone = gone.filter(gone.is_in(positions.implode()) & ~gone.is_in(standing.implode()))
    if len(gone):
        raise RunRefusedError(
            f"what was decided before about row {gone.sort()[0]} of {name!r} has been withdrawn, so the next "
            f"run gives step {step_id!r} the row as it first was: run first, then decide. Nothing is stored"
        )


# -- withdrawing --------------------------------------------------------------------------------


def load_decided(directory: str, record: RunRecord, step_id: str, name: str) -> pl.DataFrame:
    """Load the rows about which decisions stand; see `DecidedRows.rows`. Blocks.

    Raises:
        RunRefusedError: What was decided has been removed.
        StorageError: A patch cannot be read.
    """
    groups = group_patches(record.patches).get((step_id, name), [])
    if any(patch.path in record.dropped for group in groups for patch in group):
        raise RunRefusedError(
            f"what was decided about rows of {name!r} for step {step_id!r} was removed "
            "(`astro cleanup --quarantine`), so it cannot be withdrawn: ingest the source again"
        )
    return list_decisions(load_patches(patch_paths(directory, groups)))


def choose_decisions(decided: DecidedRows, positions: Sequence[range] | None) -> pl.DataFrame:
    """Return the decided rows at positions; all of them with None.

    Raises:
        DeskError: Nothing is decided about one of them.
    """
    if positions is None:
        return decided.rows
    known = describe_positions(decided.rows.get_column(ROW_COLUMN).to_list(), most=_MOST_RANGES)
    return take_rows(
        decided.rows,
        positions,
        f"of {decided.name!r} is decided for step {decided.step.step_id!r}, but {known}. Nothing is stored",
    )


def record_withdrawal(
    pipeline_dir: str,
    run_id: RunId,
    step_id: str,
    name: str,
    *,
    positions: Sequence[range] | None,
    because: str | None,
    disk: Disk,
    clock: Callable[[], datetime],
    attempt: int,
) -> Decision:
    """Withdraw, under the run's lock, what was decided about rows: they are judged as they came. Blocks.

    All decisions about a row go, of whichever attempt. They stay on the record.

    Args:
        pipeline_dir: Where runs are kept.
        run_id: The run.
        step_id: The step.
        name: The file.
        positions: At which the rows were decided about; None for all.
        because: Why, in the operator's words.
        disk: The seam.
        clock: Tells the time, in UTC.
        attempt: The last attempt of the step when the operator looked.

    Raises:
        DeskError: Nothing is decided about one of them.
        RunRefusedError: Nothing is decided, or the step has run since.
        RunLockedError: An invocation is on the run.
        StorageError: The disk refuses; nothing is withdrawn then.
    """
    now = format_time(clock())
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        step, _ = choose_decided(store.record, step_id, name)
        _refuse_other_attempt(store.record, step, attempt)
        decided = DecidedRows(
            store.record, step, name, load_decided(store.directory, store.record, step_id, name)
        )
        chosen = choose_decisions(decided, positions)
        patch = chosen.select(ROW_COLUMN)
        counted = _count_left(store, step_id, name, patch)
        event = RowsPatched(
            seq=store.record.seq + 1,
            time=now,
            run_id=run_id,
            step_id=step_id,
            attempt=step.attempt,
            file=name,
            path=store.next_patch_path(step_id, name),
            rows=patch.height,
            discarded=0,
            because=because,
            amended_waiting=counted.amended,
            discarded_waiting=counted.discarded,
            withdrawn=patch.height,
            withdrawn_waiting=counted.withdrawn,
            standing=decided.rows.height - patch.height,
        )
        _store_patch(store, patch, event, disk)
        was_discarded = int(chosen.get_column(IS_DISCARDED).sum())
        was_amended = patch.height - was_discarded
        return Decision(run_id, step_id, name, patch.height, counted, was_amended, was_discarded)
    finally:
        store.close()


def _count_left(store: RunStore, step_id: str, name: str, gone: pl.DataFrame) -> Waiting:
    """Count what waits for the step to start again once the decisions at positions are withdrawn."""
    waiting = Waiting()
    if group := waiting_group(store.record, step_id, name):
        (merged,) = load_patches(patch_paths(store.directory, [group]))
        waiting = Waiting(*count_decisions(merged.join(gone, on=ROW_COLUMN, how="anti")))
    given = load_patches(patch_paths(store.directory, given_patches(store.record, step_id, name)))
    was_given = pl.concat([gone.head(0), *(each.select(ROW_COLUMN) for each in given)])
    withdrawn = gone.join(was_given, on=ROW_COLUMN, how="semi").height
    return waiting._replace(withdrawn=withdrawn + count_waiting(store.record, step_id, name).withdrawn)


def _find_flow(record: RunRecord, step_id: str, name: str, attempt: int | None) -> tuple[FileFlow, int]:
    step = record.steps.get(step_id)
    flows = [] if step is None else [flow for flow in step.files if flow.name == name and flow.parts]
    if step is None or not flows:
        raise RunRefusedError(f"step {step_id!r} of run {record.run_id} has set no rows of {name!r} aside")
    _refuse_other_attempt(record, step, attempt)
    return flows[0], step.attempt


def _refuse_other_attempt(record: RunRecord, step: StepRecord, attempt: int | None) -> None:
    if attempt not in (None, step.attempt):
        raise RunRefusedError(
            f"step {step.step_id!r} of run {record.run_id} has run again meanwhile: look at its rows again, "
            "and decide about those. Nothing is stored"
        )


def _schema_of(directory: str, flow: FileFlow) -> pl.Schema:
    read = f"{directory}/{flow.read}"
    schema = dict(read_schema(read if os.path.exists(read) else f"{directory}/{flow.parts[0].path}"))
    schema.pop(REASON_COLUMN, None)
    return pl.Schema(schema)
