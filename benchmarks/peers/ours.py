"""This package, through its public API, durable: a real run directory, one ingested file, sync steps."""

from __future__ import annotations

import functools
import json
import os
from importlib.metadata import version

import anyio

# By name, for the package loads lazily: imports belong to the start-up, not to the preparation.
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, RunResult, ingest, run
from benchmarks.protocol import JOBS, Prepared, Task, serve, step_name


def prepare(task: Task) -> Prepared:
    """Declare the steps and ingest a file of three rows, which all steps share read-only."""
    source = os.path.join(task.directory, "source")
    os.mkdir(source)
    with open(os.path.join(source, "scores.csv"), "w", encoding="utf-8") as file:
        file.write("id,score\n1,10\n2,20\n3,30\n")
    pipeline = Pipeline("benchmark", ingest_files=[IngestFileSpec("scores", "scores.csv")])
    spec = AstroFileSpec("scores", readonly=True)
    for position, earlier in enumerate(task.edges):
        pipeline.add_step(
            step_name(position), task.work, spec, depends_on=[step_name(each) for each in earlier]
        )
    anyio.run(functools.partial(ingest, pipeline, source, pipeline_dir=task.directory))
    results: list[RunResult] = []

    def run_all() -> None:
        results.append(anyio.run(functools.partial(run, pipeline, pipeline_dir=task.directory, jobs=JOBS)))

    def check() -> None:
        names = [step_name(position) for position in range(len(task.edges))]
        check_result(results[0], names)
        check_disk(os.path.join(task.directory, ".working", str(results[0].run_id)), names)

    return Prepared(run_all, check)


def check_result(result: RunResult, names: list[str]) -> None:
    """Assert that the run is completed and that each of its steps is complete."""
    record = result.record
    assert record is not None
    assert result.status == "completed", result.status
    assert list(record.steps) == names
    assert {step.status.value for step in record.steps.values()} == {"complete"}


def check_disk(run_directory: str, names: list[str]) -> None:
    """Assert that the journal names each step as started and as complete, and that the manifest agrees.

    Reads the files as any other program would, by their documented names.
    """
    started: list[str] = []
    complete: list[str] = []
    with open(os.path.join(run_directory, "events.jsonl"), encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if event["kind"] == "step_started":
                started.append(event["step_id"])
            elif event["kind"] == "step_finished" and event["status"] == "complete":
                complete.append(event["step_id"])
    assert sorted(started) == sorted(names), f"{len(started)} starts in the journal"
    assert sorted(complete) == sorted(names), f"{len(complete)} ends in the journal"
    with open(os.path.join(run_directory, "manifest.json"), encoding="utf-8") as file:
        states = json.load(file)["step_states"]
    assert [state["step_id"] for state in states] == names
    assert {state["status"] for state in states} == {"complete"}


if __name__ == "__main__":
    serve(version("astro-async"), prepare)
