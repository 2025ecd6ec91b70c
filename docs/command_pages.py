"""Draws `commands.md` from the commands themselves. A test fails when they differ.

Run as `python docs/command_pages.py` after a change of a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from astro_async.cli.app import app
from astro_async.cli.lazy import LazyGroup

PAGE: Final = Path(__file__).with_name("commands.md")

_HEAD: Final = """\
# Commands

Drawn from the commands themselves: this is what their `--help` says. All are also `astro-async` and
`python -m astro_async`, for environments where another `astro` lives. `--debug` shows tracebacks; the
exit codes are [the same](running.md#exit-codes) everywhere.

`astro --install-completion` lets the shell complete commands, options and run ids;
`astro --show-completion` prints the script that does it.
"""


def draw_page() -> str:
    """Return the page."""
    root = typer.main.get_command(app)
    assert isinstance(root, LazyGroup)
    return "\n".join([_HEAD, *_draw_group(root, "astro")])


def _draw_group(group: LazyGroup, path: str) -> Iterator[str]:
    for name in group.table:
        command = group.load_command(name)
        if isinstance(command, LazyGroup):
            yield from _draw_group(command, f"{path} {name}")
        else:
            yield from _draw_command(command, f"{path} {name}")


def _draw_command(command: Any, path: str) -> Iterator[str]:
    yield f"## {path}\n"
    yield f"{command.help.strip()}\n"
    rows = [_draw_parameter(parameter) for parameter in command.params]
    yield "| | |\n|---|---|"
    yield from (f"| {left} | {right} |" for left, right in rows if left != "`--debug`")
    examples = [line.strip() for line in command.epilog.splitlines()[2:]]
    yield "\n```text"
    yield from examples
    yield "```\n"


def _draw_parameter(parameter: Any) -> tuple[str, str]:
    words = (parameter.help or "").replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`".replace("|", "\\|"), words
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    metavar = f" `{parameter.metavar}`" if parameter.metavar and not parameter.is_flag else ""
    return f"{names}{metavar}", words


if __name__ == "__main__":
    PAGE.write_text(draw_page(), encoding="utf-8")
