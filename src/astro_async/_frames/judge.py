"""Evaluate rules: one Boolean column a rule, true for good rows, never null.

Every rule is evaluated exactly once. What Polars or a Python function raises meanwhile becomes a
`RuleError` that names the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
from polars.exceptions import PolarsError, SchemaError, ShapeError

from astro_async._frames.columns import RESERVED_PREFIX, ROW_COLUMN
from astro_async._frames.expression import calls_python, columns_read, selects_columns
from astro_async._frames.verdict import RowRule, check_row_wise, floats_judged_for_nan
from astro_async.exceptions import RuleError

__all__ = ["CompiledRule", "blame_rules", "compile_rules", "evaluate_verdicts", "number_and_judge"]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule checked against a schema, with the names of the columns its verdict needs."""

    rule: RowRule
    column: str
    nan_columns: tuple[str, ...]
    read_columns: tuple[str, ...]
    when_column: str | None = None

    @property
    def blanked_columns(self) -> tuple[str, ...]:
        """Columns whose NaN the expression must see as null, so that another fault of the row still shows."""
        return self.nan_columns if self.rule.nan_is_good else ()

    def is_good(self) -> pl.Expr:
        """Turn the verdict of the expression, in `column`, into true or false: never null."""
        if self.when_column is None:
            return self._is_good_itself()
        return ~pl.col(self.when_column).fill_null(False) | self._is_good_itself()

    def _is_good_itself(self) -> pl.Expr:
        verdict = pl.col(self.column)
        if not self.nan_columns:
            return verdict.fill_null(self.rule.null_is_good)
        has_nan = pl.any_horizontal(pl.col(name).is_nan().fill_null(False) for name in self.nan_columns)
        if not self.rule.nan_is_good:
            return verdict.fill_null(self.rule.null_is_good) & ~has_nan
        if self.rule.null_is_good:
            return verdict.fill_null(True)
        # A null verdict may come of the NaN or of a null beside it, and only the NaN is excused.
        has_null = pl.any_horizontal(pl.col(name).is_null() for name in self.read_columns)
        return verdict.fill_null(has_nan & ~has_null)


def compile_rules(rules: Sequence[RowRule], schema: pl.Schema) -> list[CompiledRule]:
    """Check every rule against a schema and give each its verdict column.

    Raises:
        RuleError: As `check_row_wise`.
    """
    compiled = []
    for number, rule in enumerate(rules):
        check_row_wise(rule, schema)
        compiled.append(
            CompiledRule(
                rule=rule,
                column=f"{RESERVED_PREFIX}good_{number}",
                nan_columns=tuple(floats_judged_for_nan(rule, schema)),
                read_columns=(
                    tuple(columns_read(rule.valid, schema)) if isinstance(rule.valid, pl.Expr) else ()
                ),
                when_column=None if rule.when is None else f"{RESERVED_PREFIX}when_{number}",
            )
        )
    return compiled


def evaluate_verdicts(frame: pl.DataFrame, rules: Sequence[CompiledRule]) -> pl.DataFrame:
    """Evaluate each rule once over a frame; the result has one Boolean column a rule and no nulls.

    Raises:
        RuleError: A rule raised, is not Boolean after all, or gave another number of verdicts than rows.
    """
    verdicts: list[pl.Series] = []
    for blanked, group in _group_by_blanked(rules):
        prepared = frame.with_columns(pl.col(name).fill_nan(None) for name in blanked)
        # A Python function is evaluated by itself: Polars would spread one value over all rows in silence
        # beside other columns, and only a lone function is sure to be the one that raised.
        python = [each for each in group if calls_python(each.expr)]
        batches = [[each] for each in python] + [[each for each in group if each not in python]]
        for batch in filter(None, batches):
            verdicts += _evaluate_batch(prepared, batch, alone=batch[0] in python)
    judged = frame.hstack([*verdicts, *_made_elsewhere(rules)])
    return judged.select(rule.is_good().alias(rule.column) for rule in rules)


def number_and_judge(frame: pl.LazyFrame, rules: Sequence[CompiledRule]) -> pl.LazyFrame:
    """Add to a plan the number of each row, `_astro_row`, and one Boolean column a rule, without nulls."""
    expressions = [part for rule in rules for part in _parts(rule.rule)]
    if any(map(selects_columns, expressions)):
        # `pl.all()` in a rule must not see the row numbers.
        return _add_verdicts(frame, rules).with_row_index(ROW_COLUMN)
    # Right at the scan, numbering the rows costs nothing; later it holds the batches up (1.4 times the time).
    return _add_verdicts(frame.with_row_index(ROW_COLUMN), rules)


