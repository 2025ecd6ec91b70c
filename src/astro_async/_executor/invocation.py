"""One invocation on one run: open, plan, commit, run, close."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

import anyio

from astro_async._core.decisions import find_same_again
from astro_async._core.events import RunPlanned, VersionsDropped
from astro_async._core.graph import Graph
from astro_async._core.lineage import Plan, droppable_versions, plan_run
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.reducer import Scheduler
from astro_async._core.status import RunStatus
from astro_async._executor.attempt import RunResources
from astro_async._executor.broadcast import Broadcast, Subscriber
from astro_async._executor.clock import format_time, utc_now
from astro_async._executor.coordinator import Coordinator, Message
from astro_async._executor.inputs import refuse_missing
from astro_async._executor.outbox import Outbox
from astro_async._executor.stop import StopSwitch
from astro_async._store.atomic import Disk
from astro_async._store.run_store import RunStore
from astro_async._threads import in_thread
from astro_async.context import RunContext
from astro_async.exceptions import PipelineError, RunRefusedError
from astro_async.pipeline import Pipeline

__all__ = ["Invocation", "Invoker", "RunOptions", "Services", "check_params"]


# A change early in a large pipeline concerns thousands of steps alike.
_MAX_NOTICES: Final = 10

_SAME_AGAIN: Final = (
    "step {} set the same number of rows aside for the same reasons again: no step, parameter, input or "
    "decision about its rows has changed since its last attempt (its code is not compared)"
)


@dataclass(frozen=True, slots=True)
class Services:
    """What an invocation uses of the world; tests bring their own.

    Attributes:
        disk: The seam of the store.
        clock: Tells the time, in UTC.
    """

    disk: Disk = field(default_factory=Disk)
    clock: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the operator says.

    Attributes:
        jobs: How many steps run at once; None leaves it to the pipeline.
        keep_going: The stop point is infinite.
        rerun: Completed steps to run again.
        params: Given anew; None uses those recorded.
    """

    jobs: int | None = None
    keep_going: bool = False
    rerun: Sequence[str] = ()
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    """What an invocation came to.

    Attributes:
        record: The state of the run at the end.
        plan: What had to run.
        notices: Repairs and warnings, for the user.
        hung: Steps whose threads could not be ended.
    """

    record: RunRecord
    plan: Plan
    notices: tuple[str, ...]
    hung: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoker:
    """Brings a pipeline, the operator's wishes and the world together for one invocation.

    Attributes:
        pipeline: The pipeline as it is now.
        pipeline_dir: Absolute; runs are kept under its `.working/`.
        options: What the operator says.
        services: What is used of the world.
        broadcast: Tells the events.
        logger: The run's logger; the run's log is attached to it meanwhile.
        subscribers: Told every event, in worker threads.
        stop: Lets the owner stop the run gently.
    """

    pipeline: Pipeline
    pipeline_dir: str
    options: RunOptions
    services: Services
    broadcast: Broadcast
    logger: logging.Logger
    subscribers: Sequence[Subscriber] = ()
    stop: StopSwitch = field(default_factory=StopSwitch)

    async def invoke(self, run_id: RunId) -> Invocation:
        """Run what a run has to do, and return how it stands then.

        Raises:
            PipelineError: The pipeline or the options make no sense.
            RunRefusedError: The run is completed and has nothing to do, or a version it needs is missing.
            RunLockedError: Another invocation is on this run.
            RunNotFoundError: There is no such run.
            StorageError: The disk refused; the last good records stand.
        """
        jobs = self._jobs()
        params = check_params(self.options.params or {})
        now = format_time(self.services.clock())
        store = await in_thread(RunStore.open, self.pipeline_dir, run_id, disk=self.services.disk, now=now)
        try:
            self.logger.addHandler(store.log)
            graph = self.pipeline.graph(store.record.files)
            plan = plan_run(graph, store.record, rerun=self.options.rerun)
            if _is_done(store.record, plan):
                return self._leave(store, plan)
            await in_thread(refuse_missing, store.directory, store.record, plan, self.options.rerun)
            notices = [*store.take_notices(), *_describe_stale(plan)]
            self._warn(notices)
            title = f"{now} run {run_id}, {len(plan.again)} of {len(graph.nodes)} steps, jobs {jobs}"
            store.log.start_invocation(title)
            before, recorded_params = dict(store.record.steps), store.record.params
            params = {**recorded_params, **params}
            event = _plan_event(store.record, graph, plan, params, jobs, now)
            hung = await self._tell_and_run(store, graph, plan, event)
            again = find_same_again(before, store.record, recorded_params)
            late = [*map(_SAME_AGAIN.format, again), *store.take_notices()]
            self._warn(late)
            return Invocation(store.record, plan, (*notices, *late), tuple(hung))
        finally:
            self.logger.removeHandler(store.log)
            with anyio.CancelScope(shield=True):
                await in_thread(store.close)

    def _leave(self, store: RunStore, plan: Plan) -> Invocation:
        """Return how a completed run stands that whoever completed it could not write to the end.

        Raises:
            RunRefusedError: It was.
        """
        run = store.record
        if not store.was_unfinished:
            raise RunRefusedError(
                f"run {run.run_id} is completed and has nothing to do: name steps with --rerun to run them "
                "again, or ingest new files"
            )
        notices = store.take_notices()
        self._warn(notices)
        return Invocation(run, plan, tuple(notices), ())

    def _warn(self, notices: Sequence[str]) -> None:
        for notice in notices:
            self.logger.warning("%s", notice)

    def _jobs(self) -> int:
        jobs = self.pipeline.default_jobs() if self.options.jobs is None else self.options.jobs
        if not isinstance(jobs, int) or jobs < 1:
            raise PipelineError(f"jobs is {jobs!r}: it must be a whole number, 1 or more")
        return jobs

    async def _tell_and_run(
        self, store: RunStore, graph: Graph, plan: Plan, event: RunPlanned
    ) -> Sequence[str]:
        """Commit the plan and run it, with the subscribers listening; return the steps that hang."""
        failure: Exception | None = None
        hung: Sequence[str] = ()
        async with anyio.create_task_group() as group:
            done = anyio.Event()
            for subscriber in self.subscribers:
                group.start_soon(self.broadcast.serve, subscriber, self.broadcast.open(), done)
            try:
                await in_thread(store.commit_plan, event, plan)
                self.broadcast.publish([event])
                hung = await self._coordinate(store, graph, event.jobs)
                if store.record.status is RunStatus.COMPLETED and not self.pipeline.keep_versions:
                    await self._drop_versions(store)
            except Exception as error:
                # Raised as it is, below: a task group would wrap it.
                failure = error
            finally:
                self.broadcast.close()
                done.set()
        if failure is not None:
            raise failure
        return hung

    async def _coordinate(self, store: RunStore, graph: Graph, jobs: int) -> Sequence[str]:
        outbox: Outbox[Message] = Outbox()

        def report_progress(step_id: str, fraction: float) -> None:
            if self.broadcast.has_readers:
                outbox.put((step_id, fraction))

        context = RunContext(
            run_id=store.record.run_id,
            run_date=date.fromisoformat(store.record.run_date),
            run_directory=store.directory,
            pipeline_dir=self.pipeline_dir,
            params=dict(store.record.params),
            logger=self.logger,
            report_progress=report_progress,
        )
        keep_going, limits = self.options.keep_going, self.pipeline.limits
        coordinator = Coordinator(
            steps=self.pipeline.steps,
            scheduler=Scheduler(graph, store.record, jobs=jobs, keep_going=keep_going, limits=limits),
            store=store,
            resources=RunResources(context, self.services.disk, store.publisher.publish, store.patches()),
            outbox=outbox,
            broadcast=self.broadcast,
            jobs=jobs,
            clock=self.services.clock,
            stop=self.stop,
        )
        await coordinator.run()
        return coordinator.hung

    async def _drop_versions(self, store: RunStore) -> None:
        versions = droppable_versions(store.record)
        if versions:
            event = VersionsDropped(
                seq=store.record.seq + 1,
                time=format_time(self.services.clock()),
                run_id=store.record.run_id,
                paths=[version.path for version in versions],
                size_bytes=sum(version.size_bytes for version in versions),
            )
            await in_thread(store.drop_versions, event)


