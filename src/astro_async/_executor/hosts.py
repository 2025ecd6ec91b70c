"""Tasks on the event loop that host attempts: of async steps, and of steps in processes of their own.

A task takes one attempt after the other for as long as they end without waiting for anything; as soon as one
waits, another task takes over those behind it. So steps that never wait cost no task each.
"""

from __future__ import annotations

import contextvars
from collections import deque

import anyio
from anyio.abc import TaskGroup

from astro_async._core.status import StepStatus
from astro_async._executor.attempt import Attempt, Outcome, run_attempt_async
from astro_async._executor.outbox import Outbox
from astro_async._executor.process import run_attempt_in_process
from astro_async._executor.watchdog import Watchdog
from astro_async._executor.workers import ThreadGone

__all__ = ["TaskHosts"]


class TaskHosts:
    """Runs what is submitted at once, in as many tasks as it takes."""

    def __init__(self, group: TaskGroup, outbox: Outbox[Outcome | ThreadGone], watchdog: Watchdog) -> None:
        self._group = group
        self._outbox = outbox
        self._watchdog = watchdog
        self._queue: deque[Attempt] = deque()
        self._is_coming = False

    def submit(self, attempt: Attempt) -> None:
        """Start an attempt."""
        self._queue.append(attempt)
        self._call_host()

    def _call_host(self) -> None:
        if self._queue and not self._is_coming:
            self._is_coming = True
            self._group.start_soon(self._host)

    async def _host(self) -> None:
        self._is_coming = False
        # Cancelled with the attempt that is being run; another task goes on with the rest then.
        with anyio.CancelScope() as scope:
            await self._take_attempts(scope)
        self._call_host()

    async def _take_attempts(self, scope: anyio.CancelScope) -> None:
        # What one step sets must not be seen by the next; see `WorkerThreads`.
        pristine = contextvars.copy_context()
        context = pristine.copy()
        while self._queue:
            attempt = self._queue.popleft()
            if not attempt.begin():
                continue
            attempt.host = scope
            step = attempt.step
            if step.engine == "process":
                self._call_host()
                outcome = await run_attempt_in_process(attempt)
            else:
                running = run_attempt_async(attempt)
                outcome = await self._watchdog.watch(step.step_id, running, context, self._call_host)
            self._outbox.put(outcome)
            if outcome.status is not StepStatus.COMPLETE:
                # Who knows what such a step has done to the task: leave the rest to another.
                return
            if context != pristine:
                context = pristine.copy()
