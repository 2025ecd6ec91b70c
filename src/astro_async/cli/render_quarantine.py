"""What `astro quarantine list` and `show` print. Pure: records and values in, renderables out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from astro_async._core.decisions import group_patches
from astro_async._core.events import FileFlow, RowsPatched
from astro_async._core.records import Patch, RunRecord, StepRecord
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_count, describe_time, safe, shorten, status_text

__all__ = [
    "QuarantinedRows",
    "describe_decision",
    "render_decisions",
    "render_quarantine",
    "render_rows",
]

_MOST_REASONS: Final = 10
_MOST_GROUPS: Final = 5
_VALUE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class QuarantinedRows:
    """Rows of one step and file, as far as they are shown.

    Attributes:
        step_id: The step.
        file: The file.
        columns: Names and types of the columns.
        rows: Values, in the order of the columns.
        reasons: Why, for each row.
        rows_in_all: How many there are, shown or not.
    """

    step_id: str
    file: str
    columns: dict[str, str]
    rows: Sequence[tuple[Any, ...]]
    reasons: Sequence[str]
    rows_in_all: int


def render_quarantine(
    record: RunRecord, flows: Sequence[tuple[StepRecord, FileFlow]], *, hint: str
) -> RenderableType:
    """Return what is in quarantine, and a command that shows the rows."""
    parts: list[RenderableType] = [Text.assemble(f"run {record.run_id}  ", status_text(record.status.value))]
    for step, flow in flows:
        parts += [Text(), _describe_flow(step, flow), *_render_reasons(flow)]
    return Group(*parts, Text(), Text(f"the rows: {hint}"))


def _describe_flow(step: StepRecord, flow: FileFlow) -> Text:
    rows = f"{flow.rows_quarantined:,} of {describe_count(flow.rows_in, 'row')} of {safe(flow.name)}"
    return Text.assemble(
        (safe(step.step_id), "bold"),
        f"  {rows}, in {describe_count(len(flow.parts), 'part')}  ",
        status_text(step.status.value),
    )


def _render_reasons(flow: FileFlow) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=8)
    grid.add_column(overflow="fold")
    reasons = list(flow.reasons.items())
    for reason, rows in reasons[:_MOST_REASONS]:
        grid.add_row(f"{rows:,}", Text(shorten(safe(reason), 200), style="yellow"))
    if len(reasons) > _MOST_REASONS:
        grid.add_row("…", describe_count(len(reasons) - _MOST_REASONS, "more reason"))
    return [grid]


def render_rows(rows: QuarantinedRows, width: int) -> RenderableType:
    """Return rows with their reasons: as tables by reason where they fit, else one value a line."""
    shown = len(rows.rows)
    head = Text(
        f"{safe(rows.step_id)} set aside {describe_count(rows.rows_in_all, 'row')} of {safe(rows.file)}"
    )
    if shown < rows.rows_in_all:
        head.append(f"; the first {shown:,}:")
    cells = [tuple(_cell(value) for value in values) for values in rows.rows]
    headers = [_header(name) for name in rows.columns]
    groups: dict[str, list[tuple[Text, ...]]] = {}
    for reason, row in zip(rows.reasons, cells, strict=True):
        groups.setdefault(reason, []).append(row)
    if len(groups) > _MOST_GROUPS or _width(headers, cells) > width:
        return Group(head, *_render_records(rows, cells))
    parts: list[RenderableType] = [head]
    for reason, members in groups.items():
        parts += [Text(), Text(f"{safe(reason)} ({len(members):,})", style="yellow")]
        parts.append(_render_table(rows, headers, members))
    return Group(*parts)


def describe_decision(decided: Patch | RowsPatched, positions: str = "") -> tuple[str, str]:
    """Return what was decided, such as `discarded`, and about how many rows of which file, and why."""
    what = "withdrawn" if decided.withdrawn else "discarded" if decided.discarded else "amended"
    because = f": {shorten(safe(decided.because), 200)}" if decided.because else ""
    places = f" ({positions})" if positions else ""
    return what, f"{describe_count(decided.rows, 'row')} of {safe(decided.file)}{places}{because}"


def render_decisions(
    record: RunRecord, keys: Collection[tuple[str, str]], positions: Mapping[str, str]
) -> list[RenderableType]:
    """Return a table of what was decided about rows of steps and files, oldest first; nothing without any.

    Args:
        record: The run.
        keys: Steps and files.
        positions: By the path of a patch, at which positions its rows stand, in words, where that is known.
    """
    chosen = [patch for patch in record.patches if (patch.step_id, patch.file) in keys]
    if not chosen:
        return []
    standing = {
        patch.path for groups in group_patches(record.patches).values() for group in groups for patch in group
    }
    table = make_table("decided (UTC)", "step", "try", "what", "rows", right=["try"])
    for patch in chosen:
        what, rows = describe_decision(patch, positions.get(patch.path, ""))
        style = "" if patch.path in standing else "dim"
        words = Text(rows, style=style)
        if patch.path not in standing and not patch.withdrawn:
            words.append(" (withdrawn)")
        elif patch.path in record.dropped:
            words.append(" (removed)")
        time = describe_time(patch.recorded_at)
        table.add_row(time, safe(patch.step_id), str(patch.attempt), Text(what, style=style), words)
    return [Text(), table]


def _render_table(rows: QuarantinedRows, headers: Sequence[str], members: list[tuple[Text, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header, dtype in zip(headers, rows.columns.values(), strict=True):
        table.add_column(
            header, justify="right" if _is_number(dtype) else "left", no_wrap=True, vertical="bottom"
        )
    for row in members:
        table.add_row(*row)
    return table


def _render_records(rows: QuarantinedRows, cells: Sequence[tuple[Text, ...]]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for number, (reason, row) in enumerate(zip(rows.reasons, cells, strict=True), 1):
        parts += [Text(), Text(f"row {number:,}: {safe(reason)}", style="yellow")]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=40)
        grid.add_column(overflow="fold")
        for name, value in zip(rows.columns, row, strict=True):
            grid.add_row(Text(f"  {safe(name)}", style="bold"), value)
        parts.append(grid)
    return parts


def _width(headers: Sequence[str], cells: Sequence[tuple[Text, ...]]) -> int:
    widths = [max(cell_len(line) for line in header.split("\n")) for header in headers]
    for row in cells:
        widths = [max(width, cell.cell_len) for width, cell in zip(widths, row, strict=True)]
    return sum(widths) + 2 * max(0, len(widths) - 1)


def _header(name: str) -> str:
    """Return a column name over several lines where that makes it narrow: `bill_` over `length_mm`."""
    words = safe(name).replace("_", "_\n").split("\n")
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) <= max(8, *map(len, words)):
            lines[-1] += word
        else:
            lines.append(word)
    return "\n".join(lines)


def _is_number(dtype: str) -> bool:
    return dtype.startswith(("Int", "UInt", "Float", "Decimal"))


def _cell(value: Any) -> Text:
    if value is None:
        return Text("null", style="dim")
    if value == "":
        return Text('""', style="dim")
    return Text(shorten(safe(value), _VALUE_WIDTH))
