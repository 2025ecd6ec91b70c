"""What applications embed: `ingest`, `run`, `stream`, and reading the runs of a pipeline.

No globals, no signal handlers; several runs may go on in one loop, on asyncio and on trio.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from astro_async._core.events import Event
from astro_async._core.lineage import Plan, droppable_versions, plan_run
from astro_async._core.names import RunId, check_run_id
from astro_async._core.records import RunRecord
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus
from astro_async._core.verification import Verification
from astro_async._executor.broadcast import Broadcast, Subscriber
from astro_async._executor.clock import format_time, utc_now
from astro_async._executor.ingest import ingest_source
from astro_async._executor.ingest_check import SourceCheck, check_files
from astro_async._executor.ingest_progress import IngestProgress
from astro_async._executor.inputs import refuse_missing
from astro_async._executor.invocation import Invoker, RunOptions, Services
from astro_async._executor.stop import StopSwitch
from astro_async._executor.telling import FinishCaller
from astro_async._store.atomic import Disk
from astro_async._store.layout import list_run_ids, run_directory
from astro_async._store.repair import repair_run
from astro_async._threads import in_thread
from astro_async.exceptions import RunNotFoundError, RunRefusedError
from astro_async.pipeline import Pipeline
from astro_async.reading import LATEST, FoundRun, exit_code_of, find_run, read_run
from astro_async.verification import verify_run

__all__ = [
    "EventStream",
    "IngestProgress",
    "RunResult",
    "SourceCheck",
    "StopSwitch",
    "call_untold",
    "check_source",
    "ingest",
    "plan",
    "run",
    "stream",
    "verify",
]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run stands after an invocation.

    Attributes:
        run_id: The run; None if no run had anything to do.
        status: Its status.
        record: Its full state: files, steps, what each read and published.
        plan: What had to run, and why.
        notices: Repairs and warnings, for people.
        hung: Steps whose threads could not be ended; they publish nothing.
        waiting: Other runs that have something to do, newest first.
    """

    run_id: str | None
    status: RunStatus | None
    # Not in the repr, which asyncio asks for (twice) when a loop ends whose signal handler it was: of ten
    # thousand steps that takes as long as a third of the run.
    record: RunRecord | None = field(repr=False)
    plan: Plan = field(repr=False)
    notices: tuple[str, ...] = ()
    hung: tuple[str, ...] = ()
    waiting: tuple[RunSummary, ...] = ()

    @property
    def exit_code(self) -> int:
        """What the command line returns: 0 completed, 1 failed, 3 rows wait, 130 interrupted."""
        return 0 if self.record is None else exit_code_of(self.record)

    @property
    def freeable_bytes(self) -> int:
        """What dropping all versions but the last ones would free (`keep_versions=False` does)."""
        if self.record is None:
            return 0
        return sum(version.size_bytes for version in droppable_versions(self.record))


async def check_source(pipeline: Pipeline, source: PathLike) -> SourceCheck:
    """Read a source directory as `ingest` would, and say what does not fit; no run is made.

    Raises:
        PipelineError: The pipeline makes no sense.
        IngestError: The source is no directory.
        StorageError: The folder for temporary files refuses.
    """
    return await in_thread(check_files, pipeline.file_specs(), os.fspath(source))


async def ingest(
    pipeline: Pipeline,
    source: PathLike,
    *,
    pipeline_dir: PathLike = ".",
    params: Mapping[str, Any] | None = None,
    progress: IngestProgress | None = None,
    services: Services | None = None,
) -> RunRecord:
    """Ingest a source directory into a new run.

    Args:
        pipeline: Says which files to expect.
        source: The directory that holds them; nothing else may be in it.
        pipeline_dir: Where runs are kept, under `.working/`.
        params: Recorded with the run, for its steps.
        progress: Tells how far the ingest is, to whoever looks at it meanwhile, from any thread.
        services: For tests.

    Returns:
        The new run; its `run_id` names it from now on.

    Raises:
        IngestError: The directory or a file is not what the pipeline expects; nothing is left behind.
        RunRefusedError: The pipeline is serial and an earlier run is incomplete.
        RunLockedError: The pipeline is serial and another ingest is under way.
        StorageError: The disk refused.
    """
    return await ingest_source(
        pipeline,
        os.fspath(source),
        pipeline_dir=os.path.abspath(os.fspath(pipeline_dir)),
        params=params or {},
        services=services or _make_services(pipeline),
        logger=_run_logger(),
        progress=progress or IngestProgress(),
    )


