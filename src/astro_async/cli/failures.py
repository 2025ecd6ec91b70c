"""Errors to words and exit codes: one line on stderr, a traceback only with `--debug`."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer

from astro_async._core.text import escape_controls
from astro_async.cli.streams import silence_stdout
from astro_async.exceptions import AstroError

__all__ = ["DEBUG_KEY", "describe_failure", "explaining_failures", "is_debugging"]

DEBUG_KEY: Final = "astro_async.debug"
"""Where the context of a command notes `--debug`, given before or after the command."""

_PYDANTIC: Final = "Value error, "
_UsageError: Final[type[Exception]] = typer.BadParameter.__bases__[0]


def is_debugging(ctx: Any) -> bool:
    """Tell whether `--debug` was given."""
    return bool(ctx.meta.get(DEBUG_KEY))


@contextmanager
def explaining_failures(ctx: Any) -> Iterator[None]:
    """End the command with a message and an exit code, whatever is raised inside the block."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except _UsageError as error:
        # Typer passes on what pydantic puts before a message of its own.
        error.message = error.message.replace(_PYDANTIC, "")  # type: ignore[attr-defined]
        raise
    except BrokenPipeError:
        # Whoever read our output has seen enough: `astro list | head -1`.
        silence_stdout()
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        if is_debugging(ctx):
            traceback.print_exception(error)
        message, code = describe_failure(error)
        print(f"error: {message}", file=sys.stderr)
        raise typer.Exit(code) from None


def describe_failure(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    text = escape_controls(" ".join(str(cause).split()))
    if isinstance(cause, AstroError):
        return text, cause.exit_code
    if isinstance(cause, OSError) and cause.errno == errno.ENOSPC and cause.filename is None:
        # No file of a run: those are named. It is what stdout was sent to.
        return f"the output cannot be written: {cause.strerror}", 1
    kind = type(cause).__name__
    return f"unexpected {kind}: {text}; run again with --debug to see where", 1
