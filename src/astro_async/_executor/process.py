"""Steps in processes of their own: `engine="process"`.

The child gets the paths of its versions and writes into the staging folder itself; what comes back is only
what it wrote. The parent publishes. A child that dies fails its step and nothing else; a parent that dies
takes its children with it.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from time import perf_counter
from types import FrameType
from typing import Any, Final

import anyio
import anyio.to_process

from astro_async._core.events import StatRecorded
from astro_async._executor.attempt import (
    Attempt,
    Outcome,
    RunResources,
    call_step,
    describe_error,
    fail_attempt,
    settle_attempt,
)
from astro_async._executor.inputs import FileInput
from astro_async._store.atomic import Disk
from astro_async._store.layout import log_path
from astro_async._store.log import RunLog
from astro_async._store.staging import FileOutput
from astro_async._threads import in_thread
from astro_async.context import RunContext
from astro_async.exceptions import PipelineError, StepError
from astro_async.loading import PIPELINE_FILE, load_pipeline
from astro_async.pipeline import StepDefinition

__all__ = ["run_attempt_in_process"]

# In the child: whether it looks out for the end of its parent.
_WATCHING: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class _Task:
    """All that crosses to the child."""

    run_id: str
    run_date: date
    run_directory: str
    pipeline_dir: str
    params: Mapping[str, Any]
    step_id: str
    attempt: int
    inputs: tuple[FileInput | None, ...]
    patches: Mapping[tuple[str, str], Sequence[Sequence[str]]]
    pickled_step: bytes | None


async def run_attempt_in_process(attempt: Attempt) -> Outcome:
    """Run a step function in another process and settle what it did here.

    Raises:
        The cancellation of the host task; the child is killed then.
    """
    started = perf_counter()
    timeout_s = attempt.step.timeout_s
    error: BaseException | None = None
    with anyio.move_on_after(timeout_s) as timer:
        try:
            attempt.outputs, attempt.stats = await anyio.to_process.run_sync(
                _run_task, _describe_task(attempt), cancellable=True, limiter=anyio.CapacityLimiter(1)
            )
            attempt.staging.adopt()
        except (anyio.BrokenWorkerProcess, ProcessLookupError):
            # The latter is what anyio meets when it kills one that is gone already; a step's own errors come
            # as `StepError`.
            error = StepError("its process died: it was killed, ran out of memory, or called os._exit")
        except KeyboardInterrupt:
            # Ctrl-C hit the child before it could turn a deaf ear: while it was importing.
            error = StepError("its process was interrupted before the step began")
        except Exception as raised:
            error = raised
    if timer.cancelled_caught:
        error = TimeoutError(f"timed out after {timeout_s:g} s; its process was killed")
    if error is not None:
        # The child may have written before it died; the parent knows nothing of it, so look.
        attempt.staging.adopt()
        return await in_thread(fail_attempt, attempt, error, started)
    return await in_thread(settle_attempt, attempt, started)


def _describe_task(attempt: Attempt) -> _Task:
    context = attempt.resources.context
    pickled: bytes | None = None
    if not os.path.isfile(os.path.join(context.pipeline_dir, PIPELINE_FILE)):
        try:
            pickled = pickle.dumps(attempt.step)
        except Exception as error:
            raise PipelineError(
                f"step {attempt.step.step_id!r} runs in a process of its own, which has to import it: "
                f"define its function at module level, or the pipeline in a {PIPELINE_FILE} ({error})"
            ) from None
    return _Task(
        run_id=context.run_id,
        run_date=context.run_date,
        run_directory=context.run_directory,
        pipeline_dir=context.pipeline_dir,
        params=dict(context.params),
        step_id=attempt.step.step_id,
        attempt=attempt.number,
        inputs=attempt.inputs,
        patches=dict(attempt.resources.patches),
        pickled_step=pickled,
    )


def _run_task(task: _Task) -> tuple[list[FileOutput], list[StatRecorded]]:
    """Call the step function; return what it wrote and recorded. Runs in the child."""
    # Signals go to all processes of a terminal or group; what becomes of a running step the parent says.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _outlive_terminate()
    if not _WATCHING.is_set():
        _WATCHING.set()
        threading.Thread(target=_die_with_parent, name="astro_async parent watch", daemon=True).start()
    log = RunLog(log_path(task.run_directory), Disk())
    logger = logging.Logger("astro_async.step")
    logger.addHandler(log)
    context = RunContext(
        task.run_id,
        task.run_date,
        task.run_directory,
        task.pipeline_dir,
        task.params,
        logger,
        lambda _step_id, _fraction: None,
    )
    # What the child writes stays in the staging folder; the parent publishes.
    resources = RunResources(context, Disk(), lambda *_: (), task.patches)
    attempt = Attempt(0, _find_step(task), task.attempt, task.inputs, resources)
    try:
        call_step(attempt)
    except BaseException as error:
        # Only text crosses back: an exception of the pipeline's own class may not unpickle there.
        raise StepError(describe_error(error)) from None
    finally:
        attempt.files.close()
        log.close()
    return attempt.outputs, attempt.stats


def _outlive_terminate() -> None:
    """Let SIGTERM do nothing to this process; what the step starts is still ended by it.

    To ignore it would be inherited: `Popen.terminate` and pools of the step's own would wait for ever.
    """
    own = os.getpid()

    def take(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, take)
    signal.siginterrupt(signal.SIGTERM, False)


def _die_with_parent() -> None:
    """End the child as soon as its parent is gone, in the middle of a step: nobody waits for that any more.

    The parent holds the other end of the child's standard input, in which the child reads its tasks.
    """
    watch = select.poll()
    # No event asked for: only that the other end was closed is told.
    watch.register(0, 0)
    watch.poll()
    os._exit(1)


def _find_step(task: _Task) -> StepDefinition:
    if task.pickled_step is not None:
        step: StepDefinition = pickle.loads(task.pickled_step)
        return step
    for step in load_pipeline(task.pipeline_dir).steps:
        if step.step_id == task.step_id:
            return step
    raise PipelineError(
        f"{os.path.join(task.pipeline_dir, PIPELINE_FILE)} has no step {task.step_id!r} any more: it was "
        "edited while the run went on; run again"
    )