async def run(
    pipeline: Pipeline,
    *,
    pipeline_dir: PathLike = ".",
    run_id: str | None = None,
    jobs: int | None = None,
    keep_going: bool = False,
    rerun: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    stop: StopSwitch | None = None,
    subscribers: Sequence[Subscriber] = (),
    services: Services | None = None,
) -> RunResult:
    """Run what a run has to do: all of it the first time, what must run again after that.

    Cancelling the scope around the call stops the run as a second signal would: its state is saved, and the
    next call resumes.

    Args:
        pipeline: The pipeline as it is now.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run; None chooses the newest that has something to do.
        jobs: How many steps run at once.
        keep_going: Go on with what does not depend on failed and blocked steps.
        rerun: Completed steps to run again.
        params: Used instead of those recorded, name by name.
        stop: Lets the caller stop the run gently.
        subscribers: Called with every event, in a worker thread. One that raises is told no more.
        services: For tests.

    Raises:
        PipelineError: The pipeline or `jobs` makes no sense.
        RunNotFoundError: There is no such run.
        RunRefusedError: The named run is completed, and nothing gives it anything to do.
        RunLockedError: Another invocation is on the run.
        StorageError: The disk refused to take the records; the last good ones stand.
    """
    options = RunOptions(jobs=jobs, keep_going=keep_going, rerun=tuple(rerun), params=params)
    invoker = _make_invoker(pipeline, pipeline_dir, options, stop, services, subscribers)
    return await _invoke(invoker, run_id)


class EventStream(AsyncIterator[Event]):
    """The events of a run while it goes on, in order; afterwards `result`. Made by `stream`.

    Iterate with `async for`. An event has what `astro run --events` writes as one line.
    """

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self._ended = anyio.Event()
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """How the run stands; there once the stream has ended.

        Raises:
            RuntimeError: The stream has not ended yet.
        """
        if self._result is None:
            raise RuntimeError("the run goes on: read its events to the end first")
        return self._result

    async def __anext__(self) -> Event:
        """Return the next event, waiting for it."""
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            # The last event is out before the run is closed; the result is there only then.
            await self._ended.wait()
            raise


@contextlib.asynccontextmanager
async def stream(
    pipeline: Pipeline,
    *,
    pipeline_dir: PathLike = ".",
    run_id: str | None = None,
    waiting: Sequence[RunSummary] | None = None,
    jobs: int | None = None,
    keep_going: bool = False,
    rerun: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    stop: StopSwitch | None = None,
    services: Services | None = None,
) -> AsyncIterator[EventStream]:
    """Run as `run` does, and yield an async iterator of its events.

    A reader that dawdles never holds up the run. Leaving the block before the end lets the run finish;
    an exception in the block cancels it, with its state saved.

    ```python
    async with stream(pipeline) as events:
        async for event in events:
            print(event)
    print(events.result.status)
    ```

    The arguments are those of `run`, and `waiting`: the other runs that have something to do, where the
    caller has listed them already and names a run. Without it they are looked up for `result.waiting`.

    Raises:
        PipelineError: The pipeline or `jobs` makes no sense.
        RunNotFoundError: There is no such run.
        RunRefusedError: The named run is completed, and nothing gives it anything to do.
        RunLockedError: Another invocation is on the run.
        StorageError: The disk refused to take the records; the last good ones stand.
    """
    options = RunOptions(jobs=jobs, keep_going=keep_going, rerun=tuple(rerun), params=params)
    invoker = _make_invoker(pipeline, pipeline_dir, options, stop, services)
    # Errors leave as they are: a task group would wrap them.
    failures: list[Exception] = []
    async with invoker.broadcast.open() as receive:
        events = EventStream(receive)

        async def execute() -> None:
            try:
                events._result = await _invoke(invoker, run_id, waiting)
            except Exception as error:
                failures.append(error)
            finally:
                invoker.broadcast.close()
                events._ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(execute)
            try:
                yield events
            except Exception as error:
                failures.append(error)
                group.cancel_scope.cancel()
    if failures:
        raise failures[0]


def _make_invoker(
    pipeline: Pipeline,
    pipeline_dir: PathLike,
    options: RunOptions,
    stop: StopSwitch | None,
    services: Services | None,
    subscribers: Sequence[Subscriber] = (),
) -> Invoker:
    logger = _run_logger()
    return Invoker(
        pipeline=pipeline,
        pipeline_dir=os.path.abspath(os.fspath(pipeline_dir)),
        options=options,
        services=services or _make_services(pipeline),
        broadcast=Broadcast(logger),
        logger=logger,
        subscribers=subscribers,
        stop=stop or StopSwitch(),
    )


