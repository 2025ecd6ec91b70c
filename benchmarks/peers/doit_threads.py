"""doit with eight threads: what is done is written to its file of states when it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from doit.cmd_base import ModuleTaskLoader  # type: ignore[import-not-found, unused-ignore]
from doit.doit_cmd import DoitMain  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import JOBS, Prepared, Task, serve, step_name


def prepare(task: Task) -> Prepared:
    """Declare the steps as doit's dictionaries, without files: all of them are due."""

    def call() -> bool:
        task.work()
        return True

    def task_steps() -> Iterator[dict[str, Any]]:
        for position, earlier in enumerate(task.edges):
            yield {
                "basename": step_name(position),
                "actions": [call],
                "task_dep": [step_name(each) for each in earlier],
            }

    states = os.path.join(task.directory, "states.db")
    config = {
        "GLOBAL": {
            "dep_file": states,
            "backend": "sqlite3",
            "num_process": JOBS,
            "par_type": "thread",
            "reporter": "zero",
            "verbosity": 0,
        }
    }
    main = DoitMain(ModuleTaskLoader({"task_steps": task_steps}), extra_config=config)
    codes: list[int] = []

    def run() -> None:
        codes.append(main.run(["run"]))

    def check() -> None:
        assert codes == [0]
        assert any(name.startswith("states.db") for name in os.listdir(task.directory))

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("doit"), prepare)
