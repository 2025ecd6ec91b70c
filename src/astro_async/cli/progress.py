"""How a run stands while it goes on, as far as people watch it: the fold of its events. Pure.

Unlike the record of the run it knows only the steps of this invocation, and keeps counts and the few steps
worth showing ready at hand: an event costs the same with ten steps and with ten thousand.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from astro_async._core.events import (
    Event,
    RunFinished,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepProgress,
    StepRetrying,
    StepSkipped,
    StepStarted,
)
from astro_async._core.status import SETTLED, StepStatus

__all__ = ["RunProgress", "StepView"]

_MOST_RECENT: Final = 100


@dataclass(slots=True)
class StepView:
    """What is shown of one step.

    Attributes:
        step_id: The step.
        status: Its status.
        attempt: Which start it is.
        started_at: ISO time of the attempt's start.
        fraction: How much is done, as the step says.
        detail: Why it stands as it does.
        finished: The event that settled it.
    """

    step_id: str
    status: StepStatus = StepStatus.PENDING
    attempt: int = 0
    started_at: str | None = None
    fraction: float | None = None
    detail: str | None = None
    finished: StepFinished | None = None


class RunProgress:
    """The state of the display.

    Attributes:
        order: Ids of the steps of this invocation, in serial order.
        total: How many there are.
        counts: Steps of this invocation by status.
        running: Steps that run, in the order of their start.
        failed: Steps that failed, in the order in which they did.
        quarantined: Steps that quarantined rows, likewise.
        rows_in: Rows of all files that settled steps were given.
        rows_quarantined: Rows that steps have set aside.
        recent: Steps that settled lately, oldest first.
        blocked: Ids of blocked steps, in order.
        started_at: ISO time of the plan.
        finished: The verdict.
    """

    def __init__(self, order: Sequence[str]) -> None:
        self._pipeline_order = tuple(order)
        self.order: tuple[str, ...] = ()
        self.steps: dict[str, StepView] = {}
        self.total = 0
        self.counts: Counter[StepStatus] = Counter()
        self.running: dict[str, StepView] = {}
        self.failed: list[StepView] = []
        self.quarantined: list[StepView] = []
        self.rows_in = 0
        self.rows_quarantined = 0
        self.recent: deque[StepView] = deque(maxlen=_MOST_RECENT)
        self.blocked: list[str] = []
        self.started_at: str | None = None
        self.finished: RunFinished | None = None

    @property
    def settled(self) -> int:
        """How many steps of this invocation have settled."""
        return sum(self.counts[status] for status in SETTLED)

    def apply(self, event: Event) -> None:
        """Take note of an event; kinds that do not show are left out."""
        match event:
            case RunPlanned():
                self._begin(event)
            case RunFinished():
                self.finished = event
            case StepProgress():
                view = self.running.get(event.step_id or "")
                if view is not None:
                    view.fraction = event.fraction
            case _ if event.step_id in self.steps:
                self._apply_step(self.steps[event.step_id], event)
            case _:
                pass

    def _begin(self, event: RunPlanned) -> None:
        again = {step_id for step_ids in event.again.values() for step_id in step_ids}
        self.order = tuple(step_id for step_id in self._pipeline_order if step_id in again)
        self.steps = {step_id: StepView(step_id) for step_id in self.order}
        self.total = len(self.order)
        self.counts[StepStatus.PENDING] = self.total
        self.started_at = event.time

    def _apply_step(self, view: StepView, event: Event) -> None:
        match event:
            case StepStarted():
                self._move(view, StepStatus.RUNNING)
                view.attempt, view.started_at = event.attempt or view.attempt + 1, event.time
                view.fraction = view.detail = None
                self.running[view.step_id] = view
            case StepRetrying():
                view.detail = f"{event.detail} after: {event.error}"
            case StepFinished():
                view.finished = event
                for flow in event.files:
                    self.rows_in += flow.rows_in
                    self.rows_quarantined += flow.rows_quarantined
                self._settle(view, event.status, event.detail)
            case StepBlocked():
                self.blocked.append(view.step_id)
                self._settle(view, StepStatus.BLOCKED, event.detail)
            case StepSkipped():
                self._settle(view, StepStatus.SKIPPED, event.detail)
            case StepInterrupted():
                self._settle(view, StepStatus.PENDING, event.detail)
            case _:
                pass

    def _settle(self, view: StepView, status: StepStatus, detail: str | None) -> None:
        self._move(view, status)
        view.detail = detail
        self.running.pop(view.step_id, None)
        self.recent.append(view)
        if status is StepStatus.FAILED:
            self.failed.append(view)
        elif status is StepStatus.QUARANTINED:
            self.quarantined.append(view)

    def _move(self, view: StepView, status: StepStatus) -> None:
        self.counts[view.status] -= 1
        self.counts[status] += 1
        view.status = status
