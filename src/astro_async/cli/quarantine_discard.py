"""`astro quarantine discard`."""

from __future__ import annotations

from typing import Annotated

import typer

from astro_async._executor.desk import choose_rows
from astro_async._frames.columns import ROW_COLUMN
from astro_async.cli.desk_options import (
    BecauseText,
    DeskStepArgument,
    FileOption,
    YesOption,
    confirm,
    describe_replaced,
    read_rows_option,
    tell_decision,
)
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.cli.wording import describe_count, safe
from astro_async.desk import open_desk, store_discard

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro quarantine discard k3x9a validate --rows 3,7-9 --because 'test orders'",
        "astro quarantine discard latest validate --all --because 'the branch is closed' --yes",
        title="Examples",
    )
)
def discard(
    run: RunArgument,
    step: DeskStepArgument = None,
    pipeline_dir: PipelineDirOption = ".",
    file: FileOption = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", metavar="LIST", help="Rows by _astro_row of an export, such as 3,7-9."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All parked rows.", show_default=False)] = False,
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help=BecauseText, show_default=False)
    ] = "",
    yes: YesOption = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Leave parked rows out: the next run does not give them to the step any more.

    They stay in the snapshot, and the decision with its reason stays on the record. A later `amend` of a row
    brings it back. Exit codes: 0 stored, 1 not stored, 2 usage, 4 a run is going on.
    """
    chosen = read_rows_option(rows, every=every)
    if not because.strip():
        raise typer.BadParameter(
            "say why the rows are left out, as in --because 'test orders'", param_hint="--because"
        )
    parked = open_desk(pipeline_dir, run, step, file)
    name = parked.flow.name
    found = choose_rows(parked, chosen)
    left = parked.rows[ROW_COLUMN].null_count() if every else 0
    others = f" ({left:,} more have no known place and stay)" if left else ""
    confirm(f"leave {describe_count(found.height, 'row')} of {safe(name)} out{others}?", yes=yes)
    decided = store_discard(pipeline_dir, parked, chosen, because=because)
    rows_told = f"{describe_count(decided.rows, 'row')} of {safe(name)}"
    tell_decision(
        f"discarded {rows_told}{others}{describe_replaced(decided)}",
        decided,
        pipeline_dir=pipeline_dir,
        json=json,
        because=because,
    )
