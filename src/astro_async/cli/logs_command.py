"""`astro logs`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Final

import aiofiles
import anyio
import typer

from astro_async._store.layout import lock_path, log_path, run_directory
from astro_async._store.lock import is_locked
from astro_async.cli.options import (
    DebugOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.reading import read_run

__all__ = ["command"]

command = make_command()

# Nothing tells when a file grows that works everywhere, so a log is looked at a few times a second.
_LOOK_S: Final = 0.2


@command.command(epilog=show_examples("astro logs", "astro logs k3x9a --follow"))
def logs(
    run: RunArgument = "latest",
    pipeline_dir: PipelineDirOption = ".",
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until the run's process ends.", show_default=False),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Print the log of a run.

    One line a record, whatever the text; one separator line per invocation. The log is for people: what a
    program wants to know is in `astro show --json` and `astro run --events`.
    """
    directory = run_directory(pipeline_dir, read_run(pipeline_dir, run).run_id)
    anyio.run(_print_lines, directory, follow)


async def _print_lines(directory: str, follow: bool) -> None:
    async for text in read_log(directory, follow=follow):
        sys.stdout.write(text)
        sys.stdout.flush()


async def read_log(directory: str, *, follow: bool) -> AsyncIterator[str]:
    """Yield the log of the run in a directory, piece by piece; nothing if it was never run.

    Args:
        directory: The run directory.
        follow: Whether to wait for more for as long as a process holds the run's lock.
    """
    try:
        async with aiofiles.open(log_path(directory), encoding="utf-8", errors="backslashreplace") as file:
            while True:
                # Asked first: what is written before the lock is free is read after it.
                goes_on = follow and is_locked(lock_path(directory))
                while text := await file.read(1 << 16):
                    yield text
                if not goes_on:
                    return
                await anyio.sleep(_LOOK_S)
    except FileNotFoundError:
        return
