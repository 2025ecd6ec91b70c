"""Scheduling: what starts when, what it is given, what is blocked, and where a run stops."""

from __future__ import annotations

import itertools

import pytest

from astro_async._core.events import StepFinished, StepInterrupted
from astro_async._core.reducer import Scheduler
from astro_async._core.status import StepStatus
from astro_async.exceptions import IllegalTransitionError
from core.samples import Shift, freeze, node

Q = StepStatus.QUARANTINED


def test_a_diamond_runs_its_sides_at_once_and_its_foot_last() -> None:
    shift = Shift(
        node("top"),
        node("left", after=["top"]),
        node("right", after=["top"]),
        node("foot", after=["left", "right"]),
    )
    assert shift.starts() == ["top"]
    shift.finish("top")
    assert shift.starts() == ["left", "right"]
    shift.finish("right")
    assert shift.starts() == []
    shift.finish("left")
    assert shift.starts() == ["foot"]
    shift.finish("foot")
    assert set(shift.statuses().values()) == {"complete"}


def test_the_earliest_in_serial_order_goes_first() -> None:
    shift = Shift(*(node(name) for name in "abcde"), jobs=2)
    assert shift.starts() == ["a", "b"]
    shift.finish("b")
    assert shift.starts() == ["c"]
    shift.finish("a")
    shift.finish("c")
    assert shift.starts() == ["d", "e"]


def test_a_step_reads_what_the_nearest_earlier_writer_left() -> None:
    shift = Shift(
        node("r0", reads=["f"]),
        node("w1", writes=["f"]),
        node("w2", writes=["f", "g"]),
        node("r3", reads=["f", "g"]),
    )
    assert shift.starts() == ["r0", "w1"]
    shift.finish("w1", saves=["f"])
    assert shift.starts() == ["w2"]
    shift.finish("w2", saves=["g"])
    assert shift.starts() == ["r3"]
    assert shift.inputs == {
        "r0": ("ingested/f.parquet",),
        "w1": ("ingested/f.parquet",),
        "w2": ("versions/f/w1.1.parquet", "ingested/g.parquet"),
        # w2 saved nothing of f, so the last word on it is that of w1.
        "r3": ("versions/f/w1.1.parquet", "versions/g/w2.1.parquet"),
    }


def test_a_writer_does_not_wait_for_earlier_readers() -> None:
    shift = Shift(node("reader", reads=["f"]), node("writer", writes=["f"]), node("late", reads=["f"]))
    assert shift.starts() == ["reader", "writer"]
    shift.finish("writer", saves=["f"])
    assert shift.starts() == ["late"]
    assert shift.inputs["late"] == ("versions/f/writer.1.parquet",)


def test_a_file_that_was_not_delivered_is_none() -> None:
    shift = Shift(node("a", reads=["f"]))
    shift.story.run.files.clear()
    shift.scheduler = Scheduler(shift.graph, shift.story.run, jobs=1)
    assert shift.starts() == ["a"]
    assert shift.inputs["a"] == (None,)


def test_a_blocked_writer_does_not_let_a_reader_overtake_an_earlier_writer() -> None:
    shift = Shift(
        node("fails"),
        node("slow", writes=["f"]),
        node("blocked", writes=["f"], after=["fails"]),
        node("reader", reads=["f"]),
        keep_going=True,
    )
    assert shift.starts() == ["fails", "slow"]
    assert shift.fail("fails") == ["blocked"]
    assert shift.starts() == []
    shift.finish("slow", saves=["f"])
    assert shift.starts() == ["reader"]
    assert shift.inputs["reader"] == ("versions/f/slow.1.parquet",)


def test_writers_that_settle_out_of_order_are_read_in_serial_order() -> None:
    shift = Shift(
        node("a", writes=["f"]),
        node("fails"),
        node("b", writes=["f"], after=["fails"]),
        node("c", writes=["f"], after=["fails"]),
        node("reader", reads=["f"]),
        keep_going=True,
    )
    shift.starts()
    assert shift.fail("fails") == ["b", "c"]
    shift.finish("a", StepStatus.FAILED)
    assert shift.starts() == ["reader"]
    assert shift.inputs["reader"] == ("ingested/f.parquet",)


