"""What a peer's process is asked on its command line, and the one JSON line that it answers.

`serve` is the whole of a peer's main program: prepare, run under the clock, check, tell. Only the standard
library is imported, for this module is also loaded in the environments of the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

from benchmarks.shapes import QUICK_SHAPES, SHAPES, Edges

__all__ = ["JOBS", "Measurement", "Prepare", "Prepared", "Task", "parse_measurement", "serve", "step_name"]

JOBS = 8


@dataclass(frozen=True, slots=True)
class Task:
    """What a peer is to run.

    Attributes:
        edges: The graph.
        directory: An empty directory of its own, removed afterwards.
        work: The no-op that every step must call, once. It takes any arguments and returns None.
    """

    edges: Edges
    directory: str
    work: Callable[..., None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task that only waits for the clock.

    Attributes:
        run: Runs the whole graph; this and nothing else is measured.
        check: Raises unless the system's own records say that all steps are done. Not measured.
    """

    run: Callable[[], None]
    check: Callable[[], None]


class Prepare(Protocol):
    """Builds the graph in a system's own terms; everything that must not count."""

    def __call__(self, task: Task) -> Prepared: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one process measured.

    Attributes:
        shape: The graph.
        steps: Its steps, all of which were seen to run.
        version: Of the system.
        startup_s: From the start of the interpreter to the end of the imports.
        prepare_s: Building the graph; for durable systems also ingesting the file.
        run_s: The run itself.
        peak_rss_mb: The most memory that the process held, all told.
    """

    shape: str
    steps: int
    version: str
    startup_s: float
    prepare_s: float
    run_s: float
    peak_rss_mb: float


def step_name(position: int) -> str:
    """Return the id of the step at a position."""
    return f"s{position}"


def parse_measurement(line: str) -> Measurement:
    """Read the answer of a peer's process."""
    return Measurement(**json.loads(line))


def serve(version: str, prepare: Prepare) -> None:
    """Measure one shape with one system, and print a JSON line.

    Raises:
        AssertionError: A step did not run, ran twice, or is not recorded as done.
    """
    ready = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=[*SHAPES, *QUICK_SHAPES])
    parser.add_argument("spawned", type=float, help="time.monotonic() just before this process was started")
    arguments = parser.parse_args()
    shape = (SHAPES | QUICK_SHAPES)[arguments.shape]
    edges = shape.edges()
    calls: list[None] = []

    def work(*_: object) -> None:
        # Appending is atomic, and the cheapest way to count from many threads.
        calls.append(None)

    with tempfile.TemporaryDirectory(prefix="astro-benchmark-") as directory:
        started = time.perf_counter()
        prepared = prepare(Task(edges, directory, work))
        prepare_s = time.perf_counter() - started
        calls.clear()
        started = time.perf_counter()
        prepared.run()
        run_s = time.perf_counter() - started
        prepared.check()
    assert len(calls) == shape.steps, f"{len(calls)} calls of {shape.steps} steps"
    measurement = Measurement(
        shape=shape.name,
        steps=shape.steps,
        version=version,
        startup_s=ready - arguments.spawned,
        prepare_s=prepare_s,
        run_s=run_s,
        peak_rss_mb=_peak_rss_mb(),
    )
    sys.stdout.write(json.dumps(asdict(measurement)) + "\n")


def _peak_rss_mb() -> float:
    # Linux lets a child inherit the ru_maxrss of the process that started it; VmHWM starts afresh.
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
