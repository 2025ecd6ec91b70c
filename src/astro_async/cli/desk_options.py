"""Parameters and dialogue that the commands of the repair desk share."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from astro_async._core.decisions import Waiting
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.options import command_line
from astro_async.cli.wording import describe_count, describe_waiting_rows, safe
from astro_async.exceptions import DeskError

__all__ = [
    "BecauseText",
    "DeskRunArgument",
    "DeskStepArgument",
    "FileOption",
    "YesOption",
    "confirm",
    "decision_document",
    "print_decided",
]

DeskRunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run id, or 'latest'.")]
DeskStepArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STEP", help="A step; may be left out where only one has rows.", show_default=False
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        "--file",
        metavar="NAME",
        help="The rows of this file; needed where a step has set rows of several aside.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]
BecauseText = "Why, in your words; kept on the record."


def confirm(question: str, *, yes: bool) -> None:
    """Ask, on stderr, unless the answer is given.

    Raises:
        DeskError: The answer is no, or nobody can be asked.
    """
    if yes:
        return
    # Not by typer.confirm: that writes a blank to stdout, where a document may be awaited.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise DeskError(
            "nobody answered, so nothing is stored: give --yes where nobody can be asked"
        ) from None
    if answer.strip().lower() not in ("y", "yes"):
        raise DeskError("nothing is stored")


def print_decided(
    what: str, *, run_id: str, step_id: str, replaced: int, waiting: Waiting, pipeline_dir: str
) -> None:
    """Say what was recorded, what waits now, and what to do next."""
    again = (
        f"; {describe_count(replaced, 'row')} of them for the second time, and this counts"
        if replaced
        else ""
    )
    print(f"{what}{again}")
    print(f"{safe(step_id)} waits for a run with {describe_waiting_rows(waiting)}")
    print(f"next: {command_line(f'run {run_id}', pipeline_dir)}")


def decision_document(
    *, run_id: str, step_id: str, file: str, rows: int, replaced: int, waiting: Waiting, **more: Any
) -> dict[str, Any]:
    """Return the document of a decision."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "step_id": step_id,
        "file": file,
        "rows": rows,
        "rows_replaced": replaced,
        "rows_amended_waiting": waiting.amended,
        "rows_discarded_waiting": waiting.discarded,
        **more,
    }