@pytest.mark.parametrize("order", list(itertools.permutations(["x", "y", "z"])))
def test_waiting_for_a_file_never_blocks(order: tuple[str, ...]) -> None:
    shift = Shift(
        *(node(name, writes=["f" + name]) for name in "xyz"),
        node("reader", reads=["fx", "fy", "fz"]),
        keep_going=True,
    )
    assert shift.starts() == ["x", "y", "z"]
    for name in order:
        assert shift.starts() == []
        assert shift.fail(name) == []
    assert shift.starts() == ["reader"]


def test_quarantine_blocks_all_dependents_and_theirs() -> None:
    shift = Shift(
        node("a"),
        node("b", after=["a"]),
        node("c", after=["b"]),
        node("d", after=["a"]),
        node("e"),
        keep_going=True,
    )
    assert shift.starts() == ["a", "e"]
    assert shift.finish("a", Q) == ["b", "c", "d"]
    shift.finish("e")
    assert shift.starts() == []
    assert shift.statuses() == {
        "a": "quarantined",
        "b": "blocked",
        "c": "blocked",
        "d": "blocked",
        "e": "complete",
    }
    details = {step_id: record.detail for step_id, record in shift.story.run.steps.items()}
    assert details["b"] == "blocked by a, which is quarantined"
    assert details["c"] == "blocked by b, which is blocked"


def test_continue_lets_dependents_run_on_the_good_rows() -> None:
    shift = Shift(node("a", writes=["f"], continues=True), node("b", reads=["f"], after=["a"]))
    assert shift.starts() == ["a"]
    assert shift.finish("a", Q, saves=["f"]) == []
    assert shift.starts() == ["b"]
    assert shift.inputs["b"] == ("versions/f/a.1.parquet",)


def test_continue_does_not_forgive_a_failure() -> None:
    shift = Shift(node("a", continues=True), node("b", after=["a"]), keep_going=True)
    shift.starts()
    assert shift.fail("a") == ["b"]


def test_after_a_failure_steps_before_it_still_run_and_no_later_one() -> None:
    shift = Shift(
        node("a"),
        node("early", after=["a"]),
        node("fails"),
        node("running"),
        node("late", after=["a"]),
        node("later"),
        jobs=3,
    )
    assert shift.starts() == ["a", "fails", "running"]
    shift.fail("fails")
    assert shift.starts() == []
    shift.finish("a")
    assert shift.starts() == ["early"]
    shift.finish("early")
    shift.finish("running")
    assert shift.starts() == []
    assert shift.statuses() == {
        "a": "complete",
        "early": "complete",
        "fails": "failed",
        "running": "complete",
        "late": "pending",
        "later": "pending",
    }


def test_a_blocked_step_is_a_stop_point_and_a_quarantined_one_is_not() -> None:
    shift = Shift(node("a"), node("b"), node("blocked", after=["a"]), node("d"), jobs=1)
    assert shift.starts() == ["a"]
    assert shift.finish("a", Q) == ["blocked"]
    assert shift.scheduler.stop == 2
    assert shift.starts() == ["b"]
    shift.finish("b")
    assert shift.starts() == []
    assert shift.statuses()["d"] == "pending"


def test_the_stop_point_is_the_earliest_failure() -> None:
    shift = Shift(*(node(name) for name in "abcd"))
    shift.starts()
    for name, stop in [("c", 2), ("d", 2), ("a", 0), ("b", 0)]:
        shift.fail(name)
        assert shift.scheduler.stop == stop


def test_keep_going_moves_the_stop_point_to_infinity() -> None:
    shift = Shift(node("fails"), node("child", after=["fails"]), node("other"), jobs=1, keep_going=True)
    assert shift.starts() == ["fails"]
    assert shift.fail("fails") == ["child"]
    assert shift.starts() == ["other"]


