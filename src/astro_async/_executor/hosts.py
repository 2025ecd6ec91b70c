"""Tasks on the event loop that host attempts: of async steps, and of steps in processes of their own.

A task takes one attempt after the other for as long as they end without waiting for anything; as soon as one
waits, another task takes over those behind it. So steps that never wait cost no task each.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from astro_async._core.status import StepStatus
from astro_async._executor.attempt import Attempt, Outcome, run_attempt_async
from astro_async._executor.outbox import Outbox
from astro_async._executor.process import run_attempt_in_process
from astro_async._executor.turns import Turns
from astro_async._executor.watchdog import Watchdog
from astro_async._executor.workers import ThreadGone

__all__ = ["TaskHosts"]

# So long a task runs steps that never wait, before it makes way for others.
_STRETCH_S: Final = 0.002


class TaskHosts:
    """Runs what is submitted, at most `jobs` attempts at once, in as many tasks as it takes."""

    def __init__(
        self,
        group: TaskGroup,
        jobs: int,
        outbox: Outbox[Outcome | ThreadGone],
        turns: Turns,
        watchdog: Watchdog,
    ) -> None:
        self._group = group
        self._jobs = jobs
        self._running = 0
        self._outbox = outbox
        self._turns = turns
        self._watchdog = watchdog
        self._queue: deque[Attempt] = deque()
        # Whether a task will look at the queue without being called.
        self._is_coming = False

    @property
    def _has_place(self) -> bool:
        return bool(self._queue) and self._running < self._jobs

    def submit(self, attempts: Iterable[Attempt]) -> None:
        """Start attempts, each as soon as there is a place for it."""
        self._queue.extend(attempts)
        self._call_host()

    def _call_host(self) -> None:
        if self._has_place and not self._is_coming:
            self._is_coming = True
            self._group.start_soon(self._host)

    async def _host(self) -> None:
        # Cancelled with the attempt that is being run; another task goes on with the rest then.
        with anyio.CancelScope() as scope:
            await self._take_attempts(scope)
        self._give_way()

    def _give_way(self) -> None:
        """Have another task take what is queued."""
        self._is_coming = False
        self._call_host()

    async def _take_attempts(self, scope: anyio.CancelScope) -> None:
        # What one step sets must not be seen by the next; see `WorkerThreads`.
        pristine = contextvars.copy_context()
        context = pristine.copy()
        started = perf_counter()
        while self._has_place:
            if perf_counter() - started > _STRETCH_S:
                # Others on the loop get their turn, however many steps there are that never wait.
                await anyio.lowlevel.checkpoint()
                started = perf_counter()
                continue
            attempt = self._queue.popleft()
            if not attempt.begin():
                continue
            attempt.host = scope
            self._running += 1
            try:
                if attempt.step.engine == "process":
                    self._give_way()
                    outcome = await run_attempt_in_process(attempt)
                else:
                    outcome = await self._watchdog.watch(
                        attempt.step.step_id, run_attempt_async(attempt), context, self._give_way
                    )
            finally:
                self._running -= 1
            self._is_coming = True
            self._outbox.leave(outcome)
            self._turns.take_here(has_more=bool(self._queue), on_loop=True)
            if outcome.status is not StepStatus.COMPLETE:
                # Who knows what such a step has done to the task: leave the rest to another.
                return
            if context != pristine:
                context = pristine.copy()
