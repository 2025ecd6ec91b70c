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
        "show": LazyCommand("astro_async.cli.quarantine_show", "Show the rows that a step has set aside."),
    }


command = make_command(
    name="quarantine",
    cls=QuarantineGroup,
    no_args_is_help=True,
    epilog=show_examples("astro quarantine list", "astro quarantine show latest validate"),
)


@command.callback()
def quarantine(debug: DebugOption = False) -> None:
    """Look at rows that steps have set aside."""
