"""Statistics: which numbers a fact gives rise to."""

from __future__ import annotations

import msgspec
import pytest

from astro_async._core.events import FileFlow, PartWritten, StatRecorded, StepFinished
from astro_async._core.statistics import Statistic, derive_statistics
from astro_async._core.status import RunStatus, StepStatus
from core.samples import RUN, TIME, Story, flow, planned_story


def numbers(story: Story) -> dict[tuple[str, str, str], float]:
    """Return the statistics of the last event; a later value of the same key replaces an earlier one."""
    found = {}
    for each in derive_statistics(story.events[-1:], story.run):
        assert each.recorded_at == TIME
        found[each.scope, each.subject, each.action] = each.value
    return found


def test_a_file_that_was_ingested() -> None:
    assert numbers(Story("scores")) == {
        ("file", "scores", "row_count"): 10,
        ("file", "scores", "column_count"): 2,
        ("file", "scores", "source_size_bytes"): 50,
    }


def test_a_run_that_was_ingested() -> None:
    story = Story("a", "b", "c")
    story.ingest()
    assert numbers(story) == {("run", RUN, "files_ingested"): 3}


def test_events_without_numbers() -> None:
    story = Story("f")
    for story_so_far in (story.ingest, lambda: story.plan("s"), lambda: story.start("s")):
        story_so_far()
        if story.run.status is RunStatus.RUNNING:
            assert numbers(story) == {}


def test_a_step_sums_its_files() -> None:
    story = planned_story("f", "g")
    part = PartWritten("quarantine/s/f.part-00001.parquet", 4, 9)
    story.run_step(
        "s", flow("f", "x", "y", parts=[part]), flow("g", "x", rows=7), status=StepStatus.QUARANTINED
    )
    assert numbers(story) == {
        ("step", "s", "duration_ms"): 1.5,
        ("step", "s", "rows_in"): 17,
        ("step", "s", "rows_out"): 13,
        ("step", "s", "rows_quarantined"): 4,
        ("step", "s", "rows_in: f"): 10,
        ("step", "s", "rows_out: f"): 6,
        ("step", "s", "rows_quarantined: f"): 4,
        ("step", "s", "rows_in: g"): 7,
        ("step", "s", "rows_out: g"): 7,
        ("step", "s", "rows_quarantined: g"): 0,
    }


def test_a_step_that_let_every_row_pass_says_so() -> None:
    story = planned_story("f")
    story.run_step("s", flow("f", "x"))
    # Without these the numbers of an earlier attempt, one that quarantined, would stand.
    assert numbers(story) == {
        ("step", "s", "duration_ms"): 1.5,
        ("step", "s", "rows_in"): 10,
        ("step", "s", "rows_out"): 10,
        ("step", "s", "rows_quarantined"): 0,
    }


def test_a_step_that_failed_has_a_duration() -> None:
    story = planned_story("f")
    story.run_step("s", status=StepStatus.FAILED)
    assert numbers(story) == {("step", "s", "duration_ms"): 1.5}


def filtered(name: str, rows_in: int, removed: int) -> FileFlow:
    return msgspec.structs.replace(
        flow(name, "x", "y", rows=rows_in), rows_out=rows_in - removed, rows_filtered=removed
    )


@pytest.mark.parametrize("removed", [0, 3])
def test_a_filter_counts_what_it_removed_and_kept(removed: int) -> None:
    story = planned_story("f")
    story.run_step("s", filtered("f", 10, removed))
    found = numbers(story)
    assert found["step", "s", "rows_filtered"] == removed
    assert found["step", "s", "rows_kept"] == 10 - removed
    assert found["step", "s", "rows_in"] == 10


def test_a_filter_that_removed_nothing_and_published_nothing_says_so() -> None:
    story = planned_story("f")
    story.run_step("s", msgspec.structs.replace(flow("f", "x"), rows_filtered=0))
    found = numbers(story)
    assert (found["step", "s", "rows_filtered"], found["step", "s", "rows_kept"]) == (0, 10)


def test_a_filter_over_two_files_counts_both() -> None:
    story = planned_story("f", "g")
    story.run_step("s", filtered("f", 10, 3), filtered("g", 20, 5))
    found = numbers(story)
    assert found["step", "s", "rows_in"] == 30
    assert found["step", "s", "rows_filtered"] == 8
    assert found["step", "s", "rows_kept"] == 22


def test_numbers_of_the_author_come_after_the_built_in_ones() -> None:
    story = planned_story("f")
    story.start("s")
    stats = (StatRecorded("step", "s", "matched", 1.0), StatRecorded("file", "f", "rate", 0.25))
    story.tell(StepFinished(**story.head("s"), status=StepStatus.COMPLETE, duration_ms=2.0, stats=stats))
    assert derive_statistics(story.events[-1:], story.run) == [
        Statistic("step", "s", "duration_ms", 2.0, TIME),
        Statistic("step", "s", "matched", 1.0, TIME),
        Statistic("file", "f", "rate", 0.25, TIME),
    ]


def test_a_run_that_finished_counts_its_steps() -> None:
    story = planned_story("f", steps=["a", "b", "c", "d", "e"])
    story.run_step("a")
    story.run_step("b")
    story.run_step("c", status=StepStatus.QUARANTINED)
    story.to_step_status("d", StepStatus.BLOCKED)
    story.to_step_status("e", StepStatus.SKIPPED)
    story.end(RunStatus.FAILED)
    assert numbers(story) == {
        ("run", RUN, "steps_completed"): 2,
        ("run", RUN, "steps_quarantined"): 1,
        ("run", RUN, "steps_failed"): 0,
        ("run", RUN, "steps_blocked"): 1,
        ("run", RUN, "steps_skipped"): 1,
        ("run", RUN, "duration_ms"): 9.0,
    }
