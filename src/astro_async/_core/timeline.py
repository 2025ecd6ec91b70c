"""What ran when: the attempts of each invocation, on lanes that never overlap. Pure.

The journal does not say which worker an attempt was on, so lanes are assigned: each attempt gets the first
one that is free when it begins. Times are whole microseconds since the first invocation began.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    RunFinished,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
    StepStarted,
)
from astro_async._core.graph import Graph
from astro_async._core.waiting import derive_waits

__all__ = ["Attempt", "Invocation", "derive_critical_path", "derive_timeline"]

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class Attempt:
    """One attempt of one step.

    Attributes:
        step_id: The step.
        number: Its attempt.
        start_us: When it began.
        end_us: When it ended; for one that died with its process or runs, the last that the journal knows.
        outcome: `complete`, `quarantined`, `failed`, `retrying`, `interrupted`, `running` or `died`.
        files: What it did with each file.
        lane: Counted from 1.
    """

    step_id: str
    number: int
    start_us: int
    end_us: int
    outcome: str = "died"
    files: Sequence[FileFlow] = ()
    lane: int = 0


@dataclass(slots=True)
class Invocation:
    """What one `astro run` did.

    Attributes:
        planned: Its first event.
        start_us: When it began.
        end_us: When it ended, or the last that the journal knows of it.
        status: Its verdict; `running` where there is none yet, `died` where the process died.
        attempts: In the order of their start.
        unstarted: Blocked and skipped steps, with the time and the status.
    """

    planned: RunPlanned
    start_us: int
    end_us: int
    status: str = "died"
    attempts: list[Attempt] = field(default_factory=list)
    unstarted: list[tuple[int, str, str]] = field(default_factory=list)


def derive_timeline(events: Iterable[AnyEvent], *, is_live: bool = False) -> list[Invocation]:
    """Return the invocations of a run, oldest first.

    Args:
        events: The journal of the run.
        is_live: Whether a process is on the run: then what has no end yet, in its invocation, is running.
    """
    found: list[Invocation] = []
    running: dict[str, Attempt] = {}
    origin: datetime | None = None
    for event in events:
        if isinstance(event, RunPlanned):
            origin = origin or datetime.fromisoformat(event.time)
            now = _microseconds(event.time, origin)
            found.append(Invocation(event, now, now))
            running = {}
        if origin is None or not found:
            continue
        now = _microseconds(event.time, origin)
        invocation = found[-1]
        if event.step_id is not None or isinstance(event, RunFinished):
            invocation.end_us = max(invocation.end_us, now)
        _apply(invocation, running, event, now)
    for invocation in found:
        for attempt in invocation.attempts:
            if attempt.outcome == "died":
                attempt.end_us = max(attempt.start_us, invocation.end_us)
        _assign_lanes(invocation)
    if is_live and found and found[-1].status == "died":
        found[-1].status = "running"
        for attempt in found[-1].attempts:
            attempt.outcome = "running" if attempt.outcome == "died" else attempt.outcome
    return found


def _apply(invocation: Invocation, running: dict[str, Attempt], event: AnyEvent, now: int) -> None:
    step_id = event.step_id or ""
    match event:
        case StepStarted():
            attempt = Attempt(step_id, event.attempt or 1, now, now)
            running[step_id] = attempt
            invocation.attempts.append(attempt)
        case StepFinished() | StepRetrying() | StepInterrupted() if step_id in running:
            attempt = running.pop(step_id)
            attempt.end_us = max(now, attempt.start_us)
            attempt.outcome = "retrying" if isinstance(event, StepRetrying) else "interrupted"
            if isinstance(event, StepFinished):
                attempt.outcome, attempt.files = event.status.value, event.files
                # A start is recorded when the step is handed to the workers: tiny ones may queue there.
                began = attempt.end_us - round(event.duration_ms * 1000)
                attempt.start_us = min(max(attempt.start_us, began), attempt.end_us)
        case StepBlocked():
            invocation.unstarted.append((now, step_id, "blocked"))
        case StepSkipped():
            invocation.unstarted.append((now, step_id, "skipped"))
        case RunFinished():
            invocation.status = event.status.value
        case _:
            pass


def _microseconds(time: str, origin: datetime) -> int:
    # A clock that was set back never makes a negative time.
    return max(0, (datetime.fromisoformat(time) - origin) // _MICROSECOND)


def _assign_lanes(invocation: Invocation) -> None:
    invocation.attempts.sort(key=lambda attempt: (attempt.start_us, attempt.end_us))
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    for attempt in invocation.attempts:
        while busy and busy[0][0] <= attempt.start_us:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            lanes += 1
            heapq.heappush(free, lanes)
        attempt.lane = heapq.heappop(free)
        heapq.heappush(busy, (attempt.end_us, attempt.lane))


def derive_critical_path(graph: Graph, invocation: Invocation) -> list[Attempt]:
    """Return the attempts that the invocation's end waited for, earliest first.

    From the attempt that ended last backwards, always to the one that it was the last to wait for: an earlier
    attempt of the step itself, a dependency, or an earlier writer of its files. What an attempt waited for
    besides that (a free slot, a limit) is the gap before it.
    """
    last: dict[str, list[Attempt]] = {}
    for attempt in invocation.attempts:
        last.setdefault(attempt.step_id, []).append(attempt)
    path: list[Attempt] = []
    current = max(invocation.attempts, key=lambda attempt: attempt.end_us, default=None)
    while current is not None:
        path.append(current)
        position = graph.position.get(current.step_id)
        waits = [] if position is None else derive_waits(graph, position)
        before = [each for each in last[current.step_id] if each.number < current.number]
        before += [last[name][-1] for name in (graph.nodes[i].step_id for i, _ in waits) if name in last]
        current = max(before, key=lambda attempt: attempt.end_us, default=None)
    return path[::-1]
