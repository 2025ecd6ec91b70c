"""The tables of `astro report`: records in, rows of plain values out. Pure.

Whatever is long is cut, with what matters first and the number of what is left out: a page is for people.
Texts pass through `safe`; the template escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from astro_async._core.events import FileFlow
from astro_async._core.lineage import active_versions
from astro_async._core.records import RunRecord, StepRecord
from astro_async._core.status import StepStatus
from astro_async._core.verification import unexplained_rows
from astro_async.cli.wording import describe_duration, safe, shorten

__all__ = ["FileRows", "Table", "list_files", "list_reasons", "list_rules", "list_steps"]

_MOST_FILES: Final = 300
_MOST_FLOWS: Final = 1000
_MOST_FLOWS_OF_FILE: Final = 200
_MOST_STEPS: Final = 500
_MOST_REASONS: Final = 300
_TEXT_WIDTH: Final = 500

# What needs attention first; steps of the same rank stay in serial order.
_RANKS: Final = {
    StepStatus.FAILED: 0,
    StepStatus.QUARANTINED: 1,
    StepStatus.RUNNING: 2,
    StepStatus.BLOCKED: 3,
    StepStatus.PENDING: 4,
    StepStatus.COMPLETE: 5,
    StepStatus.SKIPPED: 6,
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a table, and how many more there are."""

    rows: Sequence[dict[str, Any]]
    left_out: int = 0


@dataclass(slots=True)
class FileRows:
    """Where the rows of one file went.

    Attributes:
        name: The file.
        rows_in: Rows as ingested.
        rows_now: Rows of the version that is the last now.
        parked: Rows in quarantine, over all steps.
        removed: Rows that filters removed or operators discarded, over all steps.
        unexplained: Rows that went in and are nowhere else, over all steps; negative where rows were added.
        flows: A row for each step that changed or parked some, in serial order.
        left_out: How many more of them there are.
        untouched: How many steps handed on all rows that they got, or only read them.
    """

    name: str
    rows_in: int
    rows_now: int
    parked: int = 0
    removed: int = 0
    unexplained: int = 0
    flows: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    untouched: int = 0

    @property
    def is_eventful(self) -> bool:
        """Whether any step did anything to its rows."""
        return bool(self.flows or self.left_out)


def list_files(record: RunRecord) -> tuple[list[FileRows], int]:
    """Return where the rows of each file went, files to which something happened first; how many more."""
    active = active_versions(record)
    rows = {file.parquet_path: file.row_count for file in record.files.values()}
    for step in record.steps.values():
        rows |= {flow.published.path: flow.published.rows for flow in step.files if flow.published}
    files = {
        name: FileRows(safe(name), file.row_count, rows.get(active[name], file.row_count))
        for name, file in record.files.items()
    }
    room = _MOST_FLOWS
    for step in record.steps.values():
        for flow in step.files:
            found = files.get(flow.name)
            if found is not None:
                room -= _add_flow(found, step, flow, has_room=room > 0)
    ordered = sorted(files.values(), key=lambda each: not each.is_eventful)
    return ordered[:_MOST_FILES], max(0, len(ordered) - _MOST_FILES)


def _add_flow(found: FileRows, step: StepRecord, flow: FileFlow, *, has_room: bool) -> bool:
    """Count a flow, and list it if it tells something and there is room; tell whether it was listed."""
    parked = flow.rows_quarantined if flow.parts else 0
    removed = flow.rows_discarded + (flow.rows_filtered or 0)
    unexplained = unexplained_rows(step, flow)
    found.parked += parked
    found.removed += removed
    found.unexplained += unexplained
    if not (parked or removed or unexplained):
        found.untouched += 1
        return False
    if not has_room or len(found.flows) >= _MOST_FLOWS_OF_FILE:
        found.left_out += 1
        return False
    out = flow.rows_out or 0
    # What a bar shows are shares of the rows that came in, or of those that went out where some were added.
    whole = max(1, flow.rows_in, out + parked + removed)
    found.flows.append(
        {
            "step": safe(step.step_id),
            "status": step.status.value,
            "rows_in": flow.rows_in,
            "rows_out": flow.rows_out,
            "parked": parked,
            "removed": removed,
            "unexplained": unexplained,
            "shares": [
                (kind, round(100 * number / whole, 2))
                for kind, number in (
                    ("out", out),
                    ("parked", parked),
                    ("removed", removed),
                    ("unexplained", max(0, unexplained)),
                )
                if number
            ],
        }
    )
    return True


def list_reasons(record: RunRecord) -> Table:
    """Return why rows are in quarantine, the reasons with most rows first."""
    return _cut_by_rows(
        {
            "reason": shorten(safe(reason), _TEXT_WIDTH),
            "step": safe(step.step_id),
            "file": safe(flow.name),
            "rows": rows,
        }
        for step in record.steps.values()
        for flow in step.files
        if flow.parts
        for reason, rows in flow.reasons.items()
    )


def list_rules(record: RunRecord) -> Table:
    """Return how many rows break each rule, most first; those that no row breaks too."""
    return _cut_by_rows(
        {
            "reason": shorten(safe(rule.reason), _TEXT_WIDTH),
            "step": safe(step.step_id),
            "file": safe(flow.name),
            "rows": rule.rows,
            "severity": safe(rule.severity),
        }
        for step in record.steps.values()
        for flow in step.files
        for rule in flow.rules
    )


def _cut_by_rows(rows: Iterable[dict[str, Any]]) -> Table:
    ordered = sorted(rows, key=lambda row: -row["rows"])
    return Table(ordered[:_MOST_REASONS], max(0, len(ordered) - _MOST_REASONS))


def list_steps(record: RunRecord) -> Table:
    """Return how each step stands, in serial order; of very many, those that need attention."""
    steps = list(record.steps.values())
    if len(steps) > _MOST_STEPS:
        chosen = sorted(range(len(steps)), key=lambda i: (_RANKS[steps[i].status], i))[:_MOST_STEPS]
        shown = [steps[i] for i in sorted(chosen)]
    else:
        shown = steps
    rows = [
        {
            "step": safe(step.step_id),
            "status": step.status.value,
            "attempt": step.attempt,
            "taken": _describe_time_taken(step),
            "detail": shorten(safe(step.detail or ""), _TEXT_WIDTH),
        }
        for step in shown
    ]
    return Table(rows, len(steps) - len(shown))


def _describe_time_taken(step: StepRecord) -> str:
    if step.started_at is None or step.finished_at is None:
        return ""
    taken = datetime.fromisoformat(step.finished_at) - datetime.fromisoformat(step.started_at)
    return describe_duration(max(0.0, taken.total_seconds()))
