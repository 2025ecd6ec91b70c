"""Random frames and random rules: every row on one side, every count as plain Python has it."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import astro_async
from astro_async import (
    AstroFileSpec,
    Expectation,
    IngestFileSpec,
    Pipeline,
    expect,
    expect_between,
    expect_foreign,
    expect_match,
    expect_unique,
    expect_values,
    run,
)
from astro_async._core.verification import unexplained_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.split import split_rows
from astro_async.expectation import compile_expectation
from astro_async.testing import ingest_frames, read_file, read_quarantine
from frames.samples import contents, frames, multiset
from frames.test_split import split_on_disk

Row = dict[str, Any]
Verdict = Callable[[Row], bool | None]
Choice = Literal["quarantine", "pass"]

KEYS = pl.DataFrame({"k": [-1, 7, None]})


@dataclass
class Drawn:
    """A rule, and what plain Python says of each row."""

    make: Callable[[str], Expectation]
    judge: Callable[[list[Row]], list[bool]]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def judge_alone(column: str, verdict: Verdict, null: Choice, nan: Choice, row: Row) -> bool:
    """Judge one row by a rule about one column."""
    if is_nan(row[column]):
        return nan == "pass"
    found = None if row[column] is None else verdict(row)
    return null == "pass" if found is None else found


def judge_twins(
    columns: list[str], keep: str, nulls_distinct: bool, null: Choice, nan: Choice, rows: list[Row]
) -> list[bool]:
    """Judge rows by a rule about the key in some columns."""
    keys = [tuple("NaN" if is_nan(row[name]) else row[name] for name in columns) for row in rows]
    counts, good = Counter(keys), []
    for place, key in enumerate(keys):
        twins = {
            "none": counts[key] == 1,
            "first": key not in keys[:place],
            "last": key not in keys[place + 1 :],
        }
        if "NaN" in key and nan == "quarantine":
            good.append(False)
        elif nulls_distinct and None in key:
            good.append(null == "pass")
        else:
            good.append((nulls_distinct and "NaN" in key) or twins[keep])
    return good


CHOICES: st.SearchStrategy[Choice] = st.sampled_from(["quarantine", "pass"])
Keep = Literal["none", "first", "last"]
KEEPS: st.SearchStrategy[Keep] = st.sampled_from(["none", "first", "last"])
SINGLE: list[tuple[str, Callable[..., Expectation], Verdict]] = [
    ("n", partial(expect_between, "n", 0, 5), lambda row: 0 <= row["n"] <= 5),
    ("n", partial(expect_values, "n", [7, -1]), lambda row: row["n"] in (7, -1)),
    ("n", partial(expect_foreign, "n", "keys", "k"), lambda row: row["n"] in (-1, 7)),
    ("f", partial(expect_between, "f", 0.0, closed="left"), lambda row: row["f"] >= 0),
    ("f", partial(expect_between, "f", high=0.0, closed="none"), lambda row: row["f"] < 0),
    ("t", partial(expect_match, "t", r"\d*"), lambda row: row["t"].isdigit() or not row["t"]),
    ("t", partial(expect_values, "t", ["", "007"]), lambda row: row["t"] in ("", "007")),
    (
        "d",
        partial(expect_between, "d", Decimal("0.1"), Decimal("0.3")),
        lambda row: Decimal("0.1") <= row["d"] <= Decimal("0.3"),
    ),
    ("e", partial(expect_values, "e", ["red"]), lambda row: row["e"] == "red"),
]


@st.composite
def single_rules(draw: st.DrawFn) -> Drawn:
    column, make, verdict = draw(st.sampled_from(SINGLE))
    null, nan, severity = draw(CHOICES), draw(CHOICES), draw(st.sampled_from(["quarantine", "warn"]))
    when = pl.col("n") >= 0 if draw(st.booleans()) else None

    def judge(rows: list[Row]) -> list[bool]:
        def concerns(row: Row) -> bool:
            return when is None or (row["n"] is not None and row["n"] >= 0)

        return [not concerns(row) or judge_alone(column, verdict, null, nan, row) for row in rows]

    options = {"null": null, "nan": nan, "severity": severity, "when": when}
    return Drawn(lambda reason: make(reason=reason, **options), judge)


@st.composite
def twin_rules(draw: st.DrawFn) -> Drawn:
    columns = draw(st.sampled_from([["n"], ["f"], ["t", "n"], ["f", "d"], ["e", "f", "n"]]))
    keep, distinct = draw(KEEPS), draw(st.booleans())
    null, nan = draw(CHOICES), draw(CHOICES)
    return Drawn(
        lambda reason: expect_unique(
            columns, keep=keep, nulls_distinct=distinct, null=null, nan=nan, reason=reason
        ),
        partial(judge_twins, columns, keep, distinct, null, nan),
    )


def make_random_rule() -> Drawn:
    """Make a rule of which only it knows what it says, and that must be asked once for each row."""
    said: dict[int, bool] = {}

    def flip(ids: pl.Series) -> pl.Series:
        for each in ids:
            assert each not in said
            said[each] = random.random() < 0.5
        return pl.Series([said[each] for each in ids], dtype=pl.Boolean)

    chance = pl.col("id").map_batches(flip, return_dtype=pl.Boolean, is_elementwise=True)
    return Drawn(lambda reason: expect(reason, chance), lambda rows: [said[row["id"]] for row in rows])


RULES = st.lists(st.one_of(single_rules(), twin_rules(), st.builds(make_random_rule)), max_size=5)


@given(frame=frames(), rules=RULES, on_disk=st.booleans())
@settings(deadline=None, max_examples=200)
def test_rows_and_counts_are_those_of_plain_python(
    frame: pl.DataFrame, rules: list[Drawn], on_disk: bool
) -> None:
    frame = frame.with_row_index("id")
    made = [drawn.make(f"rule {number}") for number, drawn in enumerate(rules)]
    compiled = [compile_expectation(each, lambda _: KEYS.lazy()) for each in made]
    with tempfile.TemporaryDirectory() as folder:
        done = split_on_disk(frame, compiled, folder) if on_disk else split_rows(frame, compiled)
    rows = frame.rows(named=True)
    verdicts = {each.reason: drawn.judge(rows) for each, drawn in zip(made, rules, strict=True)}
    broken = {reason: good.count(False) for reason, good in verdicts.items()}
    parking = [each.reason for each in made if each.severity == "quarantine"]
    assert done.counts == {reason: broken[reason] for reason in parking}
    assert done.warnings == {reason: rows for reason, rows in broken.items() if reason not in parking}
    told = [
        "; ".join(reason for reason in parking if not verdicts[reason][place]) for place in range(len(rows))
    ]
    bad = [place for place, reasons in enumerate(told) if reasons]
    assert done.bad[ROW_COLUMN].to_list() == bad
    assert done.bad[REASON_COLUMN].to_list() == [told[place] for place in bad]
    source = done.bad.drop(REASON_COLUMN, ROW_COLUMN)
    assert multiset(done.good, source) == multiset(frame)
    assert contents(source) == contents(frame[bad])
    assert contents(done.good) == contents(frame[[row for row in range(frame.height) if row not in set(bad)]])


STEPS = ["n", "t", "f"]
STRICT = {"n": pl.col("n") >= 0, "t": pl.col("t") != "", "f": pl.col("f") <= 1}


def make_pipeline(kinds: list[str], strict: set[int], removes: bool) -> Pipeline:
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("data", "data.csv")])
    for number, kind in enumerate(kinds):
        rules = [expect_unique("n", keep="first", severity="warn")]
        if number in strict:
            rules += [expect(f"bad {kind}", STRICT[kind]), expect_values("e", ["red", None])]
        options: dict[str, Any] = {"on_quarantine": "continue"}
        pipeline.add_check(f"check {number}", rules, AstroFileSpec("data"), **options)
    if removes:
        pipeline.add_filter("tidy", pl.col("d") < 0, AstroFileSpec("data"))
    return pipeline


@given(
    frame=frames(),
    kinds=st.lists(st.sampled_from(STEPS), min_size=2, max_size=3),
    mended=st.lists(st.integers(0, 2), max_size=2),
    removes=st.booleans(),
)
@settings(deadline=None, max_examples=15)
def test_rows_add_up_over_retries(
    frame: pl.DataFrame, kinds: list[str], mended: list[int], removes: bool
) -> None:
    anyio.run(_repair, frame, kinds, mended, removes)


async def _repair(frame: pl.DataFrame, kinds: list[str], mended: list[int], removes: bool) -> None:
    strict = set(range(len(kinds)))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        run_id = await ingest_frames(make_pipeline(kinds, strict, removes), {"data": frame}, directory)
        for repaired in [set(), *({each} for each in mended), strict]:
            strict = strict - repaired
            pipeline = make_pipeline(kinds, strict, removes)
            result = await run(pipeline, pipeline_dir=directory, run_id=run_id)
            assert result.record is not None
            parts = [read_file(directory, run_id, "data")]
            removed = 0
            for step_id, step in result.record.steps.items():
                (flow,) = step.files
                assert unexplained_rows(step, flow) == 0
                removed += flow.rows_filtered or 0
                if flow.parts:
                    parts.append(read_quarantine(directory, run_id, step_id, "data").drop(REASON_COLUMN))
            assert sum(part.height for part in parts) + removed == frame.height
            if not removed:
                assert multiset(*parts) == multiset(frame)
            assert astro_async.verify(directory, run_id).faults == ()
            if result.exit_code == 0:
                break
        assert result.exit_code == 0
        whole = frame.filter((pl.col("d") < 0).fill_null(False).not_()) if removes else frame
        assert contents(read_file(directory, run_id, "data")) == contents(whole)
