"""The log of a run: one line a record, whatever the text; one separator line per invocation.

Text comes from data and authors, so control characters are written as escapes: no line is broken up, and
a terminal that shows the file is not driven by it.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from astro_async._core.statistics import Statistic
from astro_async._core.text import escape_controls
from astro_async._store.atomic import Disk, storage_errors
from astro_async.exceptions import StorageError

__all__ = ["LogTail", "RunLog", "load_log_tail"]

_PRINTABLE_ASCII: Final = bytes(range(0x20, 0x7F))
_TAIL_BYTES: Final = 4_000_000
_TAIL_LINES: Final = 200
_TAIL_WIDTH: Final = 1000
_STATISTIC: Final = " INFO STAT run="
# What one look at a log that grows reads at most.
_LOOK_BYTES: Final = 250_000
_TRACEBACK: Final = ": Traceback (most recent call last)"


class _LineFormatter(logging.Formatter):
    """`time LEVEL message`, one line each, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{time[:-6]}Z {record.levelname} {escape_controls(text)}"


class RunLog(logging.Handler):
    """A logging handler on `astro.log`, which also takes statistics in batches.

    A log that cannot be written never harms the run: the text is dropped.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__()
        self.setFormatter(_LineFormatter())
        self._path = path
        self._disk = disk
        self._descriptor = disk.open_append(path)

    def emit(self, record: logging.LogRecord) -> None:
        """Append one record."""
        try:
            line = self.format(record)
        except Exception:
            # A logging call that does not fit its text must not fail the step that made it.
            self.handleError(record)
            return
        self._append(f"{line}\n")

    def start_invocation(self, text: str) -> None:
        """Append the separator line of an invocation."""
        self._append(f"{'-' * 8} {escape_controls(text)} {'-' * 8}\n")

    def write_statistics(self, run_id: str, statistics: Sequence[Statistic]) -> None:
        """Append a line for each statistic."""
        lines = [
            f"{s.recorded_at} INFO STAT run={run_id} scope={s.scope} subject={s.subject} action={s.action} "
            f"value={s.value:.15g}"
            for s in statistics
        ]
        if lines:
            if not _is_printable("".join(lines)):
                lines = list(map(escape_controls, lines))
            self._append("\n".join([*lines, ""]))

    def _append(self, text: str) -> None:
        self.acquire()
        try:
            if self._descriptor >= 0:
                self._disk.append(self._descriptor, self._path, text.encode("utf-8", "backslashreplace"))
        except StorageError:
            return
        finally:
            self.release()

    def close(self) -> None:
        """Close the file; harmless twice."""
        self.acquire()
        try:
            descriptor, self._descriptor = self._descriptor, -1
        finally:
            self.release()
        if descriptor >= 0:
            os.close(descriptor)
        super().close()


def _is_printable(text: str) -> bool:
    # The same as `isprintable`, which takes three times as long, for there are two lines a step.
    return (text.isascii() and not text.encode().translate(None, _PRINTABLE_ASCII)) or text.isprintable()


def load_log_tail(path: str) -> list[str]:
    """Return the last lines of a log without its statistics, which have a table of their own; long ones cut.

    Empty if there is no log.

    Raises:
        StorageError: It cannot be read.
    """
    if not os.path.exists(path):
        return []
    with storage_errors("read", path), open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "backslashreplace").split("\n")
    # The first is no whole line where the log is longer, the last is what follows the last line.
    whole = lines[1 if size > _TAIL_BYTES else 0 : -1 if not lines[-1] else None]
    return [line[:_TAIL_WIDTH] for line in whole if _STATISTIC not in line][-_TAIL_LINES:]


class LogTail:
    """The last lines of a log that grows, from where it stands when this is made.

    Without statistics, separators and tracebacks. Lines are cut, and have no control characters.

    Attributes:
        lines: The lines, oldest first.
    """

    def __init__(self, path: str, most: int) -> None:
        self.lines: deque[str] = deque(maxlen=most)
        self._path = path
        self._offset = self._size()

    def look(self) -> None:
        """Read what has been added since; of very much only the end. What cannot be read is left out."""
        size = self._size()
        if size <= self._offset:
            return
        begin = max(self._offset, size - _LOOK_BYTES)
        try:
            with open(self._path, "rb") as file:
                file.seek(begin)
                text = file.read(size - begin)
        except OSError:
            return
        # What follows the last line break is a line that is being written.
        whole = text[: text.rfind(b"\n") + 1]
        if begin > self._offset:
            whole = whole[whole.find(b"\n") + 1 :]
        self._offset = size - (len(text) - text.rfind(b"\n") - 1)
        self.lines.extend(
            escape_controls(line[:_TAIL_WIDTH])
            for line in whole.decode("utf-8", "backslashreplace").split("\n")
            if line and line[0] != "-" and _STATISTIC not in line and _TRACEBACK not in line
        )

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0
