"""What a person changed in parked rows: the rows that came back, held against those that went out.

Values never appear in messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.desk_files import GivenRows
from astro_async._frames.patches import IS_DISCARDED
from astro_async._frames.positions import find_positions
from astro_async.exceptions import DeskError

__all__ = ["Amendment", "ColumnChange", "compare_rows"]

_PLACE: Final = "_astro_place"
_MOST_PLACES: Final = 5
# Fewer changed rows than this are no sign of a spreadsheet's doing.
_FEWEST_SUSPICIOUS: Final = 5
_SUSPICIOUS_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """How a column differs.

    Attributes:
        column: Its name.
        rows: In how many of the given rows its value is another.
        emptied: In how many of them it is null now.
        is_suspicious: Nearly every row differs: most likely a spreadsheet has reformatted the column.
    """

    column: str
    rows: int
    emptied: int
    is_suspicious: bool


@dataclass(frozen=True, slots=True, eq=False)
class Amendment:
    """What came back, compared.

    Attributes:
        rows_given: How many rows came back.
        rows_parked: How many are parked.
        original: The rows that differ, as they are parked.
        replacement: The same rows, as they came back.
        positions: Their positions in the step's input.
        changes: How each column differs in which something differs.
        still_amended: Positions of rows that came back as they are parked, though an earlier decision, which
            stands, amends them. Ascending.
        still_discarded: The same of rows that an earlier decision leaves out.
    """

    rows_given: int
    rows_parked: int
    original: pl.DataFrame
    replacement: pl.DataFrame
    positions: pl.Series
    changes: tuple[ColumnChange, ...]
    still_amended: tuple[int, ...] = ()
    still_discarded: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows are amended."""
        return self.original.height


def compare_rows(parked: pl.DataFrame, given: GivenRows, decided: pl.DataFrame) -> Amendment:
    """Find what changed in rows that came back. Rows that are missing among them are left alone.

    Args:
        parked: `_astro_row`, the columns of the file, and the reason, of all rows that are parked.
        given: What came back.
        decided: `_astro_row` and `is_discarded` of rows that are decided already.

    Raises:
        DeskError: A row is not parked, or there twice; or it has no position and was changed.
    """
    columns = [name for name in parked.columns if name not in (ROW_COLUMN, REASON_COLUMN)]
    placed = parked.filter(pl.col(ROW_COLUMN).is_not_null())
    numbered = given.rows.with_row_index(_PLACE)
    asked = numbered.filter(pl.col(ROW_COLUMN).is_not_null())
    unknown = asked.join(placed.select(ROW_COLUMN), on=ROW_COLUMN, how="anti", maintain_order="left")
    _refuse(given, unknown, f"{ROW_COLUMN} is that of no parked row")
    _refuse(given, asked.filter(pl.col(ROW_COLUMN).is_duplicated()), f"{ROW_COLUMN} is there twice")
    _refuse_changed_without_position(parked, numbered, given, columns)
    after = placed.select(ROW_COLUMN).join(asked, on=ROW_COLUMN, how="inner", maintain_order="left")
    before = placed.join(asked.select(ROW_COLUMN), on=ROW_COLUMN, how="semi", maintain_order="left")
    differs = pl.DataFrame([before[name].ne_missing(after[name]).alias(name) for name in columns])
    is_changed = differs.select(pl.any_horizontal(pl.all())).to_series()
    changes = [_describe_change(name, differs[name], after[name]) for name in columns if differs[name].any()]
    same = after.filter(~is_changed).select(ROW_COLUMN)
    still = decided.join(same, on=ROW_COLUMN, how="semi", maintain_order="left")
    amended, discarded = still.filter(~pl.col(IS_DISCARDED)), still.filter(pl.col(IS_DISCARDED))
    return Amendment(
        rows_given=given.rows.height,
        rows_parked=parked.height,
        original=before.filter(is_changed).select(columns),
        replacement=after.filter(is_changed).select(columns),
        positions=after[ROW_COLUMN].filter(is_changed),
        changes=tuple(changes),
        still_amended=tuple(amended[ROW_COLUMN]),
        still_discarded=tuple(discarded[ROW_COLUMN]),
    )


def _describe_change(name: str, differs: pl.Series, after: pl.Series) -> ColumnChange:
    rows = int(differs.sum())
    return ColumnChange(
        column=name,
        rows=rows,
        emptied=int((differs & after.is_null()).sum()),
        is_suspicious=rows >= _FEWEST_SUSPICIOUS and rows >= _SUSPICIOUS_SHARE * len(differs),
    )


def _refuse_changed_without_position(
    parked: pl.DataFrame, numbered: pl.DataFrame, given: GivenRows, columns: Sequence[str]
) -> None:
    """Let pass rows without position as they were parked: an amendment of them could not be placed."""
    loose = numbered.filter(pl.col(ROW_COLUMN).is_null())
    if loose.is_empty():
        return
    known = parked.filter(pl.col(ROW_COLUMN).is_null()).select(columns)
    is_unknown = find_positions(known, loose.select(columns)).is_null()
    _refuse(
        given,
        loose.filter(is_unknown),
        f"{ROW_COLUMN} is empty, and no such row was parked without one. The step had changed these rows "
        "before it set them aside, so they cannot be amended in its input: mend the step",
    )


def _refuse(given: GivenRows, rows: pl.DataFrame, why: str) -> None:
    if rows.is_empty():
        return
    places = rows[_PLACE].to_list()
    shown = ", ".join(given.place(place) for place in places[:_MOST_PLACES])
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    raise DeskError(f"{given.path}, {shown}{more}: {why}. Nothing is stored")
