"""Whose turn it is: who may touch the state of a run, one thread at a time.

Mostly the thread that has just ended a step: it settles the step, starts what may start because of it, and
takes the next one itself, so that a chain of short steps wakes no other thread at all. What only the event
loop can do (start tasks, cancel them, tell readers, wait for deadlines) waits for the loop's own turn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Final

from astro_async._executor.outbox import Outbox

__all__ = ["Turns"]

# Outcomes of tiny steps are settled together, so long apart.
_APART_S: Final = 0.001


class Turns:
    """A lock, and the rule that who gives it back looks whether there is more to do.

    Attributes:
        is_on_loop: Whether the turn is the loop's.
        is_watched: Whether the loop will look by itself before long.
    """

    def __init__(self, outbox: Outbox[Any], advance: Callable[[], bool]) -> None:
        """Make it while nothing runs.

        Args:
            outbox: Where outcomes are left; its reader is the loop's task.
            advance: Settle what is in the outbox, and start what may start. Returns whether the loop is
                needed. Called with the turn, from any thread.
        """
        self.is_on_loop = False
        self.is_watched = False
        self._outbox = outbox
        self._advance = advance
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []
        self._given_back = 0.0
        self._error: BaseException | None = None
        self._is_over = False

    def on_loop(self, act: Callable[[], object]) -> None:
        """Do something on the event loop: at once in its turn, else at the beginning of its next one."""
        if self.is_on_loop:
            act()
        else:
            self._waiting.append(act)

    def take_here(self, *, has_more: bool, on_loop: bool = False) -> None:
        """Take a turn where a step has just left its outcome, unless somebody else does. Never raises.

        Args:
            has_more: There is another step to run here, which may be a long one.
            on_loop: This is a task of the event loop, and not a worker thread.
        """
        if has_more and perf_counter() - self._given_back < _APART_S:
            if not self.is_watched:
                self._outbox.wake()
            return
        # Who has the turn now may have looked before the outcome was there; it looks again afterwards.
        while len(self._outbox) and self._lock.acquire(blocking=False):
            needs_loop = True
            self.is_on_loop |= on_loop
            try:
                if not self._is_over and self._error is None:
                    needs_loop = self._advance() or bool(self._waiting)
            except BaseException as error:
                # Ours, not the step's: the loop raises it.
                self._error = error
            finally:
                self._given_back = perf_counter()
                self.is_on_loop = self._is_over
                self._lock.release()
            if needs_loop:
                self._outbox.wake()
                return

    @contextlib.contextmanager
    def take_on_loop(self) -> Iterator[None]:
        """Have the turn on the event loop, for as long as nothing is awaited.

        Raises:
            What a worker thread's turn has raised.
        """
        with self._lock:
            self.is_on_loop = True
            try:
                self._outbox.attend()
                if self._error is not None and not self._is_over:
                    raise self._error
                waiting, self._waiting = self._waiting, []
                for act in waiting:
                    act()
                yield
            finally:
                self.is_on_loop = self._is_over
        if len(self._outbox):
            self._outbox.wake()

    def end(self) -> None:
        """Leave all further turns to the loop, without asking."""
        with self._lock:
            self._is_over = self.is_on_loop = True
            self.is_watched = False
            self._waiting.clear()
