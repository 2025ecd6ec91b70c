"""`astro ingest`."""

from __future__ import annotations

from typing import IO, Annotated, Any

import anyio
import typer

from astro_async._core.records import RunRecord
from astro_async._store.layout import run_directory
from astro_async.api import ingest as ingest_files
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
from astro_async.cli.output import claim_stdout, print_document
from astro_async.cli.signals import SignalWatch
from astro_async.cli.wording import describe_count, describe_size, safe
from astro_async.loading import load_pipeline
from astro_async.pipeline import Pipeline

__all__ = ["command", "describe_ingested", "ingest_watched"]

command = make_command()

SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE_DIR", help="Directory with the source files.")]


@command.command(
    epilog=show_examples(
        "astro ingest deliveries/2026-11-29", "astro ingest deliveries/tonight --param threshold=5"
    )
)
def ingest(
    source: SourceArgument,
    pipeline_dir: PipelineDirOption = ".",
    param: ParamOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Ingest a source directory into a new run, and print its id.

    All files that the pipeline expects, and nothing else, must be in the directory. A failed ingest leaves
    nothing behind.
    """
    params = parse_params(param)
    with claim_stdout() as out, SignalWatch() as watch:
        pipeline = load_pipeline(pipeline_dir)
        record = anyio.run(ingest_watched, watch, pipeline, source, pipeline_dir, params)
        _tell(record, pipeline_dir, out, json=json)


async def ingest_watched(
    watch: SignalWatch, pipeline: Pipeline, source: str, pipeline_dir: str, params: dict[str, Any]
) -> RunRecord:
    """Ingest; the first signal cancels it, and nothing is left behind.

    Raises:
        typer.Exit: A signal came: 130 or 143.
    """
    record = None
    with anyio.CancelScope() as scope, watch.cancelling(scope):
        record = await ingest_files(pipeline, source, pipeline_dir=pipeline_dir, params=params)
    if record is None:
        raise typer.Exit(watch.exit_code)
    return record


def _tell(record: RunRecord, pipeline_dir: str, out: IO[str], *, json: bool) -> None:
    if json:
        print_document(run_document(record, run_directory(pipeline_dir, record.run_id)), out)
        return
    for line in describe_ingested(record):
        print(line, file=out)
    print(f"run {record.run_id} of pipeline {safe(record.pipeline_name)} is ready", file=out)
    print(f"next: {command_line(f'run {record.run_id}', pipeline_dir)}", file=out)


def describe_ingested(record: RunRecord) -> list[str]:
    """Return one line for each file of a new run."""
    return [
        f"ingested {safe(name)}: {describe_count(file.row_count, 'row')}, "
        f"{describe_count(file.column_count, 'column')}, "
        f"{describe_size(file.source_size_bytes)} from {safe(file.source_path)}"
        f"{_describe_columns('left out', file.ignored_columns)}"
        f"{_describe_columns('not in the file, so null', file.inserted_columns)}"
        for name, file in record.files.items()
    ]


def _describe_columns(what: str, names: tuple[str, ...]) -> str:
    return f"; {what}: {safe(', '.join(map(repr, names)))}" if names else ""
