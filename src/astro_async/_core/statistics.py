"""Statistics, derived from facts: so they can be rebuilt from the journals.

Scopes are `run`, `file` and `step`. A later value of the same scope, subject and action replaces the
earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
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


def derive_statistics(events: Iterable[AnyEvent], run: RunRecord) -> list[Statistic]:
    """Return the statistics that facts give rise to, in their order.

    Args:
        events: Facts, in the order of the journal.
        run: The record of the run, with the facts folded in.
    """
    found: list[Statistic] = []
    for event in events:
        kind = type(event)
        if kind is StepFinished:
            found += _of_step(event)  # type: ignore[arg-type]
        elif kind in _OF_RUN:
            numbers = _OF_RUN[kind](event, run)
            found += [Statistic(*key, value, event.time) for key, value in numbers.items()]
    return found


Numbers = dict[tuple[str, str, str], float]


def _of_file(event: FileIngested, run: RunRecord) -> Numbers:
    version = event.version
    numbers: Numbers = {
        ("file", event.name, "row_count"): version.rows,
        ("file", event.name, "column_count"): version.columns,
        ("file", event.name, "source_size_bytes"): event.source_size_bytes,
    }
    if event.rows_in is not None:
        numbers["file", event.name, "rows_quarantined"] = event.rows_quarantined
    return numbers


def _of_ingest(event: RunIngested, run: RunRecord) -> Numbers:
    return {("run", run.run_id, "files_ingested"): len(run.files)}


def _of_end(event: RunFinished, run: RunRecord) -> Numbers:
    steps = Counter([record.status for record in run.steps.values()])
    return {
        ("run", run.run_id, "steps_completed"): steps[StepStatus.COMPLETE],
        ("run", run.run_id, "steps_quarantined"): steps[StepStatus.QUARANTINED],
        ("run", run.run_id, "steps_failed"): steps[StepStatus.FAILED],
        ("run", run.run_id, "steps_blocked"): steps[StepStatus.BLOCKED],
        ("run", run.run_id, "steps_skipped"): steps[StepStatus.SKIPPED],
        ("run", run.run_id, "duration_ms"): event.duration_ms,
    }


_OF_RUN: Final[dict[type, Callable[[Any, RunRecord], Numbers]]] = {
    FileIngested: _of_file,
    RunIngested: _of_ingest,
    RunFinished: _of_end,
}


def _of_step(event: StepFinished) -> list[Statistic]:
    step, time, flows = str(event.step_id), event.time, event.files
    found = [Statistic("step", step, "duration_ms", event.duration_ms, time)]
    if flows:
        rows_in = flows[0].rows_in if len(flows) == 1 else sum(flow.rows_in for flow in flows)
        found.append(Statistic("step", step, "rows_in", rows_in, time))
        if len(flows) == 1 and flows[0].rows_out is None and not flows[0].rules and not event.stats:
            # Most of many steps: one file, only read.
            return found
    # Of files that it only read, a step lets nothing out.
    if writable := [flow for flow in flows if flow.rows_out is not None]:
        rows_out = sum(flow.rows_out or 0 for flow in writable)
        rows_quarantined = sum(flow.rows_quarantined for flow in writable)
        found.append(Statistic("step", step, "rows_out", rows_out, time))
        found.append(Statistic("step", step, "rows_quarantined", rows_quarantined, time))
    if filtered := writable and [flow for flow in writable if flow.rows_filtered is not None]:
        rows_filtered = sum(flow.rows_filtered or 0 for flow in filtered)
        rows_kept = sum(flow.rows_out or 0 for flow in filtered)
        found.append(Statistic("step", step, "rows_filtered", rows_filtered, time))
        found.append(Statistic("step", step, "rows_kept", rows_kept, time))
    if len(flows) > 1:
        found += [Statistic("step", step, action, rows, time) for action, rows in _count_by_file(flows)]
    for action, rows in _count_rules(flows).items():
        found.append(Statistic("step", step, action, rows, time))
    for stat in event.stats:
        found.append(Statistic(stat.scope, stat.subject, stat.action, stat.value, time))
    return found


def _count_by_file(flows: Sequence[FileFlow]) -> Iterator[tuple[str, int]]:
    """Yield the numbers of each file of a step that has several, for their sums do not tell which it was."""
    for flow in flows:
        yield f"rows_in: {flow.name}", flow.rows_in
        if flow.rows_out is not None:
            yield f"rows_out: {flow.name}", flow.rows_out
            yield f"rows_quarantined: {flow.name}", flow.rows_quarantined
        if flow.rows_filtered is not None:
            yield f"rows_filtered: {flow.name}", flow.rows_filtered


def _count_rules(flows: tuple[FileFlow, ...]) -> dict[str, int]:
    """Return how many rows break each rule, over all files of a step."""
    rows: dict[str, int] = {}
    for flow in flows:
        for rule in flow.rules:
            action = f"{'rows_warned' if rule.severity == 'warn' else 'rows_failing'}: {rule.reason}"
            rows[action] = rows.get(action, 0) + rule.rows
    return rows