def check_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as they are recorded: tuples as lists, for instance.

    Raises:
        PipelineError: A name is no text, or a value has no JSON form.
    """
    try:
        document = json.dumps(dict(params), allow_nan=False, ensure_ascii=False)
        # Text that is no Unicode could not be written.
        recorded = json.loads(document.encode())
    except (TypeError, ValueError) as error:
        raise PipelineError(f"params cannot be recorded as JSON: {error}") from None
    if recorded.keys() != params.keys():
        raise PipelineError("the names of params are text")
    # As recorded: a first run sees what its retry will see.
    return dict(recorded)


def _is_done(run: RunRecord, plan: Plan) -> bool:
    return run.status is RunStatus.COMPLETED and not plan.has_work


def _plan_event(
    run: RunRecord, graph: Graph, plan: Plan, params: dict[str, Any], jobs: int, now: str
) -> RunPlanned:
    kept = [step_id for step_id in run.steps if step_id in graph.position]
    new = [step_id for step_id in plan.again if step_id not in run.steps]
    order = [node.step_id for node in graph.nodes]
    return RunPlanned(
        seq=run.seq + 1,
        time=now,
        run_id=run.run_id,
        again=plan.by_reason(),
        params=params,
        jobs=jobs,
        pid=os.getpid(),
        host=socket.gethostname(),
        removed=list(plan.removed),
        order=[] if kept + new == order else [str(step_id) for step_id in order],
    )


def _describe_stale(plan: Plan) -> list[str]:
    described = [
        f"step {stale.step_id} read {stale.file} as {stale.read}, which has been replaced since; "
        f"it published nothing, so it is not run again (--rerun {stale.step_id} does)"
        for stale in plan.stale[:_MAX_NOTICES]
    ]
    if len(plan.stale) > _MAX_NOTICES:
        described.append(f"… and {len(plan.stale) - _MAX_NOTICES} more steps like that")
    return described
