"""astro-pipeline, the direct predecessor: its parallel step mode, through the services that its CLI calls.

No dashboard and no log output, which is kinder to it than its own command line.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandera.polars  # type: ignore[import-not-found, unused-ignore]
from astro.cli.run_context import resolve_run_directory  # type: ignore[import-not-found, unused-ignore]
from astro.ingest import IngestService  # type: ignore[import-not-found, unused-ignore]
from astro.pipeline import (  # type: ignore[import-not-found, unused-ignore]
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    StepExecutionMode,
)
from astro.run import RunService  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, Prepared, Task, serve, step_name


class Scores(AstroFileSpec):  # type: ignore[misc, unused-ignore]
    ingest_name = "scores"


def prepare(task: Task) -> Prepared:
    """Declare the steps and ingest a file of three rows, which all steps share."""
    directory = Path(task.directory)
    source = directory / "source"
    source.mkdir()
    (source / "scores.csv").write_text("id,score\n1,10\n2,20\n3,30\n", encoding="utf-8")
    schema = pandera.polars.DataFrameSchema(
        {"id": pandera.polars.Column(int), "score": pandera.polars.Column(int)}
    )

    class Benchmark(Pipeline):  # type: ignore[misc, unused-ignore]
        name = "benchmark"
        step_execution_mode = StepExecutionMode.PARALLEL
        max_parallel_workers = JOBS
        ingest_files = (IngestFileSpec("scores", "scores.csv", schema),)

        def configure_steps(self) -> None:
            for position, earlier in enumerate(task.edges):
                self.add_step(
                    step_name(position),
                    task.work,
                    [Scores()],
                    step_id=step_name(position),
                    depends_on=[step_name(each) for each in earlier],
                )

    pipeline = Benchmark()
    IngestService(directory, pipeline).ingest(source)
    run_directory, manifest = resolve_run_directory(directory)
    results: list[Any] = []

    def run() -> None:
        results.append(RunService().run(directory, pipeline, run_directory, manifest))

    def check() -> None:
        assert results[0].steps_completed == len(task.edges)
        assert {record.status.value for record in manifest.step_states} == {"complete"}
        assert os.path.exists(run_directory / "manifest.json")

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("astro-pipeline"), prepare)
