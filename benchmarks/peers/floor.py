"""The floor: graphlib and a thread pool, by hand. No records, no names: the least there is to do."""

from __future__ import annotations

import platform
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter
from queue import SimpleQueue

from benchmarks.protocol import JOBS, Prepared, Task, serve


def prepare(task: Task) -> Prepared:
    """Keep the graph as graphlib takes it."""
    graph = dict(enumerate(task.edges))
    ended: list[int] = []

    def run() -> None:
        sorter = TopologicalSorter(graph)
        sorter.prepare()
        done: SimpleQueue[int] = SimpleQueue()

        def step(position: int) -> None:
            task.work()
            done.put(position)

        with ThreadPoolExecutor(JOBS) as pool:
            while sorter.is_active():
                for position in sorter.get_ready():
                    pool.submit(step, position)
                position = done.get()
                sorter.done(position)
                ended.append(position)

    def check() -> None:
        assert sorted(ended) == list(range(len(task.edges)))

    return Prepared(run, check)


if __name__ == "__main__":
    serve(platform.python_version(), prepare)
