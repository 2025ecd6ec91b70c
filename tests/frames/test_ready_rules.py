"""Ready-made rules: which rows they find good, in memory and on disk alike."""

from __future__ import annotations

import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async import (
    AstroFileSpec,
    Expectation,
    expect,
    expect_between,
    expect_foreign,
    expect_match,
    expect_unique,
    expect_values,
)
from astro_async._frames.split import split_rows
from astro_async.exceptions import RuleError
from astro_async.expectation import compile_rule_set, flatten_rules
from frames.test_split import split_on_disk

NAN = float("nan")
BIG = pl.DataFrame({"x": [*range(300_000), 5], "g": [i % 7 for i in range(300_001)]})
KEYS = pl.DataFrame({"k": [1, 2, None], "l": ["a", "b", "c"], "f": [0.0, NAN, 1.0]})


def judge(frame: pl.DataFrame, rules: Any, folder: Path, how: str) -> tuple[list[int], dict[str, int], Any]:
    """Return the positions of the good rows, and the counts of the rules that park and that warn."""
    numbered = frame.with_row_index("row")
    compiled = compile_rule_set(list(flatten_rules(rules)), frame.lazy(), lambda _: KEYS.lazy())
    done = split_rows(numbered, compiled)
    if how == "disk":
        with tempfile.TemporaryDirectory(dir=folder) as own:
            done = split_on_disk(numbered, compiled, own)
    assert sorted([*done.good["row"], *done.bad["row"]]) == list(range(frame.height))
    return done.good["row"].to_list(), done.counts, done.warnings


in_both_ways = pytest.mark.parametrize("how", ["memory", "disk"])


def column(*values: Any, dtype: Any = None) -> pl.DataFrame:
    return pl.DataFrame({"x": pl.Series(values, dtype=dtype)})


def pairs(*values: tuple[Any, Any]) -> pl.DataFrame:
    return pl.DataFrame(values, schema={"x": pl.Int64, "y": pl.String}, orient="row")


FLOATS = column(0.0, -0.0, NAN, NAN, None, None, 1.0)
COLOURS = column("red", "blue", "red", None, dtype=pl.Enum(["red", "blue"]))
PRICES = column(Decimal("0.10"), Decimal("0.30"), Decimal("0.31"), None, dtype=pl.Decimal(10, 2))
KEY_PAIRS = pairs((1, "a"), (2, "a"), (None, "c"), (2, "b"))

