"""Statuses of steps and runs, what may follow what, and the verdict of a run.

Every rule about a status is in this file; the diagram in `docs/architecture.md` is drawn from its tables.
The wire strings are part of the format on disk and never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from astro_async.exceptions import IllegalTransitionError

__all__ = [
    "RUN_TRANSITIONS",
    "SETTLED",
    "STEP_TRANSITIONS",
    "RunStatus",
    "StepStatus",
    "derive_run_status",
    "is_satisfied",
    "next_run_status",
    "step_moves",
]


class StepStatus(StrEnum):
    """Where one step stands."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"

    # That of `Enum` is written in Python, and statuses are looked up for every step.
    __hash__ = str.__hash__


class RunStatus(StrEnum):
    """Where a run stands."""

    CREATED = "created"
    INGESTED = "ingested"
    RUNNING = "running"
    COMPLETED = "completed"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


SETTLED: Final = frozenset(
    {
        StepStatus.COMPLETE,
        StepStatus.QUARANTINED,
        StepStatus.FAILED,
        StepStatus.BLOCKED,
        StepStatus.SKIPPED,
    }
)

_ANY_STEP: Final = frozenset(StepStatus)

# (kind of event, status it leads to) -> statuses it may follow.
STEP_TRANSITIONS: Final[dict[tuple[str, StepStatus], frozenset[StepStatus]]] = {
    ("run_planned", StepStatus.PENDING): _ANY_STEP,
    # A retry starts again from `running`: while it waits for its back-off it holds that status.
    ("step_started", StepStatus.RUNNING): frozenset({StepStatus.PENDING, StepStatus.RUNNING}),
    ("step_retrying", StepStatus.RUNNING): frozenset({StepStatus.RUNNING}),
    ("step_finished", StepStatus.COMPLETE): frozenset({StepStatus.RUNNING}),
    ("step_finished", StepStatus.QUARANTINED): frozenset({StepStatus.RUNNING}),
    ("step_finished", StepStatus.FAILED): frozenset({StepStatus.RUNNING}),
    ("step_blocked", StepStatus.BLOCKED): frozenset({StepStatus.PENDING}),
    ("step_skipped", StepStatus.SKIPPED): frozenset({StepStatus.PENDING}),
    ("step_interrupted", StepStatus.PENDING): frozenset({StepStatus.RUNNING}),
}

# (kind of event, status it leads to) -> statuses it may follow. A run that died says `running` still.
RUN_TRANSITIONS: Final[dict[tuple[str, RunStatus], frozenset[RunStatus]]] = {
    ("run_ingested", RunStatus.INGESTED): frozenset({RunStatus.CREATED}),
    ("run_planned", RunStatus.RUNNING): frozenset(RunStatus) - {RunStatus.CREATED},
    ("run_finished", RunStatus.COMPLETED): frozenset({RunStatus.RUNNING}),
    ("run_finished", RunStatus.QUARANTINED): frozenset({RunStatus.RUNNING}),
    ("run_finished", RunStatus.FAILED): frozenset({RunStatus.RUNNING}),
    ("run_finished", RunStatus.INTERRUPTED): frozenset({RunStatus.RUNNING}),
    # What the run was completed with has been withdrawn.
    ("rows_patched", RunStatus.INTERRUPTED): frozenset({RunStatus.COMPLETED}),
}


def step_moves(kind: str) -> tuple[tuple[StepStatus, StepStatus], ...]:
    """Return all (before, after) that an event of this kind may mean for a step."""
    return tuple(
        (before, after)
        for (each, after), froms in STEP_TRANSITIONS.items()
        if each == kind
        for before in froms
    )


def next_run_status(kind: str, present: RunStatus, target: RunStatus, about: object) -> RunStatus:
    """Return `target` if an event of this kind may lead a run there from `present`.

    Raises:
        IllegalTransitionError: The table has no such transition.
    """
    if present not in RUN_TRANSITIONS.get((kind, target), ()):
        raise IllegalTransitionError(f"{kind} cannot make a {present} run {target}: {about!r}")
    return target


def is_satisfied(status: StepStatus, *, continues: bool) -> bool:
    """Tell whether a dependency in this status lets its dependents run.

    Args:
        status: The status of the dependency.
        continues: Whether the dependency says `on_quarantine="continue"`.
    """
    if status is StepStatus.QUARANTINED:
        return continues
    return status is StepStatus.COMPLETE or status is StepStatus.SKIPPED


def derive_run_status(statuses: Iterable[StepStatus]) -> RunStatus:
    """Derive the verdict of a run that has ended from the statuses of the steps of its pipeline.

    Failed or blocked beats quarantined, and steps that never ran leave the run `interrupted`: only a stop
    from outside leaves steps `pending` where none failed and none is blocked.
    """
    seen = set(statuses)
    if seen & {StepStatus.FAILED, StepStatus.BLOCKED}:
        return RunStatus.FAILED
    if seen & {StepStatus.PENDING, StepStatus.RUNNING}:
        return RunStatus.INTERRUPTED
    if StepStatus.QUARANTINED in seen:
        return RunStatus.QUARANTINED
    return RunStatus.COMPLETED
