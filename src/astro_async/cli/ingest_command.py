"""`astro ingest`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, Annotated, Any

import anyio
import typer
from rich.text import Text

from astro_async._core.decisions import ingest_step
from astro_async._core.names import INGEST_STEP
from astro_async._core.records import IngestedFile, RunRecord
from astro_async._store.layout import run_directory
from astro_async.api import IngestProgress, SourceCheck, check_source
from astro_async.api import ingest as ingest_files
from astro_async.cli.display import Display, EventsFile, View, logging_to
from astro_async.cli.documents import run_document
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    ParamOption,
    PipelineDirOption,
    command_line,
    make_command,
    parse_params,
    show_examples,
)
from astro_async.cli.output import claim_stdout, open_screen, print_document
from astro_async.cli.render_check import check_document, render_check
from astro_async.cli.signals import SignalWatch
from astro_async.cli.views import IngestView, QuietView
from astro_async.cli.wording import describe_count, describe_size, safe
from astro_async.loading import load_pipeline
from astro_async.pipeline import Pipeline

__all__ = ["command", "describe_ingested", "perform_ingest"]

command = make_command()

CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Read the files and say what does not fit; make no run. Ends with 1 if something does not.",
        show_default=False,
    ),
]
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE_DIR", help="Directory with the source files.")]


@command.command(
    epilog=show_examples(
        "astro ingest deliveries/2026-11-29",
        "astro ingest deliveries/tonight --param threshold=5",
        "astro ingest --check deliveries/tonight",
    )
)
def ingest(
    source: SourceArgument,
    pipeline_dir: PipelineDirOption = ".",
    param: ParamOption = None,
    check: CheckOption = False,
    allow_quarantined: Annotated[
        bool,
        typer.Option("--allow-quarantined", help="End with 0 although rows are parked.", show_default=False),
    ] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Ingest a source directory into a new run, and print its id.

    All files that the pipeline expects, and nothing else, must be in the directory. A failed ingest leaves
    nothing behind. Ends with 3 if rows that could not be read are parked.
    """
    params = parse_params(param)
    with claim_stdout() as out, SignalWatch() as watch:
        pipeline = load_pipeline(pipeline_dir)
        watch.renew()
        if check:
            found = anyio.run(_check_watched, watch, pipeline, source)
            _tell_check(found, out, json=json)
            if any(file.rows_quarantined for file in found.files) and not allow_quarantined:
                raise typer.Exit(3)
            return
        record = perform_ingest(
            watch, pipeline, source, pipeline_dir, params, shows_progress=True, debug=debug
        )
        _tell(record, pipeline_dir, out, json=json)
    if ingest_step(record) is not None and not allow_quarantined:
        raise typer.Exit(3)


async def _check_watched(watch: SignalWatch, pipeline: Pipeline, source: str) -> SourceCheck:
    check = None
    with anyio.CancelScope() as scope, watch.cancelling(scope):
        check = await check_source(pipeline, source)
    if check is None:
        print("interrupted: the files were not checked to the end", file=sys.stderr)
        raise typer.Exit(watch.exit_code)
    return check


def _tell_check(check: SourceCheck, out: IO[str], *, json: bool) -> None:
    if json:
        print_document(check_document(check), out)
    else:
        screen = open_screen(out)
        for part in render_check(check):
            # Only tables are fitted to the width: a line can be searched for, and is as long as it is.
            screen.print(part, soft_wrap=isinstance(part, Text))
    if not check.is_good:
        raise typer.Exit(1)


def perform_ingest(
    watch: SignalWatch,
    pipeline: Pipeline,
    source: str,
    pipeline_dir: str,
    params: dict[str, Any],
    *,
    shows_progress: bool,
    debug: bool,
) -> RunRecord:
    """Ingest; on a terminal, say how far it is. The first signal cancels it, and nothing is left behind.

    Raises:
        typer.Exit: A signal came: 130 or 143.
        AstroError: As `api.ingest`.
    """
    progress = IngestProgress()
    screen = open_screen(sys.stderr)
    view: View = QuietView()
    if shows_progress and screen.can_draw:
        view = IngestView(screen, progress, lambda: watch.first is not None)
    # Back to where the command was given, wherever the pipeline's own readers went.
    back = contextlib.chdir(os.curdir)
    with back, Display(view, EventsFile(None)) as display, logging_to(display.note, traces=debug):
        record = anyio.run(_ingest_watched, watch, pipeline, source, pipeline_dir, params, progress)
    if record is None:
        told = "interrupted: nothing was ingested and no run was made; the same command starts again"
        print(told, file=sys.stderr)
        raise typer.Exit(watch.exit_code)
    return record


async def _ingest_watched(
    watch: SignalWatch,
    pipeline: Pipeline,
    source: str,
    pipeline_dir: str,
    params: dict[str, Any],
    progress: IngestProgress,
) -> RunRecord | None:
    with anyio.CancelScope() as scope, watch.cancelling(scope):
        return await ingest_files(
            pipeline, source, pipeline_dir=pipeline_dir, params=params, progress=progress
        )
    return None


def _tell(record: RunRecord, pipeline_dir: str, out: IO[str], *, json: bool) -> None:
    if json:
        print_document(run_document(record, run_directory(pipeline_dir, record.run_id)), out)
        return
    for line in describe_ingested(record):
        print(line, file=out)
    print(f"run {record.run_id} of pipeline {safe(record.pipeline_name)} is ready", file=out)
    if ingest_step(record) is not None:
        hint = command_line(f"quarantine show {record.run_id} {INGEST_STEP}", pipeline_dir)
        print(f"the parked rows: {hint}", file=out)
    print(f"next: {command_line(f'run {record.run_id}', pipeline_dir)}", file=out)


def describe_ingested(record: RunRecord) -> list[str]:
    """Return one line for each file of a new run."""
    return [
        f"ingested {safe(name)}: {describe_count(file.row_count, 'row')}, "
        f"{describe_count(file.column_count, 'column')}, "
        f"{describe_size(file.source_size_bytes)} from {safe(file.source_path)}"
        f"{_describe_parked(file)}"
        f"{_describe_columns('left out', file.ignored_columns)}"
        f"{_describe_columns('not in the file, so null', file.inserted_columns)}"
        for name, file in record.files.items()
    ]


def _describe_parked(file: IngestedFile) -> str:
    return f"; {describe_count(file.rows_quarantined, 'row')} parked" if file.parts else ""


def _describe_columns(what: str, names: tuple[str, ...]) -> str:
    return f"; {what}: {safe(', '.join(map(repr, names)))}" if names else ""
