"""Compare the columns that a file has with those that a schema wants. Pure.

Names are names of columns, so messages quote them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from astro_async.exceptions import IngestError

__all__ = [
    "ColumnDifference",
    "ColumnDifferenceError",
    "ColumnRules",
    "compare_columns",
    "describe_count",
    "quote_names",
    "refuse_differences",
]


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """What becomes of columns that only the file or only the schema has.

    Attributes:
        extra: Those of the file alone are left out (`ignore`), or an error (`raise`).
        missing: Those of the schema alone are an error (`raise`), or nulls (`insert`).
        optional: Those of the schema that are nulls in any case where the file lacks them.
    """

    extra: Literal["ignore", "raise"] = "ignore"
    missing: Literal["raise", "insert"] = "raise"
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """How a file and a schema differ.

    Attributes:
        missing: Columns that only the schema has, in its order.
        extra: Columns that only the file has, in its order.
        near: For a missing column, the extra one whose name looks like it.
    """

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    near: dict[str, str]


class ColumnDifferenceError(IngestError):
    """A file has other columns than it may have.

    Attributes:
        difference: Which.
    """

    def __init__(self, message: str, difference: ColumnDifference) -> None:
        super().__init__(message)
        self.difference = difference


def compare_columns(names: Collection[str], wanted: Collection[str]) -> ColumnDifference:
    """Say which columns are missing, which are extra, and which of these may be one and the same."""
    missing = tuple(name for name in wanted if name not in names)
    extra = tuple(name for name in names if name not in wanted)
    near: dict[str, str] = {}
    for name in missing:
        match = _find_near_miss(name, [other for other in extra if other not in near.values()])
        if match is not None:
            near[name] = match
    return ColumnDifference(missing, extra, near)


def refuse_differences(
    difference: ColumnDifference, names: Collection[str], source: str, rules: ColumnRules
) -> None:
    """Refuse a file whose columns are not those of the schema, as far as the rules forbid that.

    Raises:
        ColumnDifferenceError: Names the columns, and those that look like each other.
    """
    missing, extra, near = difference.missing, difference.extra, difference.near
    hint = "; ".join(f"{name!r} looks like {match!r}" for name, match in near.items())
    hint = f" ({hint})" if hint else ""
    needed = [name for name in missing if name not in rules.optional]
    if needed and rules.missing == "raise":
        raise ColumnDifferenceError(
            f"{source} lacks {describe_count(needed, 'column')} of the schema: {quote_names(needed)}{hint}. "
            f"It has: {quote_names(names)}. Mend the file, change the schema, give the names that the file "
            f"may use as aliases, or set missing_columns='insert' for nulls.",
            difference,
        )
    if missing and len(extra) == len(names):
        raise ColumnDifferenceError(
            f"{source} has no column of the schema: {quote_names(missing)}{hint}. It has: "
            f"{quote_names(names)}. Check the separator, and that it is the right file.",
            difference,
        )
    if extra and rules.extra == "raise":
        raise ColumnDifferenceError(
            f"{source} has {describe_count(extra, 'column')} that the schema does not name: "
            f"{quote_names(extra)}{hint}. Add to the schema what is needed, or set extra_columns='ignore'.",
            difference,
        )


def quote_names(names: Iterable[str]) -> str:
    """Return names as a list for a message."""
    return ", ".join(map(repr, names))


def describe_count(things: Sequence[object], noun: str) -> str:
    """Return `1 column` or `2 columns`."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _find_near_miss(name: str, candidates: list[str]) -> str | None:
    by_plain_name = {_plain(candidate): candidate for candidate in candidates}
    close = difflib.get_close_matches(_plain(name), by_plain_name, n=1, cutoff=0.8)
    return by_plain_name[close[0]] if close else None


def _plain(name: str) -> str:
    """Reduce a name to its letters and digits, without case: `Order No.` and `order_no` are the same."""
    return "".join(character for character in name.casefold() if character.isalnum()) or name
