"""Plans: which steps run again and why, and what is forgotten then."""

from __future__ import annotations

import pytest

from astro_async._core.events import PartWritten, SavedFile, VersionsDropped
from astro_async._core.graph import Graph, StepNode
from astro_async._core.lineage import (
    Plan,
    Reason,
    StaleRead,
    VersionTable,
    active_versions,
    droppable_versions,
    forgotten_paths,
    named_by,
    plan_run,
)
from astro_async._core.names import StepId
from astro_async._core.status import StepStatus
from astro_async.exceptions import RunRefusedError
from core.samples import Story, commit, flow, freeze, node, planned_story

A = "ingested/f.parquet"


def again(plan: Plan) -> dict[str, str]:
    return {step_id: reason.value for step_id, reason in plan.again.items()}


def chain() -> tuple[Story, list[StepNode]]:
    """A complete run: `a` makes f, `b` makes it again, `c` only reads it."""
    nodes = [node("a", writes=["f"]), node("b", writes=["f"], after=["a"]), node("c", reads=["f"])]
    story = planned_story("f", steps=["a", "b", "c"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    story.run_step("c", flow("f", "versions/f/b.1.parquet"))
    return story, nodes


def test_a_new_run_has_all_to_do() -> None:
    story = Story("f")
    story.ingest()
    plan = plan_run(Graph([node("a"), node("b")]), story.run)
    assert again(plan) == {"a": "new", "b": "new"}
    assert plan.by_reason() == {"new": ["a", "b"]}


def test_a_complete_run_has_nothing_to_do() -> None:
    story, nodes = chain()
    before = freeze(story.run)
    plan = plan_run(Graph(nodes), story.run)
    assert plan == Plan()
    assert not plan.has_work
    assert story.run == before


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (StepStatus.PENDING, Reason.UNFINISHED),
        (StepStatus.RUNNING, Reason.UNFINISHED),
        (StepStatus.QUARANTINED, Reason.QUARANTINED),
        (StepStatus.FAILED, Reason.FAILED),
        (StepStatus.BLOCKED, Reason.BLOCKED),
        (StepStatus.COMPLETE, None),
    ],
)
def test_the_reason_of_each_status(status: StepStatus, reason: Reason | None) -> None:
    story = planned_story("f")
    story.to_step_status("s", status)
    plan = plan_run(Graph([node("s")]), story.run)
    assert plan.again == ({} if reason is None else {StepId("s"): reason})


@pytest.mark.parametrize(("skipped", "expected"), [(True, {}), (False, {"s": "new"})])
def test_a_skipped_step_runs_once_its_file_is_there(skipped: bool, expected: dict[str, str]) -> None:
    story = planned_story("f")
    story.to_step_status("s", StepStatus.SKIPPED)
    plan = plan_run(Graph([node("s", reads=["f"], skipped=skipped)]), story.run)
    assert again(plan) == expected


def test_a_named_step_runs_again_and_so_does_what_stands_on_it() -> None:
    story, nodes = chain()
    plan = plan_run(Graph(nodes), story.run, rerun=["a"])
    assert again(plan) == {"a": "named", "b": "dependency"}
    assert plan.because == {"b": "a"}
    # c published nothing: a warning names it and what it read.
    assert plan.stale == (StaleRead(StepId("c"), "f", "versions/f/b.1.parquet"),)
    assert plan.by_reason() == {"named": ["a"], "dependency": ["b"]}


def test_a_step_whose_input_was_replaced_runs_again() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"), status=StepStatus.QUARANTINED)
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    plan = plan_run(Graph([node("a", writes=["f"]), node("b", writes=["f"])]), story.run)
    assert again(plan) == {"a": "quarantined", "b": "input"}
    assert plan.because == {"b": "f"}


