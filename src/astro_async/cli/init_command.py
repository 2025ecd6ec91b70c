"""`astro init`."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final

import typer

from astro_async._store.atomic import storage_errors
from astro_async.cli.options import DebugOption, make_command, show_examples
from astro_async.cli.wording import safe
from astro_async.exceptions import RunRefusedError

__all__ = ["command"]

command = make_command()

_FILES: Final = ("pipeline.py", "source/customers.csv", "source/orders.csv")


@command.command(epilog=show_examples("astro init", "astro init orders && cd orders", title="Examples"))
def init(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The folder; made if need be.")] = ".",
    debug: DebugOption = False,
) -> None:
    """Make a pipeline to start from, with sample data.

    A commented pipeline.py and a folder source/ that it can take in at once. Nothing that exists is
    overwritten: if one of the files is there, nothing is made.
    """
    folder = os.path.abspath(directory)
    taken = [name for name in _FILES if os.path.lexists(f"{folder}/{name}")]
    if taken:
        raise RunRefusedError(
            f"{folder} has {' and '.join(taken)} already, and nothing is overwritten: name another "
            "folder, as in `astro init orders`"
        )
    starter = files("astro_async").joinpath("data", "starter")
    for name in _FILES:
        _write(starter.joinpath(name), f"{folder}/{name}")
        print(f"made {safe(os.path.relpath(f'{folder}/{name}'))}")
    change = "" if folder == os.getcwd() else f"cd {safe(directory)} && "
    print(f"next: {change}astro ingest source && astro run")


def _write(source: Traversable, path: str) -> None:
    with storage_errors("write", path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Never over a file that came to be meanwhile.
        with open(path, "xb") as file:
            file.write(source.read_bytes())
