"""How numbers, times and statuses are put into words and colours. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text

from astro_async._core.decisions import Waiting
from astro_async._core.text import escape_controls

__all__ = [
    "STATUS_STYLES",
    "describe_count",
    "describe_counts",
    "describe_duration",
    "describe_names",
    "describe_rate",
    "describe_size",
    "describe_time",
    "describe_waiting_rows",
    "safe",
    "shorten",
    "status_text",
]

STATUS_STYLES: Final[Mapping[str, str]] = {
    "pending": "dim",
    "running": "cyan",
    "complete": "green",
    "completed": "green",
    "quarantined": "yellow",
    "failed": "bold red",
    "blocked": "magenta",
    "skipped": "dim",
    "created": "dim",
    "ingested": "cyan",
    "interrupted": "yellow",
}

# More than any text that is written by us; a record may hold what it likes.
_MOST_TEXT: Final = 5000

# The order in which counts are told: what went well, what did not, what is to come.
_ORDER: Final = ("complete", "skipped", "quarantined", "failed", "blocked", "running", "pending")


def safe(text: object) -> str:
    """Return text from data or authors so that it can neither drive a terminal nor flood it."""
    return escape_controls(shorten(str(text), _MOST_TEXT))


def shorten(text: str, width: int) -> str:
    """Return text of at most `width` characters, with an ellipsis where some are left out."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=STATUS_STYLES.get(status, ""))


def describe_count(number: int, noun: str) -> str:
    """Return `1 row` or `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def describe_counts(counts: Mapping[str, int], rows_quarantined: int = 0) -> str:
    """Return steps by status, such as `3 complete, 1 quarantined (40 rows)`."""
    words = {status: f"{counts[status]:,} {status}" for status in _ORDER if counts.get(status)}
    if rows_quarantined and "quarantined" in words:
        words["quarantined"] += f" ({describe_count(rows_quarantined, 'row')})"
    return ", ".join(words.values())


def describe_waiting_rows(waiting: Waiting) -> str:
    """Return what is decided and waits, such as `12 rows amended, 1 row discarded`."""
    counts = {
        "amended": waiting.amended,
        "discarded": waiting.discarded,
        "given as it came" if waiting.withdrawn == 1 else "given as they came": waiting.withdrawn,
    }
    words = [f"{describe_count(rows, 'row')} {what}" for what, rows in counts.items() if rows]
    return ", ".join(words) or "nothing decided"


def describe_names(names: Sequence[str], most: int = 3) -> str:
    """Return names, the first few of many."""
    shown = ", ".join(safe(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … {len(names) - most:,} more"


def describe_duration(seconds: float) -> str:
    """Return `0.4s`, `12s`, `3m05s` or `2h03m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"


def describe_rate(rate: float, noun: str) -> str:
    """Return `1,200 rows/s`, or `3.0 steps/min` where less than one is done in ten seconds."""
    if rate < 0.1:
        return f"{rate * 60:,.1f} {noun}/min"
    return f"{rate:,.{rate < 10:d}f} {noun}/s"


def describe_size(size_bytes: int) -> str:
    """Return `512 B`, `15.2 kB`, `3.4 MB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def describe_time(time: str | None) -> str:
    """Return an ISO time of a record to the second, in UTC as recorded: `2026-11-29 23:47:29`."""
    return "" if time is None else time[:19].replace("T", " ")
