"""Showing a run while it goes on: one thread does all the output, so that none of it holds up the run.

A terminal that is stopped with Ctrl-S, a pager that is not read, a disk that is full: the run goes on, and
only the end of the command waits for its output.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import IO, Final, Protocol

from astro_async._core.events import Event, dump_event
from astro_async.cli.wording import safe

__all__ = ["Display", "EventsFile", "View", "logging_to"]

_BATCH: Final = 2000
_MOST_WARNINGS: Final = 20


class View(Protocol):
    """One way of showing a run. All calls come from one thread.

    Attributes:
        tick_s: How often `tick` is wanted when nothing happens; None for never.
    """

    tick_s: float | None

    def show(self, events: Sequence[Event]) -> None:
        """Show what has happened."""

    def note(self, text: str) -> None:
        """Show a remark for people; it has no control characters."""

    def tick(self) -> None:
        """Show that time passes."""

    def close(self) -> None:
        """Show the last of it."""


class EventsFile:
    """The file of `--events`: a line for each event, appended. Without a file it takes them to nowhere."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def append(self, events: Sequence[Event]) -> None:
        """Append events.

        Raises:
            OSError: The disk refuses; nothing more is written then.
        """
        if self._file is None:
            return
        try:
            self._file.write(b"".join(dump_event(event) + b"\n" for event in events))
            self._file.flush()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; harmless twice."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()


class Display:
    """Hands events and remarks to a view, in a thread of its own, from entry to exit of a `with` block."""

    def __init__(self, view: View, events_file: EventsFile) -> None:
        self._view = view
        self._events_file = events_file
        # Its `put` may be called from a signal handler.
        self._queue: queue.SimpleQueue[Event | str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="astro_async display", daemon=True)
        self._is_broken = False

    def put(self, event: Event) -> None:
        """Show an event, soon."""
        self._queue.put(event)

    def note(self, text: str) -> None:
        """Show a remark, soon; what it says of data cannot drive the terminal."""
        self._queue.put(safe(text))

    def __enter__(self) -> Display:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show what is left, and end."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        ticked = time.monotonic()
        is_open = True
        while is_open:
            batch = self._take()
            if batch and batch[-1] is None:
                batch.pop()
                is_open = False
            self._hand_over([item for item in batch if item is not None])
            tick_s = self._view.tick_s
            if is_open and tick_s is not None and time.monotonic() - ticked >= tick_s:
                self._guard(self._view.tick)
                ticked = time.monotonic()
        self._guard(self._view.close)

    def _take(self) -> list[Event | str | None]:
        """Wait for something, at most until the next tick, and take what is there up to the end mark."""
        batch: list[Event | str | None] = []
        with contextlib.suppress(queue.Empty):
            batch.append(self._queue.get(timeout=self._view.tick_s))
            while len(batch) < _BATCH and batch[-1] is not None:
                batch.append(self._queue.get_nowait())
        return batch

    def _hand_over(self, items: Sequence[Event | str]) -> None:
        events: list[Event] = []
        for item in items:
            if isinstance(item, str):
                self._show(events)
                events = []
                self._guard(lambda text=item: self._view.note(text))  # type: ignore[misc]
            else:
                events.append(item)
        self._show(events)

    def _show(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self._events_file.append(events)
        except OSError as error:
            text = f"warning: --events is not written any more: {error}"
            self._guard(lambda: self._view.note(safe(text)))
        self._guard(lambda: self._view.show(events))

    def _guard(self, act: Callable[[], None]) -> None:
        """Do something with the view; one that cannot show any more is left alone. The run goes on."""
        if self._is_broken:
            return
        try:
            act()
        except Exception:
            self._is_broken = True
            logging.getLogger("astro_async.cli").debug("the display broke", exc_info=True)


class _NoteHandler(logging.Handler):
    def __init__(self, tell: Callable[[str], None], *, traces: bool) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._traces = traces
        self._told = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a warning in one line. Errors of steps come with their verdict; here only with `--debug`."""
        if record.levelno >= logging.ERROR and not self._traces:
            return
        self._told += 1
        if self._told > _MOST_WARNINGS:
            if self._told == _MOST_WARNINGS + 1:
                self._tell("warning: there are more; all of them are in the run's astro.log")
            return
        for line in record.getMessage().splitlines():
            self._tell(f"{record.levelname.lower()}: {line}")


@contextlib.contextmanager
def logging_to(tell: Callable[[str], None], *, traces: bool) -> Iterator[None]:
    """Tell people the warnings of the library, instead of whatever logging does by default.

    Of several, one within the other, the innermost tells.
    """
    logger = logging.getLogger("astro_async")
    former, propagate = logger.handlers, logger.propagate
    others = [handler for handler in former if not isinstance(handler, _NoteHandler)]
    logger.handlers, logger.propagate = [*others, _NoteHandler(tell, traces=traces)], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = former, propagate
