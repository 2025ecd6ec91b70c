"""Ages and spans of time on the command line: `90m`, `26h`, `30d`, `8w`. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

import typer

__all__ = ["describe_age", "parse_age", "parse_time"]

_AGE: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str) -> timedelta:
    """Return the span that a text such as `26h` stands for.

    Raises:
        typer.BadParameter: It stands for none.
    """
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a span of time such as 90m, 26h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def parse_time(time: str) -> datetime:
    """Return a time as records have it."""
    return datetime.fromisoformat(time)


def describe_age(age: timedelta) -> str:
    """Return `3 minutes`, `26 hours`, `12 days`, as precise as one cares to know."""
    minutes = max(0, int(age.total_seconds() // 60))
    for unit, size in (("day", 48 * 60), ("hour", 120), ("minute", 2)):
        if minutes >= size:
            return f"{minutes // (size // 2):,} {unit}s"
    return "1 minute" if minutes else "0 minutes"
