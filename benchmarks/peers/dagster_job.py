"""dagster: one job, run in process, its events in the SQLite of an instance of its own."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import dagster  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import Prepared, Task, serve, step_name


def prepare(task: Task) -> Prepared:
    """Declare one op for each step, ordered by `Nothing`, which carries no data."""
    steps: list[Any] = []
    dependencies: dict[str, dict[str, Any]] = {}
    outs = {"result": dagster.Out(dagster.Nothing)}
    for position, earlier in enumerate(task.edges):
        inputs = {f"after_{each}": dagster.In(dagster.Nothing) for each in earlier}

        def call(_: Any) -> None:
            task.work()

        steps.append(dagster.OpDefinition(call, name=step_name(position), ins=inputs, outs=outs))
        dependencies[step_name(position)] = {
            f"after_{each}": dagster.DependencyDefinition(step_name(each)) for each in earlier
        }
    graph = dagster.GraphDefinition(name="benchmark", node_defs=steps, dependencies=dependencies)
    job = graph.to_job(executor_def=dagster.in_process_executor)
    instance = dagster.DagsterInstance.local_temp(task.directory)
    results: list[Any] = []

    def run() -> None:
        results.append(job.execute_in_process(instance=instance))

    def check() -> None:
        assert results[0].success
        instance.dispose()

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("dagster"), prepare)
