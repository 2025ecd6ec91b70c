"""Runs in memory for the tests of the core: a story of events, folded as it is told."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from astro_async._core.commands import BlockStep, SkipStep, StartStep
from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    PartWritten,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    SavedFile,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
    StepStarted,
    VersionWritten,
)
from astro_async._core.graph import Graph, StepNode
from astro_async._core.lineage import Plan, plan_run
from astro_async._core.names import RunId, StepId
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._core.reducer import Scheduler
from astro_async._core.status import RunStatus, StepStatus

RUN = RunId("abc12")
TIME = "2026-01-02T03:04:05.000000Z"


def node(
    step_id: str,
    *,
    reads: Sequence[str] = (),
    writes: Sequence[str] = (),
    after: Sequence[str] = (),
    continues: bool = False,
    limits: Sequence[str] = (),
    skipped: bool = False,
    queue: Literal["threads", "loop"] | None = None,
) -> StepNode:
    return StepNode(
        StepId(step_id),
        files=(*reads, *writes),
        writes=tuple(writes),
        depends_on=tuple(StepId(name) for name in after),
        continues=continues,
        limits=tuple(limits),
        skipped=skipped,
        queue=queue,
    )


def flow(
    name: str,
    read: str,
    published: str | None = None,
    *,
    rows: int = 10,
    parts: Sequence[PartWritten] = (),
    saved: Sequence[SavedFile] = (),
    filtered: str | None = None,
    size_bytes: int = 100,
) -> FileFlow:
    quarantined = sum(part.rows for part in parts)
    return FileFlow(
        name=name,
        read=read,
        rows_in=rows,
        rows_out=rows - quarantined,
        rows_quarantined=quarantined,
        published=None if published is None else VersionWritten(published, rows - quarantined, 2, size_bytes),
        parts=tuple(parts),
        saved=tuple(saved),
        filtered=filtered,
    )


class Story:
    """A run and its journal, with each event numbered and folded when it is told."""

    def __init__(self, *files: str) -> None:
        created = RunCreated(
            seq=1,
            time=TIME,
            run_id=RUN,
            pipeline_name="p",
            source_directory="/in",
            run_date="2026-01-02",
            params={},
        )
        self.run: RunRecord = start_record(created)
        self.events: list[AnyEvent] = [created]
        for name in files:
            version = VersionWritten(f"ingested/{name}.parquet", 10, 2, 100)
            self.tell(
                FileIngested(
                    **self.head(),
                    name=name,
                    source_path=f"/in/{name}.csv",
                    source_size_bytes=50,
                    version=version,
                )
            )

    def head(self, step_id: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        return {
            "seq": self.run.seq + 1,
            "time": TIME,
            "run_id": RUN,
            "step_id": step_id,
            "attempt": attempt,
        }

    def tell(self, event: AnyEvent) -> None:
        fold(self.run, event)
        self.events.append(event)

    def ingest(self) -> None:
        self.tell(RunIngested(**self.head()))

    def plan(
        self,
        *step_ids: str,
        removed: Sequence[str] = (),
        order: Sequence[str] = (),
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.tell(
            RunPlanned(
                **self.head(),
                again={"new": list(step_ids)} if step_ids else {},
                params=dict(params or {}),
                jobs=1,
                pid=7,
                host="here",
                removed=list(removed),
                order=list(order),
            )
        )

    def start(self, step_id: str) -> None:
        self.tell(StepStarted(**self.head(step_id)))

    def finish(
        self, step_id: str, status: StepStatus = StepStatus.COMPLETE, files: Iterable[FileFlow] = ()
    ) -> None:
        self.tell(
            StepFinished(**self.head(step_id), status=status, duration_ms=1.5, files=tuple(files)),
        )

    def run_step(self, step_id: str, *files: FileFlow, status: StepStatus = StepStatus.COMPLETE) -> None:
        self.start(step_id)
        self.finish(step_id, status, files)

    def end(self, status: RunStatus) -> None:
        self.tell(RunFinished(**self.head(), status=status, duration_ms=9.0))

    def to_step_status(self, step_id: str, status: StepStatus) -> None:
        """Lead a pending step to a status."""
        if status is StepStatus.BLOCKED:
            self.tell(StepBlocked(**self.head(step_id), detail="blocked by x, which is failed"))
        elif status is StepStatus.SKIPPED:
            self.tell(StepSkipped(**self.head(step_id), detail="not delivered: x"))
        elif status is not StepStatus.PENDING:
            self.start(step_id)
            if status is not StepStatus.RUNNING:
                self.finish(step_id, status)


def planned_story(*files: str, steps: Sequence[str] = ("s",)) -> Story:
    story = Story(*files)
    story.ingest()
    story.plan(*steps)
    return story


def story_in_run_status(status: RunStatus) -> Story:
    """Make a run in this status, of one file and one pending step where it has been planned."""
    story = Story("f")
    if status is not RunStatus.CREATED:
        story.ingest()
    if status not in (RunStatus.CREATED, RunStatus.INGESTED):
        story.plan("s")
    if status not in (RunStatus.CREATED, RunStatus.INGESTED, RunStatus.RUNNING):
        story.end(status)
    return story


def step_event(story: Story, kind: str, status: StepStatus = StepStatus.COMPLETE) -> AnyEvent:
    """Make the next event of a kind for step `s`."""
    head = story.head("s")
    match kind:
        case "step_started":
            return StepStarted(**head)
        case "step_retrying":
            return StepRetrying(**head, detail="retry at noon", error="boom")
        case "step_finished":
            return StepFinished(**head, status=status, duration_ms=1.0)
        case "step_blocked":
            return StepBlocked(**head, detail="blocked by r")
        case "step_skipped":
            return StepSkipped(**head, detail="not delivered: f")
        case _:
            return StepInterrupted(**head, detail="interrupted")


def freeze(run: RunRecord) -> RunRecord:
    return copy.deepcopy(run)


def commit(story: Story, nodes: Sequence[StepNode], *, rerun: Sequence[str] = ()) -> Plan:
    """Plan a pipeline on a run, and fold the plan as an invocation does."""
    plan = plan_run(Graph(nodes), story.run, rerun=rerun)
    story.tell(
        RunPlanned(
            **story.head(),
            again=plan.by_reason(),
            params={},
            jobs=1,
            pid=7,
            host="here",
            removed=[str(step_id) for step_id in plan.removed],
            order=[str(each.step_id) for each in nodes],
        )
    )
    return plan


class Shift:
    """A scheduler at work on a pipeline, with finished steps told by hand."""

    def __init__(
        self,
        *nodes: StepNode,
        jobs: int = 99,
        keep_going: bool = False,
        limits: Mapping[str, int] | None = None,
        story: Story | None = None,
    ) -> None:
        names = sorted({name for each in nodes for name in each.files})
        if story is None:
            story = Story(*names)
            story.ingest()
        self.story = story
        commit(self.story, nodes)
        self.graph = Graph(nodes)
        self.scheduler = Scheduler(
            self.graph, self.story.run, jobs=jobs, keep_going=keep_going, limits=limits
        )
        self.inputs: dict[str, tuple[str | None, ...]] = {}

    def reduce(self, event: AnyEvent, *, keeps_slot: bool = False) -> list[str]:
        """Fold a fact and what follows from it; return the steps that it blocks."""
        commands = self.scheduler.reduce(event, keeps_slot=keeps_slot)
        self.story.events.append(event)
        blocked: list[str] = []
        for command in commands:
            assert isinstance(command, BlockStep)
            blocked.append(command.step_id)
            blocked += self.reduce(StepBlocked(**self.story.head(command.step_id), detail=command.detail))
        return blocked

    def starts(self) -> list[str]:
        """Start all that may start; return their ids, those of skipped steps with a minus."""
        started: list[str] = []
        while commands := self.scheduler.take_starts():
            for command in commands:
                if isinstance(command, SkipStep):
                    head = self.story.head(command.step_id)
                    self.reduce(StepSkipped(**head, detail=command.detail))
                    started.append(f"-{command.step_id}")
                else:
                    assert isinstance(command, StartStep)
                    step_id = self.graph.nodes[command.position].step_id
                    self.reduce(StepStarted(**self.story.head(step_id, command.attempt)))
                    self.inputs[step_id] = command.inputs
                    started.append(step_id)
        return started

    def finish(
        self, step_id: str, status: StepStatus = StepStatus.COMPLETE, *, saves: Sequence[str] = ()
    ) -> list[str]:
        """Settle a running step, and return the steps that are blocked by it."""
        attempt = self.story.run.steps[step_id].attempt
        names = self.graph.nodes[self.graph.position[step_id]].files
        flows = [
            flow(
                name,
                str(read),
                f"versions/{name}/{step_id}.{attempt}.parquet" if name in saves else None,
            )
            for name, read in zip(names, self.inputs[step_id], strict=True)
        ]
        event = StepFinished(
            **self.story.head(step_id, attempt), status=status, duration_ms=1.0, files=tuple(flows)
        )
        return self.reduce(event)

    def fail(self, step_id: str) -> list[str]:
        return self.finish(step_id, StepStatus.FAILED)

    def retry(self, step_id: str, *, keeps_slot: bool = False) -> None:
        """Let an attempt fail that will be followed by another."""
        attempt = self.story.run.steps[step_id].attempt
        event = StepRetrying(**self.story.head(step_id, attempt), detail="retry at noon", error="boom")
        self.reduce(event, keeps_slot=keeps_slot)

    def requeue(self, step_id: str) -> None:
        self.scheduler.requeue(self.graph.position[step_id])

    def statuses(self) -> dict[str, str]:
        return {step_id: record.status.value for step_id, record in self.story.run.steps.items()}
