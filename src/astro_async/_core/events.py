"""Facts, in the past tense: what the journal holds, and what every reader of a run is told.

Each event is one line of `events.jsonl`. The journal is the truth: folding the events of a run gives
its state (`records.fold`), with no need of the pipeline that wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, get_args

import msgspec

from astro_async._core.names import check_recorded_link, check_recorded_name, check_recorded_path
from astro_async._core.status import RunStatus, StepStatus
from astro_async.exceptions import JournalError

__all__ = [
    "AnyEvent",
    "Event",
    "FileFlow",
    "FileIngested",
    "PartWritten",
    "RowsPatched",
    "RuleCount",
    "RunCreated",
    "RunFinished",
    "RunIngested",
    "RunPlanned",
    "SavedFile",
    "StatRecorded",
    "StepBlocked",
    "StepFinished",
    "StepInterrupted",
    "StepProgress",
    "StepRetrying",
    "StepSkipped",
    "StepStarted",
    "VersionWritten",
    "VersionsDropped",
    "check_flow",
    "dump_event",
    "dump_events",
    "kind_of",
    "parse_event",
]


class VersionWritten(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One immutable Parquet file of a run.

    Attributes:
        path: Relative to the run directory.
        rows: Number of rows.
        columns: Number of columns.
        size_bytes: Size of the file.
        tail_crc32: Checksum of its last bytes as published; None where nobody took it.
    """

    path: str
    rows: int
    columns: int
    size_bytes: int
    tail_crc32: int | None = None