TABLE: dict[str, tuple[pl.DataFrame, Expectation, list[int]]] = {
    # Twins.
    "unique": (column(1, 1, 2, None, None), expect_unique("x"), [2, 3, 4]),
    "unique, keep first": (column(1, 2, 1, 1), expect_unique("x", keep="first"), [0, 1]),
    "unique, keep last": (column(1, 2, 1, 1), expect_unique("x", keep="last"), [1, 3]),
    "unique, null is a value": (column(1, None, None), expect_unique("x", nulls_distinct=False), [0]),
    "unique, null is no key": (column(1, None, None), expect_unique("x", null="quarantine"), [0]),
    "unique, floats": (FLOATS, expect_unique("x"), [2, 3, 4, 5, 6]),
    "unique, floats are values": (FLOATS, expect_unique("x", nulls_distinct=False), [6]),
    "unique, NaN is no key": (FLOATS, expect_unique("x", nan="quarantine"), [4, 5, 6]),
    "unique, NaN keep first": (
        FLOATS,
        expect_unique("x", keep="first", nulls_distinct=False),
        [0, 2, 4, 6],
    ),
    "unique, two columns": (
        pairs((1, "a"), (1, "b"), (1, "a"), (1, None), (1, None)),
        expect_unique(["x", "y"]),
        [1, 3, 4],
    ),
    "unique, two columns, null is a value": (
        pairs((1, "a"), (1, "b"), (1, None), (1, None), (None, None)),
        expect_unique(["x", "y"], nulls_distinct=False),
        [0, 1, 4],
    ),
    "unique, when": (column(1, 1, 2), expect_unique("x", when=pl.col("x") > 1), [0, 1, 2]),
    "unique, lists": (column([1], [1], [], None), expect_unique("x"), [2, 3]),
    "unique, structs": (column({"a": 1}, {"a": 1}, {"a": None}), expect_unique("x"), [2]),
    "unique, decimals": (
        column(Decimal("0.10"), Decimal("0.1"), Decimal("0.11"), dtype=pl.Decimal(10, 2)),
        expect_unique("x"),
        [2],
    ),
    # Values.
    "values": (column("a", "b", None, ""), expect_values("x", ["a", ""]), [0, 3]),
    "values, null passes": (column("a", "b", None), expect_values("x", {"a"}, null="pass"), [0, 2]),
    "values, None among them": (column("a", "b", None), expect_values("x", ["a", None]), [0, 2]),
    "values, floats": (column(1.0, 2.0, NAN, None), expect_values("x", [1.0]), [0]),
    "values, NaN among them": (column(1.0, 2.0, NAN, None), expect_values("x", [1.0, NAN]), [0, 2]),
    "values, only None": (column("a", None), expect_values("x", [None]), [1]),
    "values, an Enum": (COLOURS, expect_values("x", ["red"]), [0, 2]),
    "values, decimals": (PRICES, expect_values("x", [Decimal("0.3")]), [1]),
    "values, dates": (
        column(date(2026, 1, 1), date(2026, 1, 2)),
        expect_values("x", [date(2026, 1, 2)]),
        [1],
    ),
    # Forms.
    "match is of the whole": (column("007", "007x", "x007", "", None), expect_match("x", r"\d+"), [0]),
    "match of empty text": (column("007", "", None), expect_match("x", r"\d*"), [0, 1]),
    "match of alternatives": (column("a", "ab", "b", "cb"), expect_match("x", "a|b"), [0, 2]),
    "match, a line feed at the end": (column("a", "a\n"), expect_match("x", "a"), [0]),
    "match, null passes": (column("a", None, "b"), expect_match("x", "a", null="pass"), [0, 1]),
    # Bounds.
    "between": (column(-1, 0, 5, 6, None), expect_between("x", 0, 5), [1, 2]),
    "between, left": (column(0, 5), expect_between("x", 0, 5, closed="left"), [0]),
    "between, right": (column(0, 5), expect_between("x", 0, 5, closed="right"), [1]),
    "between, open": (column(0, 3, 5), expect_between("x", 0, 5, closed="none"), [1]),
    "between, no upper bound": (column(-1, 0, 9), expect_between("x", 0), [1, 2]),
    "between, no lower bound": (column(-1, 0, 9), expect_between("x", high=0), [0, 1]),
    "between, NaN": (column(1.0, NAN, None), expect_between("x", 0), [0]),
    "between, NaN passes": (column(1.0, NAN, None, -1.0), expect_between("x", 0, nan="pass"), [0, 1]),
    "between, text is no column": (column("a", "m", "x"), expect_between("x", "b", "n"), [1]),
    "between, decimals": (PRICES, expect_between("x", Decimal("0.10"), Decimal("0.30")), [0, 1]),
    "between, another column": (
        pl.DataFrame({"x": [1, 5, 2], "y": [2, 2, None]}),
        expect_between("x", high=pl.col("y")),
        [0],
    ),
    # Keys of another file.
    "foreign": (column(1, 2, 3, None), expect_foreign("x", "keys", "k"), [0, 1]),
    "foreign, null passes": (column(1, 3, None), expect_foreign("x", "keys", "k", null="pass"), [0, 2]),
    "foreign, a smaller integer": (column(1, 3, dtype=pl.Int8), expect_foreign("x", "keys", "k"), [0]),
    "foreign, floats": (column(-0.0, NAN, 1.0, 2.0), expect_foreign("x", "keys", "f", nan="pass"), [0, 1, 2]),
    "foreign, NaN is no key": (column(-0.0, NAN, 2.0), expect_foreign("x", "keys", "f"), [0]),
    "foreign, two columns": (KEY_PAIRS, expect_foreign(["x", "y"], "keys", ["k", "l"]), [0, 3]),
    # Conditions.
    "when": (
        pl.DataFrame({"x": [-1, -1, 1, -1], "g": ["a", "b", "a", None]}),
        expect("r", pl.col("x") > 0, when=pl.col("g") == "a"),
        [1, 2, 3],
    ),
    "when, NaN in the condition": (
        pl.DataFrame({"x": [-1, -1], "g": [NAN, 0.0]}),
        expect("r", pl.col("x") > 0, when=pl.col("g") > 0),
        [1],
    ),
    "when, NaN that it excludes": (
        pl.DataFrame({"x": [NAN, NAN], "g": [True, False]}),
        expect("r", pl.col("x") > 0, when=pl.col("g")),
        [1],
    ),
    "when, over a group": (
        pl.DataFrame({"x": [1, 2, 3], "g": [1, 1, 2]}),
        expect("r", pl.col("x") == pl.col("x").max().over("g"), when=pl.len().over("g") > 1),
        [1, 2],
    ),
    "when, beside an excused NaN": (
        pl.DataFrame({"x": [NAN, -1.0, -1.0], "g": [NAN, NAN, 1.0]}),
        expect("r", pl.col("x") > 0, nan="pass", when=pl.col("g").is_nan()),
        [0, 2],
    ),
    "when, all columns": (
        pl.DataFrame({"x": [1, -1, 1], "g": [1, 1, -1]}),
        expect("r", pl.col("x") > 5, when=pl.any_horizontal(pl.all() < 0)),
        [0],
    ),
    # Over many batches.
    "unique of many": (
        BIG,
        expect_unique("x", keep="first"),
        list(range(300_000)),
    ),
    "over many": (
        BIG,
        expect("r", pl.col("x") > pl.col("x").min().over("g")),
        list(range(7, 300_001)),
    ),
}


