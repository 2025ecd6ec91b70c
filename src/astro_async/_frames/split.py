"""Divide rows into good and bad by rules, in memory or streamed from disk to disk.

Rows are conserved: every row is on exactly one side, in input order, and this is asserted. Each rule is
evaluated exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from astro_async._frames.columns import REASON_COLUMN, RESERVED_PREFIX, ROW_COLUMN, refuse_reserved
from astro_async._frames.expression import selects_columns
from astro_async._frames.judge import (
    CompiledRule,
    add_verdicts,
    blame_rules,
    compile_rules,
    evaluate_verdicts,
)
from astro_async._frames.parquet import WrittenFrame, remove_files, scan_frame, write_frame
from astro_async._frames.partition import WrittenSides, write_sides
from astro_async._frames.verdict import RowRule
from astro_async.exceptions import AstroError, ConservationError

__all__ = ["LazySplit", "RowSplit", "split_lazy", "split_rows"]

_SEPARATOR = "; "
_KEY = f"{RESERVED_PREFIX}is_good"


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
    # The positions come before the filter: taken after it they would start at 0 again.
    rows = pl.int_range(frame.height, dtype=pl.UInt32, eager=True).alias(ROW_COLUMN)
    bad_verdicts = verdicts.filter(~is_good) if parking else verdicts
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

    Memory is bounded by a few batches and four bytes and some bits for each bad row. Rules that look at
    the whole frame (`.over(…)`, `is_unique`) are right, but hold what they need in memory. The bad rows
    pass over the disk twice, beside `bad_path`. When no row is bad, no file is written to `bad_path`. When
    anything fails, neither file is left.

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
    raw_path = f"{bad_path}.raw"
    parking, warning = _by_severity(compiled)
    tally = _Tally([rule.column for rule in parking], warning)
    judged = _add_verdicts_and_rows(frame, compiled).select(*schema.names(), tally.expression().alias(_KEY))
    try:
        sides = _write_sides(judged, rules, good_path, raw_path)
        verdicts = tally.bad_verdicts()
        _assert_conserved(tally.rows_seen, sides.true.rows, sides.false.rows)
        _assert_conserved(tally.rows_seen, sides.true.rows, verdicts.height)
        bad = _write_bad(raw_path, bad_path, verdicts, parking, len(schema) + 2)
    except BaseException:
        remove_files(good_path)
        raise
    finally:
        remove_files(raw_path)
    return LazySplit(
        good=sides.true,
        bad=bad,
        counts=_count_by_reason(parking, _count_broken(verdicts, parking)),
        warnings=_count_by_reason(warning, tally.warned()),
    )


def _add_verdicts_and_rows(frame: pl.LazyFrame, rules: Sequence[CompiledRule]) -> pl.LazyFrame:
    expressions = [part for rule in rules for part in (rule.rule.valid, rule.rule.when)]
    if any(selects_columns(part) for part in expressions if isinstance(part, pl.Expr)):
        # `pl.all()` in a rule must not see the row numbers.
        return add_verdicts(frame, rules).with_row_index(ROW_COLUMN)
    # Right at the scan, numbering the rows costs nothing; later it holds the batches up (1.4 times the time).
    return add_verdicts(frame.with_row_index(ROW_COLUMN), rules)


def _by_severity(rules: Sequence[CompiledRule]) -> tuple[list[CompiledRule], list[CompiledRule]]:
    """Return the rules that set rows aside, and those that only warn."""
    return (
        [rule for rule in rules if not rule.rule.only_warns],
        [rule for rule in rules if rule.rule.only_warns],
    )


@dataclass(slots=True, eq=False)
class _Tally:
    """Notes the verdicts of bad rows while they stream past, and counts what is only warned of.

    The sink writes the same columns to both sides, and the good side must not get ours. So positions and
    verdicts leave the plan here, through the one function that also makes the key; it is evaluated once for
    each batch, on any thread and in any order.
    """

    columns: list[str]
    warning: list[CompiledRule]
    rows_seen: int = 0
    batches: list[pl.DataFrame] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def expression(self) -> pl.Expr:
        warned = [rule.column for rule in self.warning]
        return pl.struct(ROW_COLUMN, *self.columns, *warned).map_batches(
            self._note, return_dtype=pl.Boolean(), is_elementwise=True
        )

    def _note(self, batch: pl.Series) -> pl.Series:
        verdicts = batch.struct.unnest()
        is_good = _all_true(verdicts.select(self.columns), len(batch))
        self.seen.append(len(batch))
        if self.warning:
            self.counts.append(_count_broken(verdicts, self.warning))
        if not is_good.all():
            self.batches.append(verdicts.select(ROW_COLUMN, *self.columns).filter(~is_good))
        return is_good

    def warned(self) -> list[int]:
        """Return, for each rule that only warns, how many rows break it."""
        return [sum(batch) for batch in zip(*self.counts, strict=True)] or [0] * len(self.warning)

    def bad_verdicts(self) -> pl.DataFrame:
        """Return the positions and verdicts of the bad rows, in input order."""
        self.rows_seen = sum(self.seen)
        empty = pl.DataFrame(schema={ROW_COLUMN: pl.UInt32, **dict.fromkeys(self.columns, pl.Boolean)})
        return pl.concat([empty, *self.batches]).sort(ROW_COLUMN)


def _write_sides(
    judged: pl.LazyFrame, rules: Sequence[RowRule], good_path: str, raw_path: str
) -> WrittenSides:
    try:
        return write_sides(judged, _KEY, true_path=good_path, false_path=raw_path)
    except AstroError:
        # Told rightly already: the disk, or a column that Parquet cannot hold.
        raise
    except Exception as error:
        raise blame_rules(error, rules) from error


def _write_bad(
    raw_path: str, bad_path: str, verdicts: pl.DataFrame, rules: Sequence[CompiledRule], columns: int
) -> WrittenFrame:
    """Put reasons and positions beside the bad rows, which both are in input order."""
    if verdicts.is_empty():
        return WrittenFrame(rows=0, columns=columns, size_bytes=0)
    ours = verdicts.select(_join_reasons(verdicts, rules), pl.col(ROW_COLUMN))
    return write_frame(pl.concat([scan_frame(raw_path), ours.lazy()], how="horizontal"), bad_path)


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
