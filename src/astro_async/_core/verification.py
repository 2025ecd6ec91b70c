"""What can be said of a run from its records alone: the files that must be there, and rows that add up.

Pure: whoever looks at the disk compares it with what is derived here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from astro_async._core.events import FileFlow
from astro_async._core.records import IngestedFile, RunRecord, StepRecord
from astro_async._core.status import RunStatus, StepStatus

__all__ = [
    "ExpectedFile",
    "Finding",
    "FindingKind",
    "RowDifference",
    "Verification",
    "derive_differences",
    "derive_files",
    "derive_record_findings",
    "unexplained_rows",
]

_PUBLISHED: Final = frozenset({StepStatus.COMPLETE, StepStatus.QUARANTINED})


class FindingKind(StrEnum):
    """What a finding is about."""

    JOURNAL = "journal"
    MANIFEST = "manifest"
    MISSING = "missing"
    CHANGED = "changed"
    UNREADABLE = "unreadable"
    ROWS = "rows"
    SCHEMA = "schema"
    PARTS = "parts"
    CONSERVATION = "conservation"
    STATISTICS = "statistics"
    LINK = "link"
    LITTER = "litter"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be.

    Attributes:
        kind: What it is about.
        is_fault: Whether something is wrong. If not it is a note: what a killed process leaves behind, and
            the next `astro run` puts right by itself.
        message: What is wrong, and where.
        path: The file, relative to the run directory, where there is one.
        step_id: The step whose file or record it is, where there is one.
        advice: What to do about it.
        is_repairable: Whether `astro verify --repair` puts it right.
    """

    kind: FindingKind
    is_fault: bool
    message: str
    path: str | None = None
    step_id: str | None = None
    advice: str | None = None
    is_repairable: bool = False


class ExpectedFile(msgspec.Struct, frozen=True):
    """A file that the records of a run need, and what they say of it; None where they say nothing.

    Attributes:
        path: Relative to the run directory.
        rows: Number of rows.
        columns: Number of columns.
        size_bytes: Size of the file.
        tail_crc32: Checksum of its last bytes as published.
        step_id: The step that made it; None for ingested files and patches. Where the maker is forgotten, one
            that read it.
        like: Path of the version whose columns it has.
        has_reason: Whether it has the reason as one more column.
        is_patch: Whether it is what an operator decided.
    """

    path: str
    rows: int | None = None
    columns: int | None = None
    size_bytes: int | None = None
    tail_crc32: int | None = None
    step_id: str | None = None
    like: str | None = None
    has_reason: bool = False
    is_patch: bool = False


class RowDifference(msgspec.Struct, frozen=True):
    """Rows that a free-form step added or removed: it may, so this is shown and is no fault.

    Attributes:
        step_id: The step.
        file: The file.
        rows_in: Rows that it was given.
        rows_out: Rows that later steps see.
        rows_quarantined: Rows in its quarantine.
        rows_discarded: Rows left out because an operator said so.
        unexplained: What is left of the rows in after all that; negative where rows were added.
    """

    step_id: str
    file: str
    rows_in: int
    rows_out: int
    rows_quarantined: int
    rows_discarded: int
    unexplained: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found.

    Attributes:
        run_id: The run.
        status: How it stands; None where its records cannot be read.
        is_live: Whether it goes on: then this is how it stood when its journal was read.
        findings: Faults and notes; faults come first.
        differences: Rows that free-form steps added or removed.
        files: How many files were looked at.
        rows: How many rows were read.
        size_bytes: How many bytes the files have.
        repairs: What was put right, in words.
    """

    run_id: str
    status: RunStatus | None
    is_live: bool
    findings: tuple[Finding, ...]
    differences: tuple[RowDifference, ...] = ()
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    repairs: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(each for each in self.findings if each.is_fault)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is worth knowing and not wrong."""
        return tuple(each for each in self.findings if not each.is_fault)


def derive_files(run: RunRecord) -> dict[str, ExpectedFile]:
    """Return, by path, the files that the records need: all that they name and that was not dropped."""
    expected: dict[str, ExpectedFile] = {}
    for file in run.files.values():
        expected[file.parquet_path] = ExpectedFile(
            file.parquet_path, file.row_count, file.column_count, file.size_bytes, file.tail_crc32
        )
        for part in file.parts:
            expected[part.path] = ExpectedFile(
                part.path, part.rows, size_bytes=part.size_bytes, tail_crc32=part.tail_crc32
            )
    for patch in run.patches:
        expected[patch.path] = ExpectedFile(patch.path, patch.rows, is_patch=True)
    for step_id, record in run.steps.items():
        for flow in record.files:
            for made in _made_files(step_id, flow):
                expected[made.path] = made
    for step_id, record in run.steps.items():
        for flow in record.files:
            # Of a version whose maker is forgotten only its readers know.
            expected.setdefault(flow.read, ExpectedFile(flow.read, flow.rows_in, step_id=step_id))
    return {path: each for path, each in expected.items() if path not in run.dropped}


