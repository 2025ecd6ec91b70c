"""What the cases share: small pipelines, and looking at what a run left on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, RunRecord, RunResult, StepRecord, run
from astro_async._core.events import AnyEvent, Event, FileFlow, parse_event
from astro_async._store.atomic import Disk
from astro_async.testing import ingest_frames, read_quarantine

REASON = "_astro_quarantine_reason"

Declare = Callable[[Pipeline], object]


class Scores(AstroFileSpec):
    """The file that most cases work on."""

    ingest_name = "scores"


class Report(AstroFileSpec):
    """A second file."""

    ingest_name = "report"


class VolatileDisk(Disk):
    """A disk that syncs nothing: for cases with many files, or where no power is cut."""

    def sync(self, path: str) -> None:
        """Pass the seam, and leave the rest to the operating system."""
        self.before("sync", path)


def make_pipeline(*declares: Declare, files: Sequence[str] = ("scores",), **options: Any) -> Pipeline:
    """Make a pipeline of untyped files, and let each function declare steps on it."""
    specs = [IngestFileSpec(name, f"{name}.csv") for name in files]
    pipeline = Pipeline("cases", ingest_files=specs, **options)
    for declare in declares:
        declare(pipeline)
    return pipeline


async def ingest_and_run(
    pipeline: Pipeline, frames: Mapping[str, pl.DataFrame] | pl.DataFrame, pipeline_dir: Path, **options: Any
) -> RunResult:
    """Ingest frames (one frame stands for `scores`) and run them."""
    given = {"scores": frames} if isinstance(frames, pl.DataFrame) else frames
    run_id = await ingest_frames(pipeline, given, pipeline_dir)
    return await run(pipeline, pipeline_dir=pipeline_dir, run_id=run_id, **options)


def record_of(result: RunResult) -> RunRecord:
    """Return the record of a run that took place."""
    assert result.record is not None
    return result.record


def id_of(result: RunResult) -> str:
    """Return the id of a run that took place."""
    assert result.run_id is not None
    return result.run_id


def statuses(result: RunResult | RunRecord) -> dict[str, str]:
    """Return the status of each step."""
    record = record_of(result) if isinstance(result, RunResult) else result
    return {step_id: step.status.value for step_id, step in record.steps.items()}


def step_of(result: RunResult, step_id: str) -> StepRecord:
    """Return the record of a step."""
    return record_of(result).steps[step_id]


def detail_of(result: RunResult, step_id: str) -> str:
    """Return why a step has its status."""
    return step_of(result, step_id).detail or ""


def flow_of(result: RunResult, step_id: str, name: str = "scores") -> FileFlow:
    """Return what a step did with a file."""
    return next(flow for flow in step_of(result, step_id).files if flow.name == name)


def attempts(result: RunResult) -> dict[str, int]:
    """Return how often each step was started."""
    return {step_id: step.attempt for step_id, step in record_of(result).steps.items()}


def run_directory(pipeline_dir: Path, run_id: str) -> Path:
    """Return the folder of a run."""
    return pipeline_dir / ".working" / run_id


def manifest_of(pipeline_dir: Path, run_id: str) -> dict[str, Any]:
    """Return the manifest of a run, as JSON."""
    document: dict[str, Any] = json.loads((run_directory(pipeline_dir, run_id) / "manifest.json").read_text())
    return document


def journal_of(pipeline_dir: Path, run_id: str) -> list[AnyEvent]:
    """Return the events of a run."""
    lines = (run_directory(pipeline_dir, run_id) / "events.jsonl").read_bytes().splitlines()
    return [parse_event(line) for line in lines]


def quarantined(pipeline_dir: Path, run_id: str, step_id: str, column: str) -> list[tuple[Any, str]]:
    """Return a column of the rows in quarantine, each value with its reason."""
    rows = read_quarantine(pipeline_dir, run_id, step_id, "scores")
    return list(zip(rows[column].to_list(), rows[REASON].to_list(), strict=True))


def files_below(directory: Path, *folders: str) -> list[str]:
    """Return the files in some folders of a run, relative to it, sorted."""
    return sorted(
        str(path.relative_to(directory))
        for folder in folders
        for path in (directory / folder).rglob("*")
        if path.is_file()
    )


def kinds(events: Sequence[Event], step_id: str | None = None) -> list[str]:
    """Return the names of the classes of events, of one step if it is named."""
    return [type(event).__name__ for event in events if step_id is None or event.step_id == step_id]