def _add_verdicts(plan: pl.LazyFrame, rules: Sequence[CompiledRule]) -> pl.LazyFrame:
    """Add to a plan one Boolean column a rule, without nulls; the other columns stay as they are.

    `pl.all()` in a rule means all that is there: unless no rule selects columns, the plan must hold those of
    the frame and no others.
    """
    source = plan.collect_schema().names()
    for blanked, group in _group_by_blanked(rules):
        if not blanked:
            plan = plan.with_columns(each.expr.alias(each.column) for each in group)
            continue
        kept = {f"{RESERVED_PREFIX}kept_{number}": name for number, name in enumerate(blanked)}
        plan = plan.with_columns(pl.col(name).alias(copy) for copy, name in kept.items())
        plan = plan.with_columns(pl.col(name).fill_nan(None) for name in blanked)
        plan = plan.with_columns(_hide_ours(each.expr, source).alias(each.column) for each in group)
        plan = plan.with_columns(pl.col(copy).alias(name) for copy, name in kept.items()).drop(kept)
    if made := _made_elsewhere(rules):
        plan = pl.concat([plan, pl.LazyFrame(made)], how="horizontal")
    return plan.with_columns(rule.is_good().alias(rule.column) for rule in rules)


@dataclass(frozen=True, slots=True, eq=False)
class _Judgement:
    """One expression to evaluate: what a rule says of good rows, or which rows it is about."""

    rule: RowRule
    expr: pl.Expr
    column: str


def _made_elsewhere(rules: Sequence[CompiledRule]) -> list[pl.Series]:
    return [rule.rule.valid.alias(rule.column) for rule in rules if isinstance(rule.rule.valid, pl.Series)]


def _hide_ours(valid: pl.Expr, source: list[str]) -> pl.Expr:
    """Let an expression that selects by pattern or dtype see the source's columns only, not ours beside them.

    The frame is then held in memory; expressions that name their columns stream.
    """
    if not selects_columns(valid):
        return valid

    def judge(rows: pl.Series) -> pl.Series:
        return rows.struct.unnest().select(valid).to_series()

    return pl.struct(source).map_batches(judge, return_dtype=pl.Boolean())


def blame_rules(error: Exception, rules: Sequence[RowRule]) -> RuleError:
    """Make the `RuleError` for what an evaluation raised, naming the rule, or all that it may have been.

    Raise it from `error`. The message holds no cell values.
    """
    suspects = list(rules)
    if len(suspects) > 1:
        # Polars names the failing expression at the end of its message, when it knows it.
        parts = str(error).rpartition("following expression:")
        named = parts[2].strip() if parts[1] else ""
        by_text = [rule for rule in suspects if named and any(named in str(part) for part in _parts(rule))]
        by_kind = [rule for rule in suspects if any(map(calls_python, _parts(rule)))]
        suspects = by_text or (by_kind if not isinstance(error, PolarsError) else []) or suspects
    names = " or ".join(dict.fromkeys(repr(rule.reason) for rule in suspects))
    # Polars quotes cells in what it says of failed casts, as an author's function may; shapes are harmless.
    told = isinstance(error, ShapeError | SchemaError)
    detail = f": {error}" if told else ". Its message may show values, so it is left to the original error"
    return RuleError(f"the rule {names} raised {type(error).__name__}{detail}")


def _parts(rule: RowRule) -> list[pl.Expr]:
    return [part for part in (rule.valid, rule.when) if isinstance(part, pl.Expr)]


def _group_by_blanked(
    rules: Sequence[CompiledRule],
) -> Iterator[tuple[tuple[str, ...], list[_Judgement]]]:
    # Those that see the frame as it is come first, while no column of ours stands beside it.
    groups: dict[tuple[str, ...], list[_Judgement]] = {(): []}
    for compiled in rules:
        rule = compiled.rule
        if rule.when is not None and compiled.when_column is not None:
            groups[()].append(_Judgement(rule, rule.when, compiled.when_column))
        if isinstance(rule.valid, pl.Expr):
            judgement = _Judgement(rule, rule.valid, compiled.column)
            groups.setdefault(compiled.blanked_columns, []).append(judgement)
    yield from ((blanked, group) for blanked, group in groups.items() if group)


def _evaluate_batch(frame: pl.DataFrame, batch: list[_Judgement], *, alone: bool) -> list[pl.Series]:
    row = [] if alone else [pl.int_range(pl.len(), dtype=pl.UInt32).alias(f"{RESERVED_PREFIX}height")]
    try:
        # The row numbers give the select the height of the frame, whatever the rules are.
        found = frame.select(*(each.expr.alias(each.column) for each in batch), *row)
    except Exception as error:
        raise blame_rules(error, [each.rule for each in batch]) from error
    for each in batch:
        _check_verdict(found.get_column(each.column), frame.height, each.rule)
    return [found.get_column(each.column) for each in batch]


def _check_verdict(verdict: pl.Series, height: int, rule: RowRule) -> None:
    if len(verdict) != height:
        raise RuleError(f"the rule {rule.reason!r} gave {len(verdict)} verdicts for {height} rows")
    if verdict.dtype != pl.Boolean:
        raise RuleError(f"the rule {rule.reason!r} gave {verdict.dtype}, not Boolean")
