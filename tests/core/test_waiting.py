"""Why a step has not started, of every reason there is."""

from __future__ import annotations

from astro_async._core.graph import Graph
from astro_async._core.status import RunStatus, StepStatus
from astro_async._core.waiting import derive_waits, explain_waiting
from core.samples import Shift, node

NODES = (
    node("check", writes=["f"]),
    node("tag", writes=["f"]),
    node("sum", reads=["f"], after=["check"]),
    node("mail", after=["sum"]),
    node("other", writes=["g"]),
)


def why(shift: Shift, step_id: str) -> list[str]:
    return explain_waiting(shift.graph, shift.story.run, step_id)


def test_what_comes_before() -> None:
    graph = Graph(NODES)
    assert [derive_waits(graph, i) for i in range(5)] == [
        [],
        [(0, "f")],
        [(0, None), (1, "f")],
        [(2, None)],
        [],
    ]
    # The dependency is the nearest writer itself.
    graph = Graph((node("w", writes=["f"]), node("r", reads=["f"], after=["w", "w"])))
    assert derive_waits(graph, 1) == [(0, None)]


def test_dependencies_and_earlier_writers() -> None:
    shift = Shift(*NODES, jobs=1)
    assert shift.starts() == ["check"]
    assert why(shift, "check") == []
    assert why(shift, "tag") == ["it works on f after check, which may change it and is running"]
    assert why(shift, "sum") == [
        "it depends on check, which is running",
        "it works on f after tag and 1 more, which may change it and is pending",
    ]
    assert why(shift, "mail") == ["it depends on sum, which is pending"]
    assert why(shift, "other") == ["nothing holds it up but a free slot, or one of its limits"]
    assert why(shift, "gone") == ["it is no step of the pipeline any more: the next `astro run` forgets it"]


def test_the_stop_point_and_the_blocked() -> None:
    shift = Shift(*NODES, jobs=1)
    shift.starts()
    shift.finish("check", StepStatus.QUARANTINED)
    shift.starts()
    shift.finish("tag")
    assert shift.starts() == []
    assert why(shift, "sum") == ["it depends on check, which is quarantined"]
    (reason,) = why(shift, "other")
    assert reason.startswith("it lies behind the stop point: sum is blocked, and no step after it starts")
    assert why(shift, "tag") == []


def test_a_run_at_rest() -> None:
    shift = Shift(*NODES, jobs=1)
    shift.story.run.status = RunStatus.INTERRUPTED
    assert why(shift, "check") == ["the run was interrupted: the next `astro run` goes on"]
    shift.story.run.status = RunStatus.FAILED
    assert why(shift, "check") == ["nothing holds it up: the next `astro run` starts it"]
    del shift.story.run.steps["mail"]
    assert why(shift, "mail") == [
        "it is new in the pipeline: the next `astro run` takes it up",
        "it depends on sum, which is pending",
    ]
    shift.story.run.steps.clear()
    assert why(shift, "check") == ["the run has not been run yet: the next `astro run` takes it up"]
