"""Messages to the coordinator, and how its task is woken."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel

__all__ = ["Outbox"]

T = TypeVar("T")


class Outbox(Generic[T]):
    """Messages from any thread to one waiting task."""

    def __init__(self) -> None:
        """Make an outbox whose reader is a task of the running event loop."""
        self._messages: deque[T] = deque()
        self._is_awake = False
        self._has_news = anyio.Event()
        self._thread_id = threading.get_ident()
        loop: Any = anyio.lowlevel.current_token().native_token
        # What asyncio and trio call the same thing: to have the loop call a function, from any thread.
        # A pipe of our own would have to be registered with the loop anew for each wait.
        self._call_soon = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon

    def __len__(self) -> int:
        """Return how many messages nobody has taken yet."""
        return len(self._messages)

    def leave(self, message: T) -> None:
        """Leave a message without waking anybody. From any thread."""
        self._messages.append(message)

    def put(self, message: T) -> None:
        """Leave a message, and wake the reader unless it is awake already. From any thread."""
        self._messages.append(message)
        if not self._is_awake:
            self.wake()

    def wake(self) -> None:
        """Wake the reader. From any thread."""
        if not self._is_awake:
            self._is_awake = True
            if threading.get_ident() == self._thread_id:
                self._tell()
                return
            # The loop may have ended: then nobody waits for this any more.
            with contextlib.suppress(RuntimeError):
                self._call_soon(self._tell)

    def _tell(self) -> None:
        self._has_news.set()

    async def wait(self) -> None:
        """Wait until there may be messages. Nothing ends the next wait unless the reader attends before."""
        if self._messages:
            # Others get their turn, but the wait is saved.
            await anyio.lowlevel.checkpoint()
        else:
            await self._has_news.wait()
        if self._has_news.is_set():
            self._has_news = anyio.Event()

    def attend(self) -> None:
        """Note that the reader is about to look: who leaves a message from now on wakes it again."""
        self._is_awake = False

    def take(self) -> list[T]:
        """Return all messages left so far. One thread at a time calls this."""
        return [self._messages.popleft() for _ in range(len(self._messages))]
