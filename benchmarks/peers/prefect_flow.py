"""prefect: one flow, its tasks submitted to a pool of threads, against a temporary server."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

import prefect  # type: ignore[import-not-found, unused-ignore]
from prefect.task_runners import ThreadPoolTaskRunner  # type: ignore[import-not-found, unused-ignore]
from prefect.testing.utilities import prefect_test_harness  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, Prepared, Task, serve


def prepare(task: Task) -> Prepared:
    """Start the temporary server, and declare flow and task."""
    logging.getLogger("prefect").setLevel(logging.ERROR)
    harness = prefect_test_harness()
    harness.__enter__()

    @prefect.task  # type: ignore[untyped-decorator, unused-ignore]
    def step() -> None:
        task.work()

    @prefect.flow(task_runner=ThreadPoolTaskRunner(max_workers=JOBS))  # type: ignore[untyped-decorator, unused-ignore]
    def graph() -> str:
        futures: list[Any] = []
        for earlier in task.edges:
            futures.append(step.submit(wait_for=[futures[each] for each in earlier]))
        for future in futures:
            future.wait()
        return "done"

    results: list[str] = []

    def run() -> None:
        results.append(graph())

    def check() -> None:
        assert results == ["done"]
        harness.__exit__(None, None, None)

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("prefect"), prepare)
