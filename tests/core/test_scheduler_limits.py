"""Slots, named limits and retries: taken all or not at all, given back, and never lost."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from astro_async._core.graph import StepNode
from astro_async._core.records import StepRecord
from astro_async.exceptions import PipelineError
from core.samples import Shift, node


def test_a_limit_without_a_size_is_refused() -> None:
    with pytest.raises(PipelineError, match="step 'a' needs limit 'db', which has no size"):
        Shift(node("a", limits=["db"]))


def test_a_limit_holds_steps_back_and_the_next_feasible_one_starts() -> None:
    shift = Shift(
        node("a", limits=["db"]),
        node("b", limits=["db"]),
        node("c"),
        node("d", limits=["db"]),
        limits={"db": 1},
        jobs=2,
    )
    assert shift.starts() == ["a", "c"]
    shift.finish("c")
    assert shift.starts() == []
    shift.finish("a")
    assert shift.starts() == ["b"]
    shift.finish("b")
    assert shift.starts() == ["d"]


def test_limits_are_taken_all_or_not_at_all() -> None:
    shift = Shift(
        node("a", limits=["x"]),
        node("both", limits=["y", "x"]),
        node("b", limits=["y"]),
        limits={"x": 1, "y": 1},
    )
    # `both` must not sit on y while it waits for x.
    assert shift.starts() == ["a", "b"]
    shift.finish("a")
    assert shift.starts() == []
    shift.finish("b")
    assert shift.starts() == ["both"]
    shift.finish("both")
    assert set(shift.statuses().values()) == {"complete"}


def test_a_limit_of_many_lets_as_many_run() -> None:
    shift = Shift(*(node(name, limits=["db"]) for name in "abcde"), limits={"db": 3})
    assert shift.starts() == ["a", "b", "c"]
    shift.finish("b")
    assert shift.starts() == ["d"]
    shift.fail("c")
    assert shift.starts() == []


def test_a_step_that_was_blocked_while_it_waited_for_a_limit_does_not_start() -> None:
    shift = Shift(
        node("a", limits=["db"]),
        node("b"),
        node("c", limits=["db"], after=["b"]),
        limits={"db": 1},
        keep_going=True,
    )
    assert shift.starts() == ["a", "b"]
    assert shift.fail("b") == ["c"]
    shift.finish("a")
    assert shift.starts() == []


def test_a_retry_waits_without_a_slot_and_starts_when_it_is_due() -> None:
    shift = Shift(node("a", limits=["db"]), node("b", limits=["db"]), node("c"), limits={"db": 1}, jobs=1)
    assert shift.starts() == ["a"]
    shift.retry("a")
    assert shift.story.run.steps["a"] == StepRecord(
        "a", shift.story.run.steps["a"].status, "retry at noon", 1, shift.story.events[1].time
    )
    assert shift.statuses()["a"] == "running"
    assert shift.scheduler.backing_off == {0}
    assert shift.starts() == ["b"]
    shift.requeue("a")
    assert shift.starts() == []
    shift.finish("b")
    # Due retries go before what has not started yet.
    assert shift.starts() == ["a"]
    assert shift.scheduler.backing_off == frozenset()
    assert shift.story.run.steps["a"].attempt == 2
    shift.finish("a")
    assert shift.starts() == ["c"]


def test_a_retry_is_not_started_before_it_is_due() -> None:
    shift = Shift(node("a"), jobs=1)
    shift.starts()
    shift.retry("a")
    assert shift.starts() == []
    assert shift.scheduler.backing_off == {0}


def test_a_retry_behind_the_stop_point_still_runs() -> None:
    shift = Shift(node("fails"), node("retries"), node("new"), jobs=2)
    assert shift.starts() == ["fails", "retries"]
    shift.retry("retries")
    assert shift.starts() == ["new"]
    shift.fail("fails")
    shift.requeue("retries")
    assert shift.starts() == ["retries"]
    shift.finish("retries")
    assert shift.statuses() == {"fails": "failed", "retries": "complete", "new": "running"}


def test_a_due_retry_behind_the_stop_point_that_waited_for_a_limit_still_runs() -> None:
    shift = Shift(
        node("fails"), node("retries", limits=["db"]), node("other", limits=["db"]), limits={"db": 1}
    )
    assert shift.starts() == ["fails", "retries"]
    shift.retry("retries")
    assert shift.starts() == ["other"]
    shift.fail("fails")
    shift.requeue("retries")
    assert shift.starts() == []
    shift.finish("other")
    # It is `running` and will never settle by itself: a run that does not start it never ends.
    assert shift.starts() == ["retries"]
    shift.finish("retries")
    assert shift.scheduler.backing_off == frozenset()


def test_a_halt_starts_no_retry() -> None:
    shift = Shift(node("a"))
    shift.starts()
    shift.retry("a")
    shift.scheduler.halt()
    shift.requeue("a")
    assert shift.starts() == []
    assert shift.scheduler.backing_off == {0}


def test_a_hung_thread_keeps_its_slot_and_limits_until_it_is_gone() -> None:
    shift = Shift(node("a", limits=["db"]), node("b", limits=["db"]), node("c"), limits={"db": 1}, jobs=2)
    assert shift.starts() == ["a", "c"]
    shift.retry("a", keeps_slot=True)
    shift.finish("c")
    assert shift.starts() == []
    shift.scheduler.release(0)
    assert shift.starts() == ["b"]
    shift.requeue("a")
    assert shift.starts() == []
    shift.finish("b")
    assert shift.starts() == ["a"]


def test_slots_are_given_back_exactly_once() -> None:
    shift = Shift(*(node(name) for name in "abcdef"), jobs=2)
    seen = []
    running = shift.starts()
    while running:
        seen += running
        assert len(running) <= 2
        for name in running:
            shift.finish(name)
        running = shift.starts()
    assert seen == list("abcdef")


class CountingNodes(list[StepNode]):
    """The nodes of a graph, which count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, position: Any) -> Any:
        self.looks += 1
        return super().__getitem__(position)


