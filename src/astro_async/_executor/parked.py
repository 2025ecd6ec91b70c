"""The rows that a step has parked, each with its position in what the step was given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from astro_async._core.decisions import choose_flow, given_patches, waiting_group, withdraw_command
from astro_async._core.events import FileFlow, PartWritten
from astro_async._core.names import INGEST_STEP
from astro_async._core.records import RunRecord, StepRecord
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.parquet import load_frame, load_parts, read_schema, scan_frame
from astro_async._frames.patches import apply_patches, list_decisions, load_patches
from astro_async._frames.positions import find_positions
from astro_async._store.layout import patch_paths, run_directory

__all__ = ["ParkedRows", "load_parked", "load_parked_rows", "scan_amended"]


@dataclass(frozen=True, slots=True, eq=False)
class ParkedRows:
    """What one attempt of a step has set aside of one file.

    Attributes:
        record: The run.
        step: The step.
        flow: What it did with the file.
        rows: `_astro_row` (UInt64, the position in the snapshot; null where the step had changed the row
            before it set it aside), the reason, and the columns of the file.
        decided: `_astro_row` and `is_discarded` of those about which a decision waits for the next run.
        is_private: Whether they are for the eyes of their owner only.
    """

    record: RunRecord
    step: StepRecord
    flow: FileFlow
    rows: pl.DataFrame
    decided: pl.DataFrame
    is_private: bool

    @property
    def schema(self) -> pl.Schema:
        """The columns of the file."""
        own = (ROW_COLUMN, REASON_COLUMN)
        return pl.Schema({name: dtype for name, dtype in self.rows.schema.items() if name not in own})


def load_parked(pipeline_dir: str, record: RunRecord, step_id: str | None, name: str | None) -> ParkedRows:
    """Load what a step has set aside of a file. Blocks; takes no lock.

    Args:
        pipeline_dir: Where runs are kept.
        record: The run.
        step_id: The step; None where only one has rows.
        name: The file; None where only one of the step has rows.

    Raises:
        RunRefusedError: Nothing is parked, nothing of that name, or more than one.
        StorageError: A part is missing or torn.
    """
    step, flow = choose_flow(record, step_id, name)
    directory = run_directory(pipeline_dir, record.run_id)
    rows = load_parked_rows(directory, flow)
    known = _load_known_positions(directory, flow.parts)
    if known.null_count() and os.path.exists(f"{directory}/{flow.read}"):
        known = _find_others(_scan_given(directory, record, step, flow), rows, known)
    placed = rows.select(known.alias(ROW_COLUMN), REASON_COLUMN, pl.exclude(REASON_COLUMN))
    waiting = waiting_group(record, step.step_id, flow.name)
    decided = list_decisions(load_patches(patch_paths(directory, [waiting])) if waiting else [])
    return ParkedRows(record, step, flow, placed, decided, record.files[flow.name].private)


def load_parked_rows(directory: str, flow: FileFlow, limit: int = 0) -> pl.DataFrame:
    """Load parked rows of one step and file, the reason last; only as many parts as are needed.

    Raises:
        StorageError: A part is missing or torn.
    """
    paths: list[str] = []
    rows = 0
    for part in flow.parts:
        if limit and rows >= limit:
            break
        paths.append(f"{directory}/{part.path}")
        rows += part.rows
    # Without the version that was read (dropped to save space) the parts tell: they have its schema. Those of
    # an ingest have one of their own.
    read = f"{directory}/{flow.read}"
    is_like = os.path.exists(read) and not flow.parts[0].path.startswith(f"quarantine/{INGEST_STEP}/")
    schema = dict(read_schema(read if is_like else paths[0]))
    schema.pop(REASON_COLUMN, None)
    frame = load_parts(paths, pl.Schema(schema))
    return frame.head(limit) if limit else frame


def scan_amended(path: str, patches: Sequence[Sequence[str]], *, withdraw: str) -> pl.LazyFrame:
    """Return what patches make of a version, behind `_astro_row`, the position in the version.

    Raises:
        StepError: Rows of a patch are not in the version any more.
        StorageError: A patch cannot be read.
    """
    return apply_patches(scan_frame(path), load_patches(patches), withdraw=withdraw)


def _scan_given(directory: str, record: RunRecord, step: StepRecord, flow: FileFlow) -> pl.LazyFrame:
    patches = patch_paths(directory, given_patches(record, step.step_id, flow.name))
    withdraw = withdraw_command(record.run_id, step.step_id, flow.name)
    return scan_amended(f"{directory}/{flow.read}", patches, withdraw=withdraw)


def _load_known_positions(directory: str, parts: Sequence[PartWritten]) -> pl.Series:
    known = [
        pl.repeat(None, part.rows, dtype=pl.UInt64, eager=True)
        if part.positions is None
        else load_frame(f"{directory}/{part.positions}").get_column(ROW_COLUMN).cast(pl.UInt64)
        for part in parts
    ]
    return pl.concat(known).alias(ROW_COLUMN)


def _find_others(given: pl.LazyFrame, rows: pl.DataFrame, known: pl.Series) -> pl.Series:
    """Find by content the rows whose position is not known, among those that no other row stands for."""
    rest = given.join(known.drop_nulls().to_frame().lazy(), on=ROW_COLUMN, how="anti", maintain_order="left")
    found = find_positions(rest.drop(ROW_COLUMN), rows.filter(known.is_null()))
    wanted = rest.select(ROW_COLUMN).collect(engine="streaming").get_column(ROW_COLUMN)
    free = iter(wanted.gather(found).to_list())
    filled = [next(free) if each is None else each for each in known.to_list()]
    return pl.Series(ROW_COLUMN, filled, dtype=pl.UInt64)
