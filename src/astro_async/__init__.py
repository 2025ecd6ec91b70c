"""Runs pipelines over tabular files as a concurrent DAG, and parks bad rows instead of failing.

The public names; everything else may change without notice. They are loaded when first used, so that a
command that reads no data does not wait for Polars.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astro_async._core.records import IngestedFile, RunRecord, StepRecord
    from astro_async._core.selection import RunSummary
    from astro_async._core.status import RunStatus, StepStatus
    from astro_async._core.verification import Finding, Verification
    from astro_async.api import EventStream, RunResult, StopSwitch, ingest, plan, run, stream, verify
    from astro_async.context import StatisticsRecorder, StepContext
    from astro_async.desk import (
        Amendment,
        ColumnChange,
        Decision,
        amend,
        discard,
        export_quarantine,
        preview_amendment,
        withdraw,
    )
    from astro_async.exceptions import AstroError
    from astro_async.expectation import Expectation
    from astro_async.files import AstroFile, AstroFileSpec, StepFiles
    from astro_async.ingest_spec import IngestFileSpec
    from astro_async.loading import load_pipeline
    from astro_async.pipeline import ExecutionMode, Pipeline, Retry, StepExecutionMode
    from astro_async.reading import list_runs, read_run
    from astro_async.rules import (
        expect,
        expect_between,
        expect_foreign,
        expect_match,
        expect_unique,
        expect_values,
    )
    from astro_async.steps import FilterFn

__version__ = "0.1.0"

__all__ = [
    "Amendment",
    "AstroError",
    "AstroFile",
    "AstroFileSpec",
    "ColumnChange",
    "Decision",
    "EventStream",
    "ExecutionMode",
    "Expectation",
    "FilterFn",
    "Finding",
    "IngestFileSpec",
    "IngestedFile",
    "Pipeline",
    "Retry",
    "RunRecord",
    "RunResult",
    "RunStatus",
    "RunSummary",
    "StatisticsRecorder",
    "StepContext",
    "StepExecutionMode",
    "StepFiles",
    "StepRecord",
    "StepStatus",
    "StopSwitch",
    "Verification",
    "amend",
    "discard",
    "expect",
    "expect_between",
    "expect_foreign",
    "expect_match",
    "expect_unique",
    "expect_values",
    "export_quarantine",
    "ingest",
    "list_runs",
    "load_pipeline",
    "plan",
    "preview_amendment",
    "read_run",
    "run",
    "stream",
    "verify",
    "withdraw",
]

_HOME_OF = {
    "Amendment": "desk",
    "AstroError": "exceptions",
    "AstroFile": "files",
    "AstroFileSpec": "files",
    "ColumnChange": "desk",
    "Decision": "desk",
    "EventStream": "api",
    "ExecutionMode": "pipeline",
    "Expectation": "expectation",
    "FilterFn": "steps",
    "Finding": "_core.verification",
    "IngestFileSpec": "ingest_spec",
    "IngestedFile": "_core.records",
    "Pipeline": "pipeline",
    "Retry": "pipeline",
    "RunRecord": "_core.records",
    "RunResult": "api",
    "RunStatus": "_core.status",
    "RunSummary": "_core.selection",
    "StatisticsRecorder": "context",
    "StepContext": "context",
    "StepExecutionMode": "pipeline",
    "StepFiles": "files",
    "StepRecord": "_core.records",
    "StepStatus": "_core.status",
    "StopSwitch": "api",
    "Verification": "_core.verification",
    "amend": "desk",
    "discard": "desk",
    "expect": "rules",
    "export_quarantine": "desk",
    "expect_between": "rules",
    "expect_foreign": "rules",
    "expect_match": "rules",
    "expect_unique": "rules",
    "expect_values": "rules",
    "ingest": "api",
    "list_runs": "reading",
    "load_pipeline": "loading",
    "plan": "api",
    "preview_amendment": "desk",
    "read_run": "reading",
    "run": "api",
    "stream": "api",
    "verify": "api",
    "withdraw": "desk",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*globals(), *__all__])
