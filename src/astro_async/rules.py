"""What authors write to say which rows are good.

Rules are judged later, by `ctx.quarantine.split` or by a check step; nothing is evaluated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import polars as pl
from polars.exceptions import ComputeError

from astro_async.expectation import Choice, Expectation, ForeignKey, Severity

__all__ = [
    "expect",
    "expect_between",
    "expect_foreign",
    "expect_match",
    "expect_unique",
    "expect_values",
]


def expect(
    reason: str,
    valid: pl.Expr,
    *,
    null: Choice = "quarantine",
    nan: Choice = "quarantine",
    severity: Severity = "quarantine",
    when: pl.Expr | None = None,
    max_rows: int | None = None,
    max_fraction: float | None = None,
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
        severity: With `"warn"` the rows that break the rule are counted and told, and stay in the data.
        when: A Boolean expression, true for the rows that the rule is about. A row for which it is false or
            null passes, and NaN in it is as Polars compares it. `valid` is evaluated on all rows all the
            same, so a cast in it that raises for others fails the step.
        max_rows: Strictly more rows that break this rule and the step is `failed`, its parts kept to read.
        max_fraction: The same as a share of the rows of each file, 0.0 to 1.0.

    Raises:
        ValueError: `reason` is empty, a choice is none of those there are, or a limit makes no sense; a rule
            that only warns has no limit, for it stops nothing.
        TypeError: `reason` is not text, or `valid` or `when` is not a Polars expression.
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
    return _make(
        Expectation(reason, valid, null, nan, severity, when, max_rows, max_fraction),
    )


def expect_unique(
    columns: str | Sequence[str],
    *,
    keep: Literal["none", "first", "last"] = "none",
    nulls_distinct: bool = True,
    reason: str | None = None,
    null: Choice = "pass",
    nan: Choice = "pass",
    **options: Any,
) -> Expectation:
    """Expect that no two rows have the same key.

    0.0 and -0.0 are the same key. Where a part of the key is null or NaN, `nulls_distinct` says whether the
    row can have a twin at all. As it takes two to be twins, such rows pass by themselves: the defaults of
    `null` and `nan` are other than elsewhere.

    Takes memory: the columns of the key, and a table of their distinct values (about 90 bytes a row for one
    integer), also where the frame is streamed.

    Args:
        columns: One column, or the columns of a composite key.
        keep: Which of the rows with the same key is good: none of them, the first or the last.
        nulls_distinct: True, as in SQL: a key with a null in it, or NaN, is like no other. With False null
            is a value like any other and equals null; where `nan` is "pass", NaN equals NaN.
        reason: Default: words that name the columns.
        null: With `nulls_distinct`, what a key with a null in it means.
        nan: What NaN in a floating column of the key means.
        **options: `severity`, `when`, `max_rows` and `max_fraction`, as in `expect`. Rows that `when` leaves
            out are not judged, but still are twins of those that it does not.
    """
    names = _column_names("columns", columns)
    if keep not in ("none", "first", "last"):
        raise ValueError(f'keep= is "none", "first" or "last", not {keep!r}')
    key = pl.col(names[0]) if len(names) == 1 else pl.struct(names)
    verdict = {"none": key.is_unique, "first": key.is_first_distinct, "last": key.is_last_distinct}[keep]()
    if nulls_distinct:
        has_null = pl.any_horizontal(pl.col(name).is_null() for name in names)
        verdict = pl.when(~has_null).then(verdict)
    which = {"none": "", "first": " before", "last": " after"}[keep]
    return _make(
        Expectation(
            _words(
                reason,
                f"{_join(names)} is there more than once" if not which else f"{_join(names)} is there{which}",
            ),
            verdict,
            null,
            nan,
            nan_is_value=not nulls_distinct,
            **options,
        )
    )


def expect_values(
    column: str, allowed: Iterable[Any], *, reason: str | None = None, **options: Any
) -> Expectation:
    """Expect one of a few values.

    Args:
        column: The column.
        allowed: The values. None among them lets null pass, and NaN lets NaN pass.
        reason: Default: words that name the column.
        **options: As in `expect`.
    """
    _column_names("column", column)
    if isinstance(allowed, str | bytes) or not isinstance(allowed, Iterable):
        raise TypeError(f"allowed is a list of values, not {type(allowed).__name__}")
    values = list(allowed)
    known = [value for value in values if value is not None and not _is_nan(value)]
    if not values:
        raise ValueError("allowed is empty: no value could pass")
    if any(value is None for value in values):
        options.setdefault("null", "pass")
    if any(map(_is_nan, values)):
        options.setdefault("nan", "pass")
    value = pl.col(column)
    verdict = pl.when(value.is_not_null()).then(value.is_in(known))
    return _ready(_words(reason, f"{column} is none of the values allowed"), verdict, options)


def expect_match(column: str, regex: str, *, reason: str | None = None, **options: Any) -> Expectation:
    """Expect text that a regular expression matches as a whole.

    Empty text is text: it passes if the expression matches it. Only null is unknown.

    Args:
        column: A column of text.
        regex: In the syntax of the Rust crate `regex`, as everywhere in Polars: no look-around. Write
            `.*` around it to look for it anywhere.
        reason: Default: words that name the column.
        **options: As in `expect`.
    """
    _column_names("column", column)
    if not isinstance(regex, str):
        raise TypeError(f"regex is text, not {type(regex).__name__}")
    try:
        # By itself: inside our group, brackets that do not match could close it.
        pl.Series([""]).str.contains(regex)
    except ComputeError as error:
        raise ValueError(f"regex cannot be compiled: {error}") from None
    verdict = pl.col(column).str.contains(rf"\A(?:{regex})\z")
    return _ready(_words(reason, f"{column} has not the form it should have"), verdict, options)


def expect_between(
    column: str,
    low: Any = None,
    high: Any = None,
    *,
    closed: Literal["both", "left", "right", "none"] = "both",
    reason: str | None = None,
    **options: Any,
) -> Expectation:
    """Expect a value between two bounds.

    For a column of decimals give bounds of `decimal.Decimal`: 0.1 as a float is not 0.1.

    Args:
        column: The column.
        low: The lower bound, a value or an expression; None for none.
        high: The upper bound.
        closed: Which of the bounds are good themselves.
        reason: Default: words that name the column.
        **options: As in `expect`.
    """
    _column_names("column", column)
    if closed not in ("both", "left", "right", "none"):
        raise ValueError(f'closed= is "both", "left", "right" or "none", not {closed!r}')
    given = [bound for bound in (low, high) if bound is not None]
    if not given or any(map(_is_nan, given)):
        raise ValueError("a bound is needed, low or high, and NaN is none")
    if len(given) == 2 and not any(isinstance(bound, pl.Expr) for bound in given) and low > high:
        raise ValueError("low is above high: no value could pass")
    value, verdicts = pl.col(column), []
    if low is not None:
        bound = low if isinstance(low, pl.Expr) else pl.lit(low)
        verdicts.append(value >= bound if closed in ("both", "left") else value > bound)
    if high is not None:
        bound = high if isinstance(high, pl.Expr) else pl.lit(high)
        verdicts.append(value <= bound if closed in ("both", "right") else value < bound)
    verdict = verdicts[0] if len(verdicts) == 1 else verdicts[0] & verdicts[1]
    return _ready(_words(reason, f"{column} is out of bounds"), verdict, options)


def expect_foreign(
    key: str | Sequence[str],
    other_file: Any,
    other_key: str | Sequence[str] | None = None,
    *,
    reason: str | None = None,
    **options: Any,
) -> Expectation:
    """Expect that the key of a row is there in another file of the step.

    The step must have the other file, read-only:

    ```python
    rules = [expect_foreign("customer", "customers", "id")]
    pipeline.add_check("Check orders", rules, [Orders(), Customers(readonly=True)])
    ```

    A key with a null in it is unknown, and `null=` decides. NaN and both zeros are found as Polars compares
    them. Takes memory: the distinct keys of the other file.

    Args:
        key: One column, or the columns of a composite key.
        other_file: The other file: its ingest name or its spec.
        other_key: Its columns, where they have other names. The types must compare without loss.
        reason: Default: words that name the columns and the file.
        **options: As in `expect`.
    """
    columns = _column_names("key", key)
    others = columns if other_key is None else _column_names("other_key", other_key)
    if len(columns) != len(others):
        raise ValueError(f"key has {len(columns)} columns and other_key {len(others)}")
    name = other_file if isinstance(other_file, str) else getattr(other_file, "ingest_name", None)
    name = getattr(other_file, "name", None) if name is None else name
    if not isinstance(name, str) or not name:
        raise TypeError(f"other_file is an ingest name or a file spec, not {type(other_file).__name__}")
    words = _words(reason, f"{_join(columns)} is not in {name}")
    return _ready(words, ForeignKey(columns, name, others), options)


def _ready(reason: str, valid: pl.Expr | ForeignKey, options: dict[str, Any]) -> Expectation:
    return _make(Expectation(reason, valid, **{"null": "quarantine", "nan": "quarantine", **options}))


def _make(expectation: Expectation) -> Expectation:
    """Check what all expectations have in common, and return it."""
    _check_choice("null", expectation.null, "pass")
    _check_choice("nan", expectation.nan, "pass")
    _check_choice("severity", expectation.severity, "warn")
    when, rows, fraction = expectation.when, expectation.max_rows, expectation.max_fraction
    if when is not None and not isinstance(when, pl.Expr):
        raise TypeError(f"when is a Polars expression, not {type(when).__name__}")
    if rows is not None and not (isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0):
        raise ValueError("max_rows is a whole number, 0 or more")
    if fraction is not None and not 0 <= fraction <= 1:
        raise ValueError("max_fraction is between 0 and 1")
    if expectation.severity == "warn" and (rows is not None or fraction is not None):
        raise ValueError("a rule that only warns stops nothing: it takes no max_rows and no max_fraction")
    return expectation


def _check_choice(name: str, choice: object, other: str) -> None:
    if choice not in ("quarantine", other):
        hint = ""
        if isinstance(choice, bool) and other == "pass":
            hint = f'; for {choice} write "{"pass" if choice else "quarantine"}"'
        raise ValueError(f'{name}= is "quarantine" or "{other}", not {choice!r}{hint}')


def _column_names(argument: str, columns: object) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{argument} is the name of a column, not {columns!r}")
    return tuple(names)


def _words(reason: str | None, default: str) -> str:
    if reason is None:
        return default
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("the reason is empty or no text; leave it out for one that names the columns")
    return reason


def _join(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"{', '.join(columns[:-1])} and {columns[-1]}"


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


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
