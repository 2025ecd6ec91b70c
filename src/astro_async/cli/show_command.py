"""`astro show`."""

from __future__ import annotations

from typing import Annotated

import typer

from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus
from astro_async._store.layout import run_directory
from astro_async.cli.documents import run_document
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    RunArgument,
    command_line,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_runs import render_run
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()


@command.command(epilog=show_examples("astro show", "astro show k3x9a --json"))
def show(
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    every: Annotated[
        bool, typer.Option("--all", help="Show every step, however many there are.", show_default=False)
    ] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show a run: its files and its steps.

    Files with their rows and active path; steps with status, attempt, rows in, out and in quarantine; what
    went wrong, and what to do next.
    """
    record = read_run(pipeline_dir, run)
    directory = run_directory(pipeline_dir, record.run_id)
    if json:
        print_document(run_document(record, directory))
        return
    hints = suggest_next(record, pipeline_dir)
    open_screen().print(render_run(record, directory, all_steps=every, hints=hints))


def suggest_next(record: RunRecord, pipeline_dir: str) -> list[str]:
    """Return the commands that make sense for a run now."""
    hints = []
    if any(flow.parts for step in record.steps.values() for flow in step.files):
        hints.append(command_line(f"quarantine list {record.run_id}", pipeline_dir))
    if record.status not in (RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.CREATED):
        hints.append(command_line(f"run {record.run_id}", pipeline_dir))
    return hints
