"""What `astro verify` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from astro_async._core.verification import Finding, FindingKind, RowDifference, Verification
from astro_async.cli.wording import describe_count, describe_size, safe, status_text

__all__ = ["render_verification"]

_MOST_OF_A_KIND: Final = 10
_MOST_DIFFERENCES: Final = 20


def render_verification(found: Verification) -> RenderableType:
    """Return the verdict on a run, what is wrong or worth knowing, and rows that came or went."""
    status = (
        Text("not readable", style="bold red") if found.status is None else status_text(found.status.value)
    )
    parts: list[RenderableType] = [Text.assemble(f"run {found.run_id}  ", status, "  ", _verdict(found))]
    size = describe_size(found.size_bytes)
    read = f"{describe_count(found.files, 'file')}, {describe_count(found.rows, 'row')}, {size} read"
    if found.status is not None:
        parts.append(Text(f"  {read}{', as the journal stood' if found.is_live else ''}"))
    if found.repairs:
        parts.append(_render_grid(("repaired", "green"), [(safe(text), None) for text in found.repairs]))
    if found.faults:
        parts.append(_render_grid(("fault", "bold red"), _describe(found.faults)))
    if found.notes:
        parts.append(_render_grid(("note", "yellow"), _describe(found.notes)))
    if found.differences:
        parts += _render_differences(found.differences)
    return Group(*parts)


def _verdict(found: Verification) -> Text:
    if found.faults:
        return Text(describe_count(len(found.faults), "fault"), style="bold red")
    return Text("sound", style="green")


def _describe(findings: Sequence[Finding]) -> list[tuple[str, str | None]]:
    shown: list[tuple[str, str | None]] = []
    hidden: dict[FindingKind, int] = {}
    told: dict[FindingKind, int] = {}
    for finding in findings:
        told[finding.kind] = told.get(finding.kind, 0) + 1
        if told[finding.kind] > _MOST_OF_A_KIND:
            hidden[finding.kind] = hidden.get(finding.kind, 0) + 1
        else:
            shown.append((safe(finding.message), None if finding.advice is None else safe(finding.advice)))
    shown += [
        (f"{count:,} more of kind {kind.value} (--json has all)", None) for kind, count in hidden.items()
    ]
    return shown


def _render_grid(label: tuple[str, str], lines: Sequence[tuple[str, str | None]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for message, advice in lines:
        grid.add_row(Text(f"  {label[0]}", style=label[1]), Text(message))
        if advice is not None:
            grid.add_row("", Text(advice, style="dim"))
    return grid


def _render_differences(differences: Sequence[RowDifference]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text("  free-form steps may add and remove rows; these did:")]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=2)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for each in differences[:_MOST_DIFFERENCES]:
        counts = f"{each.rows_in:,} in, {each.rows_out:,} out"
        for rows, word in ((each.rows_quarantined, "quarantined"), (each.rows_discarded, "discarded")):
            counts += f", {rows:,} {word}" if rows else ""
        gone = f"{abs(each.unexplained):,} {'fewer' if each.unexplained > 0 else 'more'}"
        grid.add_row("", f"{safe(each.step_id)} on {safe(each.file)}", f"{counts}: {gone}")
    if len(differences) > _MOST_DIFFERENCES:
        grid.add_row("", "", f"{len(differences) - _MOST_DIFFERENCES:,} more (--json has all)")
    return [*parts, grid]
