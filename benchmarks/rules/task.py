"""What every tool is given, and the one JSON line that it answers.

Only the standard library is imported, for this module is also loaded in the environments of the tools.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

__all__ = ["CODES", "COLUMNS", "GOOD_IDS", "LINES", "ROWS", "Answer", "tell"]

COLUMNS = ("id", "score", "code")
CODES = ("A", "B")
Row = tuple[int, float | None, str]
# The rules: `id` is unique, `score` is there and not below zero, `code` is one of `CODES`.
ROWS: tuple[Row, ...] = (
    (8, 5.0, "A"),
    (1, 5.0, "A"),
    (1, 5.0, "A"),
    (2, -1.0, "B"),
    (3, None, "B"),
    (4, math.nan, "A"),
    (5, -2.0, "Z"),
    (9, 7.0, "B"),
    (7, 0.0, "B"),
)
GOOD_IDS = (8, 9, 7)

# No number, too short, too long, a quote that is never closed; good rows around them.
LINES = 'id,score,code\n8,5,A\nsix,5,A\n2,5\n3,5,A,x\n4,5,"A\n9,7,B\n7,0,B\n'


@dataclass
class Answer:
    """What a tool made of the rows, and of the lines.

    Attributes:
        good: The ids of the rows that it passed on, in its order.
        bad: Of each row that it rejected and still has, its id and how many reasons it gives.
        bad_where_null_passes: Which of the ids 3 (null) and 4 (NaN) it rejects where null is allowed.
        positions: Whether it says where in the input a bad row was.
        repaired: The ids after the bad rows were corrected and given back, if there is a way to do that.
        lines_good: The ids of the lines that it read; None if it reads no files.
        lines_bad: Of each line that it could not read and still has, its number and its text.
        refuses: Whether it gave nothing of the file, for want of a way to go on.
    """

    good: list[int] = field(default_factory=list)
    bad: list[tuple[int, int]] = field(default_factory=list)
    bad_where_null_passes: list[int] | None = None
    positions: bool = False
    repaired: list[int] | None = None
    lines_good: list[int] | None = None
    lines_bad: list[tuple[int, str]] = field(default_factory=list)
    refuses: bool = False


def count_reasons(found: Iterable[tuple[int, Any]]) -> list[tuple[int, int]]:
    """Return each position of what was found with how often it was, sorted."""
    counts: dict[int, int] = {}
    for position, _ in found:
        counts[position] = counts.get(position, 0) + 1
    return sorted(counts.items())


def with_ids(counts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ids in the place of positions."""
    return [(ROWS[position][0], count) for position, count in counts]


def as_columns() -> Mapping[str, list[Any]]:
    """Return the rows by column."""
    return {name: [row[number] for row in ROWS] for number, name in enumerate(COLUMNS)}


def tell(package: str, answer: Answer) -> None:
    """Print the answer of a tool."""
    print(json.dumps({"version": version(package), **asdict(answer)}))
