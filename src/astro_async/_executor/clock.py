"""The time, as events tell it."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["format_time", "utc_now"]


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def format_time(time: datetime) -> str:
    """Return a time in UTC as ISO 8601 with microseconds and `Z`."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
