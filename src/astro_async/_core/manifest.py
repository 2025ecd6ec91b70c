"""The manifest: a readable checkpoint of the journal, as JSON.

`manifest.json` holds what folding the first `journal_bytes` of `events.jsonl` gives, in the words that
people and tools read. Its head (everything before `ingested_files`) is its first line, so that a list of
runs need not read the rest.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any, Final, TypeVar

import msgspec

from astro_async._core.decisions import has_decisions
from astro_async._core.events import PartWritten, check_flow
from astro_async._core.lineage import active_versions
from astro_async._core.names import (
    RunId,
    check_recorded_link,
    check_recorded_name,
    check_recorded_path,
    check_run_id,
)
from astro_async._core.records import IngestedFile, Patch, RunRecord, StepRecord
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus
from astro_async.exceptions import InvalidNameError, JournalError, SchemaVersionError

__all__ = [
    "SCHEMA_VERSION",
    "Manifest",
    "ManifestHead",
    "dump_manifest",
    "parse_attention",
    "parse_head",
    "parse_manifest",
    "restore_record",
    "snapshot_record",
    "summarise",
]

SCHEMA_VERSION: Final = 1


class ManifestFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ingested file as the manifest lists it: what is recorded of it, and its active path.

    Attributes:
        active_path: The version that was published last in serial order, relative to the run directory.

    The other fields are those of `IngestedFile`.
    """

    name: str
    source_path: str
    parquet_path: str
    active_path: str
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


class ManifestHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the document: all there is to know of a run but its files and steps.

    Attributes:
        schema_version: Of this document and of the journal beside it.
        journal_bytes: How much of the journal it contains; that much is durable.
        journal_crc32: Checksum of that much.
        journal_seq: Number of the last event that it contains.
        step_counts: Steps by status.
        rows_quarantined: Rows that wait in quarantine.
        removed_steps: Attempts of steps that the pipeline no longer has.
        unlinked_names: Names given with `save_to` by attempts that are forgotten.
        dropped_versions: Versions and patches that were removed, though records name them.
        lacks_statistics: Numbers of what it contains are missing in the statistics database.

    The other fields are those of `RunRecord`.
    """

    schema_version: int
    run_id: str
    pipeline_name: str
    status: RunStatus
    source_directory: str
    run_date: str
    params: dict[str, Any]
    created_at: str
    ingested_at: str | None
    finished_at: str | None
    detail: str | None
    step_counts: dict[str, int]
    rows_quarantined: int
    journal_bytes: int
    journal_crc32: int
    journal_seq: int
    removed_steps: dict[str, int]
    unlinked_names: list[str]
    dropped_versions: list[str]
    patches: list[Patch]
    lacks_statistics: bool = False


class Manifest(ManifestHead, frozen=True, kw_only=True):
    """The document: the head, and the lists that grow with the run."""

    ingested_files: list[ManifestFile]
    step_states: list[StepRecord]


class _Version(msgspec.Struct):
    schema_version: int


_STEP_LINE: Final = b'{"step_id":"'
_END: Final = b"]}\n"
_STEPS_LINE: Final = b'"step_states":[\n'
_QUIET: Final = tuple(f'","status":"{status}",'.encode() for status in ("complete", "pending", "skipped"))

M = TypeVar("M", bound=ManifestHead)

_VERSION_DECODER: Final = msgspec.json.Decoder(_Version)
_HEAD_DECODER: Final = msgspec.json.Decoder(ManifestHead)
_ENCODER: Final = msgspec.json.Encoder()
_PIECE: Final = 1000
_DECODER: Final = msgspec.json.Decoder(Manifest)


def snapshot_record(run: RunRecord, *, journal_bytes: int, journal_crc32: int = 0) -> Manifest:
    """Return the manifest of a record. Shares its immutable parts, so later events do not show in it."""
    active = active_versions(run)
    counts = Counter([record.status for record in run.steps.values()])
    return Manifest(
        schema_version=SCHEMA_VERSION,
        run_id=run.run_id,
        pipeline_name=run.pipeline_name,
        status=run.status,
        source_directory=run.source_directory,
        run_date=run.run_date,
        params=run.params,
        created_at=run.created_at,
        ingested_at=run.ingested_at,
        finished_at=run.finished_at,
        detail=run.detail,
        step_counts={status.value: count for status, count in counts.items()},
        rows_quarantined=sum(
            [
                flow.rows_quarantined
                for record in run.steps.values()
                for flow in record.files
                if flow.rows_quarantined and flow.parts
            ]
        ),
        journal_bytes=journal_bytes,
        journal_crc32=journal_crc32,
        journal_seq=run.seq,
        removed_steps=dict(run.removed),
        unlinked_names=sorted(run.unlinked),
        dropped_versions=sorted(run.dropped),
        patches=list(run.patches),
        ingested_files=[
            ManifestFile(active_path=active[name], **msgspec.structs.asdict(file))
            for name, file in run.files.items()
        ],
        step_states=list(run.steps.values()),
    )


def dump_manifest(manifest: Manifest) -> bytes:
    """Return the document, one entry of a list to a line, with a final newline."""
    head = {name: getattr(manifest, name) for name in ManifestHead.__struct_fields__}
    if not manifest.lacks_statistics:
        del head["lacks_statistics"]
    document = BytesIO()
    document.write(_dump(head)[:-1])
    document.write(b',\n"ingested_files":[\n')
    _write_lines(document, manifest.ingested_files)
    document.write(b'],\n"step_states":[\n')
    _write_lines(document, manifest.step_states)
    document.write(b"]}\n")
    return document.getvalue()


def _dump(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # As in the journal, text that is no Unicode loses what is not.
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def _write_lines(document: BytesIO, entries: Sequence[object]) -> None:
    # In pieces, so that no more than one copy of a large document is in memory.
    for start in range(0, len(entries), _PIECE):
        if start:
            document.write(b",\n")
        document.write(_dump_lines(entries[start : start + _PIECE]))


def _dump_lines(entries: Sequence[object]) -> bytes:
    try:
        lines = _ENCODER.encode_lines(entries)
    except UnicodeEncodeError:
        lines = b"".join([_dump(entry) + b"\n" for entry in entries])
    # Within an entry a newline is escaped. A step's files have a line each, too.
    return lines[:-1].replace(b"\n", b",\n").replace(b'},{"name":', b'},\n{"name":')


def parse_manifest(document: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        SchemaVersionError: A later version of this program wrote it.
        JournalError: It is empty, cut off, no manifest at all, or names what is not in the run.
    """
    manifest = _parse(document, _DECODER)
    _check_names(manifest)
    return manifest


def _check_names(manifest: Manifest) -> None:
    for file in manifest.ingested_files:
        check_recorded_name(file.name)
        check_recorded_path(file.parquet_path)
        for part in file.parts:
            check_recorded_path(part.path)
    for record in manifest.step_states:
        check_recorded_name(record.step_id)
        for flow in record.files:
            check_flow(flow)
    for patch in manifest.patches:
        check_recorded_name(patch.step_id)
        check_recorded_name(patch.file)
        check_recorded_path(patch.path)
    for name in manifest.removed_steps:
        check_recorded_name(name)
    for name in manifest.unlinked_names:
        check_recorded_link(name)


