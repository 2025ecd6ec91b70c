"""Which run does `astro run` mean, and why that one?"""

from __future__ import annotations

from dataclasses import dataclass

from astro_async._core.selection import RunSummary
from astro_async._store.catalogue import existing_run_directory
from astro_async.reading import find_run, list_runs

__all__ = ["Choice", "choose_run"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The run that is meant.

    Attributes:
        run_id: The run; None if none has anything to do.
        why: Why that one, in words.
        waiting: The others that have something to do, newest first.
    """

    run_id: str | None
    why: str
    waiting: list[RunSummary]


def choose_run(pipeline_dir: str, named: str | None) -> Choice:
    """Return the run that is meant, and why.

    Raises:
        InvalidNameError: What is named is no run id.
        RunNotFoundError: There is no such run.
    """
    chosen, waiting = find_run(pipeline_dir, named)
    if chosen is None:
        return Choice(None, "", [])
    existing_run_directory(pipeline_dir, chosen)
    summaries, _ = list_runs(pipeline_dir)
    status = next((str(each.status.value) for each in summaries if each.run_id == chosen), "not readable")
    if named is None:
        why = f"the newest that has something to do ({status})"
    else:
        why = f"the latest ({status})" if named == "latest" else f"named ({status})"
    return Choice(chosen, why, waiting)
