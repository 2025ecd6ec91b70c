"""What large files cost: `python -m benchmarks.data --help`.

Flights repeated, ingested and checked by this package, and the same by hand in bare Polars. Each measurement
is a process of its own; ours and theirs take turns. The files are made for the session and removed after it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.environments import EnvironmentFailedError, make_environment
from benchmarks.flights import write_repeated
from benchmarks.machine import Machine, describe_machine
from benchmarks.registry import OURS, PEERS, ROOT
from benchmarks.report import describe_machine_as_rows, render_caveat, render_rows

__all__ = ["main"]

_FLIGHTS: Final = 336_776
_TASKS: Final = {
    "ingest-by-hand": "ingest: `scan_csv(…).sink_parquet(…)`, equal types",
    "ingest-ours": "ingest: ours",
    "check-streamed": "check that parks 1 %: by hand, one plan with two sinks",
    "check-eager": "check that parks 1 %: by hand, read, write good, write bad",
    "check-ours": "check that parks 1 %: ours",
    "rules-streamed": "five rules: by hand, one plan with two sinks",
    "rules-eager": "five rules: by hand, read, write good, write bad",
    "rules-ours": "five rules: ours",
    "retry-ours": "retry: from `run()` to the call of the step",
}
# What each is divided by: the faster by hand.
_FLOORS: Final = {
    "ingest-ours": ("ingest-by-hand",),
    "check-ours": ("check-streamed", "check-eager"),
    "rules-ours": ("rules-streamed", "rules-eager"),
}
_THREADS: Final = (1, 2)
_JOBS: Final = (1, 4, 8)

Answer = Mapping[str, float]


@dataclass(slots=True)
class Size:
    """All answers at one size of the file."""

    rows: int
    csv_bytes: int
    answers: dict[str, list[Answer]] = field(default_factory=dict)

    def median(self, task: str, what: str) -> float:
        return statistics.median(answer[what] for answer in self.answers[task])

    def ratio(self, task: str) -> float | None:
        """Return the median, over rounds, of a task's time by that of the faster one by hand."""
        if task not in _FLOORS:
            return None
        floor = min(_FLOORS[task], key=lambda name: self.median(name, "seconds"))
        pairs = zip(self.answers[task], self.answers[floor], strict=True)
        return statistics.median(mine["seconds"] / theirs["seconds"] for mine, theirs in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a session and return the exit code: 0, or 1 if a measurement or an installation failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=30_000_000, help="of the larger file (default 30 million)"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="rounds (default 3)")
    parser.add_argument("--no-threads", action="store_true", help="leave out the table of threads and jobs")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks_data.md")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    try:
        interpreter = make_environment(OURS, PEERS[OURS].requirements)
        sizes = [
            _measure_size(interpreter, rows, options.runs, tells_threads=not options.no_threads and is_last)
            for rows, is_last in ((options.rows // 3, False), (options.rows, True))
        ]
    except EnvironmentFailedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stderr}\n")
        return 1
    text = _render(sizes, options.runs)
    sys.stdout.write(text)
    if options.write:
        with open(os.path.join(ROOT, "docs", "benchmarks_data.md"), "w", encoding="utf-8") as file:
            file.write(_render_page(text, machine))
    return 0


def _measure_size(interpreter: str, rows: int, runs: int, *, tells_threads: bool) -> Size:
    folder = tempfile.mkdtemp(prefix="astro-benchmark-")
    try:
        os.mkdir(os.path.join(folder, "source"))
        csv_bytes = write_repeated(
            os.path.join(folder, "source", "flights.csv"), max(1, round(rows / _FLIGHTS))
        )
        size = Size(int(_measure(interpreter, "prepare", folder)["rows"]), csv_bytes)
        for number in range(runs):
            for task in _TASKS if number % 2 == 0 else reversed(_TASKS):
                size.answers.setdefault(task, []).append(_measure(interpreter, task, folder))
            if tells_threads:
                for threads in _THREADS:
                    for jobs in _JOBS:
                        answer = _measure(interpreter, f"jobs-{jobs}", folder, threads=threads)
                        size.answers.setdefault(f"jobs-{jobs}-{threads}", []).append(answer)
        return size
    finally:
        shutil.rmtree(folder)


def _measure(interpreter: str, task: str, folder: str, *, threads: int | None = None) -> Answer:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if threads is not None:
        environment["POLARS_MAX_THREADS"] = str(threads)
    command = [interpreter, "-m", "benchmarks.data_tasks", task, folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    sys.stderr.write(f"{task:<16} {json.dumps(answer)}\n")
    return answer


# -- the report --------------------------------------------------------------------------------


def _render(sizes: Sequence[Size], runs: int) -> str:
    head = ["task"]
    for size in sizes:
        head += [f"{size.rows:,} rows: s", "ratio", "of it sync s", "peak MB"]
    rows = []
    for task, text in _TASKS.items():
        row = [text]
        for size in sizes:
            ratio = size.ratio(task)
            has_sync = "sync_s" in size.answers[task][0]
            row += [
                f"{size.median(task, 'seconds'):.2f}",
                "" if ratio is None else f"{ratio:.2f}",
                f"{size.median(task, 'sync_s'):.2f}" if has_sync else "",
                f"{size.median(task, 'peak_mb'):.0f}",
            ]
        rows.append(row)
    after = ["retry: from the end of the step to that of `run()`"]
    for size in sizes:
        after += [f"{size.median('retry-ours', 'after_s'):.2f}", "", "", ""]
    text = f"""## Ingest, check, retry

Medians of {runs} rounds. A ratio is the median, over the rounds, of our time by that of the faster one by
hand. By hand nothing is synced within the time: what syncing the same files costs stands beside it. Ours has
it within.

{render_rows(head, [*rows, after])}
"""
    if any(name.startswith("jobs-") for name in sizes[-1].answers):
        text += f"\n{_render_threads(sizes[-1])}"
    return text


def _render_threads(size: Size) -> str:
    rows = [
        [str(threads), *[f"{size.median(f'jobs-{jobs}-{threads}', 'seconds'):.2f}" for jobs in _JOBS]]
        + [f"{size.median(f'jobs-{jobs}-{threads}', 'peak_mb'):.0f}" for jobs in _JOBS]
        for threads in _THREADS
    ]
    head = ["POLARS_MAX_THREADS"]
    head += [f"{jobs} jobs: {unit}" for unit in ("s", "MB") for jobs in _JOBS]
    return f"""## Threads of Polars and jobs

Five rules on eight files of half a million rows, by the number of jobs and of the threads that Polars has.

{render_rows(head, rows)}
"""


def _render_page(text: str, machine: Machine) -> str:
    return f"""# Benchmarks of the data path

<!-- Written by `python -m benchmarks.data --write`: edit benchmarks/data.py instead. -->

What large files cost, beside bare Polars. The rows are all flights out of New York in 2013, repeated; the
file is made for the session. Each measurement is a process of its own, and ours and theirs take turns.

{render_caveat(machine)}

{text}
## Taken on

{describe_machine_as_rows(machine)}

## Run it again

```shell
python -m benchmarks.data --write
python -m benchmarks.data --rows 3000000 --no-threads
```
"""


if __name__ == "__main__":
    sys.exit(main())
