"""What is known of a run and its steps: the fold of its journal.

`fold` applies one event to a `RunRecord`, checking it against the transition tables. It needs no pipeline:
whoever reads a journal, be it recovery, `astro show` or a test, gets the same state from the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    PartWritten,
    RowsPatched,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
    StepStarted,
    VersionsDropped,
    VersionWritten,
    kind_of,
)
from astro_async._core.names import RunId, check_run_id
from astro_async._core.status import RunStatus, StepStatus, next_run_status, step_moves
from astro_async.exceptions import IllegalTransitionError, InvalidNameError, JournalError

__all__ = ["IngestedFile", "Patch", "RunRecord", "StepRecord", "fold", "start_record", "written_paths"]

# Looking a member up costs as much as a call in Python 3.11, and these are asked for at every step.
_RUN_RUNNING: Final = RunStatus.RUNNING
_STEP_RUNNING: Final = StepStatus.RUNNING


class IngestedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ingested source.

    Attributes:
        name: The `ingest_name`.
        source_path: Absolute path of the source.
        parquet_path: The ingested version, relative to the run directory.
        row_count: Rows of the ingested version.
        column_count: Columns of the ingested version.
        source_size_bytes: Size of the source, packed as it came.
        size_bytes: Size of the ingested version.
        tail_crc32: Checksum of the last bytes of the ingested version; None where nobody took it.
        private: Parked rows of it are for the eyes of their owner only.
        source_sha256: SHA-256 of the source as delivered; None in runs of before it was kept.
        ignored_columns: Columns of the source that were left out.
        inserted_columns: Columns that the source lacks and that are null.
        rows_quarantined: Rows of the source that could not be read and are parked.
        parts: The files that hold them, in numeric order.
        reasons: For each reason the number of rows that it applies to.
        rows_in: Rows of the source, good and parked; None where none was parked.
    """

    name: str
    source_path: str
    parquet_path: str
    row_count: int
    column_count: int
    source_size_bytes: int
    size_bytes: int
    tail_crc32: int | None = None
    private: bool = False
    source_sha256: str | None = None
    ignored_columns: tuple[str, ...] = ()
    inserted_columns: tuple[str, ...] = ()
    rows_quarantined: int = 0
    parts: tuple[PartWritten, ...] = ()
    reasons: dict[str, int] = {}
    rows_in: int | None = None


class StepRecord(msgspec.Struct, frozen=True, gc=False):
    """The last that is known of one step.

    Attributes:
        step_id: The step.
        status: Its status.
        detail: Why it has this status, in words; names the steps it waits for or is blocked by.
        attempt: How often it was started, over all invocations.
        started_at: When the last attempt started; ISO 8601, UTC.
        finished_at: When it settled; ISO 8601, UTC.
        files: What the last attempt did with each file; empty unless it settled by running.
    """

    step_id: str
    status: StepStatus = StepStatus.PENDING
    detail: str | None = None
    attempt: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    files: tuple[FileFlow, ...] = ()

    def read_versions(self) -> dict[str, str]:
        """Return, for each file, the version that the last attempt was given."""
        return {flow.name: flow.read for flow in self.files}

    def published_versions(self) -> dict[str, str]:
        """Return, for each file that the last attempt published, the new version."""
        return {flow.name: flow.published.path for flow in self.files if flow.published is not None}


