"""Divide rows into good and bad by rules, in memory or streamed from disk to disk.

Rows are conserved: every row is on exactly one side, in input order, and this is asserted. Each rule is
evaluated exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN, refuse_reserved
from astro_async._frames.judge import (
    CompiledRule,
    blame_rules,
    compile_rules,
    evaluate_verdicts,
    number_and_judge,
)
from astro_async._frames.parquet import WrittenFrame
from astro_async._frames.partition import write_sides
from astro_async._frames.verdict import RowRule
from astro_async.exceptions import AstroError, ConservationError

__all__ = ["LazySplit", "RowSplit", "split_lazy", "split_rows"]

_SEPARATOR = "; "


@dataclass(frozen=True, slots=True, eq=False)
class RowSplit:
    """Both sides of a frame.

    Attributes:
        good: The good rows, with the columns of the frame.
        bad: The bad rows, with `_astro_quarantine_reason` (String) and `_astro_row` (UInt32: the position
            in the frame, from 0) behind the columns of the frame.
        counts: For each reason, how many rows it applies to; a row with two reasons counts for both.
        warnings: The same for rules that only warn. Their rows are good, unless another rule is broken.
    """

    good: pl.DataFrame
    bad: pl.DataFrame
    counts: dict[str, int]
    warnings: dict[str, int]


@dataclass(frozen=True, slots=True)
class LazySplit:
    """What `split_lazy` wrote; the columns are those of `RowSplit`. Without bad rows there is no bad file."""

    good: WrittenFrame
    bad: WrittenFrame
    counts: dict[str, int]
    warnings: dict[str, int]


def split_rows(frame: pl.DataFrame, rules: Sequence[RowRule]) -> RowSplit:
    """Divide a frame in memory into good and bad rows.

    Every row lands on exactly one side, in input order; each rule is evaluated once. The reasons of a bad
    row are joined with `"; "` in the order of the rules. Without rules all rows are good.

    Raises:
        RuleError: A rule is broken (see `check_row_wise`) or raised.
        StepError: The frame has a column with a reserved name.
    """
    refuse_reserved(frame.columns)
    compiled = compile_rules(rules, frame.schema)
    judged = evaluate_verdicts(frame, compiled)
    parking, warning = _by_severity(compiled)
    verdicts = judged.select(rule.column for rule in parking)
    is_good = _all_true(verdicts, frame.height)
    if is_good.all():
        # As on most days: nothing has to be taken apart.
        good, bad_verdicts = frame, verdicts.clear()
        bad = frame.clear().hstack(
            [pl.Series(REASON_COLUMN, [], pl.String), pl.Series(ROW_COLUMN, [], pl.UInt32)]
        )
    else:
        # The positions come before the filter: taken after it they would start at 0 again.
        rows = pl.int_range(frame.height, dtype=pl.UInt32, eager=True).alias(ROW_COLUMN)
        bad_verdicts = verdicts.filter(~is_good)
        bad = frame.filter(~is_good).with_columns(_join_reasons(bad_verdicts, parking), rows.filter(~is_good))
        good = frame.filter(is_good)
    _assert_conserved(frame.height, good.height, bad.height)
    return RowSplit(
        good=good,
        bad=bad,
        counts=_count_by_reason(parking, _count_broken(bad_verdicts, parking)),
        warnings=_count_by_reason(warning, _count_broken(judged, warning)),
    )


def split_lazy(frame: pl.LazyFrame, rules: Sequence[RowRule], *, good_path: str, bad_path: str) -> LazySplit:
    """Divide a plan into two Parquet files, as `split_rows` does, in one streamed pass over its input.

    Memory is bounded as that of `write_sides` is. Rules that look at the whole frame (`.over(…)`,
    `is_unique`) are right, but hold what they need in memory. When no row is bad, no file is written to
    `bad_path`. When anything fails, neither file is left.

    Limit: a Python function that returns one value for the whole frame is not found out here, where it is
    by `split_rows`; Polars spreads it over all rows.

    Raises:
        RuleError: A rule is broken (see `check_row_wise`), or the evaluation raised.
        StepError: The frame has a column with a reserved name, or one that Parquet cannot hold.
        StorageError: The disk refused.
    """
    schema = frame.collect_schema()
    refuse_reserved(schema.names())
    compiled = compile_rules(rules, schema)
    judged = number_and_judge(frame, compiled)
    tally = _Tally(schema.names(), *_by_severity(compiled))
    try:
        sides = write_sides(
            judged,
            tally.divide,
            true_schema=schema,
            false_schema=pl.Schema({**schema, REASON_COLUMN: pl.String(), ROW_COLUMN: pl.UInt32()}),
            true_path=good_path,
            false_path=bad_path,
        )
    except AstroError:
        # Told rightly already: the disk, or a column that Parquet cannot hold.
        raise
    except Exception as error:
        raise blame_rules(error, rules) from error
    return LazySplit(good=sides.true, bad=sides.false, counts=tally.count(), warnings=tally.count_warned())


def _by_severity(rules: Sequence[CompiledRule]) -> tuple[list[CompiledRule], list[CompiledRule]]:
    """Return the rules that set rows aside, and those that only warn."""
    return (
        [rule for rule in rules if not rule.rule.only_warns],
        [rule for rule in rules if rule.rule.only_warns],
    )


@dataclass(slots=True, eq=False)
class _Tally:
    """Divides batches, on any thread and in any order, and counts the broken rules meanwhile."""

    columns: list[str]
    parking: list[CompiledRule]
    warning: list[CompiledRule]
    broken: list[list[int]] = field(default_factory=list)
    warned: list[list[int]] = field(default_factory=list)

    def divide(self, batch: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        """Return which rows are good, and the bad ones with their reasons and positions."""
        is_good = _all_true(batch.select(rule.column for rule in self.parking), batch.height)
        bad = batch.filter(~is_good)
        self.broken.append(_count_broken(bad, self.parking))
        self.warned.append(_count_broken(batch, self.warning))
        return is_good, bad.select(*self.columns, _join_reasons(bad, self.parking), ROW_COLUMN)

    def count(self) -> dict[str, int]:
        """Return, for each reason, how many rows it applies to."""
        return _count_by_reason(self.parking, _add_up(self.broken, len(self.parking)))

    def count_warned(self) -> dict[str, int]:
        """Return the same for rules that only warn."""
        return _count_by_reason(self.warning, _add_up(self.warned, len(self.warning)))


def _add_up(batches: list[list[int]], width: int) -> list[int]:
    return [sum(batch) for batch in zip(*batches, strict=True)] or [0] * width


def _all_true(verdicts: pl.DataFrame, height: int) -> pl.Series:
    if not verdicts.width:
        return pl.repeat(True, height, dtype=pl.Boolean, eager=True)
    return verdicts.select(pl.all_horizontal(pl.all())).to_series()


def _join_reasons(verdicts: pl.DataFrame, rules: Sequence[CompiledRule]) -> pl.Series:
    """Join the reasons whose verdict is false; those that do not apply are null and left out."""
    if not rules:
        # Without rules nothing is bad, and a frame without columns has no height to go by.
        return pl.Series(REASON_COLUMN, [], dtype=pl.String)
    reasons = [pl.when(~pl.col(rule.column)).then(pl.lit(rule.rule.reason)) for rule in rules]
    joined = pl.concat_str(reasons, separator=_SEPARATOR, ignore_nulls=True)
    return verdicts.select(joined.alias(REASON_COLUMN)).to_series()


def _count_broken(verdicts: pl.DataFrame, rules: Sequence[CompiledRule]) -> list[int]:
    return [int((~verdicts.get_column(rule.column)).sum()) for rule in rules]


def _count_by_reason(rules: Sequence[CompiledRule], broken: Sequence[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rule, rows in zip(rules, broken, strict=True):
        counts[rule.rule.reason] = counts.get(rule.rule.reason, 0) + rows
    return counts


def _assert_conserved(rows_in: int, good: int, bad: int) -> None:
    if good + bad != rows_in:
        raise ConservationError(f"{rows_in} rows went in, but {good} good and {bad} bad rows came out")
