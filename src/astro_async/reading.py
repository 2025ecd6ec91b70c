"""Reading the runs of a pipeline directory: which there are, how they stand, which one is meant.

Takes no lock, changes nothing, and loads neither Polars nor the pipeline: this is what `astro list` costs.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from astro_async._core.names import RunId, check_run_id
from astro_async._core.records import RunRecord
from astro_async._core.selection import RunSummary, select_waiting
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.catalogue import existing_run_directory, load_attention, load_run, load_summaries
from astro_async._store.layout import command_line
from astro_async.exceptions import JournalError, RunNotFoundError

__all__ = ["LATEST", "FoundRun", "exit_code_of", "find_run", "list_runs", "read_attention", "read_run"]

PathLike = str | os.PathLike[str]

LATEST: Final = "latest"


_LOGGER: Final = logging.getLogger("astro_async")


@dataclass(frozen=True, slots=True)
class FoundRun:
    """The run that is meant, and the others that wait.

    Attributes:
        run_id: The run; None if none was named and none has anything to do.
        status: How it stands; None where it cannot be read.
        waiting: The others that have something to do, newest first.
    """

    run_id: RunId | None
    status: RunStatus | None
    waiting: Sequence[RunSummary]


def list_runs(pipeline_dir: PathLike = ".") -> tuple[list[RunSummary], list[str]]:
    """Return a summary of each run, newest first, and a notice for each that cannot be read.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`. Where there are none, both lists are empty.
    """
    return load_summaries(os.fspath(pipeline_dir))


def read_run(pipeline_dir: PathLike, run_id: str) -> RunRecord:
    """Return the state of a run as of now, whether or not it is running.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: An id, or `"latest"` for the newest run.

    Raises:
        InvalidNameError: It is no run id.
        RunNotFoundError: There is no such run.
        JournalError: It is damaged.
        StorageError: It cannot be read.
    """
    directory = os.fspath(pipeline_dir)
    return load_run(directory, _choose(directory, run_id))


def read_attention(pipeline_dir: PathLike, run_id: str, *, above: int) -> tuple[RunRecord, Mapping[str, int]]:
    """Return of the state of a run what needs attention, and its steps by status.

    The record has all steps; or, of a run that has more of them than `above`, perhaps only those that did not
    simply go well or wait, which costs much less.

    Raises:
        AstroError: As `read_run`.
    """
    directory = os.fspath(pipeline_dir)
    chosen = _choose(directory, run_id)
    found = load_attention(directory, chosen, above=above)
    if found is not None:
        return found
    record = load_run(directory, chosen)
    return record, Counter(step.status.value for step in record.steps.values())


def _choose(directory: str, run_id: str) -> RunId:
    return _find_latest(list_runs(directory)[0], directory) if run_id == LATEST else check_run_id(run_id)


def find_run(pipeline_dir: PathLike, run_id: str | None) -> FoundRun:
    """Return the run that is meant, and the others that wait. Lists the runs once, whichever is meant.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: An id, `"latest"` for the newest run, or None for the newest that has something to do.

    Raises:
        InvalidNameError: It is no run id.
        RunNotFoundError: There is no such run.
        JournalError: No readable run has anything to do, and there is one that cannot be read.
    """
    directory = os.fspath(pipeline_dir)
    if run_id not in (None, LATEST):
        existing_run_directory(directory, check_run_id(run_id))
    summaries, notices = list_runs(directory)
    waiting = select_waiting(summaries)
    if notices and run_id in (None, LATEST):
        if not waiting and not (run_id == LATEST and summaries):
            # Not "nothing to do": there may be, and nobody can tell.
            raise JournalError(f"{'; '.join(notices)} (no other run has anything to do)")
        for notice in notices:
            _LOGGER.warning("%s", notice)
    if run_id is None:
        chosen = waiting[0].run_id if waiting else None
    else:
        chosen = _find_latest(summaries, directory) if run_id == LATEST else RunId(run_id)
    status = next((each.status for each in summaries if each.run_id == chosen), None)
    return FoundRun(chosen, status, [each for each in waiting if each.run_id != chosen])


def _find_latest(summaries: Sequence[RunSummary], pipeline_dir: str) -> RunId:
    if not summaries:
        hint = command_line("ingest SOURCE_DIR", pipeline_dir)
        raise RunNotFoundError(f"there is no run in {pipeline_dir}: `{hint}` makes one")
    return summaries[0].run_id


def exit_code_of(record: RunRecord) -> int:
    """Return what the command line returns for the state of a run.

    0 completed, 1 a step failed, 3 rows wait in quarantine, 130 interrupted.
    """
    if record.status is RunStatus.INTERRUPTED:
        return 130
    if any(step.status is StepStatus.FAILED for step in record.steps.values()):
        return 1
    return 3 if record.status in (RunStatus.QUARANTINED, RunStatus.FAILED) else 0