class Patch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator decided about rows of a step's input; see `RowsPatched`.

    Attributes:
        step_id: The step that is given the rows so.
        file: The file they belong to.
        path: The patch, relative to the run directory.
        rows: How many rows it decides about.
        discarded: How many of them are left out.
        because: Why, in the operator's words.
        recorded_at: When.
        attempt: The attempt of the step that set the rows aside.
        amended_waiting: As `RowsPatched`, and so are the others.
    """

    step_id: str
    file: str
    path: str
    rows: int
    discarded: int
    because: str | None
    recorded_at: str
    attempt: int = 0
    amended_waiting: int = 0
    discarded_waiting: int = 0
    withdrawn: int = 0
    withdrawn_waiting: int = 0
    standing: int = 0


class RunRecord(msgspec.Struct):
    """The state of one run.

    Attributes:
        run_id: The run.
        pipeline_name: What the pipeline calls itself.
        status: Its status.
        source_directory: Absolute path of the source.
        run_date: ISO date, fixed when the run is created.
        params: What a retry uses again unless given anew.
        created_at: When it was created; ISO 8601, UTC.
        ingested_at: When its files were all ingested; ISO 8601, UTC.
        files: Ingested files by name.
        steps: Step records by id, in serial order.
        removed: Attempts of steps that the pipeline no longer has.
        patches: Decisions about single rows, in the order in which they apply.
        unlinked: Names given with `save_to` by attempts that are forgotten, until the run has ended: a link
            that no record names any more may still be there.
        dropped: Versions and patches that were removed, though records name them.
        detail: Why the last invocation ended as it did, or why it has to run again.
        seq: Number of the last event.
        finished_at: When the last invocation ended; ISO 8601, UTC.
    """

    run_id: RunId
    pipeline_name: str
    status: RunStatus
    source_directory: str
    run_date: str
    params: dict[str, Any]
    created_at: str
    ingested_at: str | None = None
    files: dict[str, IngestedFile] = {}
    steps: dict[str, StepRecord] = {}
    removed: dict[str, int] = {}
    patches: list[Patch] = []
    unlinked: set[str] = set()
    dropped: set[str] = set()
    detail: str | None = None
    seq: int = 0
    finished_at: str | None = None

    def named_paths(self) -> Iterator[str]:
        """Yield the path of every data file that a record names; some more than once."""
        for file in self.files.values():
            yield file.parquet_path
            for part in file.parts:
                yield part.path
        for patch in self.patches:
            yield patch.path
        for record in self.steps.values():
            for flow in record.files:
                yield flow.read
                yield from written_paths(flow)


def written_paths(flow: FileFlow) -> Iterator[str]:
    """Yield the paths of the files that an attempt published for one file."""
    if flow.published is not None:
        yield flow.published.path
    for saved in flow.saved:
        yield saved.path
    for part in flow.parts:
        yield part.path
        if part.positions is not None:
            yield part.positions
    if flow.filtered is not None:
        yield flow.filtered


def start_record(event: AnyEvent) -> RunRecord:
    """Return the record that the first event of a journal makes.

    Raises:
        JournalError: The first event is not `run_created`.
    """
    if not isinstance(event, RunCreated):
        raise JournalError(f"the journal starts with {kind_of(event)}, not with run_created")
    try:
        run_id = check_run_id(event.run_id)
    except InvalidNameError as error:
        raise JournalError(f"the journal is of no run: {error}") from None
    return RunRecord(
        run_id=run_id,
        pipeline_name=event.pipeline_name,
        status=RunStatus.CREATED,
        source_directory=event.source_directory,
        run_date=event.run_date,
        params=event.params,
        created_at=event.time,
        seq=event.seq,
    )


def fold(run: RunRecord, event: AnyEvent) -> StepStatus | None:
    """Apply one event to the record of its run.

    The work is constant for a step's event; planning is linear in the steps that it names.

    Returns:
        The status that the event gives a step; None if it is not about one, or gives it none.

    Raises:
        IllegalTransitionError: The event cannot follow the present status; the record is unchanged.
        JournalError: The event does not belong here: another run, a gap in `seq`.
    """
    if event.seq != run.seq + 1 or event.run_id != run.run_id:
        raise JournalError(
            f"event {event.seq} of run {event.run_id} cannot follow event {run.seq} of run {run.run_id}"
        )
    found = _STEP_FOLDS.get(type(event))
    if found is None:
        _fold_other(run, event)
        run.seq = event.seq
        return None
    record = _planned(run, event)
    if run.status is not _RUN_RUNNING:
        raise IllegalTransitionError(f"{kind_of(event)} for {event.step_id!r} in a run that is {run.status}")
    advance, moves = found
    after = advance(record, event)
    if (record.status, after.status) not in moves:
        raise IllegalTransitionError(
            f"{kind_of(event)} cannot make a {record.status} step {after.status}: {record!r}"
        )
    run.steps[record.step_id] = after
    run.seq = event.seq
    return after.status


def _planned(run: RunRecord, event: AnyEvent) -> StepRecord:
    step_id = event.step_id
    if step_id in run.steps:
        return run.steps[step_id]
    if step_id is None:
        raise JournalError(f"{kind_of(event)} without a step")
    raise IllegalTransitionError(f"{kind_of(event)} for {step_id!r}, which was never planned")


def _start(record: StepRecord, event: StepStarted) -> StepRecord:
    attempt = event.attempt or record.attempt + 1
    return StepRecord(record.step_id, _STEP_RUNNING, None, attempt, event.time)


def _finish(record: StepRecord, event: StepFinished) -> StepRecord:
    return StepRecord(
        record.step_id, event.status, event.detail, record.attempt, record.started_at, event.time, event.files
    )


def _await_retry(record: StepRecord, event: StepRetrying) -> StepRecord:
    return msgspec.structs.replace(record, detail=event.detail)


def _end_as(status: StepStatus) -> Callable[[StepRecord, Any], StepRecord]:
    return lambda record, event: StepRecord(record.step_id, status, event.detail, record.attempt)


# What each kind of event makes of a step, and the (before, after) that it may mean.
_STEP_FOLDS: Final[dict[type, tuple[Callable[[StepRecord, Any], StepRecord], tuple[object, ...]]]] = {
    StepStarted: (_start, step_moves("step_started")),
    StepFinished: (_finish, step_moves("step_finished")),
    StepRetrying: (_await_retry, step_moves("step_retrying")),
    StepBlocked: (_end_as(StepStatus.BLOCKED), step_moves("step_blocked")),
    StepSkipped: (_end_as(StepStatus.SKIPPED), step_moves("step_skipped")),
    StepInterrupted: (_end_as(StepStatus.PENDING), step_moves("step_interrupted")),
}


def _fold_other(run: RunRecord, event: AnyEvent) -> None:
    if event.step_id is not None and not isinstance(event, RowsPatched):
        raise JournalError(f"{kind_of(event)} names a step")
    match event:
        case RowsPatched():
            _planned(run, event)
            if run.status is RunStatus.COMPLETED and event.withdrawn_waiting:
                run.status = next_run_status("rows_patched", run.status, RunStatus.INTERRUPTED, run.run_id)
                run.detail = "decisions that it was completed with have been withdrawn"
            run.patches.append(_patch(event))
        case FileIngested():
            if run.status is not RunStatus.CREATED:
                raise IllegalTransitionError(
                    f"file {event.name!r} ingested into run {run.run_id}, {run.status}"
                )
            run.files[event.name] = _ingested(event)
        case RunIngested():
            run.status = next_run_status("run_ingested", run.status, RunStatus.INGESTED, run.run_id)
            run.ingested_at = event.time
        case RunPlanned():
            status = next_run_status("run_planned", run.status, RunStatus.RUNNING, run.run_id)
            _fold_plan(run, event)
            run.status = status
            run.detail = run.finished_at = None
            run.params = event.params
        case RunFinished():
            run.status = next_run_status("run_finished", run.status, event.status, run.run_id)
            run.detail, run.finished_at = event.detail, event.time
            run.unlinked.clear()
        case VersionsDropped():
            run.dropped.update(event.paths)
        case _:
            raise JournalError(f"{kind_of(event)} twice")


def _fold_plan(run: RunRecord, event: RunPlanned) -> None:
    again = [step_id for step_ids in event.again.values() for step_id in step_ids]
    removed = set(event.removed)
    is_repeated = len(removed) < len(event.removed) or len(set(again)) < len(again)
    is_incomplete = bool(event.order) and (
        (run.steps.keys() - removed) | set(again) != set(event.order)
        or len(set(event.order)) < len(event.order)
    )
    if removed - run.steps.keys() or is_repeated or is_incomplete:
        raise JournalError(f"the plan of event {event.seq} does not name the steps of run {run.run_id}")
    for step_id in (*event.removed, *again):
        for flow in run.steps[step_id].files if step_id in run.steps else ():
            run.unlinked.update(saved.name for saved in flow.saved)
    for step_id in event.removed:
        # A step that comes back under the same id goes on counting: no version name is used twice.
        run.removed[step_id] = run.steps.pop(step_id).attempt
    for step_id in again:
        record = run.steps.get(step_id)
        attempt = run.removed.pop(step_id, 0) if record is None else record.attempt
        run.steps[step_id] = StepRecord(step_id, attempt=attempt)
    if event.order:
        run.steps = {step_id: run.steps[step_id] for step_id in event.order}


def _patch(event: RowsPatched) -> Patch:
    return Patch(
        step_id=str(event.step_id),
        file=event.file,
        path=event.path,
        rows=event.rows,
        discarded=event.discarded,
        because=event.because,
        recorded_at=event.time,
        attempt=event.attempt or 0,
        amended_waiting=event.amended_waiting,
        discarded_waiting=event.discarded_waiting,
        withdrawn=event.withdrawn,
        withdrawn_waiting=event.withdrawn_waiting,
        standing=event.standing,
    )


def _ingested(event: FileIngested) -> IngestedFile:
    version: VersionWritten = event.version
    return IngestedFile(
        name=event.name,
        source_path=event.source_path,
        parquet_path=version.path,
        row_count=version.rows,
        column_count=version.columns,
        source_size_bytes=event.source_size_bytes,
        size_bytes=version.size_bytes,
        tail_crc32=version.tail_crc32,
        private=event.private,
        source_sha256=event.source_sha256,
        ignored_columns=event.ignored_columns,
        inserted_columns=event.inserted_columns,
        rows_quarantined=event.rows_quarantined,
        parts=event.parts,
        reasons=event.reasons,
        rows_in=event.rows_in,
    )
