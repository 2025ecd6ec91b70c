"""The pure core at work on a run that lives in memory: no disk, no loop, no clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from astro_async._core.commands import BlockStep, StartStep
from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    PartWritten,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepStarted,
    VersionWritten,
    dump_event,
    parse_event,
)
from astro_async._core.lineage import Plan, active_versions, plan_run
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._core.reducer import Scheduler
from astro_async._core.status import StepStatus, derive_run_status
from properties.histories import Content, Mood, RandomStep, graph_of, work

RUN = RunId("aaaaa")
TIME = "2026-01-01T00:00:00.000000Z"


class MemoryRun:
    """Runs random steps; the journal is a list, the versions are a dict."""

    def __init__(self, files: Sequence[str]) -> None:
        created = RunCreated(
            seq=1, time=TIME, run_id=RUN, pipeline_name="p", source_directory="/", run_date="", params={}
        )
        self.record: RunRecord = start_record(created)
        self.journal: list[AnyEvent] = [created]
        self.contents: dict[str, Content] = {}
        self.starts: list[str] = []
        for name in files:
            version = VersionWritten(f"ingested/{name}.parquet", 1, 1, 1)
            self._note(
                FileIngested(
                    **self._envelope(), name=name, source_path="/", source_size_bytes=1, version=version
                )
            )
            self.contents[version.path] = ("ingested", name)
        self._note(RunIngested(**self._envelope()))

    def _envelope(self, step_id: str | None = None, attempt: int | None = None) -> dict[str, Any]:
        return {
            "seq": self.record.seq + 1,
            "time": TIME,
            "run_id": RUN,
            "step_id": step_id,
            "attempt": attempt,
        }

    def _note(self, event: AnyEvent) -> None:
        fold(self.record, event)
        self.journal.append(event)

    def plan(self, steps: Sequence[RandomStep], rerun: frozenset[str] = frozenset()) -> Plan:
        graph = graph_of(steps)
        plan = plan_run(graph, self.record, rerun=rerun)
        order = [step.step_id for step in steps]
        self._note(
            RunPlanned(
                **self._envelope(),
                again=plan.by_reason(),
                removed=list(plan.removed),
                params={},
                jobs=1,
                pid=1,
                host="",
                order=[str(each) for each in order],
            )
        )
        return plan

    def execute(
        self,
        steps: Sequence[RandomStep],
        rng: random.Random,
        mood: Mood,
        *,
        jobs: int,
        keep_going: bool = False,
        kill_after: int | None = None,
    ) -> None:
        """Run until nothing more happens, in random finishing order, or until a kill."""
        graph = graph_of(steps)
        scheduler = Scheduler(graph, self.record, jobs=jobs, keep_going=keep_going)
        running: dict[int, StartStep] = {}
        ended = 0
        while True:
            for command in scheduler.take_starts():
                assert isinstance(command, StartStep)
                step_id = graph.nodes[command.position].step_id
                self._reduce(scheduler, StepStarted(**self._envelope(step_id, command.attempt)))
                self.starts.append(step_id)
                running[command.position] = command
            assert len(running) <= jobs
            if kill_after is not None and ended >= kill_after:
                return
            if not running:
                break
            command = running.pop(rng.choice(sorted(running)))
            ended += 1
            self._finish(scheduler, steps[command.position], command, mood)
        status = derive_run_status(record.status for record in self.record.steps.values())
        self._note(RunFinished(**self._envelope(), status=status, duration_ms=1.0))

    def _finish(self, scheduler: Scheduler, step: RandomStep, command: StartStep, mood: Mood) -> None:
        envelope = self._envelope(step.step_id, command.attempt)
        if step.number in mood.fails:
            event = StepFinished(**envelope, status=StepStatus.FAILED, duration_ms=1.0, detail="boom")
            self._reduce(scheduler, event)
            return
        names = step.reads + step.writes
        paths = {name: str(path) for name, path in zip(names, command.inputs, strict=True)}
        quarantines = step.number in mood.quarantines
        inputs = {name: self.contents[path] for name, path in paths.items()}
        made = work(step, inputs, quarantines=quarantines)
        flows = []
        for name in names:
            published = None
            if name in made:
                path = f"versions/{name}/{step.step_id}.{command.attempt}.parquet"
                published = VersionWritten(path, 1, 1, 1)
                assert published.path not in self.contents, "a version is never written twice"
                self.contents[published.path] = made[name]
            parts = (PartWritten(f"quarantine/{step.step_id}/{name}.part-00001.parquet", 1, 1),)
            flows.append(FileFlow(name, paths[name], 1, 1, 0, published, parts if quarantines else ()))
        status = StepStatus.QUARANTINED if quarantines else StepStatus.COMPLETE
        self._reduce(scheduler, StepFinished(**envelope, status=status, duration_ms=1.0, files=tuple(flows)))

    def _reduce(self, scheduler: Scheduler, event: AnyEvent) -> None:
        commands = scheduler.reduce(event)
        self.journal.append(event)
        for command in commands:
            assert isinstance(command, BlockStep)
            self._reduce(scheduler, StepBlocked(**self._envelope(command.step_id), detail=command.detail))

    def statuses(self, steps: Sequence[RandomStep]) -> dict[int, StepStatus]:
        return {step.number: self.record.steps[step.step_id].status for step in steps}

    def final(self) -> dict[str, Content]:
        return {name: self.contents[path] for name, path in active_versions(self.record).items()}

    def refold(self) -> RunRecord:
        """Fold the journal, through its JSON, from nothing."""
        events = [parse_event(dump_event(event)) for event in self.journal]
        record = start_record(events[0])
        for event in events[1:]:
            fold(record, event)
        return record
