"""What `astro list` and `astro show` print. Pure: records in, renderables out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from astro_async._core.decisions import count_waiting, flows_in_quarantine, ingest_step
from astro_async._core.events import FileFlow
from astro_async._core.lineage import active_versions
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, StepRecord
from astro_async._core.selection import RunSummary
from astro_async._core.status import StepStatus
from astro_async._core.verification import unexplained_rows
from astro_async.cli.picture import Picture, cut, pad
from astro_async.cli.wording import (
    STATUS_STYLES,
    describe_count,
    describe_counts,
    describe_duration,
    describe_time,
    describe_waiting_rows,
    safe,
    shorten,
    status_text,
)

__all__ = ["MOST_STEPS", "describe_waiting", "list_lines", "make_table", "render_list", "render_run"]

_QUIET: Final = frozenset({StepStatus.COMPLETE, StepStatus.SKIPPED, StepStatus.PENDING})
# What has nothing to tell beyond its status. A skipped step tells which files were not delivered.
_SILENT: Final = _QUIET - {StepStatus.SKIPPED}
_NARROW: Final = 80
MOST_STEPS: Final = 60
_MOST_RUNS: Final = 200
_STATUS: Final = 2
_PIPELINE: Final = 3
_PIPELINE_WIDTH: Final = 20
_MOST_RULES: Final = 40


def make_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table in the style of all of them; the columns in `right` hold numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    numbers = set(right)
    for column in columns:
        if column in numbers:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def render_list(
    summaries: Sequence[RunSummary], chosen: RunId | None, *, width: int = _NARROW
) -> RenderableType:
    """Return a table of runs; the one that a bare `astro run` takes is marked.

    On less than 80 columns the pipeline and the year are left out: a folder has one pipeline. Of very many
    runs each has one line, cut off where the terminal ends: a table of them takes seconds.
    """
    if len(summaries) > _MOST_RUNS:
        return Picture(list_lines(summaries, chosen, width=width))
    is_narrow = width < _NARROW
    table = make_table(*_list_columns(is_narrow=is_narrow))
    for column in table.columns[:-1]:
        column.no_wrap = True
    if not is_narrow:
        table.columns[_PIPELINE].overflow = "ellipsis"
        table.columns[_PIPELINE].max_width = _PIPELINE_WIDTH
    for summary in summaries:
        cells: list[RenderableType] = [*_list_cells(summary, chosen, is_narrow=is_narrow)]
        cells[_STATUS] = status_text(summary.status.value)
        table.add_row(*cells)
    return Group(table, Text(_describe_chosen(chosen)))


def list_lines(
    summaries: Sequence[RunSummary], chosen: RunId | None, *, width: int = _NARROW
) -> list[list[tuple[str, str]]]:
    """Return the same as lines: texts with their styles, none of them folded or cut off."""
    is_narrow = width < _NARROW
    heads = _list_columns(is_narrow=is_narrow)
    rows = [_list_cells(summary, chosen, is_narrow=is_narrow) for summary in summaries]
    if not is_narrow:
        for row in rows:
            row[_PIPELINE] = cut(row[_PIPELINE], _PIPELINE_WIDTH)
    # A mark of one column stands under no name.
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [[(_join(heads, widths), "bold")]]
    for row in rows:
        before, after = (
            "  ".join(map(pad, row[:_STATUS], widths)),
            _join(row[_STATUS + 1 :], widths[_STATUS + 1 :]),
        )
        status = STATUS_STYLES.get(row[_STATUS], "")
        lines.append([(f"{before}  ", ""), (f"{pad(row[_STATUS], widths[_STATUS])}  ", status), (after, "")])
    return [*lines, [(_describe_chosen(chosen), "")]]


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(pad(cell, width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def _list_columns(*, is_narrow: bool) -> list[str]:
    columns = ["", "run", "status", "pipeline", "ingested (UTC)", "steps"]
    return [*columns[:_PIPELINE], *columns[_PIPELINE + 1 :]] if is_narrow else columns


def _list_cells(summary: RunSummary, chosen: RunId | None, *, is_narrow: bool) -> list[str]:
    time = describe_time(summary.ingested_at or summary.created_at)[:16]
    return [
        ">" if summary.run_id == chosen else "",
        summary.run_id,
        summary.status.value,
        *([time[5:]] if is_narrow else [safe(summary.pipeline_name), time]),
        describe_counts(summary.counts, summary.rows_quarantined) or "none yet",
    ]


def _describe_chosen(chosen: RunId | None) -> str:
    if chosen is None:
        return "No run has anything to do."
    return f"> is the run that a bare `astro run` takes: {chosen}"


def render_run(
    record: RunRecord,
    directory: str,
    *,
    counts: Mapping[str, int] | None = None,
    all_steps: bool = False,
    hints: Sequence[str] = (),
) -> RenderableType:
    """Return all there is to know of a run at a glance.

    Args:
        record: The run.
        directory: Its directory.
        counts: Its steps by status, where the record has only those that need attention.
        all_steps: Show every step, however many; else only what needs attention of very many.
        hints: What to do next, one command a line.
    """
    if counts is None:
        counts = Counter(step.status.value for step in record.steps.values())
    total = sum(counts.values())
    parts: list[RenderableType] = [_render_head(record, directory, counts), Text(), _render_files(record)]
    shown = _choose_steps(record, all_steps=all_steps or total <= MOST_STEPS)
    ingest = ingest_step(record)
    if total or ingest:
        told = shown if ingest is None else [ingest, *shown]
        parts += [Text(), _render_steps(told, has_files=len(record.files) > 1)]
        parts += _render_flows(shown, has_files=len(record.files) > 1)
        parts += _render_rules(shown)
        hidden = Counter(counts)
        hidden.subtract(step.status.value for step in shown)
        if len(shown) < total:
            parts.append(Text(f"not shown: {describe_counts(hidden)} (--all shows them)", style="dim"))
    details = [step for step in shown if step.detail and step.status not in _SILENT]
    if details:
        parts.append(Text())
        parts += [
            Text.assemble(status_text(step.status.value), f" {safe(step.step_id)}: {safe(step.detail)}")
            for step in details
        ]
    parts += [Text(line) for line in _decided_lines(record)]
    parts += [Text(f"next: {hint}") for hint in hints]
    return Group(*parts)


def _decided_lines(record: RunRecord) -> Iterator[str]:
    parked = {(step.step_id, flow.name): flow for step, flow in flows_in_quarantine(record)}
    for step_id, name in dict.fromkeys((patch.step_id, patch.file) for patch in record.patches):
        waiting = count_waiting(record, step_id, name)
        if not any(waiting):
            continue
        flow = parked.get((step_id, name))
        rows = (
            safe(name) if flow is None else f"{describe_count(flow.rows_quarantined, 'row')} of {safe(name)}"
        )
        decided = f"{describe_waiting_rows(waiting)}, of {rows}"
        yield f"decided for {safe(step_id)}: {decided}; the next run applies it"


def _render_head(record: RunRecord, directory: str, counts: Mapping[str, int]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("run", Text.assemble(record.run_id, "  ", status_text(record.status.value)))
    grid.add_row("pipeline", safe(record.pipeline_name))
    grid.add_row("source", safe(record.source_directory))
    grid.add_row("directory", safe(directory))
    grid.add_row("ingested", f"{describe_time(record.ingested_at)} UTC" if record.ingested_at else "not yet")
    if record.finished_at:
        grid.add_row("last run", f"{describe_time(record.finished_at)} UTC")
    if record.params:
        grid.add_row("params", safe(", ".join(f"{name}={value}" for name, value in record.params.items())))
    grid.add_row("steps", describe_counts(counts) or "none yet")
    if record.detail:
        grid.add_row("detail", safe(record.detail))
    return grid


def _render_files(record: RunRecord) -> RenderableType:
    table = make_table("file", "rows", "columns", "active path", right=["rows", "columns"])
    active = active_versions(record)
    sizes = {file.parquet_path: (file.row_count, file.column_count) for file in record.files.values()}
    for step in record.steps.values():
        # Of a version that is published again, the step that made it knows the columns.
        made = [flow.published for flow in step.files if flow.published and flow.published.path != flow.read]
        sizes |= {version.path: (version.rows, version.columns) for version in made}
    for name, file in record.files.items():
        path = active[name]
        rows, columns = sizes[path]
        table.add_row(
            safe(name),
            f"{rows:,}" if rows == file.row_count else f"{rows:,} of {file.row_count:,}",
            f"{columns:,}",
            safe(path),
        )
    return table


def _choose_steps(record: RunRecord, *, all_steps: bool) -> list[StepRecord]:
    steps = list(record.steps.values())
    if all_steps:
        return steps
    # Blocked ones come last: they follow from the others.
    urgent = [step for step in steps if step.status not in _QUIET]
    urgent.sort(key=lambda step: step.status is StepStatus.BLOCKED)
    chosen = {step.step_id for step in urgent[:MOST_STEPS]}
    return [step for step in steps if step.step_id in chosen]


def _render_steps(steps: Sequence[StepRecord], *, has_files: bool) -> RenderableType:
    # The name of the only file of a run would say nothing.
    named = ["file"] if has_files else []
    numbers = ["in", "out", "parked"]
    table = make_table("step", "status", "try", *named, *numbers, "time", right=["try", *numbers, "time"])
    table.columns[1].no_wrap = True
    for step in steps:
        flows: list[FileFlow | None] = list(step.files) or [None]
        for number, flow in enumerate(flows):
            head: tuple[RenderableType, ...] = ("", "", "")
            if number == 0:
                attempt = str(step.attempt) if step.attempt else ""
                head = (safe(step.step_id), status_text(step.status.value), attempt)
            cells = _describe_flow(flow)
            taken = _describe_time_taken(step) if number == 0 else ""
            table.add_row(*head, *(cells if has_files else cells[1:]), taken)
    return table


def _describe_flow(flow: FileFlow | None) -> tuple[str, str, str, str]:
    if flow is None:
        return "", "", "", ""
    parked = f"{flow.rows_quarantined:,}" if flow.rows_quarantined else ""
    rows_out = "" if flow.rows_out is None else f"{flow.rows_out:,}"
    return safe(flow.name), f"{flow.rows_in:,}", rows_out, parked


def _render_flows(steps: Sequence[StepRecord], *, has_files: bool) -> list[RenderableType]:
    """Return where the rows went of steps that dropped some, or of which some are unexplained."""
    # A table of its own: beside statuses and times the names of steps would have no room.
    named = ["file"] if has_files else []
    numbers = ["in", "out", "parked", "dropped", "unexplained"]
    table = make_table("where rows went", *named, *numbers, right=numbers)
    for step in steps:
        for flow in step.files:
            dropped, unexplained = _dropped(flow), unexplained_rows(step, flow)
            if dropped or unexplained:
                cells = list(_describe_flow(flow))[0 if has_files else 1 :]
                rest = [f"{dropped:,}" if dropped else "", f"{unexplained:+,}" if unexplained else ""]
                table.add_row(safe(step.step_id), *cells, *rest)
    return [Text(), table] if table.row_count else []


def _dropped(flow: FileFlow) -> int:
    return flow.rows_discarded + (flow.rows_filtered or 0)


def _render_rules(steps: Sequence[StepRecord]) -> list[RenderableType]:
    """Return how many rows break each rule, most first."""
    judged = [
        (step.step_id, flow.name, rule)
        for step in steps
        for flow in step.files
        for rule in sorted(flow.rules, key=lambda rule: -rule.rows)
    ]
    if not judged:
        return []
    has_files = len({name for _, name, _ in judged}) > 1
    table = make_table("rule", "step", *(["file"] if has_files else []), "rows", "", right=["rows"])
    for step_id, name, rule in judged[:_MOST_RULES]:
        named = [safe(name)] if has_files else []
        note = "warns" if rule.severity == "warn" else ""
        table.add_row(shorten(safe(rule.reason), 200), safe(step_id), *named, f"{rule.rows:,}", note)
    parts: list[RenderableType] = [Text(), table]
    if len(judged) > _MOST_RULES:
        parts.append(
            Text(f"not shown: {len(judged) - _MOST_RULES:,} more rules (--json has all)", style="dim")
        )
    return parts


def _describe_time_taken(step: StepRecord) -> str:
    if step.started_at is None or step.finished_at is None:
        return ""
    taken = datetime.fromisoformat(step.finished_at) - datetime.fromisoformat(step.started_at)
    return describe_duration(taken.total_seconds())


def describe_waiting(summaries: Sequence[RunSummary], most: int = 3) -> str:
    """Return the runs that wait, such as `k3x9a (quarantined, 11 rows)`."""
    shown = []
    for summary in summaries[:most]:
        rows = f", {describe_count(summary.rows_quarantined, 'row')}" if summary.rows_quarantined else ""
        shown.append(f"{summary.run_id} ({summary.status.value}{rows})")
    more = f" and {len(summaries) - most:,} more (astro list)" if len(summaries) > most else ""
    return ", ".join(shown) + more
