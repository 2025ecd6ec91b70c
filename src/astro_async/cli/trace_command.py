"""`astro trace`."""

from __future__ import annotations

import os
import sys

import msgspec

from astro_async._core.status import RunStatus
from astro_async._core.timeline import derive_critical_path, derive_timeline
from astro_async._store.atomic import Disk
from astro_async._store.history import scan_events
from astro_async._store.layout import run_directory
from astro_async.cli.chrome_trace import trace_document
from astro_async.cli.options import (
    DebugOption,
    OutputOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.cli.output import claim_stdout
from astro_async.cli.wording import describe_count, safe
from astro_async.exceptions import PipelineError, RunRefusedError
from astro_async.loading import load_pipeline
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro trace latest -o night.json      then open night.json in https://ui.perfetto.dev",
        "astro trace k3x9a -o - | gzip > k3x9a.json.gz",
        title="Examples",
    )
)
def trace(
    output: OutputOption,
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    debug: DebugOption = False,
) -> None:
    """Write what ran when as a Chrome trace, which Perfetto opens.

    One slice for each attempt, on lanes that never overlap; marks for rows in quarantine, retries and
    failures; the critical path as arrows. The pipeline is loaded to find the critical path; without it the
    trace has none. Lanes are not threads: the records do not tell which worker a step was on.
    """
    record = read_run(pipeline_dir, run)
    events = scan_events(run_directory(pipeline_dir, record.run_id))
    invocations = derive_timeline(events, is_live=record.status is RunStatus.RUNNING)
    if not invocations:
        raise RunRefusedError(f"run {record.run_id} has not been run yet: there is nothing to trace")
    with claim_stdout() as out:
        try:
            graph = load_pipeline(pipeline_dir).graph(record.files)
        except PipelineError as error:
            print(f"warning: no critical path in the trace: {safe(error)}", file=sys.stderr)
            critical = {}
        else:
            critical = {i: derive_critical_path(graph, each) for i, each in enumerate(invocations)}
        document = msgspec.json.encode(trace_document(record, invocations, critical)) + b"\n"
        if output == "-":
            print(document.decode(), end="", file=out)
            return
        Disk().write_file(os.path.abspath(output), document)
        attempts = sum(len(invocation.attempts) for invocation in invocations)
        print(
            f"wrote {safe(output)}: {describe_count(attempts, 'attempt')} in "
            f"{describe_count(len(invocations), 'invocation')}; open it in https://ui.perfetto.dev",
            file=out,
        )
