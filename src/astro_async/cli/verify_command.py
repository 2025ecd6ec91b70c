"""`astro verify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from astro_async._core.verification import Verification
from astro_async._store.layout import list_run_ids
from astro_async.api import verify
from astro_async.cli.documents import verify_document
from astro_async.cli.failures import describe_failure
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    complete_run,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_verify import render_verification
from astro_async.exceptions import AstroError
from astro_async.reading import LATEST

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro verify", "astro verify --all --json | jq .faults", "astro verify k3x9a --repair"
    )
)
def verify_runs(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run id, or 'latest'; default: latest.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    pipeline_dir: PipelineDirOption = ".",
    every: Annotated[bool, typer.Option("--all", help="Verify all runs.", show_default=False)] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Make anew, from the journal, what is derived from it: manifest, statistics, links; remove "
            "litter.",
            show_default=False,
        ),
    ] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Verify that records, files, rows and statistics of a run agree.

    Every file is read to its end. The exit code is 1 if there is a fault. A run that goes on is not
    disturbed; --repair takes its lock, and exits with 4 if another process is on the run.
    """
    if every and run is not None:
        raise typer.BadParameter("give a RUN or --all, not both", param_hint="--all")
    run_ids: Sequence[str] = list_run_ids(pipeline_dir) if every else [run or LATEST]
    screen = open_screen()
    found: list[Verification] = []
    refusal = 0
    for run_id in run_ids:
        try:
            found.append(verify(pipeline_dir, run_id, repair=repair))
        except AstroError as error:
            if not every:
                raise
            message, code = describe_failure(error)
            print(f"error: {message}", file=sys.stderr)
            refusal = max(refusal, code)
            continue
        if not json:
            screen.print(render_verification(found[-1]))
    if json:
        print_document(verify_document(found))
    elif not run_ids:
        screen.print("no runs yet: nothing to verify")
    code = refusal or int(any(each.faults for each in found))
    if code:
        raise typer.Exit(code)
