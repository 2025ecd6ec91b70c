"""A Typer group that knows its commands by a table, and imports the module of one when it is invoked.

So `astro --help` and `astro list` do not wait for Polars, which only some commands need.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from astro_async.cli.interrupt import raise_on_interrupt

__all__ = ["LazyCommand", "LazyGroup"]


class LazyCommand(NamedTuple):
    """One row of the table.

    Attributes:
        module: The module, whose `command` is a Typer app.
        summary: The first sentence of the command's own help; a test compares them.
    """

    module: str
    summary: str


class LazyGroup(TyperGroup):
    """A group whose commands are listed from `table` and loaded when they are invoked."""

    table: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Good for lists, completion and "did you mean"; replaced by the real one before it is invoked.
        self.commands.update({name: TyperCommand(name, help=row.summary) for name, row in self.table.items()})

    def load_command(self, name: str) -> Any:
        """Import the module of a command and return the command."""
        app: typer.Typer = import_module(self.table[name].module).command
        command = typer.main.get_command(app)
        command.name = name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command and its arguments; an unknown name is a usage error."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.table:
            command = self.load_command(name)
        if not isinstance(command, LazyGroup):
            # The command is about to begin: from here on it has something to clear up.
            raise_on_interrupt()
        return name, command, rest
