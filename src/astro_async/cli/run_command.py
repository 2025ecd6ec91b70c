"""`astro run`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from astro_async.cli.failures import is_debugging
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    ParamOption,
    PipelineDirOption,
    complete_run,
    make_command,
    parse_params,
    show_examples,
)
from astro_async.cli.run_session import RunRequest, perform_run
from astro_async.cli.telling import make_command_teller, make_url_teller

__all__ = ["Mode", "command"]

command = make_command()


class Mode(StrEnum):
    """How a run is shown."""

    AUTO = "auto"
    DASHBOARD = "dashboard"
    PLAIN = "plain"
    CLI = "cli"
    JSON = "json"
    QUIET = "quiet"


@command.command(
    epilog=show_examples(
        "astro run                              the newest run that has something to do",
        "astro run k3x9a --dry-run              what would run again, and why",
        "astro run --source deliveries/tonight --mode plain --events night.jsonl",
        "astro run k3x9a --rerun publish",
        title="Examples",
    )
)
def run(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run id, or 'latest'. Default: the newest run that has something to do.",
            autocompletion=complete_run,
            show_default=False,
        ),
    ] = None,
    pipeline_dir: PipelineDirOption = ".",
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="The same as naming RUN.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="DIR", help="Ingest this directory first, and run just that."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="How many steps run at once.")
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            "-k",
            help="Go on with what does not depend on failed or blocked steps.",
            show_default=False,
        ),
    ] = False,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="auto, dashboard, plain (or cli), json (one event a line) or quiet. auto: the dashboard on "
            "a terminal, plain lines elsewhere.",
        ),
    ] = Mode.AUTO,
    param: ParamOption = None,
    events: Annotated[
        str | None, typer.Option("--events", metavar="FILE", help="Append each event to a file, one a line.")
    ] = None,
    rerun: Annotated[
        list[str] | None,
        typer.Option("--rerun", metavar="STEP", help="Run a completed step again. May be given repeatedly."),
    ] = None,
    allow_quarantined: Annotated[
        bool,
        typer.Option(
            "--allow-quarantined",
            help="Exit 0, not 3, when only rows in quarantine wait.",
            show_default=False,
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would run again and why; change nothing.", show_default=False
        ),
    ] = False,
    notify_command: Annotated[
        str | None,
        typer.Option(
            "--notify-command",
            metavar="CMD",
            help="Run a command at the end, with the verdict as JSON on its stdin: counts and names.",
        ),
    ] = None,
    notify_url: Annotated[
        str | None,
        typer.Option("--notify-url", metavar="URL", help="POST the same JSON to an address at the end."),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run what a run has to do.

    All steps the first time; after that what failed, was blocked or interrupted, has rows in quarantine,
    or stands on data that changed. Ctrl-C once lets running steps finish, twice cancels them.

    Exit codes: 0 completed or nothing to do, 1 a step failed, 2 usage or a broken pipeline, 3 rows wait in
    quarantine, 4 locked by another process, 130 and 143 interrupted.
    """
    if run is not None and run_id is not None and run != run_id:
        raise typer.BadParameter(f"RUN is {run} and --run-id is {run_id}: name one run")
    named = run if run is not None else run_id
    if source is not None and (named is not None or dry_run):
        other = "--dry-run, which changes nothing" if dry_run else f"run {named}"
        raise typer.BadParameter(f"--source makes a new run; it does not go with {other}")
    if json and mode is Mode.JSON:
        raise typer.BadParameter("--json prints one document at the end, --mode json events: choose one")
    tellers = [] if notify_command is None else [make_command_teller(notify_command)]
    tellers += [] if notify_url is None else [make_url_teller(notify_url)]
    request = RunRequest(
        pipeline_dir=pipeline_dir,
        run_id=named,
        source=source,
        jobs=jobs,
        keep_going=keep_going,
        mode="plain" if mode is Mode.CLI else mode.value,
        params=parse_params(param),
        events=events,
        rerun=tuple(rerun or ()),
        allow_quarantined=allow_quarantined,
        dry_run=dry_run,
        tellers=tuple(tellers),
        json=json,
        debug=is_debugging(ctx),
    )
    perform_run(request)
