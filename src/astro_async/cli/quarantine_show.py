"""`astro quarantine show`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

import typer

from astro_async._core.decisions import choose_flows
from astro_async._core.events import FileFlow
from astro_async._core.records import RunRecord, StepRecord
from astro_async._executor.parked import load_parked_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.parquet import load_frame
from astro_async._frames.positions import describe_positions
from astro_async._store.layout import list_run_ids, run_directory
from astro_async.cli.documents import rows_document
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    command_line,
    complete_run,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_quarantine import QuarantinedRows, render_decisions, render_rows
from astro_async.exceptions import InvalidNameError, RunNotFoundError, RunRefusedError
from astro_async.reading import LATEST, read_run

__all__ = ["command"]

_MOST_RANGES: Final = 10

command = make_command()


@command.command(
    epilog=show_examples(
        "astro quarantine show",
        "astro quarantine show k3x9a validate --limit 100",
        "astro quarantine show latest validate --json | jq '.files[0].rows[]'",
        title="Examples",
    )
)
def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run id, or 'latest'.", autocompletion=complete_run)
    ] = "latest",
    step: Annotated[
        str | None,
        typer.Argument(
            metavar="STEP", help="A step; may be left out where only one has rows.", show_default=False
        ),
    ] = None,
    pipeline_dir: PipelineDirOption = ".",
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="Only the rows of this file.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="At most so many rows of a file; 0 for all.")
    ] = 20,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the rows that a step has set aside, or the ingest (as step `ingest`).

    Each row with its reason, in the order in which the step set them aside; then what was decided, and why.
    """
    record = _read_run(pipeline_dir, run, step)
    flows = choose_flows(record, step, file, has_ingest=True)
    directory = run_directory(pipeline_dir, record.run_id)
    loaded = [_load(directory, owner, flow, limit) for owner, flow in flows]
    if json:
        print_document(rows_document(record, loaded))
        return
    screen = open_screen()
    for rows in loaded:
        screen.print(render_rows(rows, screen.width))
    keys = {(rows.step_id, rows.file) for rows in loaded}
    for line in render_decisions(record, keys, _load_positions(directory, record, keys)):
        screen.print(line)
    if any(rows.rows_in_all > len(rows.rows) for rows in loaded):
        words = f"quarantine show {record.run_id} {loaded[0].step_id} --limit 0"
        print(f"all of them: {command_line(words, pipeline_dir)}")


def _read_run(pipeline_dir: str, run: str, step: str | None) -> RunRecord:
    """Return the run; a step in its place is answered with how to name it."""
    try:
        return read_run(pipeline_dir, run)
    except (InvalidNameError, RunNotFoundError) as error:
        if step is None and list_run_ids(pipeline_dir) and run in read_run(pipeline_dir, LATEST).steps:
            hint = command_line(f"quarantine show latest {run}", pipeline_dir)
            raise RunRefusedError(f"{run!r} is a step, and the run comes first: `{hint}`") from error
        raise


def _load_positions(directory: str, record: RunRecord, keys: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return, by the path of each patch, the positions that it is about."""
    found = {}
    for patch in record.patches:
        if (patch.step_id, patch.file) in keys and patch.path not in record.dropped:
            rows = load_frame(f"{directory}/{patch.path}", [ROW_COLUMN]).get_column(ROW_COLUMN)
            told = describe_positions(rows.drop_nulls().sort().to_list(), most=_MOST_RANGES)
            found[patch.path] = f"{ROW_COLUMN} {told}"
    return found


def _load(directory: str, step: StepRecord, flow: FileFlow, limit: int) -> QuarantinedRows:
    frame = load_parked_rows(directory, flow, limit)
    return QuarantinedRows(
        step_id=step.step_id,
        file=flow.name,
        columns={name: str(dtype) for name, dtype in frame.schema.items() if name != REASON_COLUMN},
        rows=frame.drop(REASON_COLUMN).rows(),
        reasons=frame[REASON_COLUMN].to_list(),
        rows_in_all=flow.rows_quarantined,
    )
