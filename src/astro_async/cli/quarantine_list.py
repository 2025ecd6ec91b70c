"""`astro quarantine list`."""

from __future__ import annotations

from astro_async._core.decisions import parked_flows
from astro_async.cli.documents import quarantine_document
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
from astro_async.cli.render_quarantine import render_quarantine
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples("astro quarantine list", "astro quarantine list k3x9a --json", title="Examples")
)
def list_all(
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List what is in quarantine, by step and file, with the reasons.

    A row that breaks two rules counts for both reasons, and once as a row.
    """
    record = read_run(pipeline_dir, run)
    flows = parked_flows(record)
    if json:
        print_document(quarantine_document(record, flows))
    elif flows:
        hint = command_line(f"quarantine show {record.run_id} {flows[0][0].step_id}", pipeline_dir)
        open_screen().print(render_quarantine(record, flows, hint=hint))
    else:
        print(f"run {record.run_id} ({record.status.value}) has no rows in quarantine")
