"""`astro`: the table of its commands, and the way in."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer

from astro_async import __version__
from astro_async.cli.failures import explaining_failures
from astro_async.cli.lazy import LazyCommand, LazyGroup
from astro_async.cli.options import DebugOption, show_examples
from astro_async.cli.streams import finish_streams

__all__ = ["AstroGroup", "app", "main"]


class AstroGroup(LazyGroup):
    """All commands of `astro`, and what becomes of their errors."""

    table = {  # noqa: RUF012 - never changed
        "demo": LazyCommand(
            "astro_async.cli.demo_command", "Show in a few seconds what quarantine and retry are."
        ),
        "init": LazyCommand(
            "astro_async.cli.init_command", "Make a pipeline to start from, with sample data."
        ),
        "ingest": LazyCommand(
            "astro_async.cli.ingest_command", "Ingest a source directory into a new run, and print its id."
        ),
        "run": LazyCommand("astro_async.cli.run_command", "Run what a run has to do."),
        "list": LazyCommand("astro_async.cli.list_command", "List the runs, newest first."),
        "show": LazyCommand("astro_async.cli.show_command", "Show a run: its files and its steps."),
        "describe": LazyCommand(
            "astro_async.cli.describe_command",
            "Show the flow of the pipeline: its files, its steps, and what waits for what.",
        ),
        "logs": LazyCommand("astro_async.cli.logs_command", "Print the log of a run."),
        "stats": LazyCommand(
            "astro_async.cli.stats_command", "Print the statistics of a run, or how they went over many runs."
        ),
        "status": LazyCommand(
            "astro_async.cli.status_command", "Say in one line how the newest run ended, and exit as it did."
        ),
        "verify": LazyCommand(
            "astro_async.cli.verify_command",
            "Verify that records, files, rows and statistics of a run agree.",
        ),
        "trace": LazyCommand(
            "astro_async.cli.trace_command",
            "Write what ran when as a Chrome trace, which Perfetto opens.",
        ),
        "report": LazyCommand(
            "astro_async.cli.report_command",
            "Write a page on a run: what happened, when, to which rows, and what to do.",
        ),
        "cleanup": LazyCommand(
            "astro_async.cli.cleanup_command",
            "Remove completed runs, or files of theirs that only a re-run needs.",
        ),
        "quarantine": LazyCommand(
            "astro_async.cli.quarantine_command",
            "Look at rows that steps have set aside, correct them, or leave them out.",
        ),
    }

    def invoke(self, ctx: Any) -> Any:
        """Run a command; errors become a line on stderr and an exit code."""
        with explaining_failures(ctx):
            return super().invoke(ctx)


app = typer.Typer(
    name="astro",
    cls=AstroGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    epilog=show_examples(
        "astro demo                 see it work",
        "astro ingest SOURCE_DIR    take in tonight's files",
        "astro run                  run what there is to do",
        "astro quarantine show      look at the rows that were parked",
        title="Start here",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        print(f"astro-async {__version__}")
        raise typer.Exit


@app.callback()
def astro(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
            show_default=False,
        ),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Run pipelines over tabular files; bad rows are parked, not fatal."""


def main() -> None:
    """Run `astro` with the arguments of the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe that cannot show a character is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        _run()
    except KeyboardInterrupt:
        # After the command: `AstroGroup` tells of what interrupts it.
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _run() -> None:
    failure: OSError | None = None
    try:
        app()
    except OSError as error:
        # Of a command's own work `AstroGroup` tells; this one met the text of `--help` or of a usage error.
        failure = error
    finally:
        finish_streams(failure)
