"""What authors state of good rows, as values: expectations, and rules made of them.

Nothing is evaluated here. How expectations are written is in `rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import polars as pl

from astro_async._frames.schema_rules import find_schema_kind, judge_by_schema
from astro_async._frames.verdict import RowRule, describe_missing
from astro_async.exceptions import RuleError

__all__ = [
    "Choice",
    "Expectation",
    "ForeignKey",
    "Rules",
    "SchemaLike",
    "Severity",
    "compile_expectation",
    "compile_rule_set",
    "flatten_rules",
]

Choice: TypeAlias = Literal["quarantine", "pass"]
Severity: TypeAlias = Literal["quarantine", "warn"]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The key of a row is a key of another file of the step.

    Attributes:
        columns: The columns of the key.
        file: The ingest name of the other file.
        other_columns: Their counterparts there.
    """

    columns: tuple[str, ...]
    file: str
    other_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """A reason, and what is true for good rows. Made by `expect` and its kin.

    Attributes:
        reason: What is wrong with a row that does not pass.
        valid: What is true for good rows.
        null: What a null verdict means.
        nan: What NaN in a floating column named by `valid` means.
        severity: Whether bad rows are set aside, or counted and left where they are.
        when: Which rows the rule is about; None means all.
        max_rows: Strictly more bad rows and the step is `failed`.
        max_fraction: The same as a share of the rows of each file.
        nan_is_value: Where `nan` is "pass", NaN is compared as a value instead of excused.
    """

    reason: str
    valid: pl.Expr | ForeignKey
    null: Choice
    nan: Choice
    severity: Severity = "quarantine"
    when: pl.Expr | None = None
    max_rows: int | None = None
    max_fraction: float | None = None
    nan_is_value: bool = False


class SchemaLike(Protocol):
    """A schema of pandera.polars (a `DataFrameModel` or `DataFrameSchema`) or of dataframely."""

    def validate(self, *args: Any, **kwargs: Any) -> Any:
        """Validate a frame."""


Rules: TypeAlias = "Expectation | SchemaLike | type[Any] | Sequence[Rules]"
"""An expectation, a schema of pandera or dataframely, or a sequence of rules."""


def flatten_rules(rules: object) -> Iterator[Expectation | Any]:
    """Yield the expectations and schemas of rules, in order.

    Raises:
        TypeError: Something of it is no rule.
    """
    if isinstance(rules, Expectation) or find_schema_kind(rules) is not None:
        yield rules
    elif isinstance(rules, Sequence) and not isinstance(rules, str | bytes):
        for each in rules:
            yield from flatten_rules(each)
    else:
        raise TypeError(
            f"{_describe(rules)} is no rule: write expect('reason', pl.col('x') > 0), or give a schema of "
            "pandera.polars or dataframely"
        )


def compile_expectation(
    expectation: Expectation, scan_file: Callable[[str], pl.LazyFrame] | None = None
) -> RowRule:
    """Make of an expectation the rule that the split understands.

    Args:
        expectation: The expectation.
        scan_file: Returns a plan over another file of the step. Only `expect_foreign` asks for it.

    Raises:
        RuleError: The other file, or a column of it, is not there.
    """
    valid = expectation.valid
    if isinstance(valid, ForeignKey):
        if scan_file is None:
            raise RuleError(f"the rule {expectation.reason!r} needs the files of a step")
        valid = _load_keys(expectation.reason, valid, scan_file(valid.file))
    nan_passes = expectation.nan == "pass"
    return RowRule(
        reason=expectation.reason,
        valid=valid,
        null_is_good=expectation.null == "pass",
        nan_is_good=nan_passes,
        nan_is_value=nan_passes and expectation.nan_is_value,
        when=expectation.when,
        only_warns=expectation.severity == "warn",
    )


def compile_rule_set(
    rules: Sequence[Expectation | Any], frame: pl.LazyFrame, scan_file: Callable[[str], pl.LazyFrame]
) -> list[RowRule]:
    """Make of expectations and schemas the rules that the split understands.

    With a schema among them the frame is evaluated: see `judge_by_schema`.

    Raises:
        RuleError: As `compile_expectation` and `judge_by_schema`.
    """
    compiled: list[RowRule] = []
    for rule in rules:
        if isinstance(rule, Expectation):
            compiled.append(compile_expectation(rule, scan_file))
        else:
            compiled += judge_by_schema(rule, frame)
    return compiled


def _load_keys(reason: str, key: ForeignKey, other: pl.LazyFrame) -> pl.Expr:
    """Return an expression that looks keys up; it holds the distinct keys of the other file."""
    schema = other.collect_schema()
    if missing := [name for name in key.other_columns if name not in schema]:
        raise RuleError(f"the rule {reason!r}, in file {key.file!r}, {describe_missing(missing, schema)}")
    columns = [pl.col(name).alias(own) for own, name in zip(key.columns, key.other_columns, strict=True)]
    # A key with a null in it is no key.
    keys = other.select(columns).drop_nulls().unique().collect(engine="streaming")
    is_known = pl.all_horizontal(pl.col(name).is_not_null() for name in key.columns)
    if len(key.columns) == 1:
        found = pl.col(key.columns[0]).is_in(keys.to_series().implode())
    else:
        found = pl.struct(key.columns).is_in(keys.to_struct().implode())
    return pl.when(is_known).then(found)


def _describe(rules: object) -> str:
    if isinstance(rules, pl.Expr):
        return "an expression alone"
    return f"{rules!r}" if isinstance(rules, type) else type(rules).__name__
