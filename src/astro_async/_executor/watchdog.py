"""Names the async step that blocks the event loop, while it does."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

__all__ = ["Watchdog"]

T = TypeVar("T")

_PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.25


class Watchdog:
    """Notes which step the loop is executing; a thread of its own looks at the note now and then.

    The thread lives from the first async step to the end of the run: only async steps can block the loop.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # A new object each time, so that the thread can tell one stay on the loop from the next.
        self._entered: tuple[str] | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @types.coroutine
    def watch(
        self,
        step_id: str,
        steps: Coroutine[Any, Any, T],
        context: contextvars.Context,
        on_wait: Callable[[], None],
    ) -> Generator[Any, Any, T]:
        """Await a coroutine, noting each time it holds the loop.

        Args:
            step_id: Whose it is, to be named.
            steps: The coroutine.
            context: What it runs in.
            on_wait: Called each time before it waits for something.
        """
        if self._thread is None:
            self._start()
        value: Any = None
        error: BaseException | None = None
        while True:
            self._entered = (step_id,)
            try:
                if error is not None:
                    pending, error = error, None
                    awaited = context.run(steps.throw, pending)
                else:
                    awaited = context.run(steps.send, value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self._entered = None
            on_wait()
            try:
                value = yield awaited
            except BaseException as raised:
                value, error = None, raised

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread = None

    def _start(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._look, args=(self._ended,), name="astro_async watchdog", daemon=True
        )
        self._thread.start()

    def _look(self, ended: threading.Event) -> None:
        seen: tuple[str] | None = None
        since = 0.0
        is_named = False
        while not ended.wait(_LOOK_S):
            entered = self._entered
            if entered is not seen:
                seen, since, is_named = entered, time.monotonic(), False
            elif entered is not None and not is_named and time.monotonic() - since > _PATIENCE_S:
                is_named = True
                self._logger.warning(
                    "[%s] blocks the event loop: an async step must await, or run slow calls in a thread "
                    "(anyio.to_thread.run_sync)",
                    entered[0],
                )
