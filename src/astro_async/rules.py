"""What authors write to say which rows are good.

An expectation is a reason and a Polars expression. It is judged later, by `ctx.quarantine.split` or by a
check step; nothing is evaluated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from astro_async._frames.verdict import RowRule

__all__ = ["Expectation", "compile_expectation", "expect"]


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """A reason, and the expression that is true for good rows. Made by `expect`."""

    reason: str
    valid: pl.Expr
    null: Literal["quarantine", "pass"]
    nan: Literal["quarantine", "pass"]


def expect(
    reason: str,
    valid: pl.Expr,
    *,
    null: Literal["quarantine", "pass"] = "quarantine",
    nan: Literal["quarantine", "pass"] = "quarantine",
) -> Expectation:
    """State what is true of a good row; rows of which it is not true are quarantined for `reason`.

    The name says which way round it is: `valid` describes **good** rows.

    ```python
    expect("score must not be negative", pl.col("score") >= 0)
    ```

    The expression judges each row for itself and is evaluated once. It may look at other rows where that
    gives one verdict a row (`pl.col("id").is_unique()`, `pl.col("x").sum().over("key") > 0`), but not fold
    the frame into one value (`pl.col("x").sum() > 5`): such a rule fails its step.

    Unknown is not good, so both of these quarantine unless you say otherwise:

    - **null**: the verdict is null, mostly because a value is. With `null="pass"` the row is good.
    - **NaN**: Polars holds that `NaN >= 0` is true and that `NaN == NaN`, so a missing number from NumPy or
      pandas would pass most checks unseen. Here a row is bad when any floating column that the expression
      names is NaN, whatever the comparison says. With `nan="pass"` NaN is excused: the expression is
      judged as if it were unknown, and only another fault of the row (`y < 0` beside an excused `x`)
      makes it bad.

    Where the expression itself asks about the NaN of a column (`is_nan`, `is_not_nan`, `fill_nan`,
    `is_finite`, `is_infinite`), the author has spoken, and for that column the expression alone decides.
    NaN that only arises within the expression (`0 / 0` of integers), or inside a list or struct, is not
    looked for: ask with `is_nan`.

    Args:
        reason: What is wrong with a row that does not pass, in words for people. No cell values.
        valid: A Boolean Polars expression, true for good rows.
        null: What a null verdict means.
        nan: What NaN in a floating column named by `valid` means.

    Raises:
        ValueError: `reason` is empty, or `null` or `nan` is neither "quarantine" nor "pass".
        TypeError: `reason` is not text, or `valid` is not a Polars expression.
    """
    if not isinstance(reason, str):
        raise TypeError(
            f"the reason comes first and is text, not {type(reason).__name__}: "
            f'expect("score must not be negative", pl.col("score") >= 0)'
        )
    if not reason.strip():
        raise ValueError(
            'the reason is empty; say what is wrong with the row, as in "score must not be negative"'
        )
    if not isinstance(valid, pl.Expr):
        raise TypeError(_explain_expression(valid))
    _check_choice("null", null)
    _check_choice("nan", nan)
    return Expectation(reason=reason, valid=valid, null=null, nan=nan)


def compile_expectation(expectation: Expectation) -> RowRule:
    """Make of an expectation the rule that the split understands."""
    return RowRule(
        reason=expectation.reason,
        valid=expectation.valid,
        null_is_good=expectation.null == "pass",
        nan_is_good=expectation.nan == "pass",
    )


def _check_choice(name: str, choice: object) -> None:
    if choice not in ("quarantine", "pass"):
        hint = ""
        if isinstance(choice, bool):
            hint = f'; for {choice} write "{"pass" if choice else "quarantine"}"'
        raise ValueError(f'{name}= is "quarantine" or "pass", not {choice!r}{hint}')


def _explain_expression(valid: object) -> str:
    write = 'write one such as pl.col("score") >= 0, which is true for good rows'
    if isinstance(valid, bool):
        return (
            f"valid is {valid}, not a Polars expression. Python's `and`, `or`, `not` and `in` give a plain "
            f"bool: use `&`, `|`, `~` and `.is_in(…)`, and {write}"
        )
    if isinstance(valid, pl.Series):
        return f"valid is a Series, which belongs to one frame; {write}"
    if isinstance(valid, str):
        return f"valid is text, not a Polars expression; {write}"
    if callable(valid):
        return f"valid is a function, not a Polars expression; {write}"
    return f"valid is {type(valid).__name__}, not a Polars expression; {write}"
