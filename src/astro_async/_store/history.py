"""What happened in a run, from the first line of its journal to the last whole one.

For people who look back: takes no lock, changes nothing, and stops where a line cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from astro_async._core.events import AnyEvent, parse_event
from astro_async._store.atomic import storage_errors
from astro_async._store.layout import events_path
from astro_async.exceptions import JournalError

__all__ = ["scan_events"]


def scan_events(directory: str, *, about: str | None = None) -> Iterator[AnyEvent]:
    """Yield the events of the run in a directory, in order.

    Args:
        directory: The run directory.
        about: Only lines in which this text stands, so that a long journal is not parsed for one step. Others
            that happen to hold the text are yielded too.

    Raises:
        StorageError: The journal cannot be read at all.
    """
    needle = None if about is None else about.encode()
    path = events_path(directory)
    with storage_errors("read", path), open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                # Torn, or being written at this moment.
                return
            if needle is not None and needle not in line:
                continue
            try:
                yield parse_event(line)
            except JournalError:
                return