def parse_attention(lines: Iterable[bytes], *, above: int) -> Manifest | None:
    """Read of a manifest what needs attention, without decoding every step.

    Args:
        lines: The manifest, line by line, as `dump_manifest` has made it.
        above: How many steps a run must have more than, to be read so.

    Returns:
        The manifest, but of its steps only those that did not simply go well or wait, and those that made the
        active version of a file. None where that cannot be told from the lines alone, or the run has no more
        steps.

    Raises:
        SchemaVersionError: A later version of this program wrote it.
        JournalError: It is no manifest, or names what is not in the run.
    """
    rest = iter(lines)
    head = b"".join(itertools.takewhile(lambda line: line != _STEPS_LINE, rest)).removesuffix(b",\n")
    without = parse_manifest(head + b',"step_states":[]}')
    if sum(without.step_counts.values()) <= above:
        return None
    active = {file.name: file.active_path for file in without.ingested_files}
    # The name of a version tells which step made it.
    makers = {path.rpartition("/")[2].partition(".")[0].encode() for path in active.values()}
    chosen = []
    line, is_chosen = b"", False
    for line in rest:
        # Of a step that has several files each but the first has a line of its own.
        if line.startswith(_STEP_LINE):
            end = line.find(b'"', len(_STEP_LINE))
            is_chosen = not line.startswith(_QUIET, end) or line[len(_STEP_LINE) : end] in makers
        if is_chosen:
            chosen.append(line)
    steps = b"".join(chosen)
    if not is_chosen and line.endswith(_END):
        steps = steps.removesuffix(b",\n") + _END
    manifest = parse_manifest(head + b"," + _STEPS_LINE + steps)
    return manifest if active_versions(restore_record(manifest)) == active else None


def parse_head(line: bytes) -> ManifestHead:
    """Read the first line of a manifest, which costs the same however many steps the run has.

    Raises:
        SchemaVersionError: A later version of this program wrote it.
        JournalError: It is no such line. The document may still be good, with its lines broken elsewhere.
    """
    return _parse(line.removesuffix(b",\n") + b"}", _HEAD_DECODER)


def _parse(document: bytes, decoder: msgspec.json.Decoder[M]) -> M:
    try:
        # First by itself: what a later version has beside it may have any shape.
        version = _VERSION_DECODER.decode(document).schema_version
        if version > SCHEMA_VERSION:
            raise SchemaVersionError(
                f"the manifest has schema version {version}, this program reads {SCHEMA_VERSION}: "
                "use the version of astro_async that wrote it, or a later one"
            )
        head = decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"not a manifest: {error}") from None
    try:
        check_run_id(head.run_id)
    except InvalidNameError as error:
        raise JournalError(f"not a manifest: {error}") from None
    return head


def restore_record(manifest: Manifest) -> RunRecord:
    """Return the record that a manifest is the checkpoint of."""
    return RunRecord(
        run_id=RunId(manifest.run_id),
        pipeline_name=manifest.pipeline_name,
        status=manifest.status,
        source_directory=manifest.source_directory,
        run_date=manifest.run_date,
        params=manifest.params,
        created_at=manifest.created_at,
        ingested_at=manifest.ingested_at,
        files={file.name: _without_active_path(file) for file in manifest.ingested_files},
        steps={record.step_id: record for record in manifest.step_states},
        removed=dict(manifest.removed_steps),
        unlinked=set(manifest.unlinked_names),
        dropped=set(manifest.dropped_versions),
        patches=list(manifest.patches),
        detail=manifest.detail,
        seq=manifest.journal_seq,
        finished_at=manifest.finished_at,
    )


def _without_active_path(file: ManifestFile) -> IngestedFile:
    fields = msgspec.structs.asdict(file)
    del fields["active_path"]
    return IngestedFile(**fields)


def summarise(manifest: ManifestHead, *, locked: bool, is_unfinished: bool = False) -> RunSummary:
    """Return the summary of a run; one that says `running` while nobody holds its lock is `interrupted`.

    Args:
        manifest: The run.
        locked: Somebody is on it.
        is_unfinished: There is more on disk than the manifest tells of.
    """
    dead = manifest.status is RunStatus.RUNNING and not locked
    return RunSummary(
        run_id=RunId(manifest.run_id),
        status=RunStatus.INTERRUPTED if dead else manifest.status,
        pipeline_name=manifest.pipeline_name,
        created_at=manifest.created_at,
        ingested_at=manifest.ingested_at,
        source_directory=manifest.source_directory,
        counts=manifest.step_counts,
        rows_quarantined=manifest.rows_quarantined,
        is_decided=has_decisions(manifest.patches, manifest.removed_steps),
        is_unfinished=is_unfinished and not locked,
    )
