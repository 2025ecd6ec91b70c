"""`astro demo`."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Annotated

import typer

from astro_async.cli.demo_story import tell_story
from astro_async.cli.options import DebugOption, make_command, show_examples
from astro_async.exceptions import RunRefusedError, StorageError

__all__ = ["command"]

command = make_command()


@command.command(epilog=show_examples("astro demo", "astro demo -C penguins", title="Examples"))
def demo(
    directory: Annotated[
        str | None,
        typer.Option(
            "-C", "--pipeline-dir", metavar="DIR", help="A new or empty folder. Default: a temporary one."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep/--no-keep", help="Keep a temporary folder, to play on.")
    ] = True,
    debug: DebugOption = False,
) -> None:
    """Show in a few seconds what quarantine and retry are.

    Takes in 344 penguins, runs a pipeline that parks those with incomplete data, mends the pipeline, runs
    it again, and proves that no row was lost. Real commands on real data, in a folder that you can play
    on with.
    """
    folder = _make_folder(directory)
    try:
        tell_story(folder)
    finally:
        if directory is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if directory is not None or keep:
        typer.echo(f"\nAll of it is in {folder}: cd there and play on.")


def _make_folder(directory: str | None) -> str:
    if directory is None:
        return tempfile.mkdtemp(prefix="astro-demo-")
    folder = os.path.abspath(directory)
    try:
        os.makedirs(folder, exist_ok=True)
        is_empty = not os.listdir(folder)
    except OSError as error:
        raise StorageError(f"cannot make folder {folder}: {error.strerror}") from error
    if not is_empty:
        raise RunRefusedError(f"{folder} is not empty: the demo makes files of its own, give a new folder")
    return folder
