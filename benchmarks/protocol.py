"""What a peer's process is asked on its command line, and the one JSON line that it answers.

`serve` is the whole of a peer's main program: prepare, run under the clock, check, tell. A system that cannot
run a graph says so, which is an answer too. Only the standard
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

from benchmarks.shapes import QUICK_SHAPES, SHAPES, Edges, Work

__all__ = [
    "JOBS",
    "CannotRunError",
    "Measurement",
    "Prepare",
    "Prepared",
    "Refusal",
    "Task",
    "parse_answer",
    "read_memory_mb",
    "serve",
    "step_name",
]

JOBS = 8


class CannotRunError(Exception):
    """The system has no way to run a graph; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a peer is to run.

    Attributes:
        edges: The graph.
        directory: An empty directory of its own, removed afterwards.
        work: The no-op that every step must call, once. It takes any arguments and returns None.
        kind: What else a step does.
    """

    edges: Edges
    directory: str
    work: Callable[..., None]
    kind: Work


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
        prepared_rss_mb: What it held just before the run.
        imported_rss_mb: What it held before the preparation.
    """

    shape: str
    steps: int
    version: str
    startup_s: float
    prepare_s: float
    run_s: float
    peak_rss_mb: float
    prepared_rss_mb: float
    imported_rss_mb: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one process could not do.

    Attributes:
        shape: The graph.
        version: Of the system.
        reason: Why it cannot run that.
    """

    shape: str
    version: str
    reason: str


def step_name(position: int) -> str:
    """Return the id of the step at a position."""
    return f"s{position}"


def parse_answer(line: str) -> Measurement | Refusal:
    """Read the answer of a peer's process."""
    fields = json.loads(line)
    return Refusal(**fields) if "reason" in fields else Measurement(**fields)


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

    try:
        with tempfile.TemporaryDirectory(prefix="astro-benchmark-") as directory:
            imported_rss_mb = read_memory_mb("VmRSS")
            started = time.perf_counter()
            prepared = prepare(Task(edges, directory, work, shape.work))
            prepare_s = time.perf_counter() - started
            calls.clear()
            prepared_rss_mb = read_memory_mb("VmRSS")
            started = time.perf_counter()
            prepared.run()
            run_s = time.perf_counter() - started
            peak_rss_mb = read_memory_mb("VmHWM")
            prepared.check()
    except (CannotRunError, RecursionError) as error:
        text = str(error) if isinstance(error, CannotRunError) else f"RecursionError: {error}"
        sys.stdout.write(json.dumps(asdict(Refusal(shape.name, version, text))) + "\n")
        return
    assert len(calls) == shape.expected_calls, f"{len(calls)} calls of {shape.expected_calls}"
    measurement = Measurement(
        shape=shape.name,
        steps=shape.steps,
        version=version,
        startup_s=ready - arguments.spawned,
        prepare_s=prepare_s,
        run_s=run_s,
        peak_rss_mb=peak_rss_mb,
        prepared_rss_mb=prepared_rss_mb,
        imported_rss_mb=imported_rss_mb,
    )
    sys.stdout.write(json.dumps(asdict(measurement)) + "\n")


def read_memory_mb(name: str) -> float:
    """Return what this process holds (`VmRSS`) or held at most (`VmHWM`); elsewhere always the latter."""
    # Linux lets a child inherit the ru_maxrss of the process that started it; VmHWM starts afresh.
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) / 1024
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
