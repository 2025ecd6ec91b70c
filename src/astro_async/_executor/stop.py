"""Asking a run to stop, as signals do, without any signal."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["StopSwitch"]


class StopSwitch:
    """A switch that the owner of a run may turn, from any thread. It never turns back.

    Attributes:
        level: 0: run on. 1: start nothing more and let running steps finish. 2: cancel what can be
            cancelled.
    """

    def __init__(self) -> None:
        self.level = 0
        self._wake: Callable[[], None] | None = None

    def drain(self) -> None:
        """Start nothing more; running steps finish and are recorded."""
        self._raise_to(1)

    def cancel(self) -> None:
        """Cancel what can be cancelled: async steps, processes, and threads that ask whether they should end.

        Threads that do not ask are left behind, and publish nothing.
        """
        self._raise_to(2)

    def bind(self, wake: Callable[[], None]) -> None:
        """Say how to wake the run that the switch is for."""
        self._wake = wake
        if self.level:
            wake()

    def _raise_to(self, level: int) -> None:
        self.level = max(self.level, level)
        if self._wake is not None:
            self._wake()
