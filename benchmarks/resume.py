"""What a huge run and many runs cost those who resume and read them: `python -m benchmarks.resume`.

Makes a run of a hundred thousand steps, ten of which quarantine a row, and resumes it; and a pipeline
directory of a thousand runs. Runs where the package is installed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import anyio

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, StepContext, StepFiles
from astro_async._core.lineage import plan_run
from astro_async._core.names import RunId
from astro_async._store.catalogue import load_run
from astro_async.api import plan
from astro_async.reading import list_runs
from benchmarks.report import render_rows

__all__ = ["main"]


def declare(steps: int, bad: int) -> Pipeline:
    """Return a pipeline of steps that read one file, but for the last, which each quarantine a row."""
    names = [f"scores_{i}" for i in range(bad)]
    pipeline = Pipeline("benchmark", ingest_files=[IngestFileSpec(name, f"{name}.csv") for name in names])
    shared = AstroFileSpec(names[0], readonly=True)

    def read(ctx: StepContext, files: StepFiles) -> None:
        pass

    def park(ctx: StepContext, files: StepFiles) -> None:
        ctx.quarantine.quarantine_rows(files[0], files[0].load().head(1), reason="set aside")

    for i in range(steps - bad):
        pipeline.add_step(f"s{i}", read, shared)
    for i, name in enumerate(names):
        pipeline.add_step(f"park{i}", park, AstroFileSpec(name))
    return pipeline


def make_run(directory: str, pipeline: Pipeline, files: int) -> str:
    """Ingest and run a pipeline, and return the run's folder."""
    source = os.path.join(directory, "source")
    os.mkdir(source)
    for i in range(files):
        with open(os.path.join(source, f"scores_{i}.csv"), "w", encoding="utf-8") as file:
            file.write("id,score\n1,10\n2,20\n3,30\n")
    anyio.run(functools.partial(astro_async.ingest, pipeline, source, pipeline_dir=directory))
    result = anyio.run(functools.partial(astro_async.run, pipeline, pipeline_dir=directory))
    return os.path.join(directory, ".working", str(result.run_id))


def median_s(call: Callable[[], object], runs: int) -> float:
    """Return the median time of a call, in seconds."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def touched_files(folder: str, call: Callable[[], object]) -> list[str]:
    """Return the files of a run that are new, gone or other after a call, by their place in it."""

    def look() -> dict[str, tuple[int, int, int]]:
        found = {}
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                state = os.stat(path)
                found[os.path.relpath(path, folder)] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found

    before = look()
    call()
    after = look()
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def run_astro(directory: str, *arguments: str) -> None:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "astro_async", *arguments]
    if arguments != ("--help",):
        command += ["-C", directory]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Report:
    """Rows of a table, each beside a time that it is to be compared with."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def tell(self, what: str, seconds: float, beside: float | None = None) -> None:
        self.rows.append(
            (what, f"{seconds * 1000:,.0f}", "" if beside is None else f"{seconds / beside:.2f}")
        )


def measure_resume(report: Report, steps: int, bad: int, rounds: int, help_s: float) -> list[str]:
    """Measure a huge run, and return the files that its resume touched."""
    with tempfile.TemporaryDirectory(prefix="astro-benchmark-") as directory:
        pipeline = declare(steps, bad)
        started = time.perf_counter()
        folder = make_run(directory, pipeline, bad)
        report.tell(f"the first run of {steps:,} steps", time.perf_counter() - started)
        with open(os.path.join(folder, "manifest.json"), "rb") as file:
            manifest = file.read()
        run_id = RunId(os.path.basename(folder))
        json_s = median_s(lambda: json.loads(manifest), rounds)
        report.tell(f"`json.loads` of its manifest ({len(manifest) / 1e6:.0f} MB)", json_s, json_s)
        graph = pipeline.graph()
        record = load_run(directory, run_id)
        judge_s = median_s(lambda: plan_run(graph, record), rounds)
        planned = functools.partial(plan, pipeline, pipeline_dir=directory, run_id=run_id)
        report.tell("read the run", median_s(lambda: load_run(directory, run_id), rounds), json_s)
        report.tell("make the graph", median_s(pipeline.graph, rounds), json_s)
        report.tell("judge every step", judge_s, json_s)
        report.tell("planning a resume: the three together", median_s(planned, rounds), json_s)
        resume = functools.partial(astro_async.run, pipeline, pipeline_dir=directory, run_id=run_id)
        started = time.perf_counter()
        touched = touched_files(folder, lambda: anyio.run(resume))
        report.tell(f"the whole resume, {bad} steps run again", time.perf_counter() - started, json_s)
        shown_s = median_s(lambda: run_astro(directory, "show", run_id), rounds)
        report.tell("`astro show` of that run", shown_s, help_s)
    return touched


def measure_list(report: Report, runs: int, rounds: int, help_s: float) -> None:
    """Measure the list of many runs."""
    with tempfile.TemporaryDirectory(prefix="astro-benchmark-") as directory:
        first = make_run(directory, declare(20, 2), 2)
        for number in range(runs - 1):
            # Ids are letters and digits; what is listed is read from the manifests.
            other = f"{number:05d}"
            copied = os.path.join(directory, ".working", other)
            shutil.copytree(first, copied)
            _rename_run(copied, os.path.basename(first), other)
        summaries, notices = list_runs(directory)
        assert len(summaries) == runs, notices
        listed_s = median_s(lambda: run_astro(directory, "list"), rounds)
        report.tell(f"`astro list` of {runs:,} runs", listed_s, help_s)


def main() -> int:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resume", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1_000, help="in the directory that `astro list` lists")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    report = Report()
    help_s = median_s(lambda: run_astro(".", "--help"), options.rounds)
    report.tell("`astro --help`", help_s, help_s)
    measure_list(report, options.runs, options.rounds, help_s)
    touched = measure_resume(report, options.steps, 10, options.rounds, help_s)
    outside = [name for name in touched if not _belongs_to_again(name)]
    head = ("what", "ms", "by `json.loads` or `--help`")
    sys.stdout.write(render_rows(head, report.rows) + "\n\n")
    sys.stdout.write(f"files of the run that the resume touched: {len(touched)}; ")
    sys.stdout.write(f"of steps that did not run again: {', '.join(outside) or 'none'}\n")
    return 1 if outside else 0


def _belongs_to_again(name: str) -> bool:
    of_the_run = ("manifest.json", "events.jsonl", "astro.log", "run.lock", "run.holder.json")
    # Links to what is last of each file are the run's, too.
    return name in of_the_run or name.startswith("current/") or "/park" in name


def _rename_run(folder: str, old: str, new: str) -> None:
    for name in ("manifest.json", "events.jsonl"):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            content = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(content.replace(f'"{old}"', f'"{new}"'))


if __name__ == "__main__":
    sys.exit(main())
