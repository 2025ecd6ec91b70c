"""Worker threads that stay: each takes the next step itself, and leaves its outcome in one outbox.

Who has left one settles it there and then if it is free to (see `Turns`): to wake another thread for that
costs more than a scheduling decision.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from astro_async._core.status import StepStatus
from astro_async._executor.attempt import Attempt, Outcome, describe_error
from astro_async._executor.outbox import Outbox
from astro_async._executor.turns import Turns

# One thread runs steps of microseconds faster than several that fight for the interpreter.
_FEW: Final = 1

__all__ = ["ThreadGone", "WorkerThreads"]


@dataclass(frozen=True, slots=True)
class ThreadGone:
    """The thread of a revoked attempt has come to its end at last; its slot is free."""

    position: int


class WorkerThreads:
    """At most `jobs` threads, started as they are first needed; each sleeps when the queue is empty.

    What is not private belongs to who has the turn.

    Attributes:
        awake_limit: So many threads are woken for what is queued. Few at first: threads that all have steps
            of microseconds only fight for the interpreter. `widen` lifts it to `jobs`.
    """

    def __init__(
        self,
        group: TaskGroup,
        jobs: int,
        run: Callable[[Attempt], Outcome],
        outbox: Outbox[Outcome | ThreadGone],
        turns: Turns,
    ) -> None:
        self.awake_limit = min(jobs, _FEW)
        self._group = group
        self._jobs = jobs
        self._run = run
        self._outbox = outbox
        self._turns = turns
        self._queue: deque[Attempt] = deque()
        self._sleeping: list[threading.Lock] = []
        self._alive = 0
        self._is_stopped = False
        # Of our own: steps may use anyio's default limiter as they like.
        self._limiter = anyio.CapacityLimiter(math.inf)

    @property
    def could_widen(self) -> bool:
        """Whether attempts wait for a thread while not all threads may be woken."""
        return bool(self._queue) and self.awake_limit < self._jobs

    def submit(self, attempts: Collection[Attempt]) -> None:
        """Queue attempts; the worker that is free first takes the next one."""
        self._queue.extend(attempts)
        for _ in range(min(len(attempts), self.awake_limit - self._alive + len(self._sleeping))):
            self._wake_one()

    def widen(self) -> None:
        """Wake as many threads as there is work for, up to `jobs`."""
        self.awake_limit = self._jobs
        for _ in range(min(len(self._queue), self._jobs)):
            self._wake_one()

    def note_gone(self) -> None:
        """Note that the abandoned thread of an attempt has ended."""
        self._alive -= 1
        if self._queue and not self._is_stopped:
            self._wake_one()

    def stop(self) -> None:
        """Let idle workers end."""
        self._is_stopped = True
        with contextlib.suppress(IndexError):
            while True:
                self._sleeping.pop().release()

    def _wake_one(self) -> None:
        try:
            self._sleeping.pop().release()
        except IndexError:
            if self._alive < self._jobs:
                self._alive += 1
                self._turns.on_loop(functools.partial(self._group.start_soon, self._host))

    async def _host(self) -> None:
        with anyio.CancelScope() as scope:
            await anyio.to_thread.run_sync(self._pull, scope, abandon_on_cancel=True, limiter=self._limiter)

    def _pull(self, scope: anyio.CancelScope) -> None:
        bed = threading.Lock()
        bed.acquire()
        # What one step sets must not be seen by the next. Contexts with the same content are equal, which
        # costs nothing to see; to make one for each step does.
        pristine = contextvars.copy_context()
        context = pristine.copy()
        while True:
            try:
                attempt = self._queue.popleft()
            except IndexError:
                self._sleep(bed)
                if self._is_stopped:
                    return
                continue
            # Cancelling the host tells `anyio.from_thread.check_cancelled()` in the step.
            attempt.host = scope
            if not attempt.begin():
                continue
            try:
                outcome = context.run(self._run, attempt)
            except BaseException as error:
                # Not the step's doing but ours; an outcome must come of it, for the coordinator waits.
                outcome = Outcome(attempt.position, StepStatus.FAILED, 0.0, describe_error(error))
            if context != pristine:
                context = pristine.copy()
            if outcome.status is None:
                self._outbox.put(ThreadGone(attempt.position))
                return
            self._outbox.leave(outcome)
            self._turns.take_here(has_more=bool(self._queue))

    def _sleep(self, bed: threading.Lock) -> None:
        """Sleep until there may be an attempt, or the work is over."""
        if self._is_stopped:
            return
        self._sleeping.append(bed)
        if self._queue or self._is_stopped:
            # It came between the look and going to bed: nobody may have thought of waking us.
            try:
                self._sleeping.remove(bed)
            except ValueError:
                bed.acquire()
        else:
            bed.acquire()
