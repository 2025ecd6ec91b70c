"""Which run a bare command means."""

from __future__ import annotations

import itertools

import pytest

from astro_async._core.names import RunId
from astro_async._core.selection import RunSummary, has_something_to_do, newest_first, select_waiting
from astro_async._core.status import RunStatus


def summary(
    run_id: str, status: RunStatus, ingested_at: str | None, created_at: str = "2026-01-01"
) -> RunSummary:
    return RunSummary(RunId(run_id), status, "p", created_at, ingested_at, "/in", {}, 0)


OLD = summary("old00", RunStatus.QUARANTINED, "2026-01-01")
MID = summary("mid00", RunStatus.COMPLETED, "2026-01-02")
NEW = summary("new00", RunStatus.INGESTED, "2026-01-03")


def waiting(*runs: RunSummary) -> list[RunSummary]:
    """Return those that wait as a reader of the runs lists them; a bare command means the first."""
    return select_waiting(newest_first(runs))


def test_no_run_at_all() -> None:
    assert waiting() == []


def test_the_newest_with_something_to_do_is_meant_whatever_the_order_given() -> None:
    for order in itertools.permutations([OLD, MID, NEW]):
        assert waiting(*order) == [NEW, OLD]


def test_a_newer_completed_run_does_not_hide_an_older_one_that_waits() -> None:
    assert waiting(MID, OLD) == [OLD]


def test_ingest_time_counts_and_not_creation() -> None:
    early = summary("early", RunStatus.FAILED, "2026-01-09", created_at="2026-01-01")
    late = summary("late0", RunStatus.FAILED, "2026-01-08", created_at="2026-01-05")
    assert waiting(late, early) == [early, late]


@pytest.mark.parametrize("status", RunStatus)
def test_which_runs_have_something_to_do(status: RunStatus) -> None:
    expected = status is not RunStatus.COMPLETED
    assert has_something_to_do(summary("abc12", status, "2026-01-01")) is expected
    assert not has_something_to_do(summary("abc12", status, None))


def test_equal_times_are_ordered_by_id_so_that_the_choice_is_stable() -> None:
    twins = [summary(run_id, RunStatus.FAILED, "2026-01-01") for run_id in ("aaaaa", "ccccc", "bbbbb")]
    for order in itertools.permutations(twins):
        assert [run.run_id for run in newest_first(order)] == ["ccccc", "bbbbb", "aaaaa"]
        assert [run.run_id for run in waiting(*order)] == ["ccccc", "bbbbb", "aaaaa"]


def test_waiting_runs_are_newest_first_and_all_are_named() -> None:
    runs = [summary(f"run{i:02d}", status, f"2026-01-{i:02d}") for i, status in enumerate(RunStatus, start=1)]
    named = [run.run_id for run in waiting(*runs)]
    assert named == ["run07", "run06", "run05", "run03", "run02", "run01"]
