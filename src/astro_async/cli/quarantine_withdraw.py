"""`astro quarantine withdraw`."""

from __future__ import annotations

from typing import Annotated

import typer

from astro_async._executor.decisions import choose_decisions
from astro_async.cli.desk_options import BecauseText, YesOption, confirm, read_rows_option, tell_decision
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.cli.wording import describe_count, safe
from astro_async.desk import open_decisions, store_withdrawal

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro quarantine withdraw k3x9a validate --rows 3,7-9",
        "astro quarantine withdraw latest validate --all --because 'the supplier has corrected them' --yes",
        title="Examples",
    )
)
def withdraw(
    run: RunArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step whose rows were decided about.")],
    pipeline_dir: PipelineDirOption = ".",
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="NAME", help="The file; needed where rows of several are decided."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", metavar="LIST", help="Rows by the _astro_row they were decided with, such as 3,7-9."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All rows decided for the step and file.", show_default=False)
    ] = False,
    because: Annotated[str | None, typer.Option("--because", metavar="TEXT", help=BecauseText)] = None,
    yes: YesOption = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Take decisions back: the next run gives the step those rows as they came.

    All that was decided about a row counts no more, but stays on the record. It is also the way out where a
    step fails because a row is gone that was decided about. Exit codes: 0 stored, 1 not stored, 2 usage, 4 a
    run is going on.
    """
    chosen = read_rows_option(rows, every=every)
    decided = open_decisions(pipeline_dir, run, step, file)
    found = choose_decisions(decided, chosen)
    about = f"{describe_count(found.height, 'row')} of {safe(decided.name)}"
    confirm(f"withdraw what was decided about {about}?", yes=yes)
    withdrawn = store_withdrawal(pipeline_dir, decided, chosen, because=because)
    told = {"amended": withdrawn.was_amended, "discarded": withdrawn.was_discarded}
    words = " and ".join(f"{count:,} {what}" for what, count in told.items() if count)
    tell_decision(
        f"withdrew what was decided about {about}: {words}",
        withdrawn,
        pipeline_dir=pipeline_dir,
        json=json,
        because=because,
    )
