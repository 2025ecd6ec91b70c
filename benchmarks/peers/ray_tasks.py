"""ray: tasks in eight worker processes, joined by their references; it keeps lineage, not records."""

from __future__ import annotations

from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, Prepared, Task, serve
from benchmarks.shapes import sinks_of


def prepare(task: Task) -> Prepared:
    """Start ray, and have every worker process run once."""
    ray.init(num_cpus=JOBS, include_dashboard=False, log_to_driver=False, configure_logging=False)

    @ray.remote  # type: ignore[untyped-decorator, unused-ignore]
    def step(*_: Any) -> int:
        return 1

    ray.get([step.remote() for _ in range(JOBS * 4)])
    references: list[Any] = []

    def run() -> None:
        for earlier in task.edges:
            references.append(step.remote(*[references[each] for each in earlier]))
        ray.get([references[position] for position in sinks_of(task.edges)])

    def check() -> None:
        # The steps ran in other processes: each result stands for one call.
        for result in ray.get(references):
            assert result == 1
            task.work()
        ray.shutdown()

    return Prepared(run, check)


if __name__ == "__main__":
    serve(ray.__version__, prepare)
