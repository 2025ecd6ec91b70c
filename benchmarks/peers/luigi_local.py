"""luigi with its local scheduler and one worker: a step is done once its marker file is there.

More workers are processes, forked for each step; with them it is slower (and its steps could not be counted).
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import version
from typing import Any

import luigi  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import Prepared, Task, serve, step_name
from benchmarks.shapes import sinks_of


def prepare(task: Task) -> Prepared:
    """Declare one class of task with the position for its parameter."""
    logging.getLogger("luigi").setLevel(logging.ERROR)
    logging.getLogger("luigi-interface").setLevel(logging.ERROR)

    class Step(luigi.Task):  # type: ignore[misc, unused-ignore]
        position = luigi.IntParameter()

        def requires(self) -> list[Any]:
            return [Step(position=each) for each in task.edges[self.position]]

        def output(self) -> Any:
            return luigi.LocalTarget(os.path.join(task.directory, step_name(self.position)))

        def run(self) -> None:
            task.work()
            with self.output().open("w") as file:
                file.write("done")

    # The last ones alone: it finds what they need, and looks through it anew for each that it is given.
    steps = [Step(position=position) for position in sinks_of(task.edges)]
    outcomes: list[bool] = []

    def run() -> None:
        outcomes.append(luigi.build(steps, local_scheduler=True, workers=1, log_level="ERROR"))

    def check() -> None:
        assert outcomes == [True]
        assert len(os.listdir(task.directory)) == len(task.edges)

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("luigi"), prepare)
