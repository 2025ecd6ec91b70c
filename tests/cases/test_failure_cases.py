"""What goes wrong when rows are sorted by hand in Polars, and must not here; numbered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async import (
    Expectation,
    StepContext,
    StepFiles,
    expect,
    expect_between,
    expect_match,
    expect_unique,
    expect_values,
    run,
)
from astro_async._core.events import RuleCount
from astro_async.testing import read_filtered, read_quarantine
from cases.support import (
    REASON,
    Scores,
    detail_of,
    files_below,
    flow_of,
    id_of,
    ingest_and_run,
    make_pipeline,
    run_directory,
    statuses,
)
from cases.test_quarantine import (
    assert_failed_and_nobody_quarantined,
    checking,
    in_every_way,
)

pytestmark = pytest.mark.anyio

NAN = float("nan")
x = pl.col("x")


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: what is decided here is decided in worker threads."""
    return "asyncio"


@dataclass(frozen=True)
class Case:
    """Values, rules, and the reason of each value that is set aside, by its place."""

    values: Sequence[Any]
    rules: Sequence[Expectation]
    aside: dict[int, str]
    dtype: Any = None


def is_odd(value: int) -> bool:
    return (value & 1) == 1 if isinstance(value, int) else False


def find_nothing(value: object) -> bool:
    raise IndexError(value)


def is_none(value: object) -> bool:
    return isinstance(value, type(None))


def zone_time(hour: int, fold: int = 0) -> datetime:
    """Return a moment of the night on which clocks in Berlin went back."""
    return datetime(2026, 10, 25, hour - 2 + fold, 30, tzinfo=UTC)


BERLIN = pl.Datetime("us", "Europe/Berlin")
RAW_DATE = x.is_null() | x.str.to_date("%Y-%m-%d", strict=False).is_not_null()

