"""`astro show`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Final

import typer

from astro_async._core.decisions import parked_flows
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
from astro_async.cli.render_runs import MOST_STEPS, render_run
from astro_async.reading import read_attention, read_run

__all__ = ["command"]

command = make_command()

# Loads the pipeline, and with it Polars, for which nobody should wait who only looks at a run.
_STORY: Final = "astro_async.cli.story"


@command.command(
    epilog=show_examples(
        "astro show",
        "astro show k3x9a --json",
        "astro show --story publish          why did publish not start?",
        title="Examples",
    )
)
def show(
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    every: Annotated[
        bool, typer.Option("--all", help="Show every step, however many there are.", show_default=False)
    ] = False,
    story: Annotated[
        str | None,
        typer.Option(
            "--story",
            metavar="STEP",
            help="Show every event of one step, and why it has not started.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show a run: its files and its steps.

    Files with their rows and active path; steps with status, attempt, rows in, out and in quarantine; what
    went wrong, and what to do next.
    """
    if story is not None:
        stories = import_module(_STORY)
        told = stories.load_story(pipeline_dir, run, story)
        if json:
            print_document(stories.story_document(told))
        else:
            open_screen().print(stories.render_story(told))
        return
    if json:
        record = read_run(pipeline_dir, run)
        print_document(run_document(record, run_directory(pipeline_dir, record.run_id)))
        return
    record, counts = read_attention(pipeline_dir, run, above=sys.maxsize if every else MOST_STEPS)
    directory, hints = run_directory(pipeline_dir, record.run_id), suggest_next(record, pipeline_dir)
    open_screen().print(render_run(record, directory, counts=counts, all_steps=every, hints=hints))


def suggest_next(record: RunRecord, pipeline_dir: str) -> list[str]:
    """Return the commands that make sense for a run now."""
    hints = []
    if parked_flows(record):
        hints.append(command_line(f"quarantine list {record.run_id}", pipeline_dir))
    if record.status not in (RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.CREATED):
        hints.append(command_line(f"run {record.run_id}", pipeline_dir))
    return hints
