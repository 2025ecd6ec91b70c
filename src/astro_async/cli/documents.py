"""The documents that `--json` prints: records as plain values, in the words of the manifest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from astro_async._core.decisions import Forecast
from astro_async._core.events import FileFlow
from astro_async._core.lineage import Plan
from astro_async._core.manifest import snapshot_record
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, StepRecord
from astro_async._core.selection import RunSummary
from astro_async._core.verification import Finding, Verification, unexplained_rows
from astro_async._frames.columns import REASON_COLUMN
from astro_async.cli.render_quarantine import QuarantinedRows

__all__ = [
    "SCHEMA_VERSION",
    "list_document",
    "no_run_document",
    "plan_document",
    "quarantine_document",
    "rows_document",
    "run_document",
    "verify_document",
]

SCHEMA_VERSION: Final = 1

_INTERNAL: Final = ("journal_bytes", "journal_crc32", "journal_seq", "removed_steps", "unlinked_names")


def list_document(
    summaries: Sequence[RunSummary], chosen: RunId | None, notices: Sequence[str]
) -> dict[str, Any]:
    """Return all runs, newest first; `is_next` marks the one that a bare `astro run` takes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [summary_document(summary, chosen) for summary in summaries],
        "notices": list(notices),
    }


def summary_document(summary: RunSummary, chosen: RunId | None) -> dict[str, Any]:
    """Return one run of a list."""
    return {
        "run_id": summary.run_id,
        "status": summary.status.value,
        "pipeline_name": summary.pipeline_name,
        "created_at": summary.created_at,
        "ingested_at": summary.ingested_at,
        "source_directory": summary.source_directory,
        "step_counts": summary.counts,
        "rows_quarantined": summary.rows_quarantined,
        "is_next": summary.run_id == chosen,
    }


def run_document(record: RunRecord, directory: str) -> dict[str, Any]:
    """Return a run as its manifest has it, and the directory that its relative paths start from."""
    manifest = msgspec.to_builtins(snapshot_record(record, journal_bytes=0))
    for name in _INTERNAL:
        del manifest[name]
    for step, state in zip(record.steps.values(), manifest["step_states"], strict=True):
        for flow, document in zip(step.files, state["files"], strict=True):
            # The manifest leaves out what is 0; whoever adds up wants it said.
            document["rows_discarded"] = flow.rows_discarded
            document["rows_filtered"] = flow.rows_filtered
            document["rows_unexplained"] = unexplained_rows(step, flow)
    return {**manifest, "schema_version": SCHEMA_VERSION, "run_directory": directory}


def no_run_document() -> dict[str, Any]:
    """Return what stands for a run where none has anything to do."""
    return {"schema_version": SCHEMA_VERSION, "run_id": None}


def plan_document(
    record: RunRecord, plan: Plan, forecasts: Mapping[str, Sequence[Forecast]]
) -> dict[str, Any]:
    """Return what a run would run again and why, and what checks would make of the rows they have parked."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "status": record.status.value,
        "again": [
            {
                "step_id": step_id,
                "reason": reason.value,
                "because": plan.because.get(step_id),
                "forecast": [asdict(forecast) for forecast in forecasts.get(step_id, ())],
            }
            for step_id, reason in plan.again.items()
        ],
        "removed": list(plan.removed),
        "stale": [{"step_id": stale.step_id, "file": stale.file, "read": stale.read} for stale in plan.stale],
    }


def quarantine_document(record: RunRecord, flows: Sequence[tuple[StepRecord, FileFlow]]) -> dict[str, Any]:
    """Return what waits in the quarantine of a run, by step and file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "status": record.status.value,
        "quarantine": [
            {
                "step_id": step.step_id,
                "status": step.status.value,
                "file": flow.name,
                "rows": flow.rows_quarantined,
                "rows_in": flow.rows_in,
                "reasons": flow.reasons,
                "rules": msgspec.to_builtins(flow.rules),
                "parts": [part.path for part in flow.parts],
            }
            for step, flow in flows
        ],
    }


def rows_document(record: RunRecord, loaded: Sequence[QuarantinedRows]) -> dict[str, Any]:
    """Return the rows that one step of a run has set aside, by file, each with its reason."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "step_id": loaded[0].step_id,
        "files": [
            {
                "file": rows.file,
                "rows_quarantined": rows.rows_in_all,
                "columns": [{"name": name, "type": dtype} for name, dtype in rows.columns.items()],
                "rows": [
                    {**dict(zip(rows.columns, values, strict=True)), REASON_COLUMN: reason}
                    for values, reason in zip(rows.rows, rows.reasons, strict=True)
                ],
            }
            for rows in loaded
        ],
    }


def verify_document(verifications: Sequence[Verification]) -> dict[str, Any]:
    """Return what was found of each run, and how many faults there are in all."""
    return {
        "schema_version": SCHEMA_VERSION,
        "faults": sum(len(each.faults) for each in verifications),
        "runs": [
            {
                "run_id": each.run_id,
                "status": None if each.status is None else each.status.value,
                "is_live": each.is_live,
                "files": each.files,
                "rows": each.rows,
                "size_bytes": each.size_bytes,
                "repairs": list(each.repairs),
                "faults": [_finding_document(finding) for finding in each.faults],
                "notes": [_finding_document(finding) for finding in each.notes],
                "differences": msgspec.to_builtins(each.differences),
            }
            for each in verifications
        ],
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(finding)
    del document["is_fault"]
    return document
