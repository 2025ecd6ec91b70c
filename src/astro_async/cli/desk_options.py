"""Parameters and dialogue that the commands of the repair desk share."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from astro_async._executor.decisions import Decision
from astro_async._executor.desk import parse_ranges
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.options import command_line
from astro_async.cli.output import print_document
from astro_async.cli.wording import describe_waiting_rows, safe
from astro_async.exceptions import DeskError

__all__ = [
    "BecauseText",
    "DeskRunArgument",
    "DeskStepArgument",
    "FileOption",
    "YesOption",
    "confirm",
    "describe_replaced",
    "read_rows_option",
    "tell_decision",
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


def read_rows_option(rows: str | None, *, every: bool) -> list[range] | None:
    """Return the rows that `--rows` names; None for `--all`. One of the two is given.

    Raises:
        typer.BadParameter: None is given, or both, or it is no list of rows.
    """
    if (rows is None) == (not every):
        raise typer.BadParameter("name the rows: either --rows 3,7-9 or --all")
    try:
        return None if rows is None else parse_ranges(rows)
    except DeskError as error:
        raise typer.BadParameter(str(error), param_hint="--rows") from None


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


def describe_replaced(decided: Decision) -> str:
    """Return what had been decided before about the rows, such as `; 1 of them was discarded before`."""
    counts = {"amended": decided.was_amended, "discarded": decided.was_discarded}
    words = [f"{rows:,} {'was' if rows == 1 else 'were'} {what}" for what, rows in counts.items() if rows]
    return f"; of them {' and '.join(words)} before, and this counts now" if words else ""


def tell_decision(what: str, decided: Decision, *, pipeline_dir: str, json: bool, **more: Any) -> None:
    """Say what was recorded, what waits now, and what to do next; or print the document of the decision.

    Args:
        what: What was done, in words.
        decided: What was recorded.
        pipeline_dir: As the operator gave it.
        json: Whether the document is wanted, and not words.
        **more: What else the document holds.
    """
    if json:
        print_document(
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": decided.run_id,
                "step_id": decided.step_id,
                "file": decided.file,
                "rows": decided.rows,
                "rows_replaced": decided.replaced,
                "rows_amended_before": decided.was_amended,
                "rows_discarded_before": decided.was_discarded,
                "rows_amended_waiting": decided.waiting.amended,
                "rows_discarded_waiting": decided.waiting.discarded,
                "rows_withdrawn_waiting": decided.waiting.withdrawn,
                **more,
            }
        )
        return
    print(what)
    print(f"{safe(decided.step_id)} waits for a run with {describe_waiting_rows(decided.waiting)}")
    print(f"next: {command_line(f'run {decided.run_id}', pipeline_dir)}")