def test_halt_starts_nothing_more() -> None:
    shift = Shift(node("a"), node("b"), node("c", after=["a"]), jobs=1)
    assert shift.starts() == ["a"]
    shift.scheduler.halt()
    shift.finish("a")
    assert shift.starts() == []
    assert shift.statuses() == {"a": "complete", "b": "pending", "c": "pending"}


def test_skipped_steps_take_no_slot_and_count_as_complete() -> None:
    shift = Shift(
        node("a", reads=["opt"], skipped=True),
        node("b", reads=["opt"], skipped=True, after=["a"]),
        node("c", after=["b"]),
        jobs=1,
    )
    assert shift.starts() == ["-a", "-b", "c"]
    assert shift.story.run.steps["a"].detail == "not delivered: opt"
    assert shift.statuses() == {"a": "skipped", "b": "skipped", "c": "running"}


def test_a_skip_waits_for_its_dependencies() -> None:
    shift = Shift(node("a"), node("b", skipped=True, reads=["opt"], after=["a"]))
    assert shift.starts() == ["a"]
    assert shift.finish("a", Q) == ["b"]
    assert shift.starts() == []


def test_complete_steps_are_not_started_again_and_their_versions_are_read() -> None:
    nodes = [node("a", writes=["f"]), node("b", writes=["f"]), node("c", reads=["f"], after=["b"])]
    shift = Shift(*nodes)
    shift.starts()
    shift.finish("a", saves=["f"])
    shift.starts()
    shift.fail("b")
    again = Shift(*nodes, story=shift.story)
    assert again.starts() == ["b"]
    assert again.inputs == {"b": ("versions/f/a.1.parquet",)}
    again.finish("b", saves=["f"])
    assert again.starts() == ["c"]
    assert again.inputs["c"] == ("versions/f/b.2.parquet",)


def test_an_interrupted_step_gives_its_slot_back_and_is_pending() -> None:
    shift = Shift(node("a"), node("b"), jobs=1)
    assert shift.starts() == ["a"]
    shift.reduce(StepInterrupted(**shift.story.head("a", 1), detail="interrupted"))
    assert shift.starts() == ["b"]
    assert shift.statuses() == {"a": "pending", "b": "running"}


def test_an_illegal_fact_changes_nothing() -> None:
    shift = Shift(node("a"), node("b", after=["a"]), jobs=1)
    assert shift.starts() == ["a"]
    before = freeze(shift.story.run)
    event = StepFinished(**shift.story.head("b", 1), status=StepStatus.COMPLETE, duration_ms=1.0)
    with pytest.raises(IllegalTransitionError):
        shift.scheduler.reduce(event)
    assert shift.story.run == before
    assert shift.starts() == []
    shift.finish("a")
    assert shift.starts() == ["b"]


class CountingList(list[int]):
    """A list that counts how often an element is set."""

    writes = 0

    def __setitem__(self, index: object, value: object) -> None:
        self.writes += 1
        super().__setitem__(index, value)  # type: ignore[call-overload]


def test_ten_thousand_parents_and_one_child_cost_one_decrement_an_edge() -> None:
    parents = [f"p{i}" for i in range(10_000)]
    shift = Shift(*map(node, parents), node("child", after=parents), jobs=20_000)
    counted = CountingList(shift.scheduler._missing)
    shift.scheduler._missing = counted
    assert shift.starts() == parents
    for name in parents:
        assert not counted[10_000] <= 0
        shift.finish(name)
    assert counted.writes == 10_000
    assert shift.starts() == ["child"]


def test_one_writer_and_ten_thousand_readers_cost_one_decrement_an_edge() -> None:
    readers = [node(f"r{i}", reads=["f"]) for i in range(10_000)]
    shift = Shift(node("w", writes=["f"]), *readers, jobs=20_000)
    counted = CountingList(shift.scheduler._missing)
    shift.scheduler._missing = counted
    assert shift.starts() == ["w"]
    shift.finish("w", saves=["f"])
    assert counted.writes == 10_000
    assert len(shift.starts()) == 10_000
    assert set(shift.inputs.values()) == {("ingested/f.parquet",), ("versions/f/w.1.parquet",)}