async def _invoke(
    invoker: Invoker, run_id: str | None, waiting: Sequence[RunSummary] | None = None
) -> RunResult:
    found = await _find(invoker.pipeline_dir, run_id, waiting)
    while True:
        if found.run_id is None:
            await _finish_caller(invoker).tell_untold()
            return RunResult(None, None, None, Plan())
        try:
            invocation = await invoker.invoke(found.run_id)
            break
        except RunRefusedError:
            if run_id is not None:
                raise
            # Another process finished the run between the choice and the lock: choose again.
            again = await in_thread(find_run, invoker.pipeline_dir, None)
            if again.run_id == found.run_id:
                raise
            found = again
    record = invocation.record
    result = RunResult(
        run_id=record.run_id,
        status=record.status,
        record=record,
        plan=invocation.plan,
        notices=invocation.notices,
        hung=invocation.hung,
        waiting=tuple(found.waiting),
    )
    await _finish_caller(invoker).tell(record, result)
    return result


async def call_untold(pipeline: Pipeline, pipeline_dir: PathLike = ".") -> None:
    """Call `on_finish` for the runs for which it failed, as `run` does before it ends."""
    options = RunOptions()
    await _finish_caller(_make_invoker(pipeline, pipeline_dir, options, None, None)).tell_untold()


def _finish_caller(invoker: Invoker) -> FinishCaller:
    return FinishCaller(
        pipeline=invoker.pipeline,
        pipeline_dir=invoker.pipeline_dir,
        disk=invoker.services.disk,
        logger=invoker.logger,
        make_result=lambda record: RunResult(record.run_id, record.status, record, Plan()),
    )


async def _find(pipeline_dir: str, run_id: str | None, waiting: Sequence[RunSummary] | None) -> FoundRun:
    if waiting is None or run_id in (None, LATEST):
        return await in_thread(find_run, pipeline_dir, run_id)
    return FoundRun(check_run_id(run_id), None, waiting)


def plan(
    pipeline: Pipeline, *, pipeline_dir: PathLike, run_id: str, rerun: Sequence[str] = ()
) -> tuple[RunRecord, Plan]:
    """Return a run and what it would run again, and why. Takes no lock and changes nothing.

    Args:
        pipeline: The pipeline as it is now.
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: An id, or `"latest"` for the newest run.
        rerun: Completed steps to run again.

    Raises:
        PipelineError: The pipeline makes no sense.
        RunNotFoundError: There is no such run.
        RunRefusedError: `rerun` names no step of the pipeline, or a version that a step needs is not there.
        JournalError: The run is damaged.
        StorageError: It cannot be read.
    """
    record = read_run(pipeline_dir, run_id)
    planned = plan_run(pipeline.graph(record.files), record, rerun=rerun)
    if planned.has_work:
        directory = run_directory(os.fspath(pipeline_dir), RunId(record.run_id))
        refuse_missing(directory, record, planned, rerun)
    return record, planned


def verify(pipeline_dir: PathLike = ".", run_id: str = LATEST, *, repair: bool = False) -> Verification:
    """Look whether records, files, rows, links and statistics of a run agree. Blocks: it reads every file.

    Takes no lock and changes nothing, so a run may go on meanwhile; `repair` takes the lock, and makes anew
    what is derived from the journal.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: An id, or `"latest"` for the newest run.
        repair: First put right what can be: manifest, statistics, links, litter.

    Raises:
        InvalidNameError: It is no run id.
        RunNotFoundError: There is no such run.
        RunLockedError: To be repaired, but another process is on the run.
        StorageError: The disk refuses.
    """
    directory = os.path.abspath(os.fspath(pipeline_dir))
    found = _find_to_verify(directory, run_id)
    repairs: list[str] = []
    if repair:
        repairs = repair_run(directory, found, disk=Disk(), now=format_time(utc_now()))
    return verify_run(directory, found, repairs=repairs)


def _find_to_verify(directory: str, run_id: str) -> RunId:
    if run_id != LATEST:
        return check_run_id(run_id)
    try:
        return read_run(directory, LATEST).run_id
    except RunNotFoundError:
        # None can be read: all the more reason to look at one.
        folders = {each: run_directory(directory, each) for each in list_run_ids(directory)}
        if not folders:
            raise
        return max(folders, key=lambda each: os.path.getmtime(folders[each]))


def _make_services(pipeline: Pipeline) -> Services:
    return Services(disk=Disk(fsync=pipeline.fsync))


def _run_logger() -> logging.Logger:
    # Not registered: thousands of runs in a service leave nothing behind.
    logger = logging.Logger("astro_async.run", logging.INFO)
    logger.parent = logging.getLogger("astro_async")
    return logger