class PartWritten(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One part of the quarantine of a step, or of the ingest.

    Attributes:
        path: Relative to the run directory.
        rows: Number of rows.
        size_bytes: Size of the file.
        positions: Path of the sidecar with the rows' positions in the snapshot, where known.
        tail_crc32: As in `VersionWritten`.
    """

    path: str
    rows: int
    size_bytes: int
    positions: str | None = None
    tail_crc32: int | None = None


class SavedFile(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A name given with `save_to`, and the version file that it links to.

    Attributes:
        name: Relative to the run directory.
        path: The version file, relative to the run directory.
        size_bytes: Size of the file.
        tail_crc32: As in `VersionWritten`; None where the file is the version, which has its own.
    """

    name: str
    path: str
    size_bytes: int
    tail_crc32: int | None = None


class RuleCount(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How many rows of a file break one rule.

    Attributes:
        reason: The rule's own words.
        rows: The rows; a row that breaks two rules counts for both.
        severity: `quarantine`, or `warn` for a rule that leaves them where they are.
    """

    reason: str
    rows: int
    severity: str = "quarantine"


class FileFlow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one attempt of a step did with one file.

    Attributes:
        name: The file.
        read: Path of the version that the step was given.
        rows_in: Rows of that version.
        rows_out: Rows that later steps see: those of the published version, else all that came in; None if
            the step only read the file.
        rows_quarantined: Rows in the parts.
        published: The version that it published. A check that sets nothing aside publishes the version
            that it was given, so that it is judged again when its input changes.
        parts: Quarantine parts in numeric order.
        rows_discarded: Rows left out because an operator said so.
        rows_filtered: Rows removed on purpose; None if the step is no filter.
        filtered: The file that keeps them, if there are any, relative to the run directory.
        saved: Names given with `save_to`.
        reasons: For each reason (a rule, or the words of the author) the number of rows it applies to.
        conserves_rows: The step is a check: each row that came in went out, or is quarantined or discarded.
        rules: The rules by which the rows were judged, those that no row breaks too.
    """

    name: str
    read: str
    rows_in: int
    rows_out: int | None
    rows_quarantined: int
    published: VersionWritten | None
    parts: tuple[PartWritten, ...] = ()
    rows_discarded: int = 0
    rows_filtered: int | None = None
    filtered: str | None = None
    saved: tuple[SavedFile, ...] = ()
    reasons: dict[str, int] = {}
    conserves_rows: bool = False
    rules: tuple[RuleCount, ...] = ()


class StatRecorded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A number that a step recorded; the last one of a subject and action counts."""

    scope: str
    subject: str
    action: str
    value: float


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind"):
    """What all events have.

    Attributes:
        seq: 1, 2, … without gaps within a run.
        time: ISO 8601, UTC.
        run_id: The run.
        step_id: The step, where there is one.
        attempt: Its attempt, where there is one.
    """

    seq: int
    time: str
    run_id: str
    step_id: str | None = None
    attempt: int | None = None


class RunCreated(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run_created"):
    """A run came to be; its files are not ingested yet."""

    pipeline_name: str
    source_directory: str
    run_date: str
    params: dict[str, Any]


class FileIngested(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="file_ingested"):
    """One source file became the first version of a file.

    Attributes:
        name: The ingest name.
        source_path: Absolute path of the source.
        source_size_bytes: Its size.
        version: What it became.
        source_sha256: SHA-256 of the source as delivered, in hexadecimal; None in runs of before it was kept.
        ignored_columns: Columns of the source that were left out.
        inserted_columns: Columns that the source lacks and that are null.
        rows_quarantined: Rows of the source that could not be read and are parked.
        parts: The files that hold them, in numeric order.
        reasons: For each reason the number of rows that it applies to.
        rows_in: Rows of the source, good and parked; None where none was parked.
    """

    name: str
    source_path: str
    source_size_bytes: int
    version: VersionWritten
    private: bool = False
    source_sha256: str | None = None
    ignored_columns: tuple[str, ...] = ()
    inserted_columns: tuple[str, ...] = ()
    rows_quarantined: int = 0
    parts: tuple[PartWritten, ...] = ()
    reasons: dict[str, int] = {}
    rows_in: int | None = None


class RunIngested(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run_ingested"):
    """All files of the run are ingested."""


class RunPlanned(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run_planned"):
    """An invocation began: the one line that commits what must run again.

    Attributes:
        again: Step ids by reason; they become `pending` and lose what they published.
        removed: Steps that the pipeline no longer has; only their attempts are remembered.
        order: All steps in serial order, where that is not the order in which they became known.
        params: The parameters of this invocation.
        jobs: How many steps may run at once.
        pid: The process.
        host: Its machine.
    """

    again: dict[str, list[str]]
    params: dict[str, Any]
    jobs: int
    pid: int
    host: str
    removed: list[str] = []
    order: list[str] = []


class StepStarted(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_started"):
    """An attempt was handed to a worker."""


class StepRetrying(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_retrying"):
    """An attempt failed and another will follow in the same invocation."""

    detail: str
    error: str


class StepFinished(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_finished"):
    """An attempt settled as `complete`, `quarantined` or `failed`."""

    status: StepStatus
    duration_ms: float
    detail: str | None = None
    files: tuple[FileFlow, ...] = ()
    stats: tuple[StatRecorded, ...] = ()


class StepBlocked(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_blocked"):
    """A step cannot run, for a dependency did not end well."""

    detail: str


class StepSkipped(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_skipped"):
    """None of a step's optional files was delivered."""

    detail: str


class StepInterrupted(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_interrupted"):
    """A running step was cancelled from outside; it published nothing."""

    detail: str


class RunFinished(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run_finished"):
    """The invocation ended with this verdict."""

    status: RunStatus
    duration_ms: float
    detail: str | None = None


class RowsPatched(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="rows_patched"):
    """An operator decided about rows that a step had set aside; the step gets them so when it runs again.

    Attributes:
        file: The file that the rows belong to; `step_id` is the step.
        path: The patch, relative to the run directory.
        rows: How many rows it decides about.
        discarded: How many of them are left out.
        because: Why, in the operator's words.
        amended_waiting: Rows of the step and file that are amended and not yet run, this decision included.
        discarded_waiting: Rows that are left out and not yet run, this decision included.
        withdrawn: How many of them are judged again as they came: all of `rows`, or none. Then the patch
            holds positions only, and what was decided before about rows at them counts no more.
        withdrawn_waiting: Rows about which the last attempt was given a decision that has been withdrawn.
        standing: Of a withdrawal: about how many rows of the step and file a decision still stands.

    `attempt` is the one that set the rows aside, of a withdrawal the last one. Of two decisions about one row
    of an attempt the later one counts.
    """

    file: str
    path: str
    rows: int
    discarded: int
    because: str | None = None
    amended_waiting: int = 0
    discarded_waiting: int = 0
    withdrawn: int = 0
    withdrawn_waiting: int = 0
    standing: int = 0


class VersionsDropped(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="versions_dropped"):
    """Files that only a re-run needs are about to be removed: old versions, or what was decided about rows.

    Attributes:
        paths: Relative to the run directory.
        size_bytes: What they take together.
    """

    paths: list[str]
    size_bytes: int


class StepProgress(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="step_progress"):
    """How much of a running step is done, as it says itself. Told to readers, never in the journal.

    Its `seq` is that of the last event in the journal.
    """

    fraction: float


# The closed set of facts: readers may match it exhaustively.
AnyEvent = (
    RunCreated
    | FileIngested
    | RunIngested
    | RunPlanned
    | StepStarted
    | StepRetrying
    | StepFinished
    | StepBlocked
    | StepSkipped
    | StepInterrupted
    | RunFinished
    | VersionsDropped
    | RowsPatched
)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(AnyEvent)


def dump_event(event: Event) -> bytes:
    """Return the event as one line of JSON, without its newline.

    Text that is no Unicode, such as a file name in another encoding, loses what is not.
    """
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
        return text.encode("utf-8", "replace")


def dump_events(events: Sequence[Event]) -> bytes:
    """Return events as lines of JSON, each with its newline."""
    try:
        return _ENCODER.encode_lines(events)
    except UnicodeEncodeError:
        return b"".join([dump_event(event) + b"\n" for event in events])


def parse_event(line: bytes | str) -> AnyEvent:
    """Read one line of a journal.

    Raises:
        JournalError: The line is not an event, or names what is not in the run.
    """
    try:
        event = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise JournalError(f"not an event of a run: {error}") from None
    _check_names(event)
    return event


def _check_names(event: AnyEvent) -> None:
    if event.step_id is not None:
        check_recorded_name(event.step_id)
    match event:
        case StepFinished():
            for flow in event.files:
                check_flow(flow)
        case FileIngested():
            check_recorded_name(event.name)
            check_recorded_path(event.version.path)
            for part in event.parts:
                check_recorded_path(part.path)
        case RunPlanned():
            for step_id in (*chain.from_iterable(event.again.values()), *event.removed, *event.order):
                check_recorded_name(step_id)
        case RowsPatched():
            check_recorded_name(event.file)
            check_recorded_path(event.path)
        case VersionsDropped():
            for path in event.paths:
                check_recorded_path(path)
        case _:
            pass


def check_flow(flow: FileFlow) -> None:
    """Refuse a flow that names what is not in the run.

    Raises:
        JournalError: It does.
    """
    check_recorded_name(flow.name)
    check_recorded_path(flow.read)
    if flow.published is not None:
        check_recorded_path(flow.published.path)
    for saved in flow.saved:
        check_recorded_link(saved.name)
        check_recorded_path(saved.path)
    for part in flow.parts:
        check_recorded_path(part.path)
        if part.positions is not None:
            check_recorded_path(part.positions)
    if flow.filtered is not None:
        check_recorded_path(flow.filtered)


_KINDS: Final = {cls: str(cls.__struct_config__.tag) for cls in (*get_args(AnyEvent), StepProgress)}


def kind_of(event: Event) -> str:
    """Return the wire name of the kind of an event, such as `step_finished`."""
    return _KINDS[type(event)]
