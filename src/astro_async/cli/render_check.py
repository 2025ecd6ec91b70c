"""What `astro ingest --check` prints. Pure: verdicts in, renderables and documents out."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from astro_async._executor.ingest_check import CheckedFile, SourceCheck
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_count, safe

__all__ = ["check_document", "render_check"]

_STYLES: Final = {"ok": "green", "null": "yellow", "left out": "yellow"}


def check_document(check: SourceCheck) -> dict[str, Any]:
    """Return the check as one document."""
    return {"schema_version": SCHEMA_VERSION, "is_good": check.is_good, **dataclasses.asdict(check)}


def render_check(check: SourceCheck) -> list[Text | Table]:
    """Return what does not fit, by file, with a table of the columns of each; a text is a line."""
    parts: list[Text | Table] = [Text(f"problem: {safe(problem)}") for problem in check.problems]
    for file in check.files:
        parts += [Text(_describe_file(file)), *(Text(f"  problem: {safe(each)}") for each in file.problems)]
        if file.columns:
            parts.append(_render_columns(file))
    verdict = "nothing stands in the way of an ingest" if check.is_good else "this would not be ingested"
    return [*parts, Text(verdict)]


def _describe_file(file: CheckedFile) -> str:
    rows = "refused" if file.rows is None or file.problems else describe_count(file.rows, "row")
    parked = f"; {describe_count(file.rows_quarantined, 'row')} would be parked" * bool(file.rows_quarantined)
    return f"{safe(file.name)}, {safe(os.path.basename(file.path))}: {rows}{parked}"


def _render_columns(file: CheckedFile) -> Table:
    table = make_table("", "column", "type", "verdict", "detail")
    for column in file.columns:
        table.add_row(
            "",
            safe(column.name),
            safe(column.type or "-"),
            Text(column.verdict, style=_STYLES.get(column.verdict, "bold red")),
            safe(column.detail),
        )
    return table
