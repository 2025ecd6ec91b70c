"""Runs on a real disk, made and driven by hand. Their Parquet files hold whatever bytes a test likes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    StepFinished,
    StepStarted,
    VersionWritten,
    dump_event,
)
from astro_async._core.graph import Graph, StepNode
from astro_async._core.lineage import Plan, plan_run
from astro_async._core.manifest import dump_manifest, snapshot_record
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, fold
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.atomic import Disk
from astro_async._store.ingest_store import IngestStore
from astro_async._store.run_store import RunStore
from astro_async._store.staging import FileOutput, StagedFile, StagedPart, Staging
from core.samples import TIME, Story

# Where the journal does not tell the size of a file, this tells that it is whole.
PARQUET_END = b"PAR1"
INGESTED = b"as ingested: "


def first_events(run_id: RunId, sizes: Mapping[str, int]) -> list[AnyEvent]:
    """Make the events of the ingest of files of these sizes."""
    events: list[AnyEvent] = [
        RunCreated(
            seq=1,
            time=TIME,
            run_id=run_id,
            pipeline_name="p",
            source_directory="/in",
            run_date="2026-01-02",
            params={},
        )
    ]
    for name, size in sizes.items():
        version = VersionWritten(f"ingested/{name}.parquet", 10, 2, size)
        events.append(
            FileIngested(
                seq=len(events) + 1,
                time=TIME,
                run_id=run_id,
                name=name,
                source_path=f"/in/{name}.csv",
                source_size_bytes=50,
                version=version,
            )
        )
    events.append(RunIngested(seq=len(events) + 1, time=TIME, run_id=run_id))
    return events


def write_staged(store: IngestStore, *names: str) -> list[AnyEvent]:
    """Write the files of a run to be, and return its first events."""
    for name in names:
        Path(store.staged_path(name)).write_bytes(INGESTED + name.encode())
    return first_events(store.run_id, {name: len(INGESTED + name.encode()) for name in names})


def ingest(pipeline_dir: Path, *names: str) -> RunId:
    """Ingest a run of these files."""
    store = IngestStore(str(pipeline_dir), disk=Disk(), now=TIME)
    return store.publish(write_staged(store, *names)).run_id


def run_folder(pipeline_dir: Path, run_id: RunId) -> Path:
    return pipeline_dir / ".working" / run_id


def lay_out(directory: Path, events: Sequence[AnyEvent], *, durable: int | None) -> None:
    """Write a journal, and a manifest that contains the first events of it, if any."""
    lines = [dump_line(event) for event in events]
    directory.mkdir(exist_ok=True)
    (directory / "events.jsonl").write_bytes(b"".join(lines))
    if durable is not None:
        record = fold_all(events[:durable])
        size = sum(map(len, lines[:durable]))
        crc = zlib.crc32(b"".join(lines[:durable]))
        document = dump_manifest(snapshot_record(record, journal_bytes=size, journal_crc32=crc))
        (directory / "manifest.json").write_bytes(document)


def dump_line(event: AnyEvent) -> bytes:
    return dump_event(event) + b"\n"


def fold_all(events: Sequence[AnyEvent]) -> RunRecord:
    story = Story()
    assert isinstance(events[0], RunCreated)
    story.run.run_id = RunId(events[0].run_id)
    for event in events[1:]:
        fold(story.run, event)
    return story.run


class Night:
    """An invocation on a run, told step by step."""

    def __init__(self, pipeline_dir: Path, run_id: RunId, *, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.store = RunStore.open(str(pipeline_dir), run_id, disk=self.disk, now=TIME)
        self.folder = Path(self.store.directory)

    @property
    def run(self) -> RunRecord:
        return self.store.record

    def tell(self, *events: AnyEvent) -> None:
        self.store.append(events)
        for event in events:
            fold(self.run, event)

    def plan_event(self, plan: Plan, order: Sequence[str]) -> RunPlanned:
        return RunPlanned(
            seq=self.run.seq + 1,
            time=TIME,
            run_id=self.run.run_id,
            again=plan.by_reason(),
            params={},
            jobs=1,
            pid=1,
            host="here",
            removed=[str(step_id) for step_id in plan.removed],
            order=list(order),
        )

    def commit(self, *nodes: StepNode, rerun: Sequence[str] = ()) -> Plan:
        plan = plan_run(Graph(nodes), self.run, rerun=rerun)
        self.store.commit_plan(self.plan_event(plan, [node.step_id for node in nodes]), plan)
        return plan

    def start(self, step_id: str) -> int:
        attempt = self.run.steps[step_id].attempt + 1
        self.tell(
            StepStarted(
                seq=self.run.seq + 1, time=TIME, run_id=self.run.run_id, step_id=step_id, attempt=attempt
            )
        )
        return attempt

    def stage(self, step_id: str) -> Callable[[bytes], StagedFile]:
        """Return what writes files to the staging folder of the step's present attempt."""
        staging = Staging(self.store.directory, step_id, self.run.steps[step_id].attempt, self.disk)

        def write(content: bytes) -> StagedFile:
            path = staging.next_path()
            Path(path).write_bytes(content)
            return StagedFile(path, 5, 2, len(content))

        return write

    def settle(self, step_id: str, *outputs: FileOutput) -> tuple[FileFlow, ...]:
        """Publish what a step did, and record that it finished."""
        attempt = self.run.steps[step_id].attempt
        flows = self.store.publisher.publish(step_id, attempt, outputs)
        Staging(self.store.directory, step_id, attempt, self.disk).adopt()
        status = StepStatus.QUARANTINED if any(flow.parts for flow in flows) else StepStatus.COMPLETE
        self.tell(
            StepFinished(
                seq=self.run.seq + 1,
                time=TIME,
                run_id=self.run.run_id,
                step_id=step_id,
                attempt=attempt,
                status=status,
                duration_ms=1.0,
                files=flows,
            )
        )
        return flows

    def run_step(
        self,
        step_id: str,
        name: str = "f",
        *,
        read: str = "ingested/f.parquet",
        version: bytes | None = None,
        parts: Sequence[bytes] = (),
        positions: bool = False,
        saved: Mapping[str, bytes] | None = None,
        filtered: bytes | None = None,
    ) -> FileFlow:
        """Start a step that writes this, and let it settle."""
        self.start(step_id)
        write = self.stage(step_id)
        output = FileOutput(
            name,
            read,
            10,
            version=None if version is None else write(version),
            parts=[
                StagedPart(write(part), write(b"rows of " + part + PARQUET_END) if positions else None)
                for part in parts
            ],
            saved={path: write(content) for path, content in (saved or {}).items()},
            filtered=None if filtered is None else write(filtered + PARQUET_END),
        )
        flow = self.settle(step_id, output)[0]
        self.clear_staging()
        return flow

    def clear_staging(self) -> None:
        """Remove the staging folder, as the executor does when a step has settled."""
        self.disk.remove_tree(f"{self.store.directory}/staging")

    def checkpoint(self) -> None:
        self.store.write_checkpoint(self.store.take_checkpoint())

    def end(self, status: RunStatus = RunStatus.COMPLETED) -> None:
        """End the invocation in good order."""
        self.tell(
            RunFinished(
                seq=self.run.seq + 1, time=TIME, run_id=self.run.run_id, status=status, duration_ms=9.0
            )
        )
        self.checkpoint()
        self.store.finish()
        self.store.close()

    def die(self) -> None:
        """Leave everything as it is; the kernel closes the files and frees the lock."""
        self.store.close()


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, but for those of the lock and the log."""
    skipped = {"run.lock", "run.holder.json", "astro.log"}
    return {
        os.path.relpath(os.path.join(parent, name), folder): Path(parent, name).read_bytes()
        for parent, _, names in os.walk(folder)
        for name in names
        if name not in skipped
    }
