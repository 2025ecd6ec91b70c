"""A run as a Chrome trace, which Perfetto and `chrome://tracing` open. Pure: timeline in, document out.

Holds counts and names, the author's reasons included, and no values of cells: it may be handed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from astro_async._core.records import RunRecord
from astro_async._core.timeline import Attempt, Invocation

__all__ = ["trace_document"]

_SCHEDULER_LANE = 0


def trace_document(
    record: RunRecord, invocations: Sequence[Invocation], critical: Mapping[int, Sequence[Attempt]]
) -> dict[str, Any]:
    """Return the trace: a process for each invocation, a lane for each worker, a slice for each attempt.

    Args:
        record: The run.
        invocations: Oldest first.
        critical: By the index of an invocation, its critical path.
    """
    events: list[dict[str, Any]] = []
    for index, invocation in enumerate(invocations):
        events += _invocation_events(record, index, invocation, critical.get(index, ()))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "run_id": record.run_id,
            "pipeline_name": record.pipeline_name,
            "status": record.status.value,
            "began": invocations[0].planned.time if invocations else None,
        },
    }


def _invocation_events(
    record: RunRecord, index: int, invocation: Invocation, critical: Sequence[Attempt]
) -> Iterator[dict[str, Any]]:
    pid = index + 1
    planned = invocation.planned
    name = f"run {record.run_id}, invocation {pid} ({invocation.status}), jobs {planned.jobs}"
    yield _metadata("process_name", pid, _SCHEDULER_LANE, name=name)
    yield _metadata("process_sort_index", pid, _SCHEDULER_LANE, sort_index=pid)
    yield _metadata("thread_name", pid, _SCHEDULER_LANE, name="scheduler")
    for lane in range(1, max((attempt.lane for attempt in invocation.attempts), default=0) + 1):
        yield _metadata("thread_name", pid, lane, name=f"lane {lane}")
        yield _metadata("thread_sort_index", pid, lane, sort_index=lane)
    yield _instant("invocation begins", pid, _SCHEDULER_LANE, invocation.start_us, {"time": planned.time})
    on_path = {id(attempt) for attempt in critical}
    for attempt in invocation.attempts:
        yield _slice(attempt, pid, is_critical=id(attempt) in on_path)
        yield from _marks(attempt, pid)
    for time_us, step_id, status in invocation.unstarted:
        yield _instant(f"{status} {step_id}", pid, _SCHEDULER_LANE, time_us, {"step_id": step_id})
    yield from _arrows(critical, pid)


def _metadata(name: str, pid: int, tid: int, /, **values: Any) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": values}


def _instant(name: str, pid: int, tid: int, ts: int, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "name": name,
        "cat": "mark",
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "args": values,
    }


def _slice(attempt: Attempt, pid: int, *, is_critical: bool) -> dict[str, Any]:
    again = f" (attempt {attempt.number})" if attempt.number > 1 else ""
    return {
        "ph": "X",
        "name": f"{attempt.step_id}{again}",
        "cat": f"step,{attempt.outcome}" + (",critical" if is_critical else ""),
        "pid": pid,
        "tid": attempt.lane,
        "ts": attempt.start_us,
        "dur": attempt.end_us - attempt.start_us,
        "args": {
            "step_id": attempt.step_id,
            "attempt": attempt.number,
            "outcome": attempt.outcome,
            "critical_path": is_critical,
            "files": {
                flow.name: {"rows_in": flow.rows_in, "rows_out": flow.rows_out} for flow in attempt.files
            },
        },
    }


def _marks(attempt: Attempt, pid: int) -> Iterator[dict[str, Any]]:
    for flow in attempt.files:
        if flow.parts:
            values = {"step_id": attempt.step_id, "file": flow.name, "rows": flow.rows_quarantined}
            name = f"quarantined {flow.rows_quarantined} of {flow.name}"
            yield _instant(name, pid, attempt.lane, attempt.end_us, {**values, "reasons": flow.reasons})
    if attempt.outcome in ("retrying", "failed", "interrupted", "died"):
        name = f"{attempt.outcome} {attempt.step_id}"
        values = {"step_id": attempt.step_id, "attempt": attempt.number}
        yield _instant(name, pid, attempt.lane, attempt.end_us, values)


def _arrows(critical: Sequence[Attempt], pid: int) -> Iterator[dict[str, Any]]:
    """Yield the arrows that lead along the critical path; they bind to the slices of their times."""
    for number, (earlier, later) in enumerate(itertools.pairwise(critical)):
        shared = {"name": "critical path", "cat": "critical", "id": pid * 1_000_000 + number, "pid": pid}
        yield {**shared, "ph": "s", "tid": earlier.lane, "ts": earlier.start_us}
        yield {**shared, "ph": "f", "bp": "e", "tid": later.lane, "ts": later.start_us}
