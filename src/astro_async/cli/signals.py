"""SIGINT and SIGTERM while a command works: the first asks, the second insists, the third leaves.

A thread of its own takes the signals, and not a task of the event loop: an async step that blocks the loop
must not make the command deaf. Nor does it wait for the main thread, which the kernel may pass over when it
chooses who is interrupted; the interpreter writes each signal to a socket, whichever thread it hits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Final

import anyio
import typer

__all__ = ["SignalWatch"]

_WATCHED: Final = (signal.SIGINT, signal.SIGTERM)
_PATIENCE: Final = 3


class _Interrupted(KeyboardInterrupt):
    """A signal came before anything had begun. Goes through a `pipeline.py` that is being loaded."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class SignalWatch:
    """Takes the signals that come inside its `with` block, in the main thread; elsewhere it takes none.

    Until somebody says what a signal means (`telling`, `cancelling`), the first one ends the command:
    nothing has begun yet.

    Attributes:
        first: The first signal, if it came before the verdict.
        before_leaving: Called before the third signal ends the process, to put the terminal right.
    """

    def __init__(self) -> None:
        self.first: signal.Signals | None = None
        self.before_leaving: Callable[[], None] | None = None
        self._count = 0
        self._act: Callable[[int], None] | None = None
        self._has_begun = False
        self._verdict: int | None = None
        self._lock = threading.Lock()
        self._cleanup = contextlib.ExitStack()
        self._sender: socket.socket | None = None

    def __enter__(self) -> SignalWatch:
        """Install the handlers and start the thread."""
        if threading.current_thread() is not threading.main_thread():
            return self
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        thread = threading.Thread(
            target=self._serve, args=(receiver,), name="astro_async signals", daemon=True
        )
        self._cleanup.callback(thread.join)
        self._cleanup.callback(sender.close)
        former_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._cleanup.callback(signal.set_wakeup_fd, former_descriptor)
        for number in _WATCHED:
            self._cleanup.callback(signal.signal, number, signal.getsignal(number))
        self._sender = sender
        self.renew()
        thread.start()
        return self

    def renew(self) -> None:
        """Take the signals again, whatever a `pipeline.py` that was loaded meanwhile has made of them."""
        if self._sender is None:
            return
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in _WATCHED:
            signal.signal(number, self._interrupt)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the former handlers back.

        Raises:
            typer.Exit: A signal ended the command before it had begun: 130 or 143.
        """
        self._cleanup.close()
        if isinstance(error, _Interrupted):
            raise typer.Exit(error.exit_code) from None

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM."""
        return 128 + (self.first or signal.SIGINT)

    def settle(self, verdict: int) -> None:
        """Note the exit code of the command: from now on signals do not change it."""
        with self._lock:
            self._verdict = verdict
            self._has_begun = True

    @contextlib.contextmanager
    def telling(self, act: Callable[[int], None]) -> Iterator[None]:
        """Call `act` with 1 and then 2 as signals come, in another thread; at once for earlier ones."""
        with self._lock:
            self._act = act
            self._has_begun = True
            if self._count:
                act(self._count)
        try:
            yield
        finally:
            with self._lock:
                self._act = None

    def cancelling(self, scope: anyio.CancelScope) -> contextlib.AbstractContextManager[None]:
        """Cancel a scope of the running loop at the first signal."""
        loop = asyncio.get_running_loop()

        def cancel(_count: int) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(scope.cancel)

        return self.telling(cancel)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        # The interpreter runs this in the main thread, as soon as that executes anything.
        if not self._has_begun:
            print("interrupted", file=sys.stderr)
            raise _Interrupted(128 + number)

    def _serve(self, receiver: socket.socket) -> None:
        with receiver:
            while numbers := receiver.recv(64):
                for number in numbers:
                    if number in _WATCHED:
                        self._take(signal.Signals(number))

    def _take(self, number: signal.Signals) -> None:
        with self._lock:
            self._count += 1
            if self.first is None and self._verdict is None:
                self.first = number
            if self._count < _PATIENCE:
                if self._act is not None:
                    self._act(self._count)
                return
        if self.before_leaving is not None:
            self.before_leaving()
        os._exit(self.exit_code if self._verdict is None else self._verdict)
