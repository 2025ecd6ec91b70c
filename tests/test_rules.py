"""Expectations: what authors may write, and what they are told when they write something else."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from astro_async._frames.split import split_rows
from astro_async.expectation import Expectation, compile_expectation
from astro_async.rules import expect

VALID = pl.col("score") >= 0


def good_scores(expectation: Expectation, scores: list[float | None]) -> list[float | None]:
    frame = pl.DataFrame({"score": scores}, schema={"score": pl.Float64})
    return split_rows(frame, [compile_expectation(expectation)]).good["score"].to_list()


def test_a_row_is_good_when_the_expression_is_true() -> None:
    assert good_scores(expect("negative", VALID), [5, -1, None]) == [5]


def test_null_passes_when_the_author_says_so() -> None:
    assert good_scores(expect("negative", VALID, null="pass"), [5, -1, None]) == [5, None]


def test_nan_is_quarantined_by_default_though_polars_holds_it_greater_than_zero() -> None:
    assert good_scores(expect("negative", VALID), [5, float("nan")]) == [5]


def test_nan_passes_when_the_author_says_so() -> None:
    kept = good_scores(expect("above", pl.col("score") <= 10, nan="pass"), [5, float("nan"), 11])
    assert str(kept) == "[5.0, nan]"


def test_the_expression_decides_when_it_asks_about_nan_itself() -> None:
    kept = good_scores(expect("negative", pl.col("score").is_nan() | VALID), [5, float("nan"), -1])
    assert str(kept) == "[5.0, nan]"


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_an_empty_reason_is_refused(reason: str) -> None:
    with pytest.raises(ValueError, match="reason is empty"):
        expect(reason, VALID)


@pytest.mark.parametrize(
    ("valid", "told"),
    [
        (True, "Python's `and`"),
        ("score >= 0", "text, not a Polars expression"),
        (pl.Series([True]), "belongs to one frame"),
        (lambda row: row, "a function"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_expression_is_refused_with_an_example(valid: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told) as caught:
        expect("negative", valid)
    assert 'pl.col("score") >= 0' in str(caught.value)


def test_swapped_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="reason comes first"):
        expect(VALID, "negative")  # type: ignore[arg-type]


@pytest.mark.parametrize(("choice", "told"), [(True, 'write "pass"'), (False, 'write "quarantine"')])
def test_a_bool_for_null_or_nan_is_refused_with_the_word_to_write(choice: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"null=.*{told}"):
        expect("negative", VALID, null=choice)
    with pytest.raises(ValueError, match=f"nan=.*{told}"):
        expect("negative", VALID, nan=choice)


def test_an_unknown_word_is_refused() -> None:
    choice: Any = "drop"
    with pytest.raises(ValueError, match='"quarantine" or "pass"'):
        expect("negative", VALID, null=choice)
