"""Where the time of a run goes: `python -m benchmarks.stages fan-out-10000`, where the package is installed.

Whole stages are timed, each with the processor time of its own thread, and a stage does not count what
another one does inside it. A profiler that looks at each call would make the many small calls look dear.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from astro_async import files
from astro_async._core import reducer
from astro_async._executor import coordinator, invocation, workers
from astro_async._store.atomic import Disk
from astro_async._store.publish import Publisher
from astro_async._store.run_store import RunStore
from astro_async.pipeline import Pipeline
from benchmarks.peers.ours import prepare
from benchmarks.protocol import Task
from benchmarks.shapes import QUICK_SHAPES, SHAPES, Shape

# What is wrapped: its owner, its name, and the stage that its time belongs to.
_STAGES: Final[tuple[tuple[Any, str, str], ...]] = (
    (RunStore, "open", "open the run: lock, read, check the records"),
    (Pipeline, "graph", "make the graph of the declared steps"),
    (invocation, "plan_run", "plan: what has to run, and why"),
    (RunStore, "commit_plan", "commit the plan: one line, synced"),
    (reducer.Scheduler, "__init__", "make the scheduler"),
    (coordinator.Coordinator, "_take_messages", "coordinator: fold the outcomes"),
    (coordinator.Coordinator, "_dispatch", "coordinator: choose and hand over what may start"),
    (RunStore, "append", "coordinator: encode and append two lines a step"),
    (workers.WorkerThreads, "_pull", "worker threads: call the step, settle the attempt"),
    (files, "write_frame", "worker threads: write Parquet, read its footer"),
    (Publisher, "publish", "worker threads: publish, without what follows"),
    (Disk, "publish", "worker threads: chmod and rename"),
    (Disk, "link_anew", "worker threads: hard links"),
    (Disk, "make_directory", "worker threads: folders"),
    (Disk, "sync", "checkpoints: sync (processor time alone)"),
    (RunStore, "take_checkpoint", "checkpoints: take what is to be written"),
    (RunStore, "write_checkpoint", "checkpoints: the manifest (another thread)"),
    (RunStore, "_record_statistics", "statistics (another thread)"),
    (RunStore, "finish", "links to what is last"),
    (RunStore, "close", "close the run"),
)


class Stopwatch:
    """Processor time by stage, over all threads; a stage stops while another one runs inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._local = threading.local()

    def wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is timed."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            inner: list[float] = self._local.__dict__.setdefault("inner", [0.0])
            inner.append(0.0)
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.thread_time() - started
                within = inner.pop()
                inner[-1] += spent
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent - within

        return timed


def measure_stages(shape: Shape, *, is_timed: bool) -> tuple[float, float, dict[str, float]]:
    """Run a shape once, and return wall time, processor time, and that by stage, in seconds."""
    stopwatch = Stopwatch()
    originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in _STAGES]
    with tempfile.TemporaryDirectory(prefix="astro-benchmark-") as directory:
        prepared = prepare(Task(shape.edges(), directory, lambda *_: None, shape.work))
        try:
            for owner, name, stage in _STAGES if is_timed else ():
                original = owner.__dict__[name]
                if isinstance(original, classmethod):
                    setattr(owner, name, classmethod(stopwatch.wrap(stage, original.__func__)))
                else:
                    setattr(owner, name, stopwatch.wrap(stage, original))
            wall, processor = time.perf_counter(), time.process_time()
            prepared.run()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)
        prepared.check()
    return wall, processor, stopwatch.seconds


def main() -> int:
    """Measure one shape several times, and print the medians as a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages")
    parser.add_argument("shape", choices=[*SHAPES, *QUICK_SHAPES], nargs="?", default="fan-out-10000")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    shape = (SHAPES | QUICK_SHAPES)[options.shape]
    measure_stages(shape, is_timed=False)
    bare = [measure_stages(shape, is_timed=False) for _ in range(options.runs)]
    timed = [measure_stages(shape, is_timed=True) for _ in range(options.runs)]

    def per_step(values: list[float]) -> float:
        return statistics.median(values) / shape.steps * 1e6

    rows = [
        (stage, per_step([seconds.get(stage, 0.0) for _, _, seconds in timed])) for _, _, stage in _STAGES
    ]
    rest = per_step([processor - sum(seconds.values()) for _, processor, seconds in timed])
    rows.append(("the event loop, and all else", rest))
    write = sys.stdout.write
    write("| stage | us a step |\n|---|---|\n")
    for stage, us in rows:
        if us < 0.05:
            continue
        write(f"| {stage} | {us:.1f} |\n")
    write(f"| **processor time, all threads** | {per_step([each[1] for each in timed]):.1f} |\n")
    write(f"\nwall {per_step([each[0] for each in timed]):.1f} us a step; ")
    write(f"untimed: wall {per_step([each[0] for each in bare]):.1f}, ")
    write(f"processor {per_step([each[1] for each in bare]):.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