def _made_files(step_id: str, flow: FileFlow) -> Iterator[ExpectedFile]:
    # A name given with save_to may stand for the version, of which more is known: that comes last.
    for saved in flow.saved:
        yield ExpectedFile(
            saved.path, size_bytes=saved.size_bytes, tail_crc32=saved.tail_crc32, step_id=step_id
        )
    version = flow.published
    if version is not None and version.path != flow.read:
        yield ExpectedFile(
            version.path, version.rows, version.columns, version.size_bytes, version.tail_crc32, step_id
        )
    for part in flow.parts:
        yield ExpectedFile(
            part.path,
            part.rows,
            size_bytes=part.size_bytes,
            tail_crc32=part.tail_crc32,
            step_id=step_id,
            like=flow.read,
            has_reason=True,
        )
        if part.positions is not None:
            yield ExpectedFile(part.positions, part.rows, step_id=step_id)
    if flow.filtered is not None:
        yield ExpectedFile(flow.filtered, flow.rows_filtered, step_id=step_id, like=flow.read)


def derive_record_findings(run: RunRecord) -> Iterator[Finding]:
    """Yield where the records contradict themselves: counts that differ, rows that a check or filter lost."""
    rows = {file.parquet_path: file.row_count for file in run.files.values()}
    for file in run.files.values():
        for message in _ingest_contradictions(file):
            yield Finding(
                FindingKind.CONSERVATION,
                True,
                f"ingest of file {file.name!r}: {message}",
                advice=f"ingest {run.source_directory} again",
            )
    for record in run.steps.values():
        rows |= {flow.published.path: flow.published.rows for flow in record.files if flow.published}
    for step_id, record in run.steps.items():
        for flow in record.files:
            for message in _contradictions(record, flow, rows):
                yield Finding(
                    FindingKind.CONSERVATION,
                    True,
                    f"step {step_id!r}, file {flow.name!r}: {message}",
                    step_id=step_id,
                    advice=f"`astro run {run.run_id} --rerun {step_id}` runs it again",
                )


def _ingest_contradictions(file: IngestedFile) -> Iterator[str]:
    in_parts = sum(part.rows for part in file.parts)
    if in_parts != file.rows_quarantined:
        yield f"{file.rows_quarantined:,} rows are quarantined, but its parts have {in_parts:,}"
    if file.rows_in is not None and (rest := file.rows_in - file.row_count - file.rows_quarantined):
        yield (
            f"{file.rows_in:,} rows in the source, but {file.row_count:,} ingested and "
            f"{file.rows_quarantined:,} quarantined: {abs(rest):,} rows "
            f"{'are lost' if rest > 0 else 'too many'}"
        )


def _contradictions(record: StepRecord, flow: FileFlow, rows: dict[str, int]) -> Iterator[str]:
    known = rows.get(flow.read, flow.rows_in)
    if known != flow.rows_in:
        yield f"{flow.rows_in:,} rows came in, but {flow.read} has {known:,}"
    in_parts = sum(part.rows for part in flow.parts)
    if in_parts != flow.rows_quarantined:
        yield f"{flow.rows_quarantined:,} rows are quarantined, but its parts have {in_parts:,}"
    if flow.published is not None and flow.published.rows != flow.rows_out:
        yield f"{flow.rows_out or 0:,} rows went out, but {flow.published.path} has {flow.published.rows:,}"
    if _is_conserving(flow):
        rest = unexplained_rows(record, flow)
        if rest:
            removed = f", {flow.rows_filtered:,} removed" if flow.rows_filtered is not None else ""
            yield (
                f"{flow.rows_in:,} rows in, but {flow.rows_out or 0:,} out, {flow.rows_quarantined:,} "
                f"quarantined, {flow.rows_discarded:,} discarded{removed}: {abs(rest):,} rows "
                f"{'are lost' if rest > 0 else 'too many'}"
            )


def derive_differences(run: RunRecord) -> list[RowDifference]:
    """Return the rows that free-form steps added or removed."""
    return [
        RowDifference(
            step_id,
            flow.name,
            flow.rows_in,
            flow.rows_out,
            flow.rows_quarantined,
            flow.rows_discarded,
            unexplained_rows(record, flow),
        )
        for step_id, record in run.steps.items()
        for flow in record.files
        if flow.rows_out is not None and not _is_conserving(flow) and unexplained_rows(record, flow)
    ]


def _is_conserving(flow: FileFlow) -> bool:
    return flow.conserves_rows or flow.rows_filtered is not None


def unexplained_rows(record: StepRecord, flow: FileFlow) -> int:
    """Return the rows that went in and are nowhere else; negative where rows were added.

    0 where nothing was published: the step only read the file, or failed.
    """
    if flow.rows_out is None or record.status not in _PUBLISHED:
        return 0
    accounted = flow.rows_quarantined + flow.rows_discarded + (flow.rows_filtered or 0)
    return flow.rows_in - flow.rows_out - accounted
