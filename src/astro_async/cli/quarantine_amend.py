"""`astro quarantine amend`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from astro_async._executor.desk import compare_file
from astro_async._frames.amendments import Amendment, ColumnChange
from astro_async._frames.desk_text import format_values
from astro_async._frames.positions import describe_positions
from astro_async.cli.desk_options import (
    BecauseText,
    FileOption,
    YesOption,
    confirm,
    describe_replaced,
    tell_decision,
)
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    RunArgument,
    command_line,
    make_command,
    show_examples,
)
from astro_async.cli.output import print_document
from astro_async.cli.wording import describe_count, safe, shorten
from astro_async.desk import open_desk, store_amendment

__all__ = ["change_lines", "command"]

_MOST_VALUES: Final = 20
_MOST_RANGES: Final = 20

command = make_command()


@command.command(
    epilog=show_examples(
        "astro quarantine amend latest validate rows.csv",
        "astro quarantine amend k3x9a validate rows.xlsx --yes --because 'asked the customer'",
        title="Examples",
    )
)
def amend(
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that set the rows aside.")],
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="What `export` wrote, corrected: .csv, .parquet or .xlsx.")
    ],
    pipeline_dir: PipelineDirOption = ".",
    file: FileOption = None,
    because: Annotated[str | None, typer.Option("--because", metavar="TEXT", help=BecauseText)] = None,
    show_values: Annotated[
        bool,
        typer.Option("--show-values", help="Show old and new values, not only counts.", show_default=False),
    ] = False,
    yes: YesOption = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Give corrected rows back: the next run gives the step its input so.

    Shows by column what changes, then asks. Rows that are unchanged, or missing from the file, stay as they
    are, and so does an earlier decision about them; a later one about a row replaces an earlier one. Exit
    codes: 0 stored or nothing to store, 1 not stored, 4 a run is going on.
    """
    parked = open_desk(pipeline_dir, run, step, file)
    run_id, name = parked.record.run_id, parked.flow.name
    amendment = compare_file(parked, source)
    screen = sys.stderr if json else sys.stdout
    for line in change_lines(amendment, show_values=show_values):
        print(line, file=screen)
    of_file = "" if len(parked.step.files) == 1 else f" --file {shlex.quote(name)}"
    withdraw = command_line(f"quarantine withdraw {run_id} {parked.step.step_id}{of_file}", pipeline_dir)
    for line in _standing_lines(amendment, withdraw):
        print(line, file=screen)
    still = {
        "rows_still_amended": len(amendment.still_amended),
        "rows_still_discarded": len(amendment.still_discarded),
    }
    changes = [
        {
            "column": change.column,
            "rows": change.rows,
            "emptied": change.emptied,
            "suspicious": change.is_suspicious,
        }
        for change in amendment.changes
    ]
    if not amendment.rows:
        if json:
            print_document(
                {
                    "schema_version": 1,
                    "run_id": run_id,
                    "step_id": parked.step.step_id,
                    "file": name,
                    "rows": 0,
                    **still,
                }
            )
        return
    confirm(f"amend {describe_count(amendment.rows, 'row')} of {safe(name)}?", yes=yes)
    decided = store_amendment(pipeline_dir, parked, amendment, because=because)
    tell_decision(
        f"amended {describe_count(decided.rows, 'row')} of {safe(name)}{describe_replaced(decided)}",
        decided,
        pipeline_dir=pipeline_dir,
        json=json,
        because=because,
        changes=changes,
        **still,
    )


def change_lines(amendment: Amendment, *, show_values: bool = False) -> Iterator[str]:
    """Yield what would be amended; no values unless they are asked for."""
    given = describe_count(amendment.rows_given, "row")
    if not amendment.rows:
        yield f"nothing to amend: {given}, all as they were parked"
        return
    of_parked = (
        "" if amendment.rows_given == amendment.rows_parked else f" ({amendment.rows_parked:,} are parked)"
    )
    yield f"{amendment.rows:,} of {given}{of_parked} differ:"
    for change in amendment.changes:
        yield f"  {safe(change.column)}: {_describe_change(change, amendment.rows_given)}"
    if show_values:
        yield from _value_lines(amendment)
    suspicious = [safe(change.column) for change in amendment.changes if change.is_suspicious]
    if suspicious:
        yield (
            f"warning: nearly every row of {', '.join(suspicious)} differs: has a spreadsheet reformatted "
            "it? Look with --show-values; .xlsx keeps text as it is"
        )


def _standing_lines(amendment: Amendment, withdraw: str) -> Iterator[str]:
    """Yield that decisions stand about rows that came back as they are parked, and how to take them back."""
    kinds = {"amended": amendment.still_amended, "discarded": amendment.still_discarded}
    rows = sorted(position for positions in kinds.values() for position in positions)
    if not rows:
        return
    words = " and ".join(
        f"{len(positions):,} {'was' if len(positions) == 1 else 'were'} {what}"
        for what, positions in kinds.items()
        if positions
    )
    chosen = describe_positions(rows, most=_MOST_RANGES)
    more = "" if chosen == describe_positions(rows, most=len(rows)) else ",…"
    yield (
        f"of rows that are as they were parked, {words} before, and that stands; to take it back: "
        f"{withdraw} --rows {chosen}{more}"
    )


def _describe_change(change: ColumnChange, rows_given: int) -> str:
    emptied = f", {change.emptied:,} of them to null" if change.emptied else ""
    return f"{change.rows:,} of {describe_count(rows_given, 'row')}{emptied}"


def _value_lines(amendment: Amendment) -> Iterator[str]:
    before, after = format_values(amendment.original), format_values(amendment.replacement)
    shown = 0
    for row, position in enumerate(amendment.positions):
        for change in amendment.changes:
            old, new = before[change.column][row], after[change.column][row]
            if old == new:
                continue
            if shown == _MOST_VALUES:
                yield "  …"
                return
            told = f"{_describe_value(old)} -> {_describe_value(new)}"
            yield f"  row {position}, {safe(change.column)}: {told}"
            shown += 1


def _describe_value(text: str | None) -> str:
    if text is None:
        return "null"
    return shorten(safe(text), 60) or '""'
