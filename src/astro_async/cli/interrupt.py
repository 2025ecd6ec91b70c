"""Ctrl-C before a command has begun: while modules are loaded and arguments are read.

Nothing is imported for it but the standard library: it must stand before all else is loaded.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

__all__ = ["leave_on_interrupt", "raise_on_interrupt"]


def leave_on_interrupt() -> None:
    """Have SIGINT end the process with 130 and a word, unless whoever started it has SIGINT ignored.

    Not by an exception: the modules that are being loaded might catch it, or tell of it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_on_interrupt() -> None:
    """Have SIGINT raise KeyboardInterrupt again, where `leave_on_interrupt` took it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(130)