@in_both_ways
@pytest.mark.parametrize("name", TABLE)
def test_which_rows_are_good(name: str, how: str, tmp_path: Path) -> None:
    frame, rule, expected = TABLE[name]
    good, counts, warnings = judge(frame, rule, tmp_path, how)
    assert good == expected
    assert (counts, warnings) == ({rule.reason: frame.height - len(expected)}, {})


@in_both_ways
def test_a_warning_leaves_the_row_and_is_counted(how: str, tmp_path: Path) -> None:
    x = pl.col("x")
    rules = [expect("low", x >= 0, severity="warn"), expect("odd", x % 2 == 0), expect("high", x < 9)]
    good, counts, warnings = judge(column(-2, -1, 4, 10, None), rules, tmp_path, how)
    assert good == [0, 2]
    assert (counts, warnings) == ({"odd": 2, "high": 2}, {"low": 3})


@in_both_ways
def test_rules_that_only_warn_park_nobody(how: str, tmp_path: Path) -> None:
    rules = [expect_unique("x", severity="warn"), expect("low", pl.col("x") >= 0, severity="warn")]
    good, counts, warnings = judge(column(1, 1, -1), rules, tmp_path, how)
    assert (good, counts) == ([0, 1, 2], {})
    assert warnings == {"x is there more than once": 2, "low": 1}


