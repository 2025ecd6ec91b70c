"""`dask.threaded.get` on a raw graph: in memory, nothing outlives the process."""

from __future__ import annotations

from typing import Any

import dask  # type: ignore[import-not-found, unused-ignore]
from dask.threaded import get  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, Prepared, Task, serve, step_name
from benchmarks.shapes import sinks_of


def prepare(task: Task) -> Prepared:
    """Write the graph as dask's own tuples, and warm up what dask only loads at its first run."""
    graph: dict[str, Any] = {
        step_name(position): (task.work, *map(step_name, earlier))
        for position, earlier in enumerate(task.edges)
    }
    wanted = [step_name(position) for position in sinks_of(task.edges)]
    get({"warm": (task.work,)}, "warm", num_workers=JOBS)
    results: list[Any] = []

    def run() -> None:
        results.append(get(graph, wanted, num_workers=JOBS))

    def check() -> None:
        assert list(results[0]) == [None] * len(wanted)

    return Prepared(run, check)


if __name__ == "__main__":
    serve(dask.__version__, prepare)
