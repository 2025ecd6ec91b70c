"""What is to be done at a certain time."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable

__all__ = ["Deadlines"]


class Deadlines:
    """Acts to be done later, each once. Times are those of `time.monotonic`."""

    def __init__(self) -> None:
        # When, a number that tells equal times apart, what then.
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    @property
    def next_at(self) -> float:
        """When the next one is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, delay_s: float, act: Callable[[], object]) -> None:
        """Have something done in so many seconds."""
        heapq.heappush(self._heap, (time.monotonic() + delay_s, next(self._numbers), act))

    def fire(self) -> None:
        """Do all that is due."""
        if self._heap:
            now = time.monotonic()
            while self.next_at <= now:
                heapq.heappop(self._heap)[2]()
