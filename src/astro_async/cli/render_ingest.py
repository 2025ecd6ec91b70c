"""How far an ingest is, for a terminal. Pure, but for the sizes of the files that are being written.

A bar shows how much of a source has been read where that is known. While Polars reads it, all that is known
is how much has been written, and that is said: a share of it would be made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.progress_bar import ProgressBar

from astro_async._executor.ingest_progress import FileProgress
from astro_async.cli.picture import Picture, Piece, pad
from astro_async.cli.wording import describe_count, describe_duration, describe_size, safe

__all__ = ["FileClock", "render_ingest"]

_BAR_WIDTH: Final = 12
_FRAME_LINES: Final = 3
_LEAST_SECONDS: Final = 1.0


class FileClock:
    """Knows since when each file has been at the pass that goes on."""

    def __init__(self) -> None:
        self._passes: dict[str, tuple[bool, int, float]] = {}

    def seconds(self, name: str, *, is_reading: bool, read: int, now: float) -> float:
        """Return for how many seconds the pass over a file has gone on, of which that much has been read."""
        was_reading, last, since = self._passes.get(name, (is_reading, 0, now))
        if was_reading != is_reading or read < last:
            since = now
        self._passes[name] = is_reading, read, since
        return now - since


def render_ingest(
    files: Sequence[FileProgress],
    clock: FileClock,
    *,
    height: int,
    elapsed: float,
    is_stopping: bool = False,
) -> RenderableType:
    """Return the files that are being ingested, a line each, and how many are done.

    Args:
        files: All files of the ingest.
        clock: The same for each picture.
        height: Lines of the terminal; the result has fewer.
        elapsed: Seconds since the ingest began.
        is_stopping: Whether a signal asked it to stop.
    """
    busy = [file for file in files if file.has_begun and not file.is_done][: max(1, height - _FRAME_LINES)]
    width = max((min(16, len(safe(file.name))) for file in busy), default=0)
    done = sum(file.is_done for file in files)
    total = describe_count(len(files), "file")
    size = describe_size(sum(file.source_bytes for file in files))
    lines: list[list[Piece]] = [_file_line(file, clock, width, elapsed) for file in busy]
    lines.append([(f"{done:,} of {total} ingested, {size} in all, {describe_duration(elapsed)}", "dim")])
    if is_stopping:
        lines.append([("stopping: what is read is let finish (Ctrl-C twice more leaves at once)", "yellow")])
    return Picture(lines)


def _file_line(file: FileProgress, clock: FileClock, width: int, now: float) -> list[Piece]:
    name: Piece = (f"{pad(safe(file.name), width)}  ", "")
    read, total = file.read_bytes, file.source_bytes
    is_reading = 0 < read < total
    seconds = clock.seconds(file.name, is_reading=is_reading, read=read, now=now)
    if not is_reading:
        written = f"{describe_size(file.written_bytes)} of Parquet written"
        return [name, (f"converting {describe_size(total)}: {written} in {describe_duration(seconds)}", "")]
    figures = f"  {read / total:.0%} of {describe_size(total)}"
    if seconds >= _LEAST_SECONDS:
        rate = read / seconds
        left = describe_duration((total - read) / rate)
        figures += f", {describe_size(int(rate))}/s, {left} left"
    return [
        name,
        ("reading  ", ""),
        ProgressBar(total=total, completed=read, width=_BAR_WIDTH),
        (figures, ""),
    ]
