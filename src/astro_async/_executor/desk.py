"""The repair desk's foundation: recording what an operator decides.

A decision is a patch in the run: the rows as they were, where they stood, and what stands there instead.
It changes what the step sees of its input, never the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import polars as pl

from astro_async._core.events import RowsPatched
from astro_async._core.names import RunId
from astro_async._executor.clock import format_time
from astro_async._frames.parquet import read_schema, write_frame
from astro_async._frames.patches import build_patch
from astro_async._store.atomic import Disk
from astro_async._store.run_store import RunStore
from astro_async._store.staging import StagedFile, Staging
from astro_async.exceptions import RunRefusedError

__all__ = ["record_decision"]


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
) -> None:
    """Keep, under the run's lock, what is to stand in place of rows that a step set aside. Blocks.

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

    Raises:
        RunRefusedError: The step has set no rows of that file aside.
        QuarantineError: The rows do not fit the file.
        RunLockedError: An invocation is on the run.
        StorageError: The disk refuses; nothing is decided then.
    """
    now = format_time(clock())
    store = RunStore.open(pipeline_dir, run_id, disk=disk, now=now)
    try:
        record = store.record.steps.get(step_id)
        flows = [] if record is None else [flow for flow in record.files if flow.name == name and flow.parts]
        if not flows:
            raise RunRefusedError(f"step {step_id!r} of run {run_id} has set no rows of {name!r} aside")
        schema = read_schema(f"{store.directory}/{flows[0].read}")
        patch = build_patch(original, replacement, positions, schema)
        staging = Staging(store.directory, "desk", 0, disk)
        path = staging.next_path()
        written = write_frame(patch, path)
        event = RowsPatched(
            seq=store.record.seq + 1,
            time=now,
            run_id=run_id,
            step_id=step_id,
            file=name,
            path=store.next_patch_path(step_id, name),
            rows=written.rows,
            discarded=written.rows if replacement is None else 0,
            because=because,
        )
        store.record_patch(StagedFile(path, written.rows, written.columns, written.size_bytes), event)
        staging.discard()
        store.finish()
    finally:
        store.close()
