"""joblib with its threading back end: a flat list of calls, and nothing that waits for another."""

from __future__ import annotations

from typing import Any

import joblib  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, CannotRunError, Prepared, Task, serve


def prepare(task: Task) -> Prepared:
    """Write the steps as delayed calls, and let joblib make its pool once before."""
    if any(task.edges):
        raise CannotRunError("joblib knows no dependencies: a list of calls is all it takes")
    joblib.Parallel(n_jobs=JOBS, backend="threading")(joblib.delayed(task.work)() for _ in range(JOBS))
    results: list[Any] = []

    def run() -> None:
        calls = (joblib.delayed(task.work)() for _ in task.edges)
        results.extend(joblib.Parallel(n_jobs=JOBS, backend="threading")(calls))

    def check() -> None:
        assert results == [None] * len(task.edges)

    return Prepared(run, check)


if __name__ == "__main__":
    serve(joblib.__version__, prepare)
