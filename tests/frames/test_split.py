"""Rows through a split: each on one side, in order, with all its reasons, by verdicts made once."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.parquet import load_frame
from astro_async._frames.split import RowSplit, split_lazy, split_rows
from astro_async._frames.verdict import RowRule
from astro_async.exceptions import RuleError, StepError, StorageError
from frames.samples import SCHEMA, contents, frames, multiset

x = pl.col("x")
NAN = float("nan")


def split_on_disk(frame: pl.DataFrame, rules: list[RowRule], folder: str) -> RowSplit:
    """Split through files, and load what was written."""
    good_path, bad_path = f"{folder}/good [1].parquet", f"{folder}/bad.parquet"
    written = split_lazy(frame.lazy(), rules, good_path=good_path, bad_path=bad_path)
    good = load_frame(good_path)
    bad_schema = pl.Schema({**frame.schema, REASON_COLUMN: pl.String(), ROW_COLUMN: pl.UInt32()})
    bad = load_frame(bad_path) if os.path.exists(bad_path) else pl.DataFrame(schema=bad_schema)
    assert (written.good.rows, written.bad.rows) == (good.height, bad.height)
    assert (written.good.columns, written.bad.columns) == (good.width, bad.width)
    assert not os.path.exists(f"{bad_path}.aside")
    return RowSplit(good=good, bad=bad, counts=written.counts, warnings=written.warnings)


@pytest.fixture(params=["memory", "disk"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return split_rows
    return lambda frame, rules: split_on_disk(frame, rules, str(tmp_path))


def reasons(done: RowSplit) -> dict[int, str]:
    return dict(done.bad.select(ROW_COLUMN, REASON_COLUMN).rows())


def test_null_is_bad_unless_it_passes(split: Any) -> None:
    frame = pl.DataFrame({"x": [5, -1, None]})
    assert reasons(split(frame, [RowRule("neg", x >= 0)])) == {1: "neg", 2: "neg"}


def test_null_passes_when_the_rule_says_so(split: Any) -> None:
    done = split(pl.DataFrame({"x": [5, -1, None]}), [RowRule("neg", x >= 0, null_is_good=True)])
    assert done.good["x"].to_list() == [5, None]
    assert reasons(done) == {1: "neg"}


def test_nan_is_bad_unless_it_passes(split: Any) -> None:
    frame = pl.DataFrame({"x": [NAN, 1.0, -1.0]})
    assert reasons(split(frame, [RowRule("neg", x >= 0)])) == {0: "neg", 2: "neg"}


def test_an_excused_nan_does_not_excuse_another_fault_nor_a_null(split: Any) -> None:
    frame = pl.DataFrame({"x": [NAN, NAN, NAN, 1.0], "y": [1, -1, None, 1]})
    both = RowRule("both", (x >= 0) & (pl.col("y") >= 0), nan_is_good=True)
    done = split(frame, [both, RowRule("neg", x <= 0, nan_is_good=True)])
    assert reasons(done) == {1: "both", 2: "both", 3: "neg"}
    assert str(done.good["x"].to_list()) == "[nan]"


def test_the_expression_decides_where_it_asks_about_nan(split: Any) -> None:
    frame = pl.DataFrame({"x": [NAN, 1.0, -1.0], "y": [0.0, NAN, 0.0]})
    rule = RowRule("r", (x.is_nan() | (x > 0)) & (pl.col("y") >= 0))
    assert reasons(split(frame, [rule])) == {1: "r", 2: "r"}


def test_two_rules_give_one_row_with_both_reasons(split: Any) -> None:
    frame = pl.DataFrame({"x": [-5, -1, 3]})
    done = split(frame, [RowRule("a", x >= 0), RowRule("b", x >= -2), RowRule("c", x < 9)])
    assert reasons(done) == {0: "a; b", 1: "a"}
    assert done.counts == {"a": 2, "b": 1, "c": 0}
    assert done.good.rows() == [(3,)]


def test_an_empty_frame_and_no_rules_give_typed_frames(split: Any) -> None:
    done = split(pl.DataFrame(schema=SCHEMA), [RowRule("neg", pl.col("n") >= 0)])
    assert (done.good.schema, done.good.height, done.bad.height) == (SCHEMA, 0, 0)
    assert list(done.bad.schema) == [*SCHEMA, REASON_COLUMN, ROW_COLUMN]


def test_without_rules_all_rows_are_good(split: Any) -> None:
    done = split(pl.DataFrame({"x": [1, None]}), [])
    assert (done.good.rows(), done.bad.height, done.counts) == ([(1,), (None,)], 0, {})


def test_no_good_rows_still_give_the_good_side(split: Any) -> None:
    done = split(pl.DataFrame({"x": [1, 2]}), [RowRule("r", x > 5)])
    assert (done.good.schema, done.good.height, done.bad.height) == ({"x": pl.Int64}, 0, 2)


@pytest.mark.parametrize(
    "valid",
    [
        pl.int_range(pl.len()).shuffle() % 2 == 0,
        x.map_elements(lambda _: random.random() < 0.5, return_dtype=pl.Boolean),
        x.map_batches(lambda s: pl.Series([random.random() < 0.5 for _ in s]), return_dtype=pl.Boolean),
    ],
    ids=["shuffle", "map_elements", "map_batches"],
)
def test_a_random_rule_puts_each_row_on_exactly_one_side(split: Any, valid: pl.Expr) -> None:
    frame = pl.DataFrame({"x": range(100_000)})
    done = split(frame, [RowRule("r", valid), RowRule("s", x % 3 > 0)])
    good, bad = done.good["x"].to_list(), done.bad["x"].to_list()
    assert sorted(good + bad) == list(range(100_000))
    assert good == sorted(good)
    assert bad == sorted(bad)
    assert done.bad[ROW_COLUMN].to_list() == bad
    assert 20_000 < len(good) < 60_000


def test_each_row_is_given_to_a_function_once(split: Any) -> None:
    given_rows: list[int] = []

    def note(values: pl.Series) -> pl.Series:
        given_rows.extend(values)
        return values % 2 == 0

    done = split(
        pl.DataFrame({"x": range(1000)}), [RowRule("r", x.map_batches(note, return_dtype=pl.Boolean))]
    )
    assert sorted(given_rows) == list(range(1000))
    assert done.good.height == 500


def test_rules_that_look_at_the_whole_frame_are_right_across_batches(split: Any) -> None:
    count = 400_000
    frame = pl.DataFrame({"x": [*range(count - 1), 0], "k": [i % 10 for i in range(count)]})
    above = x >= x.min().over("k")
    done = split(
        frame, [RowRule("twice", x.is_unique()), RowRule("low", above), RowRule("first", x.shift(-1) != 7)]
    )
    assert reasons(done) == {0: "twice", 6: "first", count - 1: "twice; first"}


def test_a_raising_function_is_the_rule_s_fault_and_named(split: Any) -> None:
    def fail(_: int) -> bool:
        raise ValueError("no such code")

    broken = RowRule("code is known", x.map_elements(fail, return_dtype=pl.Boolean))
    with pytest.raises(RuleError, match=r"'code is known' raised ValueError") as caught:
        split(pl.DataFrame({"x": [1, 2]}), [RowRule("other", x > 0), broken])
    assert isinstance(caught.value.__cause__, ValueError)
    assert "other" not in str(caught.value)


def test_a_raising_expression_is_named(split: Any) -> None:
    frame = pl.DataFrame({"x": ["1", "secret"]})
    rules = [RowRule("filled", x != ""), RowRule("number", x.cast(pl.Int64) > 0)]
    with pytest.raises(RuleError, match="'number'") as caught:
        split(frame, rules)
    assert "secret" not in str(caught.value)
    assert "secret" in str(caught.value.__cause__)


def test_a_function_that_misses_its_own_file_is_no_fault_of_the_disk(split: Any) -> None:
    def look_up(_: int) -> bool:
        with open("/nowhere/codes.txt", encoding="utf-8") as codes:
            return bool(codes.read())

    rule = RowRule("known", x.map_elements(look_up, return_dtype=pl.Boolean))
    with pytest.raises(RuleError, match="'known' raised FileNotFoundError"):
        split(pl.DataFrame({"x": [1]}), [rule])


def test_a_missing_column_is_the_rule_s_fault(split: Any) -> None:
    with pytest.raises(RuleError, match="'z'"):
        split(pl.DataFrame({"x": [1]}), [RowRule("r", pl.col("z") > 0)])


def test_a_reserved_column_is_refused(split: Any) -> None:
    with pytest.raises(StepError, match="_astro_row"):
        split(pl.DataFrame({"_astro_row": [1]}), [])


@pytest.mark.parametrize("scalar", [True, False])
def test_a_function_that_gives_one_verdict_for_all_rows_is_found_out(scalar: bool) -> None:
    one = x.map_batches(lambda s: s.head(1) > 0, return_dtype=pl.Boolean, returns_scalar=scalar)
    with pytest.raises(RuleError, match="'r'"):
        split_rows(pl.DataFrame({"x": [1, 2, 3]}), [RowRule("r", one)])


def test_a_function_of_the_wrong_height_is_found_out_on_disk(tmp_path: Path) -> None:
    two = x.map_batches(lambda s: s.head(2) > 0, return_dtype=pl.Boolean)
    with pytest.raises(RuleError, match="'r'"):
        split_on_disk(pl.DataFrame({"x": [1, 2, 3]}), [RowRule("r", two)], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_on_disk_leaves_no_files(tmp_path: Path) -> None:
    def fail_late(values: pl.Series) -> pl.Series:
        if values.max() == 499_999:
            raise ValueError
        return values % 2 == 0

    rule = RowRule("r", x.map_batches(fail_late, return_dtype=pl.Boolean, is_elementwise=True))
    with pytest.raises(RuleError, match="'r'"):
        split_on_disk(pl.DataFrame({"x": range(500_000)}), [rule], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/good"):
        split_on_disk(pl.DataFrame({"x": [1]}), [RowRule("r", x > 0)], f"{tmp_path}/file")


def test_all_columns_means_those_of_the_frame(split: Any) -> None:
    frame = pl.DataFrame({"x": [NAN, 1.0, 1.0, 2.0], "y": [1.0, 1.0, 1.0, -1.0]})
    twins = pl.struct(pl.all()).is_unique()
    rules = [
        RowRule("excused", x > 0, nan_is_good=True),
        RowRule("twin", twins, nan_is_good=True),
        RowRule("negative", pl.all_horizontal(pl.all() >= 0), nan_is_good=True),
    ]
    assert reasons(split(frame, rules)) == {1: "twin", 2: "twin", 3: "negative"}


def test_an_object_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1], "o": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(StepError, match="'o'"):
        split_on_disk(frame, [RowRule("r", x > 0)], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


RULES = [
    RowRule("n", pl.col("n") >= 0),
    RowRule("f", pl.col("f") >= 0, null_is_good=True),
    RowRule("f excused", (pl.col("f") <= 1) | (pl.col("n") > 0), nan_is_good=True),
    RowRule("t", pl.col("t").is_not_null() & (pl.col("t") != "")),
    RowRule("d", pl.col("d") > 0, null_is_good=True),
    RowRule("l", pl.col("l").list.len() > 0),
    RowRule("e", pl.col("e") == "red"),
    RowRule("twins", pl.struct(pl.all()).is_unique()),
    RowRule("known", pl.any_horizontal(pl.all().is_not_null()), nan_is_good=True),
    RowRule("random", pl.int_range(pl.len()).shuffle() % 2 == 0),
]


@given(frame=frames(), rules=st.lists(st.sampled_from(RULES), max_size=4))
@settings(deadline=None)
def test_rows_are_conserved_in_order(frame: pl.DataFrame, rules: list[RowRule]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = [split_rows(frame, rules), split_on_disk(frame, rules, folder)]
    for done in both:
        source = done.bad.drop(REASON_COLUMN, ROW_COLUMN)
        assert done.good.schema == source.schema == frame.schema
        assert multiset(done.good, source) == multiset(frame)
        bad_rows = done.bad[ROW_COLUMN].to_list()
        good_rows = [row for row in range(frame.height) if row not in set(bad_rows)]
        assert bad_rows == sorted(bad_rows)
        assert contents(frame[bad_rows]) == contents(source)
        assert contents(frame[good_rows]) == contents(done.good)
        assert done.bad[REASON_COLUMN].null_count() == 0
    steady = [rule for rule in rules if rule.reason != "random"]
    if steady == rules:
        assert both[0].bad.equals(both[1].bad)
        assert both[0].counts == both[1].counts
