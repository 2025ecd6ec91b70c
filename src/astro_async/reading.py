"""Reading the runs of a pipeline directory: which there are, how they stand, which one is meant.

Takes no lock, changes nothing, and loads neither Polars nor the pipeline: this is what `astro list` costs.
"""

from __future__ import annotations

import os

from astro_async._core.names import RunId, check_run_id
from astro_async._core.records import RunRecord
from astro_async._core.selection import RunSummary, has_something_to_do, newest_first, select_run
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.catalogue import load_run, load_summaries
from astro_async.exceptions import RunNotFoundError

__all__ = ["exit_code_of", "find_run", "list_runs", "read_run"]

PathLike = str | os.PathLike[str]


def list_runs(pipeline_dir: PathLike = ".") -> tuple[list[RunSummary], list[str]]:
    """Return a summary of each run, newest first, and a notice for each that cannot be read."""
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
    chosen, _ = find_run(pipeline_dir, run_id)
    assert chosen is not None
    return load_run(os.fspath(pipeline_dir), chosen)


def find_run(pipeline_dir: PathLike, run_id: str | None) -> tuple[RunId | None, list[RunSummary]]:
    """Return the run that is meant, and the others that have something to do, newest first.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: An id, `"latest"` for the newest run, or None for the newest that has something to do.

    Returns:
        The run, None if None was asked for and no run has anything to do.

    Raises:
        InvalidNameError: It is no run id.
        RunNotFoundError: There is no such run.
    """
    summaries, _ = load_summaries(os.fspath(pipeline_dir))
    known = [summary.run_id for summary in summaries]
    if run_id is None:
        selected = select_run(summaries).chosen
        chosen = None if selected is None else selected.run_id
    elif run_id == "latest":
        if not known:
            raise RunNotFoundError(f"there is no run in {pipeline_dir}: `astro ingest SOURCE_DIR` makes one")
        chosen = known[0]
    else:
        chosen = check_run_id(run_id)
    waiting = [each for each in newest_first(summaries) if has_something_to_do(each)]
    return chosen, [each for each in waiting if each.run_id != chosen]


def exit_code_of(record: RunRecord) -> int:
    """Return what the command line returns for the state of a run.

    0 completed, 1 a step failed, 3 rows wait in quarantine, 130 interrupted.
    """
    if record.status is RunStatus.INTERRUPTED:
        return 130
    if any(step.status is StepStatus.FAILED for step in record.steps.values()):
        return 1
    return 3 if record.status in (RunStatus.QUARANTINED, RunStatus.FAILED) else 0
