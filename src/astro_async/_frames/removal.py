"""Filters: divide rows into kept and removed.

A null verdict keeps the row, whichever way the filter is put. Order is kept on both sides.
"""

from __future__ import annotations

import polars as pl

from astro_async._frames.columns import RESERVED_PREFIX, refuse_reserved
from astro_async._frames.judge import CompiledRule, blame_rules, evaluate_verdicts, number_and_judge
from astro_async._frames.partition import WrittenSides, write_sides
from astro_async._frames.positions import find_positions
from astro_async._frames.verdict import RowRule, check_row_wise
from astro_async.exceptions import AstroError, StepError

__all__ = ["split_removed", "split_removed_lazy", "split_twins"]


def split_removed(
    frame: pl.DataFrame, verdict: pl.Expr, *, remove: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide a frame into the rows that are kept and those that are removed, as `split_removed_lazy` does.

    Raises:
        RuleError: The verdict is broken (see `check_row_wise`), or the evaluation raised.
        StepError: The frame has a column with a reserved name.
    """
    refuse_reserved(frame.columns)
    rule = _compile_filter(verdict, frame.schema, remove=remove)
    marked = evaluate_verdicts(frame, [rule]).get_column(rule.column)
    is_kept = ~marked if remove else marked
    if is_kept.all():
        return frame, frame.clear()
    return frame.filter(is_kept), frame.filter(~is_kept)


def split_removed_lazy(
    frame: pl.LazyFrame, verdict: pl.Expr, *, remove: bool, kept_path: str, removed_path: str
) -> WrittenSides:
    """Divide a plan into two Parquet files, in one streamed pass over its input.

    When nothing is removed, no file is written to `removed_path`. When anything fails, neither is left.

    Args:
        frame: The rows.
        verdict: A Boolean expression about one row; evaluated once. NaN is judged as Polars compares.
        remove: Whether the verdict is true for rows to remove; otherwise it is true for rows to keep.
        kept_path: Where the kept rows go.
        removed_path: Where the removed rows go.

    Returns:
        The kept rows as the true side, the removed ones as the false side.

    Raises:
        RuleError: The verdict is broken (see `check_row_wise`), or the evaluation raised.
        StepError: The frame has a column with a reserved name, or one that Parquet cannot hold.
        StorageError: The disk refused.
    """
    schema = frame.collect_schema()
    refuse_reserved(schema.names())
    rule = _compile_filter(verdict, schema, remove=remove)

    def divide(batch: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
        marked = batch.get_column(rule.column)
        is_kept = ~marked if remove else marked
        return is_kept, batch.select(schema.names()).filter(~is_kept)

    try:
        return write_sides(
            number_and_judge(frame, [rule]),
            divide,
            true_schema=schema,
            false_schema=schema,
            true_path=kept_path,
            false_path=removed_path,
        )
    except AstroError:
        raise
    except Exception as error:
        raise blame_rules(error, [rule.rule]) from error


def split_twins(frame: pl.DataFrame, removed_rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Divide a frame by the rows that a filter function returned for removal.

    Rows are found by content and occurrence: where one of two identical twins was returned, exactly the
    first is removed. Null and NaN equal themselves.

    Returns:
        The kept rows and the removed rows, both in the order of `frame`.

    Raises:
        StepError: Returned rows are not in the frame, or lack columns of it.
    """
    positions = find_positions(frame, removed_rows)
    if unknown := positions.null_count():
        raise StepError(
            f"the filter returned {unknown} of {len(positions)} rows that are not in the frame as it was "
            f"given, or not that often; return the rows to remove unchanged"
        )
    rows = pl.int_range(frame.height, dtype=pl.UInt64, eager=True)
    is_removed = rows.is_in(positions.implode())
    return frame.filter(~is_removed), frame.filter(is_removed)


def _compile_filter(verdict: pl.Expr, schema: pl.Schema, *, remove: bool) -> CompiledRule:
    # True is "remove" in one way of putting it and "keep" in the other; null must keep in both.
    rule = RowRule(reason="filter", valid=verdict, null_is_good=not remove)
    check_row_wise(rule, schema)
    return CompiledRule(rule=rule, column=f"{RESERVED_PREFIX}marked", nan_columns=(), read_columns=())
