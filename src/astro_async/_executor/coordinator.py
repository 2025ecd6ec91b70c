"""The coordinator: what owns the state of a run while it goes on.

In each of its turns it takes outcomes, makes facts of them, has the reducer fold them, appends them to the
journal, and only then performs what the reducer asks for. A turn is taken by the thread that has ended a
step, or by the event loop (see `turns`): by one at a time.
"""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import anyio

from astro_async._core.commands import BlockStep, Command, SkipStep, StartStep
from astro_async._core.events import (
    AnyEvent,
    Event,
    RunFinished,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepProgress,
    StepRetrying,
    StepSkipped,
    StepStarted,
)
from astro_async._core.reducer import Scheduler
from astro_async._core.status import RunStatus, StepStatus, derive_run_status
from astro_async._executor.attempt import (
    Attempt,
    Outcome,
    RunResources,
    run_attempt,
)
from astro_async._executor.broadcast import Broadcast
from astro_async._executor.checkpoints import Checkpoints
from astro_async._executor.clock import format_time
from astro_async._executor.deadlines import Deadlines
from astro_async._executor.hosts import TaskHosts
from astro_async._executor.inputs import FileInputs
from astro_async._executor.outbox import Outbox
from astro_async._executor.stop import StopSwitch
from astro_async._executor.turns import Turns
from astro_async._executor.watchdog import Watchdog
from astro_async._executor.workers import ThreadGone, WorkerThreads
from astro_async._store.run_store import RunStore
from astro_async.exceptions import StorageError
from astro_async.pipeline import StepDefinition

__all__ = ["Coordinator", "Message"]

# Looking a member up costs as much as a call in Python 3.11, and this one is asked for at every step.
_FAILED: Final = StepStatus.FAILED
# See `_adapt_look_ahead`.
_QUEUED_MS: Final = 2.0
_MAX_QUEUED: Final = 100
# How long the end of a run waits for threads that were told to end.
_GRACE_S: Final = 1.0
# A queue that stands still for so long has longer steps in it. Looked at less and less often.
_STALL_S: Final = 0.002
_MAX_STALL_S: Final = 0.02

Message = Outcome | ThreadGone | tuple[str, float]


