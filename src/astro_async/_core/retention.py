"""Which runs may be removed, and which are. Pure.

Undecided rows, and decisions that a run has yet to apply, are never removed, whatever the operator says: they
are in no other place.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from astro_async._core.decisions import has_decisions
from astro_async._core.records import RunRecord
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus

__all__ = ["refuse_record", "refuse_removal", "select_removable"]

_UNFINISHED: Final = frozenset({RunStatus.INGESTED, RunStatus.FAILED, RunStatus.INTERRUPTED})


def refuse_removal(
    status: RunStatus, rows_quarantined: int, *, is_decided: bool = False, unfinished: bool = False
) -> str | None:
    """Return why a run is not removed, or None if it may be.

    Args:
        status: Of the run.
        rows_quarantined: Rows that wait in its quarantine.
        is_decided: Whether decisions stand about rows of it.
        unfinished: Whether the operator gives up runs that did not come to a good end.
    """
    if is_decided and status is not RunStatus.COMPLETED:
        return "has decisions about rows that it has yet to apply (`astro quarantine withdraw` gives them up)"
    if rows_quarantined:
        noun = "row" if rows_quarantined == 1 else "rows"
        return f"has {rows_quarantined:,} undecided {noun} in quarantine"
    if status is RunStatus.COMPLETED or (unfinished and status in _UNFINISHED):
        return None
    return f"is {status.value}" + (", not completed (--unfinished)" if status in _UNFINISHED else "")


def refuse_record(run: RunRecord, *, unfinished: bool = False) -> str | None:
    """Return the same for the record of a run."""
    rows = sum(flow.rows_quarantined for step in run.steps.values() for flow in step.files if flow.parts)
    is_decided = has_decisions(run.patches, run.removed)
    return refuse_removal(run.status, rows, is_decided=is_decided, unfinished=unfinished)


def select_removable(
    runs: Sequence[RunSummary],
    *,
    now: datetime,
    older_than: timedelta | None = None,
    keep_last: int = 0,
    unfinished: bool = False,
) -> list[RunSummary]:
    """Return the runs that may be removed, oldest first.

    Args:
        runs: All runs, newest first.
        now: The time.
        older_than: Only runs that were ingested longer ago.
        keep_last: Of those that may be removed, the newest so many stay.
        unfinished: As in `refuse_removal`.
    """
    allowed = [
        run
        for run in runs
        if refuse_removal(run.status, run.rows_quarantined, is_decided=run.is_decided, unfinished=unfinished)
        is None
    ][keep_last:]
    chosen = [
        run
        for run in allowed
        if older_than is None or now - datetime.fromisoformat(run.ingested_at or run.created_at) > older_than
    ]
    return chosen[::-1]
