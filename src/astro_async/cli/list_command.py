"""`astro list`."""

from __future__ import annotations

import sys

from astro_async._core.selection import select_waiting
from astro_async.cli.documents import list_document
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    command_line,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_runs import list_lines, render_list
from astro_async.cli.wording import safe
from astro_async.reading import list_runs

__all__ = ["command"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro list", "astro list --json | jq -r '.runs[] | select(.status == \"quarantined\") | .run_id'"
    )
)
def list_all(
    pipeline_dir: PipelineDirOption = ".", json: JsonOption = False, debug: DebugOption = False
) -> None:
    """List the runs, newest first.

    For each run its id, status, when it was ingested, its steps by status and the rows that wait in
    quarantine. The run that a bare `astro run` takes is marked.
    """
    summaries, notices = list_runs(pipeline_dir)
    for notice in notices:
        print(f"warning: {safe(notice)}", file=sys.stderr)
    chosen = next((each.run_id for each in select_waiting(summaries)), None)
    if json:
        print_document(list_document(summaries, chosen, notices))
    elif summaries:
        screen = open_screen()
        if screen.is_terminal:
            screen.print(render_list(summaries, chosen, width=screen.width))
        else:
            for line in list_lines(summaries, chosen, width=screen.width):
                print("".join(text for text, _ in line).rstrip())
    elif not notices:
        hint = command_line("ingest SOURCE_DIR", pipeline_dir)
        print(f"no runs yet in {safe(pipeline_dir)}: `{hint}` makes one")
