"""dbos: one durable workflow that calls the steps in their order; each result is a row in SQLite.

Its steps could be started side by side, as workflows of a queue; that costs more for each, not less.
"""

from __future__ import annotations

import os
import sqlite3
from importlib.metadata import version

from dbos import DBOS, DBOSConfig  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import Prepared, Task, serve


def prepare(task: Task) -> Prepared:
    """Launch dbos on a new database, with the workflow registered."""
    path = os.path.join(task.directory, "dbos.sqlite")
    config: DBOSConfig = {
        "name": "benchmark",
        "system_database_url": f"sqlite:///{path}",
        "log_level": "ERROR",
        "run_admin_server": False,
    }
    DBOS(config=config)

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    def step() -> None:
        task.work()

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    def workflow() -> None:
        # The serial order respects every edge.
        for _ in task.edges:
            step()

    DBOS.launch()

    def run() -> None:
        workflow()

    def check() -> None:
        with sqlite3.connect(path) as connection:
            (count,) = connection.execute("SELECT count(*) FROM operation_outputs").fetchone()
        assert count == len(task.edges), f"{count} results in the database"
        DBOS.destroy()

    return Prepared(run, check)


if __name__ == "__main__":
    serve(version("dbos"), prepare)
