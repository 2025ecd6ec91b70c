"""This package, through its public API: a real run directory, ingested files, all promises kept."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import anyio
import polars as pl

# By name, for the package loads lazily: imports belong to the start-up, not to the preparation.
from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunResult,
    StepContext,
    StepFiles,
    expect,
    ingest,
    run,
)
from benchmarks.flights import INTEGERS, TEXTS, write_days
from benchmarks.protocol import JOBS, Prepared, Task, serve, step_name
from benchmarks.shapes import FILES

_ROWS = {"id": ["1", "2", "3"], "score": ["10", "20", "30"]}


def prepare(task: Task) -> Prepared:
    """Declare the steps and ingest what they share; of the suppliers, ingesting is part of the run."""
    source = os.path.join(task.directory, "source")
    os.mkdir(source)
    results: list[RunResult] = []
    if task.kind == "suppliers":
        pipeline = declare_suppliers(task, source)
        # Loads the event loop, which is start-up.
        anyio.run(anyio.sleep, 0)
    else:
        pipeline = declare(task, source)
        anyio.run(functools.partial(ingest, pipeline, source, pipeline_dir=task.directory))
    steps = pipeline.steps

    def run_all() -> None:
        if task.kind == "suppliers":
            anyio.run(functools.partial(ingest, pipeline, source, pipeline_dir=task.directory))
        results.append(anyio.run(functools.partial(run, pipeline, pipeline_dir=task.directory, jobs=JOBS)))

    def check() -> None:
        names = [str(step.step_id) for step in steps]
        statuses = dict.fromkeys(names, "complete")
        if task.kind == "quarantine":
            statuses = dict.fromkeys(names, "quarantined")
        check_result(results[0], statuses, task.kind)
        check_disk(os.path.join(task.directory, ".working", str(results[0].run_id)), results[0])

    return Prepared(run_all, check)


def declare(task: Task, source: str) -> Pipeline:
    """Return the pipeline of a graph whose steps share one file read-only, or write to a hundred files."""
    writes = task.kind in ("publish", "quarantine")
    count = min(FILES, len(task.edges)) if writes else 1
    for number in range(count):
        with open(os.path.join(source, f"scores_{number}.csv"), "w", encoding="utf-8") as file:
            file.write("id,score\n1,10\n2,20\n3,30\n")
    files = [IngestFileSpec(f"scores_{number}", f"scores_{number}.csv") for number in range(count)]
    pipeline = Pipeline("benchmark", ingest_files=files)
    specs = [AstroFileSpec(f"scores_{number}", readonly=not writes) for number in range(count)]
    step = step_of(task)
    policy: dict[str, Any] = {"on_quarantine": "continue"} if task.kind == "quarantine" else {}
    for position, earlier in enumerate(task.edges):
        pipeline.add_step(
            step_name(position),
            step,
            specs[position % count],
            depends_on=[step_name(each) for each in earlier],
            **policy,
        )
    return pipeline


def step_of(task: Task) -> Callable[..., Any]:
    """Return the function that all steps of a graph share."""
    frame = pl.DataFrame(_ROWS)
    row = frame.head(1)

    async def do_nothing(ctx: StepContext, files: StepFiles) -> None:
        task.work()

    def publish(ctx: StepContext, files: StepFiles) -> None:
        task.work()
        files[0].save_in_place(frame)

    def quarantine(ctx: StepContext, files: StepFiles) -> None:
        task.work()
        ctx.quarantine.quarantine_rows(files[0], row, reason="set aside")

    return {"async": do_nothing, "publish": publish, "quarantine": quarantine}.get(task.kind, task.work)


def declare_suppliers(task: Task, source: str) -> Pipeline:
    """Return the pipeline of the suppliers, their source files written."""
    count = (len(task.edges) - 1) // 3
    write_days(source, count)
    types = {**dict.fromkeys(INTEGERS, pl.Int64), **dict.fromkeys(TEXTS, pl.String)}
    days = [IngestFileSpec(f"day_{i}", f"day_{i}.csv", types, null_values="NA") for i in range(count)]
    pipeline = Pipeline("suppliers", ingest_files=days)
    rule = expect("never left", pl.col("dep_time").is_not_null())

    def write(ctx: StepContext, files: StepFiles) -> None:
        task.work()
        flights = files[0].load().with_columns(pl.col("distance").mul(1.609).alias("km"))
        files[0].save_to("written", f"{files[0].name}.parquet", flights)

    def sum_up(ctx: StepContext, files: StepFiles) -> None:
        task.work()
        flights = pl.scan_parquet([str(file.active_path) for file in files])
        total = flights.group_by("carrier").agg(pl.col("km").sum()).sort("carrier")
        files[0].save_to_lazy("written", "total.parquet", total, activate=False)

    for i in range(count):
        spec = AstroFileSpec(f"day_{i}")
        pipeline.add_check(f"check {i}", rule, spec, on_quarantine="continue")
        pipeline.add_filter(
            f"filter {i}",
            spec,
            remove=pl.col("distance") < 200,
            depends_on=f"check-{i}",
            on_quarantine="continue",
        )
        pipeline.add_step(f"write {i}", write, spec, depends_on=f"filter-{i}")
    everything = [AstroFileSpec(f"day_{i}", readonly=True) for i in range(count)]
    pipeline.add_step("sum up", sum_up, everything, depends_on=[f"write-{i}" for i in range(count)])
    return pipeline


def check_result(result: RunResult, statuses: dict[str, str], kind: str) -> None:
    """Assert that each step of the run is settled as it should be."""
    record = result.record
    assert record is not None
    found = {str(name): step.status.value for name, step in record.steps.items()}
    assert list(found) == list(statuses)
    if kind == "suppliers":
        # Of which days flights were cancelled is for the data to say.
        assert {status for name, status in found.items() if name.startswith("check-")} <= {
            "complete",
            "quarantined",
        }
        found |= {name: "complete" for name in found if name.startswith("check-")}
    assert found == statuses
    assert result.status in ("completed", "quarantined"), result.status
    for name, step in record.steps.items():
        assert not (kind == "publish" and step.files[0].published is None), f"{name} published nothing"
        assert not (kind == "quarantine" and step.files[0].rows_quarantined != 1), (
            f"{name} quarantined no row"
        )


def check_disk(run_directory: str, result: RunResult) -> None:
    """Assert that the journal names each step as started and as settled, and that the manifest agrees.

    Reads the files as any other program would, by their documented names.
    """
    assert result.record is not None
    statuses = {str(name): step.status.value for name, step in result.record.steps.items()}
    started: list[str] = []
    settled: dict[str, str] = {}
    with open(os.path.join(run_directory, "events.jsonl"), encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if event["kind"] == "step_started":
                started.append(event["step_id"])
            elif event["kind"] == "step_finished":
                settled[event["step_id"]] = event["status"]
    assert sorted(started) == sorted(statuses), f"{len(started)} starts in the journal"
    assert settled == statuses, f"{len(settled)} ends in the journal"
    with open(os.path.join(run_directory, "manifest.json"), encoding="utf-8") as file:
        states = json.load(file)["step_states"]
    assert {state["step_id"]: state["status"] for state in states} == statuses


if __name__ == "__main__":
    serve(version("astro-async"), prepare)
