"""`astro quarantine export`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated

import typer

from astro_async._executor.desk import export_rows
from astro_async._executor.parked import load_parked
from astro_async._frames.columns import ROW_COLUMN
from astro_async._frames.patches import IS_DISCARDED
from astro_async._store.atomic import Disk
from astro_async.cli.desk_options import DeskRunArgument, DeskStepArgument, FileOption
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    command_line,
    make_command,
    show_examples,
)
from astro_async.cli.output import print_document
from astro_async.cli.wording import describe_count, safe
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()


class SeparatorChoice(StrEnum):
    """What stands between the fields of a CSV file."""

    COMMA = ","
    SEMICOLON = ";"


@command.command(
    epilog=show_examples(
        "astro quarantine export latest validate -o rows.csv",
        "astro quarantine export k3x9a validate -o rows.csv --separator ';' --bom    for a spreadsheet",
        "astro quarantine export k3x9a validate -o rows.xlsx --reason 'no such customer'",
        title="Examples",
    )
)
def export(
    run: DeskRunArgument = "latest",
    step: DeskStepArgument = None,
    *,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="PATH", help="Where to: a name that ends as .csv, .parquet or .xlsx."
        ),
    ],
    pipeline_dir: PipelineDirOption = ".",
    file: FileOption = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Only rows whose reasons contain this.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="At most so many rows; 0 for all.")
    ] = 0,
    separator: Annotated[
        SeparatorChoice, typer.Option("--separator", metavar=",|;", help="Between the fields of a CSV file.")
    ] = SeparatorChoice.COMMA,
    bom: Annotated[
        bool,
        typer.Option(
            "--bom",
            help="Begin a CSV file with a byte order mark, by which spreadsheets know UTF-8.",
            show_default=False,
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file.", show_default=False)
    ] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write parked rows to a file, to be corrected and given back with `amend`.

    Keep the column _astro_row as it is: it says which row is which. In CSV an empty field is null, and ""
    is empty text. Exit codes: 0 written, 1 not.
    """
    parked = load_parked(pipeline_dir, read_run(pipeline_dir, run), step, file)
    written = export_rows(
        parked,
        output,
        reason=reason,
        limit=limit,
        separator=separator.value,
        has_mark=bom,
        over_existing=force,
        disk=Disk(),
    )
    record, step_id, name = parked.record, parked.step.step_id, parked.flow.name
    rows = written.height
    decided = parked.decided.join(written, on=ROW_COLUMN, how="semi")
    discarded = int(decided[IS_DISCARDED].sum())
    amended = decided.height - discarded
    unplaced = parked.rows[ROW_COLUMN].null_count()
    if json:
        print_document(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": record.run_id,
                "step_id": step_id,
                "file": name,
                "path": output,
                "rows": rows,
                "rows_parked": parked.rows.height,
                "rows_without_position": unplaced,
                "rows_amended_waiting": amended,
                "rows_discarded_waiting": discarded,
            }
        )
        return
    of_all = f"{rows:,} of " if rows < parked.rows.height else ""
    total = describe_count(parked.rows.height, "row")
    print(f"{safe(output)}: {of_all}{total} that {safe(step_id)} set aside of {safe(name)}")
    if unplaced:
        print(
            f"{describe_count(unplaced, 'row')} without {ROW_COLUMN}: the step had changed them before it "
            "set them aside, so they can be read but not amended"
        )
    if decided.height:
        told = {"amended": amended, "discarded": discarded}
        words = ", ".join(f"{what} {count:,}" for what, count in told.items() if count)
        is_decided, them = (
            ("is decided", "it as it was") if decided.height == 1 else ("are decided", "them as they were")
        )
        print(f"{decided.height:,} of them {is_decided} already ({words}); the file shows {them} parked")
    of_file = "" if len(parked.step.files) == 1 else f" --file {name}"
    words = f"quarantine amend {record.run_id} {step_id} {shlex.quote(output)}{of_file}"
    print(f"next: correct the values, then: {command_line(words, pipeline_dir)}")
