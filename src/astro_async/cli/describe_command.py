"""`astro describe`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from astro_async._core.flow import derive_flow
from astro_async.cli.flow_formats import draw_dot, draw_mermaid, flow_document, render_flow
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    complete_run,
    make_command,
    show_examples,
)
from astro_async.cli.output import claim_stdout, open_screen, print_document
from astro_async.loading import load_pipeline
from astro_async.reading import read_run
from astro_async.steps import CheckStep, FilterStep

__all__ = ["Format", "command"]

command = make_command()


class Format(StrEnum):
    """How the flow is told."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


@command.command(
    epilog=show_examples(
        "astro describe",
        "astro describe latest                       with the statuses of the newest run",
        "astro describe --format dot | dot -Tsvg > flow.svg",
        title="Examples",
    )
)
def describe(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run id, or 'latest': show how its steps stand. Default: only the pipeline.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    pipeline_dir: PipelineDirOption = ".",
    format_: Annotated[
        Format, typer.Option("--format", metavar="FORMAT", help="text, mermaid, dot or json.")
    ] = Format.TEXT,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the flow of the pipeline: its files, its steps, and what waits for what.

    Steps of the same stage may run side by side. A step waits for those that it depends on to end well, and
    for those that may change its files before it to settle. With RUN, each step has its status.
    """
    chosen = Format.JSON if json else format_
    with claim_stdout() as out:
        pipeline = load_pipeline(pipeline_dir)
        record = None if run is None else read_run(pipeline_dir, run)
        flow = derive_flow(pipeline.graph(None if record is None else record.files), record)
        kinds: dict[str, str] = {
            step.step_id: "check"
            if isinstance(step.fn, CheckStep)
            else "filter"
            if isinstance(step.fn, FilterStep)
            else "step"
            for step in pipeline.steps
        }
        patterns = {name: spec.source_pattern for name, spec in pipeline.file_specs().items()}
        match chosen:
            case Format.JSON:
                print_document(flow_document(pipeline.name, patterns, kinds, flow), out)
            case Format.MERMAID:
                print(draw_mermaid(flow), file=out)
            case Format.DOT:
                print(draw_dot(pipeline.name, flow), file=out)
            case Format.TEXT:
                open_screen(out).print(render_flow(pipeline.name, patterns, kinds, flow))