def test_a_long_queue_for_one_limit_is_not_gone_through_at_every_release() -> None:
    names = [f"s{i}" for i in range(200)]
    shift = Shift(*(node(name, limits=["db"]) for name in names), limits={"db": 1}, jobs=8)
    nodes = CountingNodes(shift.graph.nodes)
    shift.graph.nodes = nodes
    for name in names:
        assert shift.starts() == [name]
        shift.finish(name)
    assert nodes.looks < 30 * len(names)


def test_steps_that_may_queue_start_ahead_of_the_slots() -> None:
    shift = Shift(*(node(name, queue="threads") for name in "abcdef"), jobs=2)
    assert shift.starts() == ["a", "b"]
    shift.scheduler.look_ahead(2)
    assert shift.starts() == ["c", "d"]
    shift.finish("a")
    assert shift.starts() == ["e"]
    shift.scheduler.look_ahead(0)
    shift.finish("b")
    assert shift.starts() == []
    shift.finish("c")
    assert shift.starts() == []
    shift.finish("d")
    assert shift.starts() == ["f"]


@pytest.mark.parametrize("other", [None, "loop"])
def test_no_step_starts_ahead_beside_others_that_its_queue_knows_nothing_of(
    other: Literal["loop"] | None,
) -> None:
    # Each queue minds the number of jobs by itself: together they would run more.
    shift = Shift(node("a", queue=other), *(node(name, queue="threads") for name in "bcd"), jobs=2)
    shift.scheduler.look_ahead(2)
    assert shift.starts() == ["a", "b"]
    shift.finish("b")
    assert shift.starts() == ["c"]
    shift.finish("a")
    assert shift.starts() == ["d"]


def test_what_may_not_queue_waits_for_a_slot_of_its_own() -> None:
    shift = Shift(
        node("a", queue="loop"), node("b", queue="loop"), node("c"), node("d", queue="loop"), jobs=1
    )
    shift.scheduler.look_ahead(5)
    assert shift.starts() == ["a", "b"]
    shift.finish("a")
    assert shift.starts() == []
    shift.finish("b")
    assert shift.starts() == ["c"]
    shift.finish("c")
    assert shift.starts() == ["d"]
