"""Parameters that several commands share, and how `--param` is read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from astro_async._store.layout import command_line, list_run_ids
from astro_async.cli.failures import DEBUG_KEY

__all__ = [
    "DebugOption",
    "JsonOption",
    "OutputOption",
    "ParamOption",
    "PipelineDirOption",
    "RunArgument",
    "command_line",
    "complete_run",
    "make_command",
    "parse_params",
    "show_examples",
]

_INT64: Final = range(-(2**63), 2**63)


def _note_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.meta[DEBUG_KEY] = True
    return value


def _check_directory(value: str) -> str:
    if not os.path.isdir(value):
        kind = "is not a directory" if os.path.exists(value) else "does not exist"
        raise typer.BadParameter(f"{value} {kind}: give the folder that has pipeline.py")
    return os.path.abspath(value)


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the run ids that begin like this, for the shell; `-C` counts if it was typed before."""
    pipeline_dir = ctx.params.get("pipeline_dir") or "."
    names = ["latest", *list_run_ids(os.path.expanduser(pipeline_dir))]
    return [name for name in names if name.startswith(incomplete)]


DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show tracebacks.", callback=_note_debug, show_default=False)
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout.", show_default=False)
]
PipelineDirOption = Annotated[
    str,
    typer.Option(
        "-C",
        "--pipeline-dir",
        metavar="DIR",
        help="Folder with pipeline.py and its runs.",
        callback=_check_directory,
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run id, or 'latest'.", autocompletion=complete_run)
]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; '-' for stdout.")
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="K=V",
        help="A parameter for the steps. Numbers, true, false and null are read as such.",
    ),
]


def make_command(**settings: Any) -> typer.Typer:
    """Return the Typer app of one command, or of a group of commands, in the style of all of them."""
    return typer.Typer(
        rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False, **settings
    )


def parse_params(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Read `k=v` pairs; the last of a name counts.

    Raises:
        typer.BadParameter: A pair has no `=`, or no name.
    """
    params: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not K=V, such as threshold=5", param_hint="--param")
        params[name.strip()] = _parse_value(text)
    return params


def _parse_value(text: str) -> Any:
    """Return a number, a truth value or None where JSON reads the text as one; else the text.

    What the journal cannot hold exactly (more than 64 bits, infinity) stays text.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if value in _INT64 else text
    return value if isinstance(value, float) and math.isfinite(value) else text


def show_examples(*lines: str, title: str = "Example") -> str:
    """Return the end of a help text; the mark keeps its lines from being filled up into one."""
    return "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])
