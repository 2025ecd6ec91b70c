"""Which run does a bare `astro run` mean?

The newest by ingest time that has something to do, so that tonight's files are never held up by
yesterday's undecided rows. The others that wait are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from astro_async._core.names import RunId
from astro_async._core.status import RunStatus

__all__ = ["RunSummary", "has_something_to_do", "newest_first", "select_waiting"]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What selection and `astro list` need to know of a run.

    Attributes:
        run_id: The run.
        status: As derived by a reader: a run that says `running` while nobody holds its lock is
            `interrupted`.
        pipeline_name: What the pipeline called itself.
        created_at: ISO 8601, UTC.
        ingested_at: ISO 8601, UTC; None while it is being ingested.
        source_directory: Where its files came from.
        counts: Steps by status.
        rows_quarantined: Rows that wait in quarantine.
        is_decided: Whether decisions stand about rows of it.
        is_unfinished: Whether whoever was on it died before all of it was written.
    """

    run_id: RunId
    status: RunStatus
    pipeline_name: str
    created_at: str
    ingested_at: str | None
    source_directory: str
    counts: dict[str, int]
    rows_quarantined: int
    is_decided: bool = False
    is_unfinished: bool = False


def has_something_to_do(summary: RunSummary) -> bool:
    """Tell whether a bare `astro run` may take up this run."""
    is_done = summary.status is RunStatus.COMPLETED and not summary.is_unfinished
    return summary.ingested_at is not None and not is_done


def newest_first(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Sort runs by ingest time, newest first; equal times by id, so that the order is stable."""
    return sorted(runs, key=lambda run: (run.ingested_at or run.created_at, run.run_id), reverse=True)


def select_waiting(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs that have something to do, in the order given.

    Of runs newest first, the first of these is the one that a bare `astro run` means.
    """
    return [run for run in runs if has_something_to_do(run)]
