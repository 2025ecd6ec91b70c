"""What others are told of a run that has ended: counts and names, never values. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from astro_async._core.records import RunRecord
from astro_async._core.status import StepStatus

__all__ = ["derive_notice"]

_SCHEMA_VERSION: Final = 1


def derive_notice(run: RunRecord, exit_code: int) -> dict[str, Any]:
    """Return the event that is sent when an invocation ends.

    Details of failures and reasons of rows are left out: they are texts, and could quote a value.

    Args:
        run: The run as it stands.
        exit_code: What the command line returns for it.
    """
    quarantine = [
        {"step_id": step.step_id, "file": flow.name, "rows": flow.rows_quarantined}
        for step in run.steps.values()
        for flow in step.files
        if flow.parts
    ]
    return {
        "schema_version": _SCHEMA_VERSION,
        "kind": "run_finished",
        "run_id": run.run_id,
        "pipeline_name": run.pipeline_name,
        "status": run.status.value,
        "exit_code": exit_code,
        "run_date": run.run_date,
        "ingested_at": run.ingested_at,
        "finished_at": run.finished_at,
        "step_counts": {
            status.value: count
            for status, count in Counter(step.status for step in run.steps.values()).items()
        },
        "failed": [step.step_id for step in run.steps.values() if step.status is StepStatus.FAILED],
        "rows_quarantined": sum(each["rows"] for each in quarantine),
        "quarantine": quarantine,
    }
