"""Statuses: the verdict of a run, for every combination."""

from __future__ import annotations

import itertools

import pytest

from astro_async._core.status import (
    RUN_TRANSITIONS,
    SETTLED,
    STEP_TRANSITIONS,
    RunStatus,
    StepStatus,
    derive_run_status,
    is_satisfied,
    next_run_status,
    step_moves,
)
from astro_async.exceptions import IllegalTransitionError

COMBINATIONS = [
    frozenset(chosen)
    for count in range(len(StepStatus) + 1)
    for chosen in itertools.combinations(StepStatus, count)
]


def test_the_wire_strings_are_fixed() -> None:
    assert [status.value for status in StepStatus] == [
        "pending",
        "running",
        "complete",
        "quarantined",
        "failed",
        "blocked",
        "skipped",
    ]
    assert [status.value for status in RunStatus] == [
        "created",
        "ingested",
        "running",
        "completed",
        "quarantined",
        "failed",
        "interrupted",
    ]
    assert {status.value for status in SETTLED} == {
        "complete",
        "quarantined",
        "failed",
        "blocked",
        "skipped",
    }


@pytest.mark.parametrize("seen", COMBINATIONS, ids=lambda seen: "+".join(sorted(seen)) or "none")
def test_the_verdict_of_every_combination(seen: frozenset[StepStatus]) -> None:
    verdict = derive_run_status(seen)
    words = {status.value for status in seen}
    if words & {"failed", "blocked"}:
        assert verdict is RunStatus.FAILED
    elif words & {"pending", "running"}:
        assert verdict is RunStatus.INTERRUPTED
    elif "quarantined" in words:
        assert verdict is RunStatus.QUARANTINED
    else:
        assert words <= {"complete", "skipped"}
        assert verdict is RunStatus.COMPLETED


def test_the_verdict_ignores_order_and_number() -> None:
    statuses = [StepStatus.COMPLETE] * 3 + [StepStatus.QUARANTINED] * 2 + [StepStatus.SKIPPED]
    for order in itertools.permutations(statuses):
        assert derive_run_status(iter(order)) is RunStatus.QUARANTINED


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("status", StepStatus)
def test_which_dependencies_are_satisfied(status: StepStatus, continues: bool) -> None:
    good = {StepStatus.COMPLETE, StepStatus.SKIPPED}
    expected = status in good or (continues and status is StepStatus.QUARANTINED)
    assert is_satisfied(status, continues=continues) is expected


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in STEP_TRANSITIONS} | {"run_finished", ""}))
def test_a_step_goes_where_the_table_says_or_nowhere(kind: str) -> None:
    moves = step_moves(kind)
    assert len(set(moves)) == len(moves)
    for move in itertools.product(StepStatus, StepStatus):
        assert (move in moves) is (move[0] in STEP_TRANSITIONS.get((kind, move[1]), frozenset()))


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in RUN_TRANSITIONS} | {"step_started", ""}))
def test_a_run_goes_where_the_table_says_or_nowhere(kind: str) -> None:
    for present, target in itertools.product(RunStatus, RunStatus):
        if present in RUN_TRANSITIONS.get((kind, target), frozenset()):
            assert next_run_status(kind, present, target, "") is target
        else:
            with pytest.raises(IllegalTransitionError, match=rf"a {present} run {target}: .the whole story."):
                next_run_status(kind, present, target, "the whole story")