CASES: dict[str, Case] = {
    "01 nulls are on one side": Case([-1, None, 1], [expect("low", x >= 0)], {0: "low", 1: "low"}),
    "01 nulls pass when told to": Case([-1, None, 1], [expect("low", x >= 0, null="pass")], {0: "low"}),
    "02 NaN is not above 0": Case([NAN, 1.0], [expect("low", x >= 0)], {0: "low"}),
    "02 NaN does not equal NaN": Case([NAN, 1.0], [expect("other", x == x)], {0: "other"}),
    "05 rules keep their brackets": Case(
        [1, 5, 9, None],
        [expect("a", (x < 3) | (x > 8)), expect("b", ~((x == 1) | (x == 5)))],
        {0: "b", 1: "a; b", 3: "a; b"},
    ),
    "06 the expression says what is good": Case([1, 2], [expect("not one", x == 1)], {1: "not one"}),
    "08 a function is not asked about null": Case(
        [1, None],
        [expect("odd", x.map_elements(is_odd, return_dtype=pl.Boolean))],
        {1: "odd"},
    ),
    "08 unless it is told to": Case(
        [1, None],
        [expect("no", x.map_elements(is_none, return_dtype=pl.Boolean, skip_nulls=False))],
        {0: "no"},
    ),
    "09 every element of an empty list is good": Case(
        [[], [None], [1], [-1], None],
        [expect("low", x.list.eval(pl.element() >= 0).list.all())],
        {3: "low", 4: "low"},
        pl.List(pl.Int64),
    ),
    "09 the least of no elements is unknown": Case(
        [[], [None], [1], [-1]],
        [expect("low", x.list.min() >= 0)],
        {0: "low", 1: "low", 3: "low"},
        pl.List(pl.Int64),
    ),
    "10 floats are not decimals": Case([0.1 + 0.2, 0.3], [expect("sum", x == 0.3)], {0: "sum"}),
    "10 decimals are exact": Case(
        [Decimal("0.1") + Decimal("0.2"), Decimal("0.31")],
        [expect_values("x", [Decimal("0.3")]), expect_between("x", Decimal("0.3"), Decimal("0.31"))],
        {1: "x is none of the values allowed"},
        pl.Decimal(10, 2),
    ),
    "10 small integers wrap unless they are cast": Case(
        [200],
        [expect("wraps", x + x > 255), expect("wide", x.cast(pl.Int64) * 2 == 400)],
        {0: "wraps"},
        pl.UInt8,
    ),
    "10 division by zero": Case(
        [0, 1], [expect("whole", (1 // x) >= 0), expect("real", (x / x).is_not_nan())], {0: "whole; real"}
    ),
    "11 the repeated hour is two": Case(
        [zone_time(2), zone_time(2, fold=1)],
        [
            expect_unique("x"),
            expect("late", x < pl.lit(zone_time(2, fold=1)).dt.convert_time_zone("Europe/Berlin")),
        ],
        {1: "late"},
        BERLIN,
    ),
    "12 nulls are no twins": Case([None, None, 1], [expect_unique("x")], {}),
    "12 unless they are": Case(
        [None, None, 1], [expect_unique("x", nulls_distinct=False, reason="twin")], {0: "twin", 1: "twin"}
    ),
    "12 both zeros are one": Case([0.0, -0.0], [expect_unique("x", reason="twin")], {0: "twin", 1: "twin"}),
    "13 a reason that does not apply leaves no trace": Case(
        [1, 4, 7], [expect("a", x > 3), expect("b", x > 5), expect("c", x > 0)], {0: "a; b", 1: "b"}
    ),
    "15 a bad date is not a missing one": Case(
        ["2026-02-28", "2026-02-30", None, ""], [expect("no date", RAW_DATE)], {1: "no date", 3: "no date"}
    ),
    "15 text that looks right": Case(
        ["007", "7", None, ""],
        [expect_match("x", r"\d{3}", null="pass", reason="code")],
        {1: "code", 3: "code"},
    ),
    "16 many rules, one row": Case(
        [-1, 1],
        [expect("a", x > 0), expect("b", x >= 0), expect_values("x", [1], reason="c")],
        {0: "a; b; c"},
    ),
    "17 nothing in": Case([], [expect("low", x >= 0, max_fraction=0.0)], {}, pl.Int64),
    "17 nothing bad": Case([1], [expect("low", x >= 0, max_fraction=0.0)], {}),
}


@in_every_way
@pytest.mark.parametrize("name", CASES)
async def test_rows_are_on_the_right_side(name: str, how: str, tmp_path: Path) -> None:
    case = CASES[name]
    frame = pl.DataFrame({"x": pl.Series(case.values, dtype=case.dtype)}).with_row_index("place")
    result = await ingest_and_run(checking(*case.rules, how=how), frame, tmp_path)
    parked = read_quarantine(tmp_path, id_of(result), "validate", "scores")
    assert dict(parked.select("place", REASON).rows()) == case.aside
    assert parked.drop(REASON).equals(frame[list(case.aside)], null_equal=True)
    flow = flow_of(result, "validate")
    assert (flow.rows_in, flow.rows_out) == (frame.height, frame.height - len(case.aside))
    for rule in flow.rules:
        assert rule.rows == sum(rule.reason in reasons.split("; ") for reasons in case.aside.values())


BROKEN: dict[str, tuple[Expectation, str]] = {
    "04 an aggregate": (expect("r", x.sum() > 5), "aggregates"),
    "04 a comparison with an aggregate": (expect("r", x > x.mean()), "aggregates"),
    "04 an aggregate as a bound": (expect_between("x", 0, x.max()), "aggregates"),
    "04 an aggregate in a condition": (expect("r", x > 0, when=x.max() > 5), "aggregates"),
    "07 a missing column": (expect("r", pl.col("X") > 0), "Did you mean 'x'"),
    "07 a missing column of a key": (expect_unique(["x", "y"]), "'y'"),
    "07 a function that raises": (
        expect("r", x.map_elements(find_nothing, return_dtype=pl.Boolean)),
        "'r' raised IndexError",
    ),
    "07 no Boolean": (expect("r", x + 1), "not Boolean"),
    "07 the wrong type": (expect_values("x", ["a"]), "does not fit the columns"),
    "11 a zone against none": (
        expect("r", x.cast(BERLIN) > datetime(2026, 1, 1)),  # noqa: DTZ001 - that is the point
        "'r'",
    ),
}


@in_every_way
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_rule_fails_its_step(name: str, how: str, tmp_path: Path) -> None:
    rule, words = BROKEN[name]
    good_rule = expect("good", x > 1)
    frame = pl.DataFrame({"x": [1, 2, 3]})
    result = await ingest_and_run(checking(good_rule, rule, how=how), frame, tmp_path)
    assert_failed_and_nobody_quarantined(tmp_path, result, words)


async def test_01_a_filter_keeps_what_is_unknown(tmp_path: Path) -> None:
    for number, options in enumerate(({"remove": x < 0}, {"keep": x >= 0})):
        pipeline = make_pipeline()
        pipeline.add_filter("tidy", Scores, **options)  # type: ignore[arg-type]
        result = await ingest_and_run(pipeline, pl.DataFrame({"x": [-1, None, 1]}), tmp_path / str(number))
        assert read_filtered(tmp_path / str(number), id_of(result), "tidy", "scores")["x"].to_list() == [-1]
        assert flow_of(result, "tidy").rows_out == 2


@in_every_way
async def test_03_a_random_rule_is_evaluated_once(how: str, tmp_path: Path) -> None:
    rules = [expect("unlucky", pl.int_range(pl.len()).shuffle() % 2 == 0), expect_unique("x")]
    result = await ingest_and_run(checking(*rules, how=how), pl.DataFrame({"x": range(1000)}), tmp_path)
    flow = flow_of(result, "validate")
    assert (flow.rows_out, flow.rows_quarantined) == (500, 500)
    assert flow.rules == (RuleCount("unlucky", 500), RuleCount("x is there more than once", 0))


async def test_14_a_column_named_like_ours_is_refused(tmp_path: Path) -> None:
    def rename(ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().rename({"x": "_astro_row"}))

    pipeline = make_pipeline(lambda p: p.add_step("rename", rename, Scores))
    result = await ingest_and_run(pipeline, pl.DataFrame({"x": [1]}), tmp_path)
    assert statuses(result) == {"rename": "failed"}
    assert "'_astro_row'" in detail_of(result, "rename")


async def test_18_parts_of_drifting_types_read_as_one(tmp_path: Path) -> None:
    def validate(ctx: StepContext, files: StepFiles) -> None:
        file, frame = files[0], files[0].load()
        ctx.quarantine.rows(file, frame[:1].with_columns(x=pl.lit(None), more=1), reason="a")
        ctx.quarantine.rows(file, frame[1:2].with_columns(pl.col("x").cast(pl.Int16)), reason="b")
        file.save_in_place(ctx.quarantine.split(file, frame[2:], expect("c", x > 5)))

    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    frame = pl.DataFrame(
        {"x": [1, 2, 3, 9], "day": [date(2026, 1, 1) + timedelta(days=each) for each in range(4)]}
    )
    result = await ingest_and_run(pipeline, frame, tmp_path)
    parked = read_quarantine(tmp_path, id_of(result), "validate", "scores")
    assert parked.schema == pl.Schema({**frame.schema, REASON: pl.String()})
    assert parked.select("x", REASON).rows() == [(None, "a"), (2, "b"), (3, "c")]


@in_every_way
async def test_17_reading_no_parts_is_an_empty_typed_frame(how: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1]})
    result = await ingest_and_run(checking(expect_unique("x"), how=how), frame, tmp_path)
    parked = read_quarantine(tmp_path, id_of(result), "validate", "scores")
    assert parked.equals(pl.DataFrame(schema={"x": pl.Int64, REASON: pl.String}))
    assert parked.schema == pl.Schema({"x": pl.Int64(), REASON: pl.String()})
    assert files_below(run_directory(tmp_path, id_of(result)), "quarantine") == []


@in_every_way
async def test_34_nothing_of_a_limit_leaks_from_run_to_run(how: str, tmp_path: Path) -> None:
    rules = [expect("low", x >= 0, max_rows=2), expect_unique("x", max_fraction=0.5)]
    pipeline = checking(*rules, how=how, max_quarantined=3)
    few, many = pl.DataFrame({"x": [-1, -2, 5, 6]}), pl.DataFrame({"x": [-1, -2, -3, 5]})
    # The same pipeline and the same rules, over and over: each run is judged by its own rows.
    for number, frame in enumerate((few, few, many, few)):
        result = await ingest_and_run(pipeline, frame, tmp_path)
        assert statuses(result) == {"validate": "failed" if number == 2 else "quarantined"}
    result = await run(pipeline, pipeline_dir=tmp_path, run_id=id_of(result))
    assert statuses(result) == {"validate": "quarantined"}
    assert flow_of(result, "validate").rules[0] == RuleCount("low", 2)
