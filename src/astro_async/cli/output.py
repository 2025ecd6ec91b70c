"""Where output goes: consoles, the one document of `--json`, and pipes that close early."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

import msgspec
from rich.console import Console

from astro_async.cli.streams import silence_stdout

__all__ = ["Screen", "claim_stdout", "open_screen", "print_document"]

_PIPED_WIDTH: Final = 200


class Screen(Console):
    """A console that shows text as text, and falls silent when its reader goes away."""

    def on_broken_pipe(self) -> None:
        """Go on without output: a run is not stopped because nobody watches any more."""
        self.quiet = True
        silence_stdout()

    @property
    def can_draw(self) -> bool:
        """Whether a picture can be drawn anew in place; colours may be forced into a pipe, that may not."""
        return self.file.isatty() and not self.is_dumb_terminal

    def flush(self) -> None:
        """Send on what was written so far."""
        try:
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()


def open_screen(file: IO[str] | None = None) -> Screen:
    """Return a console on stdout, or on `file`.

    Markup and emoji codes are off: `[red]` in data is text. Where no terminal sets a width, a table is
    not squeezed into 80 columns.
    """
    target = sys.stdout if file is None else file
    is_terminal = hasattr(target, "isatty") and target.isatty()
    width = None if is_terminal or os.environ.get("COLUMNS") else _PIPED_WIDTH
    return Screen(file=target, width=width, markup=False, emoji=False, highlight=False)


@contextlib.contextmanager
def claim_stdout() -> Iterator[IO[str]]:
    """Yield stdout for the one thing that belongs there; all other output goes to stderr meanwhile.

    That includes what `pipeline.py` and its steps print, and what processes that they start print.
    """
    own: IO[str] = sys.stdout
    own.flush()
    saved = _move_descriptor()
    if saved is not None:
        own = open(saved, "w", encoding=sys.stdout.encoding, errors="backslashreplace")  # noqa: SIM115
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield own
            own.flush()
    except BrokenPipeError:
        silence_stdout()
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            with contextlib.suppress(OSError):
                own.close()


def _move_descriptor() -> int | None:
    try:
        if sys.stdout.fileno() != 1:
            return None
        sys.stderr.fileno()
    except (OSError, io.UnsupportedOperation):
        # Not a file of the operating system: a test has put its own stream there.
        return None
    saved = os.dup(1)
    os.dup2(2, 1)
    return saved


def print_document(document: Mapping[str, Any], file: IO[str] | None = None) -> None:
    """Print the one JSON document of a `--json` command."""
    encoded = msgspec.json.format(msgspec.json.encode(document, enc_hook=str), indent=2)
    print(encoded.decode(), file=sys.stdout if file is None else file)
