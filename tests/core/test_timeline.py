"""What ran when: lanes, attempts that died, the critical path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from astro_async._core.events import (
    AnyEvent,
    RunFinished,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepRetrying,
    StepStarted,
)
from astro_async._core.graph import Graph
from astro_async._core.status import RunStatus, StepStatus
from astro_async._core.timeline import Attempt, Invocation, derive_critical_path, derive_timeline
from core.samples import node


class Script:
    """Events at chosen microseconds."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []

    def head(self, at: int, step_id: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        time = f"2026-11-29T01:00:{at // 1_000_000:02}.{at % 1_000_000:06}Z"
        seq = len(self.events) + 1
        return {"seq": seq, "time": time, "run_id": "abc12", "step_id": step_id, "attempt": attempt}

    def plan(self, at: int) -> None:
        self.events.append(RunPlanned(**self.head(at), again={}, params={}, jobs=2, pid=7, host="here"))

    def start(self, at: int, step_id: str, attempt: int = 1) -> None:
        self.events.append(StepStarted(**self.head(at, step_id, attempt)))

    def finish(self, at: int, step_id: str, *, attempt: int = 1, took: int | None = None) -> None:
        taken = 1e9 if took is None else took / 1000
        self.events.append(
            StepFinished(**self.head(at, step_id, attempt), status=StepStatus.COMPLETE, duration_ms=taken)
        )

    def end(self, at: int) -> None:
        self.events.append(RunFinished(**self.head(at), status=RunStatus.COMPLETED, duration_ms=1.0))


def told(invocation: Invocation) -> list[tuple[str, int, int, int, str]]:
    return [(a.step_id, a.start_us, a.end_us, a.lane, a.outcome) for a in invocation.attempts]


def test_a_night() -> None:
    script = Script()
    script.plan(1000)
    script.start(1000, "a")
    script.start(1000, "b")
    # Queued behind a: it began when its time says, not when it was handed over.
    script.start(1100, "c")
    script.finish(2000, "a")
    script.finish(2500, "c", took=400)
    script.events.append(StepRetrying(**script.head(3000, "b", 1), detail="retry", error="busy"))
    script.start(4000, "b", 2)
    script.finish(6000, "b", attempt=2)
    script.events.append(StepBlocked(**script.head(6000, "d"), detail="blocked by b"))
    script.end(6100)
    script.plan(9000)
    script.start(9100, "e")
    script.start(9200, "f")
    script.finish(9300, "f")
    first, second = derive_timeline(script.events)
    assert told(first) == [
        ("a", 0, 1000, 1, "complete"),
        ("b", 0, 2000, 2, "retrying"),
        ("c", 1100, 1500, 1, "complete"),
        ("b", 3000, 5000, 1, "complete"),
    ]
    assert (first.start_us, first.end_us, first.status) == (0, 5100, "completed")
    assert first.unstarted == [(5000, "d", "blocked")]
    assert told(second) == [("e", 8100, 8300, 1, "died"), ("f", 8200, 8300, 2, "complete")]
    assert second.status == "died"
    # While a process is on the run, only its own invocation can be running.
    script.plan(9500)
    script.start(9600, "e")
    script.start(9700, "f")
    script.finish(9800, "f")
    _, dead, alive = derive_timeline(script.events, is_live=True)
    assert (dead.status, alive.status) == ("died", "running")
    assert [attempt.outcome for attempt in dead.attempts] == ["died", "complete"]
    assert told(alive) == [("e", 8600, 8800, 1, "running"), ("f", 8700, 8800, 2, "complete")]
    script.end(9900)
    assert derive_timeline(script.events, is_live=True)[-1].status == "completed"
    assert derive_timeline([], is_live=True) == derive_timeline([]) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_lanes_never_overlap_and_are_as_few_as_can_be(spans: list[tuple[int, int]]) -> None:
    script = Script()
    script.plan(0)
    moments = [(start, 0, i) for i, (start, _) in enumerate(spans)]
    moments += [(start + length, 1, i) for i, (start, length) in enumerate(spans)]
    for at, is_end, i in sorted(moments):
        if is_end:
            script.finish(at, f"s{i}")
        else:
            script.start(at, f"s{i}")
    (invocation,) = derive_timeline(script.events)
    attempts = invocation.attempts
    assert len(attempts) == len(spans)
    for one, other in pairs(attempts):
        assert one.lane != other.lane or one.end_us <= other.start_us or other.end_us <= one.start_us
    peaks = [sum(a.start_us <= b.start_us < a.end_us for a in attempts) for b in attempts]
    # An attempt of no length needs a lane too, where all others are taken.
    assert max((a.lane for a in attempts), default=0) <= max(peaks, default=0) + 1


def pairs(attempts: list[Attempt]) -> Iterator[tuple[Attempt, Attempt]]:
    return ((one, other) for i, one in enumerate(attempts) for other in attempts[i + 1 :])


def test_the_critical_path() -> None:
    graph = Graph(
        (
            node("slow", writes=["f"]),
            node("fast", writes=["g"]),
            node("join", reads=["f", "g"], after=["fast"]),
            node("tail", after=["join"]),
            node("apart"),
        )
    )
    script = Script()
    script.plan(0)
    for name in ("slow", "fast", "apart"):
        script.start(0, name)
    script.finish(100, "fast")
    script.finish(200, "apart")
    script.events.append(StepRetrying(**script.head(300, "slow", 1), detail="retry", error="busy"))
    script.start(400, "slow", 2)
    script.finish(900, "slow", attempt=2)
    script.start(900, "join")
    script.finish(1000, "join")
    script.start(1000, "tail")
    script.finish(1100, "tail")
    (invocation,) = derive_timeline(script.events)
    path = derive_critical_path(graph, invocation)
    assert [(a.step_id, a.number) for a in path] == [("slow", 1), ("slow", 2), ("join", 1), ("tail", 1)]
    # A step that has left the pipeline ends the path; nothing ran, no path.
    assert [a.step_id for a in derive_critical_path(Graph((node("slow"),)), invocation)] == ["tail"]
    assert derive_critical_path(graph, Invocation(invocation.planned, 0, 0)) == []
