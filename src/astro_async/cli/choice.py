"""Which run does `astro run` mean, and why that one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from astro_async._core.names import RunId
from astro_async._core.selection import RunSummary
from astro_async.reading import find_run

__all__ = ["Choice", "choose_run"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The run that is meant.

    Attributes:
        run_id: The run.
        why: Why that one, in words.
        waiting: The others that have something to do, newest first.
    """

    run_id: RunId
    why: str
    waiting: Sequence[RunSummary]


def choose_run(pipeline_dir: str, named: str | None) -> Choice | None:
    """Return the run that is meant, and why; None if none was named and none has anything to do.

    Raises:
        InvalidNameError: What is named is no run id.
        RunNotFoundError: There is no such run.
    """
    found = find_run(pipeline_dir, named)
    if found.run_id is None:
        return None
    status = "not readable" if found.status is None else found.status.value
    if named is None:
        why = f"the newest that has something to do ({status})"
    else:
        why = f"the latest ({status})" if named == "latest" else f"named ({status})"
    return Choice(found.run_id, why, found.waiting)
