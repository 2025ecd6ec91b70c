"""Telling others: each reader of the events has a queue of its own and cannot hold up the run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Final

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from astro_async._core.events import Event

__all__ = ["Broadcast", "Subscriber"]

Subscriber = Callable[[Event], None]
"""Called with each event, in order, in a worker thread."""

# After the run has ended, slow subscribers are given this long to catch up.
_GRACE_S: Final = 5.0


class Broadcast:
    """Hands events to async readers and to subscribers.

    Queues are unbounded: a reader that dawdles costs memory, never time of the run.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._queues: list[MemoryObjectSendStream[Event]] = []

    @property
    def has_readers(self) -> bool:
        """Whether anybody listens."""
        return bool(self._queues)

    def open(self) -> MemoryObjectReceiveStream[Event]:
        """Return a new stream of all events from now on; it ends with the run."""
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        self._queues.append(send)
        return receive

    def publish(self, events: Iterable[Event]) -> None:
        """Queue events for all readers; those that have gone away are forgotten."""
        for event in events:
            for queue in list(self._queues):
                try:
                    queue.send_nowait(event)
                except anyio.BrokenResourceError:
                    self._queues.remove(queue)
                    queue.close()

    def close(self) -> None:
        """End all streams, once their readers have taken what is queued."""
        for queue in self._queues:
            queue.close()
        self._queues.clear()

    async def serve(
        self, subscriber: Subscriber, events: MemoryObjectReceiveStream[Event], done: anyio.Event
    ) -> None:
        """Call a subscriber with every event until the stream ends, or until it raises.

        After `done` is set it has a few seconds left.
        """
        limiter = anyio.CapacityLimiter(1)
        async with anyio.create_task_group() as group, events:

            async def expire() -> None:
                await done.wait()
                await anyio.sleep(_GRACE_S)
                self._logger.warning("subscriber %r is too slow: its last events are dropped", subscriber)
                group.cancel_scope.cancel()

            group.start_soon(expire)
            try:
                async for event in events:
                    await anyio.to_thread.run_sync(subscriber, event, abandon_on_cancel=True, limiter=limiter)
            except Exception as error:
                self._logger.warning("subscriber %r raised %r: it is told no more", subscriber, error)
            group.cancel_scope.cancel()
