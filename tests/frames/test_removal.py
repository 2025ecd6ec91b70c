"""Filters: nothing is lost, null keeps, twins are told apart by position."""

from __future__ import annotations

import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._frames.parquet import load_frame, write_frame
from astro_async._frames.positions import find_positions
from astro_async._frames.removal import split_removed, split_removed_lazy, split_twins
from astro_async.exceptions import QuarantineError, RuleError, StepError
from frames.samples import SCHEMA, contents, frames, multiset

x = pl.col("x")
NAN = float("nan")


def remove_on_disk(
    frame: pl.DataFrame, verdict: pl.Expr, *, remove: bool, folder: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    kept_path, removed_path = f"{folder}/kept.parquet", f"{folder}/removed.parquet"
    done = split_removed_lazy(
        frame.lazy(), verdict, remove=remove, kept_path=kept_path, removed_path=removed_path
    )
    kept = load_frame(kept_path)
    removed = load_frame(removed_path) if os.path.exists(removed_path) else frame.clear()
    assert (done.true.rows, done.false.rows) == (kept.height, removed.height)
    return kept, removed


@pytest.fixture(params=["in memory", "on disk"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "in memory":
        return lambda frame, verdict, remove: split_removed(frame, verdict, remove=remove)
    return lambda frame, verdict, remove: remove_on_disk(frame, verdict, remove=remove, folder=str(tmp_path))


def test_remove_names_the_rows_to_remove_and_null_keeps(split: Any) -> None:
    kept, removed = split(pl.DataFrame({"x": [1, None, 9, 2]}), x > 5, remove=True)
    assert (kept["x"].to_list(), removed["x"].to_list()) == ([1, None, 2], [9])


def test_keep_names_the_rows_to_keep_and_null_keeps(split: Any) -> None:
    kept, removed = split(pl.DataFrame({"x": [1, None, 9, 2]}), x > 5, remove=False)
    assert (kept["x"].to_list(), removed["x"].to_list()) == ([None, 9], [1, 2])


@pytest.mark.parametrize("remove", [True, False])
def test_a_random_filter_conserves_rows(split: Any, remove: bool) -> None:
    kept, removed = split(
        pl.DataFrame({"x": range(1000)}), pl.int_range(pl.len()).shuffle() < 300, remove=remove
    )
    assert sorted([*kept["x"], *removed["x"]]) == list(range(1000))
    assert removed.height == (300 if remove else 700)


def test_a_broken_filter_is_an_error(split: Any) -> None:
    with pytest.raises(RuleError, match="aggregates"):
        split(pl.DataFrame({"x": [1]}), x > x.mean(), remove=True)


def test_the_first_of_two_twins_is_removed() -> None:
    frame = pl.DataFrame({"x": ["a", "b", "a", None], "y": [1.0, NAN, 1.0, None]})
    kept, removed = split_twins(frame, frame[2:4])
    assert contents(kept) == ["('b', nan)", "('a', 1.0)"]
    assert contents(removed) == ["('a', 1.0)", "(None, None)"]


def test_rows_that_are_not_in_the_frame_are_counted() -> None:
    frame = pl.DataFrame({"x": [1, 1, 2]})
    with pytest.raises(StepError, match="2 of 4 rows"):
        split_twins(frame, pl.DataFrame({"x": [1, 1, 1, 7]}))


def test_rows_without_a_column_are_refused() -> None:
    with pytest.raises(QuarantineError, match="'y'"):
        split_twins(pl.DataFrame({"x": [1], "y": [1]}), pl.DataFrame({"x": [1]}))


def test_nothing_to_remove() -> None:
    frame = pl.DataFrame({"x": [1, 2]})
    kept, removed = split_twins(frame, frame.clear())
    assert (kept.rows(), removed.rows()) == ([(1,), (2,)], [])


def test_signed_zeros_nested_values_and_decimals_are_told_apart() -> None:
    frame = pl.DataFrame(
        {
            "f": [0.0, -0.0, 1.0, 1.0, 1.0, 1.0],
            "l": [[1.0], [1.0], [0.0, None], [-0.0, None], None, []],
            "s": [{"a": 0.0}, {"a": 0.0}, {"a": 0.0}, {"a": 0.0}, {"a": -0.0}, None],
            "d": [Decimal("1.10")] * 6,
        },
        schema_overrides={"d": pl.Decimal(10, 2)},
    )
    for row in range(frame.height):
        assert find_positions(frame, frame[[row]]).to_list() == [row]


def test_a_changed_row_has_no_position() -> None:
    frame = pl.DataFrame({"x": [1, 2], "t": ["a", "b"]})
    rows = pl.DataFrame({"t": ["b", "a"], "x": [2, 5], "extra": [0, 0]})
    found = find_positions(frame, rows)
    assert (found.to_list(), found.name) == ([1, None], "_astro_row")
    assert found.dtype == pl.UInt64()


def test_rows_from_another_process_s_categories_are_found() -> None:
    frame = pl.DataFrame({"c": pl.Series(["a", "b", None], dtype=pl.Categorical)})
    rows = pl.DataFrame({"c": ["b", None, "z"]})
    assert find_positions(frame, rows).to_list() == [1, 2, None]


@given(frame=frames(), remove=st.booleans())
@settings(deadline=None)
def test_filters_conserve_rows(frame: pl.DataFrame, remove: bool) -> None:
    verdict = (pl.col("f") > 0) & (pl.col("n") >= 0)
    with tempfile.TemporaryDirectory() as folder:
        kept, removed = remove_on_disk(frame, verdict, remove=remove, folder=folder)
    assert multiset(kept, removed) == multiset(frame)
    is_removed = verdict.eq_missing(pl.lit(remove))
    assert contents(kept) == contents(frame.filter(~is_removed))
    assert contents(removed) == contents(frame.filter(is_removed))


@given(frame=frames(), data=st.data())
@settings(deadline=None)
def test_returned_rows_are_removed_as_often_as_they_were_returned(frame: pl.DataFrame, data: Any) -> None:
    marks = data.draw(st.lists(st.booleans(), min_size=frame.height, max_size=frame.height))
    chosen = frame.filter(pl.Series(marks, dtype=pl.Boolean)).sample(fraction=1, shuffle=True, seed=1)
    kept, removed = split_twins(frame, chosen)
    # Of twins, the first ones go.
    left, rows = multiset(chosen), contents(frame)
    is_removed = []
    for row in rows:
        is_removed.append(left[row] > 0)
        left[row] -= 1
    assert contents(removed) == [row for row, gone in zip(rows, is_removed, strict=True) if gone]
    assert contents(kept) == [row for row, gone in zip(rows, is_removed, strict=True) if not gone]
    assert multiset(removed) == multiset(chosen)


@given(frame=frames(), rows=frames(max_rows=8))
@settings(deadline=None)
def test_positions_agree_with_a_search_by_hand_in_memory_and_streamed(
    frame: pl.DataFrame, rows: pl.DataFrame
) -> None:
    rows = pl.concat([rows, frame.head(3)])
    free: dict[str, list[int]] = {}
    for position, content in enumerate(contents(frame)):
        free.setdefault(content, []).append(position)
    expected = [free[row].pop(0) if free.get(row) else None for row in contents(rows)]
    assert find_positions(frame, rows).to_list() == expected
    with tempfile.TemporaryDirectory() as folder:
        write_frame(frame, f"{folder}/f.parquet")
        streamed = find_positions(pl.scan_parquet(f"{folder}/f.parquet"), rows)
    assert streamed.to_list() == expected
    assert frame.schema == SCHEMA
