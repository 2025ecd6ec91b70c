"""`astro quarantine`: the table of its commands."""

from __future__ import annotations

from astro_async.cli.lazy import LazyCommand, LazyGroup
from astro_async.cli.options import DebugOption, make_command, show_examples

__all__ = ["QuarantineGroup", "command"]


class QuarantineGroup(LazyGroup):
    """All commands of `astro quarantine`."""

    table = {  # noqa: RUF012 - never changed
        "list": LazyCommand(
            "astro_async.cli.quarantine_list",
            "List what is in quarantine, by step and file, with the reasons.",
        ),
        "show": LazyCommand(
            "astro_async.cli.quarantine_show",
            "Show the rows that a step has set aside, or the ingest (as step `ingest`).",
        ),
        "stats": LazyCommand(
            "astro_async.cli.quarantine_stats",
            "Count parked rows: by step, file and reason, decided and undecided.",
        ),
        "export": LazyCommand(
            "astro_async.cli.quarantine_export",
            "Write parked rows to a file, to be corrected and given back with `amend`.",
        ),
        "amend": LazyCommand(
            "astro_async.cli.quarantine_amend",
            "Give corrected rows back: the next run gives the step its input so.",
        ),
        "discard": LazyCommand(
            "astro_async.cli.quarantine_discard",
            "Leave parked rows out: the next run does not give them to the step any more.",
        ),
        "withdraw": LazyCommand(
            "astro_async.cli.quarantine_withdraw",
            "Take decisions back: the next run gives the step those rows as they came.",
        ),
    }


command = make_command(
    name="quarantine",
    cls=QuarantineGroup,
    no_args_is_help=True,
    epilog=show_examples(
        "astro quarantine show latest validate                  look at them",
        "astro quarantine export latest validate -o rows.csv    correct them, and give them back:",
        "astro quarantine amend latest validate rows.csv",
        "astro run latest",
        title="Examples",
    ),
)


@command.callback()
def quarantine(debug: DebugOption = False) -> None:
    """Look at rows that steps have set aside, correct them, or leave them out."""
