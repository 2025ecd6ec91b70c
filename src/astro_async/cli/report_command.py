"""`astro report`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from astro_async._core.flow import derive_flow
from astro_async._core.status import RunStatus
from astro_async._core.timeline import derive_critical_path, derive_timeline
from astro_async._executor.clock import format_time, utc_now
from astro_async._store.atomic import Disk
from astro_async._store.history import scan_events
from astro_async._store.layout import log_path, run_directory
from astro_async._store.log import load_log_tail
from astro_async.cli.options import (
    DebugOption,
    OutputOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.cli.output import claim_stdout
from astro_async.cli.report_page import Report, render_page
from astro_async.cli.wording import describe_size, safe
from astro_async.exceptions import PipelineError, RunRefusedError
from astro_async.loading import load_pipeline
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro report latest -o night.html",
        "astro report k3x9a -o - | gzip > k3x9a.html.gz",
        title="Examples",
    )
)
def report(
    output: OutputOption,
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that exists.", show_default=False)
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Write a page on a run: what happened, when, to which rows, and what to do.

    One HTML file that needs nothing else, to be kept or sent: verdict, timeline, graph, where the rows of
    each file went, reasons and rules with counts, the end of the log. It holds no parked rows and no
    parameters; what steps log and how their errors are worded is up to their author. The pipeline is loaded
    for the graph and the critical path; without it the page has none.
    """
    record = read_run(pipeline_dir, run)
    path = os.path.abspath(output)
    if output != "-" and os.path.isdir(path):
        raise RunRefusedError(f"{path} is a directory: name a file in it, such as {safe(output)}/run.html")
    if output != "-" and os.path.lexists(path) and not force:
        raise RunRefusedError(f"{path} exists already: name another file, or give --force to write over it")
    directory = run_directory(pipeline_dir, record.run_id)
    # A run that was never started may have no journal worth a timeline, but it has files.
    invocations = derive_timeline(scan_events(directory), is_live=record.status is RunStatus.RUNNING)
    with claim_stdout() as out:
        problem = None
        flow = None
        critical = {}
        try:
            graph = load_pipeline(pipeline_dir).graph(record.files)
        except PipelineError as error:
            problem = safe(error)
            print(f"warning: no graph and no critical path in the report: {problem}", file=sys.stderr)
        else:
            flow = derive_flow(graph, record)
            critical = {i: derive_critical_path(graph, each) for i, each in enumerate(invocations)}
        page = render_page(
            Report(
                record=record,
                invocations=invocations,
                critical=critical,
                flow=flow,
                problem=problem,
                log=load_log_tail(log_path(directory)),
                pipeline_dir=pipeline_dir,
                made_at=format_time(utc_now()),
            )
        )
        if output == "-":
            print(page, end="", file=out)
            return
        content = page.encode()
        Disk().write_file(path, content)
        print(f"wrote {safe(output)}: {describe_size(len(content))}; open it in a browser", file=out)