def test_a_step_that_published_nothing_is_not_run_again_for_its_input() -> None:
    story = planned_story("f", "g", steps=["a", "b", "c"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"), status=StepStatus.FAILED)
    story.run_step("b", flow("f", "versions/f/a.1.parquet"))
    story.run_step(
        "c", flow("f", "versions/f/a.1.parquet"), flow("g", "ingested/g.parquet", "versions/g/c.1.parquet")
    )
    nodes = [node("a", writes=["f"]), node("b", reads=["f"]), node("c", reads=["f"], writes=["g"])]
    plan = plan_run(Graph(nodes), story.run)
    assert again(plan) == {"a": "failed", "c": "input"}
    assert plan.stale == (StaleRead(StepId("b"), "f", "versions/f/a.1.parquet"),)


def test_a_step_that_only_saved_a_copy_runs_again_for_its_input() -> None:
    """What stands under a name that its author gave is data, too."""
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"), status=StepStatus.QUARANTINED)
    copy = SavedFile("processed/f.parquet", "versions/f/b.1.1.parquet", 10)
    story.run_step("b", flow("f", "versions/f/a.1.parquet", saved=(copy,)))
    plan = plan_run(Graph([node("a", writes=["f"]), node("b", reads=["f"])]), story.run)
    assert again(plan) == {"a": "quarantined", "b": "input"}
    assert plan.stale == ()


def test_an_unknown_rerun_is_refused_and_named() -> None:
    story, nodes = chain()
    with pytest.raises(RunRefusedError, match="--rerun names 'nobody'"):
        plan_run(Graph(nodes), story.run, rerun=["b", "nobody"])


def test_a_step_inserted_before_others_makes_them_run_again() -> None:
    story, nodes = chain()
    plan = plan_run(Graph([node("new", writes=["f"]), *nodes]), story.run)
    assert again(plan) == {"new": "new", "a": "input", "b": "dependency"}
    assert [stale.step_id for stale in plan.stale] == ["c"]


def test_a_reader_inserted_before_others_disturbs_nobody() -> None:
    story, nodes = chain()
    plan = plan_run(Graph([node("new", reads=["f"]), *nodes]), story.run)
    assert again(plan) == {"new": "new"}
    assert plan.stale == ()


def test_a_removed_step_makes_those_run_again_that_read_its_work() -> None:
    story, _ = chain()
    plan = plan_run(Graph([node("b", writes=["f"]), node("c", reads=["f"])]), story.run)
    assert plan.removed == ("a",)
    assert again(plan) == {"b": "input"}
    assert plan.has_work


def test_removing_the_last_step_is_work_too() -> None:
    story, nodes = chain()
    plan = plan_run(Graph(nodes[:2]), story.run)
    assert (again(plan), plan.removed, plan.has_work) == ({}, ("c",), True)


def test_a_removed_step_that_comes_back_goes_on_counting() -> None:
    story, nodes = chain()
    commit(story, nodes[:1])
    assert story.run.removed == {"b": 1, "c": 1}
    plan = commit(story, nodes)
    assert again(plan) == {"b": "new", "c": "new"}
    assert story.run.removed == {}
    story.start("b")
    assert story.run.steps["b"].attempt == 2


def test_reordered_writers_run_again() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    nodes = [node("b", writes=["f"]), node("a", writes=["f"])]
    plan = commit(story, nodes)
    assert again(plan) == {"b": "input", "a": "input"}
    assert list(story.run.steps) == ["b", "a"]


def test_a_step_that_was_given_another_file_runs_again() -> None:
    story = planned_story("f", "g", steps=["a"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    plan = plan_run(Graph([node("a", reads=["g"], writes=["f"])]), story.run)
    assert again(plan) == {"a": "input"}
    assert plan.because == {"a": "g"}


def test_a_step_that_may_no_longer_write_what_it_published_runs_again() -> None:
    story = planned_story("f", steps=["a"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    plan = plan_run(Graph([node("a", reads=["f"])]), story.run)
    assert again(plan) == {"a": "input"}


def test_a_new_dependency_on_a_step_that_runs_again_counts() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.to_step_status("a", StepStatus.FAILED)
    story.run_step("b")
    plan = plan_run(Graph([node("a"), node("b", after=["a"])]), story.run)
    assert again(plan) == {"a": "failed", "b": "dependency"}


def test_a_file_that_was_not_delivered_is_read_as_nothing_then_as_now() -> None:
    story = planned_story("f", steps=["a"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    plan = plan_run(Graph([node("a", reads=["optional"], writes=["f"])]), story.run)
    assert not plan.has_work


def test_a_check_that_keeps_its_version_is_judged_again_when_its_input_changes() -> None:
    story = planned_story("f", steps=["a", "check", "b"])
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    story.run_step("check", flow("f", "versions/f/a.1.parquet", "versions/f/a.1.parquet"))
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    nodes = [node(name, writes=["f"]) for name in ("a", "check", "b")]
    assert not plan_run(Graph(nodes), story.run).has_work
    assert again(plan_run(Graph(nodes), story.run, rerun=["a"])) == {
        "a": "named",
        "check": "input",
        "b": "input",
    }


def test_the_last_publisher_in_serial_order_makes_the_active_version() -> None:
    story = planned_story("f", "g", steps=["a", "b"])
    # b settles first, a is earlier in serial order.
    story.run_step("b", flow("f", A, "versions/f/b.1.parquet"))
    story.run_step("a", flow("f", A, "versions/f/a.1.parquet"))
    assert active_versions(story.run) == {"f": "versions/f/b.1.parquet", "g": "ingested/g.parquet"}


def full_flow() -> Story:
    story = planned_story("f", steps=["a", "b"])
    parts = [
        PartWritten("quarantine/a/f.part-00001.parquet", 1, 5, "quarantine/a/f.part-00001.rows"),
        PartWritten("quarantine/a/f.part-00002.parquet", 1, 5),
    ]
    story.run_step(
        "a",
        flow(
            "f",
            A,
            "versions/f/a.1.parquet",
            parts=parts,
            saved=[SavedFile("processed/x.parquet", "versions/f/a.1.1.parquet", 5)],
            filtered="filtered/a/f.parquet",
        ),
        status=StepStatus.QUARANTINED,
    )
    return story


WRITTEN_BY_A = [
    "versions/f/a.1.parquet",
    "versions/f/a.1.1.parquet",
    "quarantine/a/f.part-00001.parquet",
    "quarantine/a/f.part-00001.rows",
    "quarantine/a/f.part-00002.parquet",
    "filtered/a/f.parquet",
]


def test_a_step_that_runs_again_loses_all_that_it_wrote_and_nothing_ingested() -> None:
    story = full_flow()
    plan = plan_run(Graph([node("a", writes=["f"]), node("b")]), story.run)
    assert sorted(forgotten_paths(story.run, plan)) == sorted(WRITTEN_BY_A)
    assert named_by(story.run) == {A, *WRITTEN_BY_A}


def test_a_removed_step_loses_all_that_it_wrote() -> None:
    story = full_flow()
    plan = plan_run(Graph([node("b")]), story.run)
    assert sorted(forgotten_paths(story.run, plan)) == sorted(WRITTEN_BY_A)


def test_what_another_record_still_names_is_kept() -> None:
    story = full_flow()
    story.run_step("b", flow("f", "versions/f/a.1.parquet"))
    plan = plan_run(Graph([node("a", writes=["f"]), node("b", reads=["f"])]), story.run)
    assert again(plan) == {"a": "quarantined"}
    # b is not run again, and its record says what it read: that stays to be looked at.
    assert "versions/f/a.1.parquet" not in set(forgotten_paths(story.run, plan))


def test_a_plan_without_work_forgets_nothing() -> None:
    story, nodes = chain()
    assert list(forgotten_paths(story.run, plan_run(Graph(nodes), story.run))) == []


def test_a_kept_version_is_not_forgotten_with_the_check_that_kept_it() -> None:
    story = planned_story("f", steps=["check"])
    story.run_step("check", flow("f", A, A))
    plan = plan_run(Graph([node("check", writes=["f"])]), story.run, rerun=["check"])
    assert list(forgotten_paths(story.run, plan)) == []


def test_the_version_table_gives_what_each_settled_prefix_leaves() -> None:
    story = Story("f")
    table = VersionTable(story.run)
    table.advance("f", None)
    table.advance("f", "v1")
    table.advance("f", None)
    table.advance("unknown", "v9")
    assert table.versions(["f"] * 4, range(4)) == (A, A, "v1", "v1")
    assert table.versions(["unknown", "f"], [0, 0]) == (None, A)


def drop_all(story: Story) -> list[str]:
    paths = [version.path for version in droppable_versions(story.run)]
    story.tell(VersionsDropped(**story.head(), paths=paths, size_bytes=1))
    return paths


def test_all_versions_but_the_last_ones_can_be_dropped_once() -> None:
    story, nodes = chain()
    assert drop_all(story) == ["versions/f/a.1.parquet"]
    assert droppable_versions(story.run) == []
    assert not plan_run(Graph(nodes), story.run).has_work


def test_what_save_to_named_and_what_was_ingested_is_never_dropped() -> None:
    story = full_flow()
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    assert [version.path for version in droppable_versions(story.run)] == ["versions/f/a.1.parquet"]


def test_a_rerun_that_needs_a_dropped_version_is_refused_and_the_earliest_step_is_named() -> None:
    nodes = [node(name, writes=["f"]) for name in ("a", "b", "c", "d")]
    story = planned_story("f", steps=["a", "b", "c", "d"])
    for earlier, name in zip([A, *(f"versions/f/{each}.1.parquet" for each in "abc")], "abcd", strict=True):
        story.run_step(name, flow("f", earlier, f"versions/f/{name}.1.parquet"))
    assert drop_all(story) == [f"versions/f/{name}.1.parquet" for name in "abc"]
    for name in "bcd":
        with pytest.raises(RunRefusedError, match=r"dropped.*--rerun a$"):
            plan_run(Graph(nodes), story.run, rerun=[name])
    assert again(plan_run(Graph(nodes), story.run, rerun=["a"])) == {
        "a": "named",
        "b": "input",
        "c": "input",
        "d": "input",
    }


def test_an_edit_that_makes_a_dropped_version_the_last_one_is_refused() -> None:
    story, nodes = chain()
    drop_all(story)
    # Without b the data of the run would be what a made, and that is gone.
    with pytest.raises(RunRefusedError, match="--rerun a"):
        plan_run(Graph([nodes[0]]), story.run)
