"""Schemas of pandera and dataframely as rules: their verdicts are theirs, the rows and the order are ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async import expect
from astro_async.exceptions import RuleError
from frames.test_ready_rules import column, in_both_ways, judge

NAN = float("nan")
FRAME = pl.DataFrame(
    {"id": [1, 1, 2, 3, 4], "score": [1.0, -1.0, None, 7.0, NAN], "note": ["a", "b", "c", "d", None]}
)


@pytest.fixture
def dy() -> Any:
    return pytest.importorskip("dataframely", reason="the extra dataframely is not installed")


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pandera.polars", reason="the extra pandera is not installed")


@in_both_ways
def test_dataframely(dy: Any, how: str, tmp_path: Path) -> None:
    class Scores(dy.Schema):  # type: ignore[misc]
        id = dy.Int64(primary_key=True)
        score = dy.Float64(min=0)

        @dy.rule()  # type: ignore[untyped-decorator]
        def is_low(cls) -> pl.Expr:  # noqa: N805
            return pl.col("score") < 5

    rules = [Scores, expect("no note", pl.col("note").is_not_null(), severity="warn")]
    good, counts, warnings = judge(FRAME, rules, tmp_path, how)
    assert good == []
    assert {reason: rows for reason, rows in counts.items() if rows} == {
        "primary_key": 2,
        "score: nullability": 1,
        "score: min": 1,
        "score: nan": 1,
        "is_low": 2,
    }
    assert counts["score: inf"] == 0
    assert warnings == {"no note": 1}
    # The columns that the schema does not name are still there, and the schema is as it was.
    assert Scores.column_names() == ["id", "score"]
    assert judge(FRAME[[0]], Scores, tmp_path, how)[0] == [0]
    assert judge(FRAME.clear(), Scores, tmp_path, how)[0] == []


@in_both_ways
def test_pandera(pa: Any, how: str, tmp_path: Path) -> None:
    class Scores(pa.DataFrameModel):  # type: ignore[misc]
        id: int = pa.Field(unique=True)
        score: float = pa.Field(ge=0, nullable=False)

    good, counts, _ = judge(FRAME, [Scores], tmp_path, how)
    assert good == [3]
    assert counts == {
        "id: field_uniqueness": 2,
        "score: not_nullable": 2,
        "score: greater_than_or_equal_to(0)": 1,
    }
    assert judge(FRAME[[0]], Scores, tmp_path, how)[:2] == ([0], {})
    schema = Scores.to_schema()
    schema.drop_invalid_rows = True
    assert judge(FRAME, schema, tmp_path, how)[0] == [3]
    assert schema.drop_invalid_rows is True
    # Where null may be, NaN passes every check of pandera.
    loose = pa.DataFrameSchema({"score": pa.Column(float, pa.Check.ge(0), nullable=True)})
    assert judge(FRAME, loose, tmp_path, how)[0] == [0, 2, 3, 4]


@in_both_ways
def test_a_schema_that_does_not_fit_is_a_broken_rule(dy: Any, pa: Any, how: str, tmp_path: Path) -> None:
    class Own(dy.Schema):  # type: ignore[misc]
        missing = dy.Int64()

    for schema in (Own, pa.DataFrameSchema({"missing": pa.Column(int)}, name="Other")):
        with pytest.raises(RuleError, match=r"(Own|Other)' does not fit.*missing"):
            judge(column(1, 2), schema, tmp_path, how)
    with pytest.raises(RuleError, match=r"'x' does not fit the frame as a whole: x: dtype"):
        judge(column("1"), pa.DataFrameSchema({"x": pa.Column(int)}, name="x"), tmp_path, how)


def test_the_message_of_a_missing_library_names_the_extra(
    pa: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.DataFrameSchema({"x": pa.Column(int)}, name="Scores")
    monkeypatch.setitem(sys.modules, "pandera.polars", None)
    with pytest.raises(RuleError, match=r"'Scores' needs pandera.polars.*'astro-async\[pandera\]'"):
        judge(column(1), schema, tmp_path, "memory")
