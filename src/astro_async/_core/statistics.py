"""Statistics, derived from facts: so they can be rebuilt from the journals.

Scopes are `run`, `file` and `step`. A later value of the same scope, subject and action replaces the
earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from astro_async._core.events import (
    AnyEvent,
    FileIngested,
    RunFinished,
    RunIngested,
    StepFinished,
)
from astro_async._core.records import RunRecord
from astro_async._core.status import StepStatus

__all__ = ["Statistic", "derive_statistics"]


class Statistic(msgspec.Struct, frozen=True, gc=False):
    """One recorded number.

    Attributes:
        scope: `run`, `file` or `step`.
        subject: The run id, ingest name or step id.
        action: What was counted or measured; durations end in `_ms`, sizes in `_bytes`.
        value: The number.
        recorded_at: ISO 8601, UTC.
    """

    scope: str
    subject: str
    action: str
    value: float
    recorded_at: str


def derive_statistics(event: AnyEvent, run: RunRecord) -> Iterator[Statistic]:
    """Yield the statistics that a fact gives rise to.

    Args:
        event: The fact.
        run: The record of the run, with the fact folded in.
    """
    match event:
        case FileIngested():
            version = event.version
            yield Statistic("file", event.name, "row_count", version.rows, event.time)
            yield Statistic("file", event.name, "column_count", version.columns, event.time)
            yield Statistic("file", event.name, "source_size_bytes", event.source_size_bytes, event.time)
        case RunIngested():
            yield Statistic("run", run.run_id, "files_ingested", len(run.files), event.time)
        case StepFinished():
            yield from _of_step(event)
        case RunFinished():
            statuses = [record.status for record in run.steps.values()]
            complete = statuses.count(StepStatus.COMPLETE)
            quarantined = statuses.count(StepStatus.QUARANTINED)
            yield Statistic("run", run.run_id, "steps_completed", complete, event.time)
            yield Statistic("run", run.run_id, "steps_quarantined", quarantined, event.time)
            yield Statistic("run", run.run_id, "duration_ms", event.duration_ms, event.time)
        case _:
            pass


def _of_step(event: StepFinished) -> Iterator[Statistic]:
    step = str(event.step_id)
    yield Statistic("step", step, "duration_ms", event.duration_ms, event.time)
    if event.files:
        yield Statistic("step", step, "rows_in", sum(flow.rows_in for flow in event.files), event.time)
    # Of files that it only read, a step lets nothing out.
    writable = [flow for flow in event.files if flow.rows_out is not None]
    if writable:
        rows_out = sum(flow.rows_out or 0 for flow in writable)
        rows_quarantined = sum(flow.rows_quarantined for flow in writable)
        yield Statistic("step", step, "rows_out", rows_out, event.time)
        yield Statistic("step", step, "rows_quarantined", rows_quarantined, event.time)
    filtered = [flow for flow in writable if flow.rows_filtered is not None]
    if filtered:
        rows_filtered = sum(flow.rows_filtered or 0 for flow in filtered)
        rows_kept = sum(flow.rows_out or 0 for flow in filtered)
        yield Statistic("step", step, "rows_filtered", rows_filtered, event.time)
        yield Statistic("step", step, "rows_kept", rows_kept, event.time)
    for stat in event.stats:
        yield Statistic(stat.scope, stat.subject, stat.action, stat.value, event.time)
