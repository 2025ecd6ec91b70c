"""Verifying a run: do its records, files, rows, links and statistics agree?

Takes no lock and changes nothing, so it may look at a run that goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus
from astro_async._core.verification import (
    ExpectedFile,
    Finding,
    FindingKind,
    Verification,
    derive_differences,
    derive_files,
    derive_record_findings,
)
from astro_async._frames.decode import decode_file, describe_mismatch
from astro_async._store.catalogue import existing_run_directory
from astro_async._store.inspection import (
    Records,
    has_moved_on,
    inspect_file,
    inspect_folders,
    inspect_parts,
    inspect_records,
    inspect_statistics,
)
from astro_async.exceptions import StorageError

__all__ = ["verify_run"]

# A run that goes on may remove what an earlier reading of its journal named.
_READINGS: Final = 3


def verify_run(pipeline_dir: str, run_id: RunId, *, repairs: Sequence[str] = ()) -> Verification:
    """Verify one run. Blocks; every file of the run is read.

    Args:
        pipeline_dir: Where runs are kept, under `.working/`.
        run_id: The run.
        repairs: What was put right just before, for the record.

    Raises:
        RunNotFoundError: There is no such run.
    """
    directory = existing_run_directory(pipeline_dir, run_id)
    files = _FileChecks(directory)
    for reading in range(1, _READINGS + 1):
        records = inspect_records(directory)
        findings = [*records.findings, *_look(pipeline_dir, directory, records, files)]
        has_faults = any(each.is_fault for each in findings)
        if not has_faults or reading == _READINGS or not has_moved_on(directory, records):
            break
    run = records.run
    return Verification(
        run_id=run_id,
        status=_status_of(run, is_live=records.is_live),
        is_live=records.is_live,
        findings=tuple(sorted(findings, key=lambda each: not each.is_fault)),
        differences=() if run is None else tuple(derive_differences(run)),
        files=files.count,
        rows=files.rows,
        size_bytes=files.size_bytes,
        repairs=tuple(repairs),
    )


def _look(pipeline_dir: str, directory: str, records: Records, files: _FileChecks) -> Iterator[Finding]:
    if records.run is None:
        return
    yield from derive_record_findings(records.run)
    yield from inspect_parts(records.run)
    yield from files.check(records.run)
    # While a run goes on, links and statistics are late, and what no record names yet is no litter.
    if records.is_sound and not records.is_live:
        yield from inspect_folders(directory, records.run, is_fault=records.is_at_rest)
        yield from inspect_statistics(pipeline_dir, records)


def _status_of(run: RunRecord | None, *, is_live: bool) -> RunStatus | None:
    if run is None:
        return None
    return RunStatus.INTERRUPTED if run.status is RunStatus.RUNNING and not is_live else run.status


class _FileChecks:
    """Checks the files that records need. One that was found good is not read again: they never change.

    Attributes:
        count: How many files the last check was of.
        rows: How many rows they have.
        size_bytes: How many bytes.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._good: dict[ExpectedFile, int] = {}
        self.count = self.rows = self.size_bytes = 0

    def check(self, run: RunRecord) -> Iterator[Finding]:
        """Yield what is wrong with the files that the records of a run need."""
        self.count = self.rows = self.size_bytes = 0
        for expected in derive_files(run).values():
            self.count += 1
            problem = None if expected in self._good else self._check_file(expected)
            if problem is not None:
                kind, message = problem
                yield _file_fault(run, expected, kind, message)
                continue
            self.rows += self._good[expected]
            self.size_bytes += os.path.getsize(f"{self._directory}/{expected.path}")

    def _check_file(self, expected: ExpectedFile) -> tuple[FindingKind, str] | None:
        path = f"{self._directory}/{expected.path}"
        problem = inspect_file(self._directory, expected)
        if problem is not None:
            # Bytes that nobody published are not decoded.
            return problem
        try:
            schema, rows = decode_file(path)
        except StorageError as error:
            return FindingKind.UNREADABLE, f"is damaged: {error}"
        if expected.rows is not None and rows != expected.rows:
            return FindingKind.ROWS, f"has {rows:,} rows, the records say {expected.rows:,}"
        if expected.columns is not None and len(schema) != expected.columns:
            return FindingKind.SCHEMA, f"has {len(schema):,} columns, the records say {expected.columns:,}"
        if expected.like is not None:
            like = f"{self._directory}/{expected.like}"
            mismatch = describe_mismatch(schema, like, has_reason=expected.has_reason)
            if mismatch is not None:
                return FindingKind.SCHEMA, f"differs from {expected.like} {mismatch}"
        self._good[expected] = rows
        return None


def _file_fault(run: RunRecord, expected: ExpectedFile, kind: FindingKind, message: str) -> Finding:
    message = f"{expected.path} {message}"
    if kind is FindingKind.CHANGED:
        given = [
            step_id
            for step_id, record in run.steps.items()
            if any(flow.read == expected.path for flow in record.files)
        ]
        if given:
            # One of them may have written to the path that it was given.
            message += f"; it was given to {', '.join(map(repr, given[:5]))}{' and more' * (len(given) > 5)}"
    return Finding(kind, True, message, expected.path, expected.step_id, _advise(run, expected))


def _advise(run: RunRecord, expected: ExpectedFile) -> str:
    if expected.step_id is not None:
        return f"`astro run {run.run_id} --rerun {expected.step_id}` makes it anew"
    if expected.is_patch:
        return "restore it from a copy, or decide about its rows again"
    return f"restore it from a copy, or ingest {run.source_directory} again"