class Coordinator:
    """Runs the steps of one invocation."""

    def __init__(
        self,
        *,
        steps: tuple[StepDefinition, ...],
        scheduler: Scheduler,
        store: RunStore,
        resources: RunResources,
        outbox: Outbox[Message],
        broadcast: Broadcast,
        jobs: int,
        clock: Callable[[], datetime],
        stop: StopSwitch,
    ) -> None:
        self._steps = steps
        self._scheduler = scheduler
        self._run = store.record
        self._store = store
        self._resources = resources
        self._outbox = outbox
        self._broadcast = broadcast
        self._jobs = jobs
        self._clock = clock
        self._now = format_time(clock())
        self._stop = stop
        self._turns = Turns(outbox, self._advance)
        self._checkpoints = Checkpoints(store, self._fail_storage, self._turns)
        self._watchdog = Watchdog(resources.context.logger)
        self._storage_error: StorageError | None = None
        self._batch: list[AnyEvent] = []
        self._untold: list[Event] = []
        self._running: dict[int, Attempt] = {}
        self._hung: dict[int, Attempt] = {}
        self._failures: dict[int, int] = {}
        self._retry_when_gone: set[int] = set()
        self._deadlines = Deadlines()
        # What the loop has gone to sleep until.
        self._alarm = math.inf
        self._stall_s = math.inf
        self._settled = 0
        self._mean_ms = _QUEUED_MS * jobs
        self._stop_seen = scheduler.stop
        self._inputs = FileInputs(self._run)

    @property
    def hung(self) -> list[str]:
        """Ids of steps whose threads outlived their timeout or a cancellation and are still there."""
        return [self._steps[position].step_id for position in self._hung]

    async def run(self) -> None:
        """Run until nothing can start and nothing runs, then make the verdict durable.

        Cancelling the caller's scope interrupts what runs; the state is saved all the same.

        Raises:
            StorageError: The disk refused to take the records. The last good ones stand.
        """
        self._stop.bind(self._outbox.wake)
        started = anyio.current_time()
        try:
            async with anyio.create_task_group() as group:
                self._workers = WorkerThreads(group, self._jobs, run_attempt, self._outbox, self._turns)  # type: ignore[arg-type]
                self._hosts = TaskHosts(group, self._jobs, self._outbox, self._turns, self._watchdog)  # type: ignore[arg-type]
                group.start_soon(self._checkpoints.serve)
                group.start_soon(self._checkpoints.serve_statistics)
                try:
                    await self._loop()
                finally:
                    # Nothing starts from here on, however long it takes to cancel what runs.
                    self._turns.end()
                    self._workers.stop()
                    self._watchdog.stop()
                    self._checkpoints.stop()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._finish(started)
        if self._storage_error is not None:
            raise self._storage_error

    async def _loop(self) -> None:
        while self._take_turn():
            await self._wait()

    def _take_turn(self) -> bool:
        """Take the loop's turn; return whether there will be another one."""
        with self._turns.take_on_loop():
            self._tell()
            self._now = format_time(self._clock())
            self._obey_stop()
            self._deadlines.fire()
            self._move()
            self._checkpoints.stir()
            self._watch_stall()
            self._alarm = self._deadlines.next_at
            # A retry that waits for a hung thread is no reason to wait.
            return bool(self._running or self._scheduler.backing_off - self._retry_when_gone)

    def _advance(self) -> bool:
        """Take the turn of whoever has ended a step; return whether the loop has to take one."""
        if self._stop.level and not self._scheduler.is_halted:
            return True
        self._now = format_time(self._clock())
        self._move()
        return (
            not self._running
            or bool(self._untold)
            or self._checkpoints.wants_stir
            or self._deadlines.next_at < self._alarm
            or (self._stall_s == math.inf and self._could_widen())
        )

    def _move(self) -> None:
        self._take_messages()
        self._take_back()
        self._dispatch()

    async def _wait(self) -> None:
        patience_s = self._stall_s
        if self._alarm != math.inf:
            patience_s = min(patience_s, max(0.0, self._alarm - time.monotonic()))
        if patience_s == math.inf:
            await self._outbox.wait()
            return
        settled = self._settled
        with anyio.move_on_after(patience_s) as patience:
            await self._outbox.wait()
        if patience.cancelled_caught and self._stall_s != math.inf and self._settled == settled:
            # The few threads are busy with something longer: from now on use them all.
            with self._turns.take_on_loop():
                self._workers.widen()

    def _could_widen(self) -> bool:
        # What is handed over beyond the awake threads waits for them; what is not, they are about to take.
        busy = len(self._running) + len(self._hung)
        return self._workers.could_widen and busy > self._workers.awake_limit

    def _watch_stall(self) -> None:
        """Have the loop look whether the few awake threads are busy with something longer."""
        if not self._could_widen():
            self._stall_s = math.inf
        elif self._stall_s == math.inf:
            self._stall_s = _STALL_S
        else:
            self._stall_s = min(2 * self._stall_s, _MAX_STALL_S)
        self._turns.is_watched = self._stall_s != math.inf

    # -- facts in ------------------------------------------------------------------------------

    def _take_messages(self) -> None:
        durations_ms = []
        messages = self._outbox.take()
        self._settled += len(messages)
        for message in messages:
            if isinstance(message, Outcome):
                durations_ms.append(message.duration_ms)
                self._take_outcome(message)
            elif isinstance(message, ThreadGone):
                self._take_gone(message.position)
            else:
                self._tell_progress(*message)
        if self._jobs > 1 and durations_ms:
            self._adapt_look_ahead(durations_ms)

    def _take_outcome(self, outcome: Outcome) -> None:
        if self._running.pop(outcome.position, None) is None:
            return
        if outcome.storage_error is not None:
            # The disk is at fault, not the step: it starts afresh once there is space again.
            self._fail_storage(outcome.storage_error)
            self._record_interrupted(outcome.position, str(outcome.storage_error))
        elif outcome.status is not _FAILED:
            self._record_finished(outcome)
        else:
            self._settle_failed(outcome)

    def _settle_failed(self, outcome: Outcome, *, keeps_slot: bool = False) -> None:
        if not self._retry(outcome, keeps_slot=keeps_slot):
            self._record_finished(outcome, keeps_slot=keeps_slot)

    def _retry(self, outcome: Outcome, *, keeps_slot: bool) -> bool:
        """Record that a failed attempt will be followed by another, if it will."""
        position, step = outcome.position, self._steps[outcome.position]
        failures = self._failures.get(position, 0) + 1
        is_retried = failures <= step.retry.attempts and not self._stop.level
        if is_retried:
            self._failures[position] = failures
            delay_s = step.retry.delay_before(failures)
            at = format_time(self._clock() + timedelta(seconds=delay_s))
            event = StepRetrying(
                **self._envelope(position), detail=f"retry at {at}", error=outcome.detail or "failed"
            )
            self._record(event, keeps_slot=keeps_slot)
            if keeps_slot:
                self._retry_when_gone.add(position)
            else:
                self._deadlines.add(delay_s, lambda: self._scheduler.requeue(position))
        return is_retried

    def _record_finished(self, outcome: Outcome, *, keeps_slot: bool = False) -> None:
        assert outcome.status is not None
        for flow in outcome.files:
            if flow.published is not None:
                self._inputs.note(outcome.files)
                break
        record = self._run.steps[self._steps[outcome.position].step_id]
        event = StepFinished(
            seq=self._run.seq + 1,
            time=self._now,
            run_id=self._run.run_id,
            step_id=record.step_id,
            attempt=record.attempt,
            status=outcome.status,
            duration_ms=outcome.duration_ms,
            detail=outcome.detail,
            files=outcome.files,
            stats=outcome.stats,
        )
        self._record(event, keeps_slot=keeps_slot)

    def _take_gone(self, position: int) -> None:
        self._hung.pop(position, None)
        self._workers.note_gone()
        self._scheduler.release(position)
        if position in self._retry_when_gone:
            self._retry_when_gone.discard(position)
            delay_s = self._steps[position].retry.delay_before(self._failures[position])
            self._deadlines.add(delay_s, lambda: self._scheduler.requeue(position))

    def _record(self, event: AnyEvent, *, keeps_slot: bool = False) -> None:
        """Fold a fact, and the facts that follow from it; they reach the journal with the batch."""
        commands = self._scheduler.reduce(event, keeps_slot=keeps_slot)
        self._batch.append(event)
        if commands:
            self._follow(commands)

    def _follow(self, requests: Iterable[Command]) -> None:
        commands = deque(requests)
        while commands:
            command = commands.popleft()
            if isinstance(command, BlockStep):
                blocked = StepBlocked(**self._envelope_of(command.step_id), detail=command.detail)
                commands.extend(self._scheduler.reduce(blocked))
                self._batch.append(blocked)

    # -- requests out --------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Start what may start: journal first, hand over second."""
        attempts: list[Attempt] = []
        is_complete = False
        while not is_complete:
            is_complete = True
            for command in self._scheduler.take_starts():
                if type(command) is StartStep:
                    attempts.append(self._prepare(command))
                elif isinstance(command, SkipStep):
                    self._record(StepSkipped(**self._envelope_of(command.step_id), detail=command.detail))
                    # Others may start because of it.
                    is_complete = False
        self._flush()
        if self._storage_error is not None:
            for attempt in attempts:
                self._record_interrupted(attempt.position, "interrupted before it began")
            return
        threaded: list[Attempt] = []
        hosted: list[Attempt] = []
        for attempt in attempts:
            self._running[attempt.position] = attempt
            if not self._is_threaded(attempt.step):
                hosted.append(attempt)
                continue
            threaded.append(attempt)
            if attempt.step.timeout_s is not None:
                self._deadlines.add(attempt.step.timeout_s, functools.partial(self._time_out, attempt))
        if threaded:
            self._workers.submit(threaded)
        if hosted:
            self._turns.on_loop(functools.partial(self._hosts.submit, hosted))

    def _prepare(self, command: StartStep) -> Attempt:
        inputs = self._inputs.choose(command.inputs)
        step = self._steps[command.position]
        event = StepStarted(
            seq=self._run.seq + 1,
            time=self._now,
            run_id=self._run.run_id,
            step_id=step.step_id,
            attempt=command.attempt,
        )
        # Nothing follows from a start.
        self._scheduler.reduce(event)
        self._batch.append(event)
        is_last = not step.retry.attempts or self._failures.get(command.position, 0) >= step.retry.attempts
        return Attempt(command.position, step, command.attempt, inputs, self._resources, is_last)

    def _flush(self) -> None:
        """Append the batch to the journal, and tell it."""
        if not self._batch:
            return
        try:
            self._store.append(self._batch)
        except StorageError as error:
            # Kept for the end, when there may be space again.
            self._fail_storage(error)
            return
        batch, self._batch = self._batch, []
        self._checkpoints.note_dirty()
        self._publish(batch)

    def _adapt_look_ahead(self, durations_ms: list[float]) -> None:
        """Queue about two milliseconds of work ahead of each worker: many tiny steps, no long one.

        One job looks never ahead: what it settles is what the stop point is measured by.
        """
        weight = 1 - 0.9 ** len(durations_ms)
        self._mean_ms += (sum(durations_ms) / len(durations_ms) - self._mean_ms) * weight
        ahead = int(self._jobs * _QUEUED_MS / max(self._mean_ms, 0.001))
        self._scheduler.look_ahead(min(ahead, _MAX_QUEUED))

    def _take_back(self) -> None:
        """Take back what no worker has begun and the stop point has overtaken."""
        if self._stop_seen == self._scheduler.stop and not self._scheduler.is_halted:
            return
        self._stop_seen = self._scheduler.stop
        for position in sorted(self._running):
            attempt = self._running[position]
            is_over = self._scheduler.is_halted or position >= self._scheduler.stop
            if is_over and self._scheduler.graph.nodes[position].queue and attempt.begin():
                del self._running[position]
                self._record_interrupted(position, "not begun when the run stopped")

    # -- deadlines and stops -------------------------------------------------------------------

    def _time_out(self, attempt: Attempt) -> None:
        """Report a thread that outlived its timeout. It cannot be killed: its slot stays taken."""
        if self._running.get(attempt.position) is not attempt or not self._revoke(attempt):
            return
        is_busy = attempt.position in self._hung
        timeout_s = attempt.step.timeout_s or 0.0
        detail = f"timed out after {timeout_s:g} s" + ("; its thread is still busy" if is_busy else "")
        failed = Outcome(attempt.position, StepStatus.FAILED, timeout_s * 1000, detail)
        self._settle_failed(failed, keeps_slot=is_busy)

    def _revoke(self, attempt: Attempt) -> bool:
        """Take an attempt from whoever runs it; False if it is being published at this moment."""
        if not attempt.claim():
            return False
        attempt.files.close()
        self._running.pop(attempt.position, None)
        if attempt.begin():
            # Nobody has come to it yet, and nobody will.
            return True
        if self._is_threaded(attempt.step):
            self._hung[attempt.position] = attempt
        if attempt.host is not None:
            attempt.host.cancel()
        return True

    def _obey_stop(self) -> None:
        if self._stop.level:
            self._scheduler.halt()
            self._give_up_retries()
        if self._stop.level > 1:
            for attempt in list(self._running.values()):
                if self._revoke(attempt):
                    self._record_interrupted(attempt.position, "interrupted")

    def _give_up_retries(self) -> None:
        for position in sorted(self._scheduler.backing_off):
            if position in self._retry_when_gone:
                detail = "timed out; its thread never ended, so it could not be tried again"
                self._record_finished(Outcome(position, StepStatus.FAILED, 0.0, detail))
            else:
                self._record_interrupted(position, "interrupted before its next attempt")

    def _record_interrupted(self, position: int, detail: str) -> None:
        self._record(StepInterrupted(**self._envelope(position), detail=detail))

    def _fail_storage(self, error: StorageError) -> None:
        if self._storage_error is None:
            self._storage_error = error
        self._scheduler.halt()
        self._outbox.wake()

    # -- the end -------------------------------------------------------------------------------

    async def _finish(self, started: float) -> None:
        """Record what is still running as interrupted, and the verdict. Runs under a shield."""
        self._tell()
        self._now = format_time(self._clock())
        while self._running:
            for attempt in list(self._running.values()):
                if self._revoke(attempt):
                    self._record_interrupted(attempt.position, "interrupted")
            if self._running:
                # These are being published; that is soon over, and then counts.
                await self._wait_for_ends()
        self._give_up_retries()
        self._flush()
        with anyio.move_on_after(_GRACE_S):
            # Threads that ask whether they are cancelled are about to end.
            while self._hung:
                await self._wait_for_ends()
        if self._storage_error is None:
            await self._checkpoints.link_last()
        details = [] if self._storage_error is None else [str(self._storage_error)]
        if self.hung:
            details.append(f"threads that cannot be stopped: {', '.join(self.hung)}")
        detail = "; ".join(details) or None
        status = derive_run_status([record.status for record in self._run.steps.values()])
        duration_ms = round((anyio.current_time() - started) * 1000, 3)
        # A completed run is not taken up again, so it must be complete on disk too, its links among it.
        if self._storage_error is None or status is not RunStatus.COMPLETED:
            self._record(
                RunFinished(
                    seq=self._run.seq + 1,
                    time=self._now,
                    run_id=self._run.run_id,
                    status=status,
                    duration_ms=duration_ms,
                    detail=detail,
                )
            )
        self._flush()
        await self._checkpoints.finish()

    async def _wait_for_ends(self) -> None:
        await self._outbox.wait()
        with self._turns.take_on_loop():
            self._take_messages()

    # ------------------------------------------------------------------------------------------

    @staticmethod
    def _is_threaded(step: StepDefinition) -> bool:
        return not step.is_async and step.engine == "thread"

    def _envelope(self, position: int) -> dict[str, Any]:
        record = self._scheduler.record(position)
        return self._envelope_of(record.step_id, record.attempt)

    def _envelope_of(self, step_id: str, attempt: int | None = None) -> dict[str, Any]:
        return {
            "seq": self._run.seq + 1,
            "time": self._now,
            "run_id": self._run.run_id,
            "step_id": step_id,
            "attempt": attempt,
        }

    def _tell_progress(self, step_id: str, fraction: float) -> None:
        event = StepProgress(
            seq=self._run.seq, time=self._now, run_id=self._run.run_id, step_id=step_id, fraction=fraction
        )
        self._publish([event])

    def _publish(self, events: Sequence[Event]) -> None:
        if self._broadcast.has_readers:
            self._untold.extend(events)
            if self._turns.is_on_loop:
                self._tell()

    def _tell(self) -> None:
        if self._untold:
            untold, self._untold = self._untold, []
            self._broadcast.publish(untold)