@in_both_ways
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (expect("r", pl.col("x") > 0, when=pl.col("z") > 0), "`when` of the rule 'r' names columns.*'z'"),
        (expect("r", pl.col("x") > 0, when=pl.col("x") + 1), "`when` of the rule 'r' is Int64, not Boolean"),
        (expect("r", pl.col("x") > 0, when=pl.col("x").sum() > 0), "`when` of the rule 'r' aggregates"),
        (expect_unique(["x", "z"]), "names columns that are not there: 'z'"),
        (expect_values("x", ["a"]), "'x is none of the values allowed' does not fit the columns"),
        (expect_match("x", "a"), "'x has not the form it should have' does not fit the columns"),
        (expect_between("x", "a"), "'x is out of bounds'"),
        (expect_foreign("x", "keys", "l"), "'x is not in keys' does not fit the columns"),
        (expect_foreign("x", "keys", "q"), "in file 'keys', names columns that are not there: 'q'"),
        (expect_foreign("q", "keys", "k"), "names columns that are not there: 'q'"),
    ],
)
def test_a_broken_rule_is_no_fault_of_a_row(rule: Expectation, words: str, how: str, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=words):
        judge(column(1, 2), rule, tmp_path, how)
    assert list(tmp_path.iterdir()) == []


def test_the_default_reasons_name_columns() -> None:
    assert expect_unique("x").reason == "x is there more than once"
    assert expect_unique(["a", "b", "c"], keep="first").reason == "a, b and c is there before"
    assert expect_unique("x", keep="last").reason == "x is there after"
    assert expect_foreign(["a", "b"], AstroFileSpec("keys")).reason == "a and b is not in keys"
    assert expect_values("x", [1], reason="odd colour").reason == "odd colour"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: expect("r", pl.col("x") > 0, when="x"), TypeError, "when is a Polars expression"),  # type: ignore[arg-type]
        (
            lambda: expect("r", pl.col("x") > 0, severity="error"),  # type: ignore[arg-type]
            ValueError,
            'severity= is "quarantine" or "warn"',
        ),
        (lambda: expect("r", pl.col("x") > 0, max_rows=-1), ValueError, "max_rows"),
        (lambda: expect("r", pl.col("x") > 0, max_rows=True), ValueError, "max_rows"),
        (lambda: expect("r", pl.col("x") > 0, max_fraction=5), ValueError, "max_fraction"),
        (lambda: expect("r", pl.col("x") > 0, severity="warn", max_rows=1), ValueError, "only warns"),
        (lambda: expect_unique([]), TypeError, "columns is the name of a column"),
        (lambda: expect_unique("x", keep="any"), ValueError, "keep="),  # type: ignore[arg-type]
        (lambda: expect_unique("x", null=True), ValueError, 'for True write "pass"'),  # type: ignore[arg-type]
        (lambda: expect_unique("x", reason=" "), ValueError, "reason is empty"),
        (lambda: expect_values("x", "abc"), TypeError, "a list of values"),
        (lambda: expect_values("x", []), ValueError, "allowed is empty"),
        (lambda: expect_match("x", "a)|(b"), ValueError, "cannot be compiled"),
        (lambda: expect_match("x", 5), TypeError, "regex is text"),  # type: ignore[arg-type]
        (lambda: expect_between("x"), ValueError, "a bound is needed"),
        (lambda: expect_between("x", NAN), ValueError, "NaN is none"),
        (lambda: expect_between("x", 5, 1), ValueError, "low is above high"),
        (lambda: expect_between("x", 1, closed="up"), ValueError, "closed="),  # type: ignore[arg-type]
        (lambda: expect_foreign("x", 5), TypeError, "other_file"),
        (lambda: expect_foreign(["x", "y"], "keys", "k"), ValueError, "2 columns and other_key 1"),
        (lambda: list(flatten_rules([pl.col("x") > 0])), TypeError, "an expression alone is no rule"),
        (lambda: list(flatten_rules("x > 0")), TypeError, "str is no rule"),
        (lambda: list(flatten_rules([datetime])), TypeError, "datetime"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_sets_of_rules_combine() -> None:
    ids = [expect_unique("x"), expect("low", pl.col("x") > 0)]
    texts = [expect_match("y", "a")]
    assert [rule.reason for rule in flatten_rules([*ids, texts])] == [
        rule.reason for rule in flatten_rules(ids + texts)
    ]
