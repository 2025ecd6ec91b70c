"""The views of `astro run --mode`: dashboard, plain, json, quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Final

from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from astro_async._core.events import Event, dump_event
from astro_async._executor.ingest_progress import IngestProgress
from astro_async._store.log import LogTail
from astro_async.cli.output import Screen
from astro_async.cli.progress import RunProgress
from astro_async.cli.render_dashboard import render_dashboard
from astro_async.cli.render_ingest import FileClock, render_ingest
from astro_async.cli.render_plain import Line, PlainLines
from astro_async.cli.wording import STATUS_STYLES

__all__ = ["DashboardView", "IngestView", "JsonView", "PlainView", "QuietView", "print_lines", "print_note"]

_REFRESH_S: Final = 0.125
_PATIENCE_S: Final = 0.5
# An ingest that is over sooner shows nothing but its result.
_UNSEEN_S: Final = 1.0


def print_lines(screen: Screen, lines: Iterable[Line]) -> None:
    """Print lines, each in the colour of its status; never wrapped, never read as markup."""
    if screen.is_terminal:
        # Segments and not texts: ten thousand lines need no layout.
        segments = []
        for line in lines:
            style = STATUS_STYLES.get(line.status or "", "")
            segments += [Segment(line.text, screen.get_style(style)), Segment.line()]
        screen.print(Segments(segments), soft_wrap=True, end="")
        return
    try:
        screen.file.write("".join(f"{line.text}\n" for line in lines))
    except BrokenPipeError:
        # The verdict is in the exit code, whoever listens.
        screen.on_broken_pipe()


def print_note(text: str) -> None:
    """Print a remark on stderr."""
    print(text, file=sys.stderr, flush=True)


class QuietView:
    """Shows nothing but remarks."""

    tick_s: float | None = None

    def show(self, events: Sequence[Event]) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Print a remark on stderr."""
        print_note(text)

    def tick(self) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class PlainView(QuietView):
    """One line for each step that settled."""

    tick_s: float | None = _PATIENCE_S

    def __init__(self, screen: Screen, progress: RunProgress) -> None:
        self._screen = screen
        self._lines = PlainLines(progress)
        self._is_still = True

    def show(self, events: Sequence[Event]) -> None:
        """Print the lines, at once: somebody may be reading a pipe."""
        self._print(self._lines.take(events))
        self._is_still = False

    def tick(self) -> None:
        """Print what waited for more of its kind, when no more came."""
        if self._is_still:
            self._print(self._lines.flush())
        self._is_still = True

    def close(self) -> None:
        """Print what is left."""
        self._print(self._lines.flush())

    def _print(self, lines: Iterable[Line]) -> None:
        print_lines(self._screen, lines)
        self._screen.flush()


class JsonView(QuietView):
    """One event a line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def show(self, events: Sequence[Event]) -> None:
        """Print the events."""
        self._file.write("".join(f"{dump_event(event).decode()}\n" for event in events))
        self._file.flush()


class DashboardView(QuietView):
    """A screen that is drawn anew a few times a second."""

    tick_s: float | None = _REFRESH_S

    def __init__(
        self, screen: Screen, progress: RunProgress, title: str, log: LogTail, stop_level: Callable[[], int]
    ) -> None:
        self._screen = screen
        self._progress = progress
        self._log = log
        self._title = title
        self._stop_level = stop_level
        self._live = Live(console=screen, auto_refresh=False, vertical_overflow="crop")

    def show(self, events: Sequence[Event]) -> None:
        """Take note of the events; the next tick shows them."""
        for event in events:
            self._progress.apply(event)

    def note(self, text: str) -> None:
        """Print a remark above the screen."""
        self._screen.print(Text(text, style="yellow"), soft_wrap=True)

    def tick(self) -> None:
        """Draw the screen, once there is something to show."""
        if self._progress.started_at is None:
            return
        if not self._live.is_started:
            self._live.start()
        self._log.look()
        size = self._screen.size
        screen = render_dashboard(
            self._progress,
            title=self._title,
            width=size.width,
            height=size.height,
            now=datetime.now(UTC),
            log=tuple(self._log.lines),
            stop_level=self._stop_level(),
        )
        self._live.update(screen, refresh=True)

    def close(self) -> None:
        """Draw it a last time, and leave it there."""
        self.tick()
        self._live.stop()


class IngestView(QuietView):
    """How far an ingest is, drawn anew a few times a second and gone when it ends."""

    tick_s: float | None = _REFRESH_S

    def __init__(self, screen: Screen, progress: IngestProgress, is_stopping: Callable[[], bool]) -> None:
        self._screen = screen
        self._progress = progress
        self._is_stopping = is_stopping
        self._clock = FileClock()
        self._began = time.monotonic()
        self._live = Live(console=screen, auto_refresh=False, transient=True, vertical_overflow="crop")

    def note(self, text: str) -> None:
        """Print a remark above the lines."""
        self._screen.print(Text(text), soft_wrap=True)

    def tick(self) -> None:
        """Draw the lines, once the ingest has taken a while."""
        elapsed = time.monotonic() - self._began
        files = list(self._progress.files.values())
        if not files or elapsed < _UNSEEN_S:
            return
        if not self._live.is_started:
            self._live.start()
        height, is_stopping = self._screen.size.height, self._is_stopping()
        picture = render_ingest(files, self._clock, height=height, elapsed=elapsed, is_stopping=is_stopping)
        self._live.update(picture, refresh=True)

    def close(self) -> None:
        """Take the lines away."""
        self._live.stop()
