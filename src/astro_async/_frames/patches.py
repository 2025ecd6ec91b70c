"""Patches: what an operator decided about single rows, applied to what a step is given.

A patch holds rows as they were, where they stood in the snapshot, and what is to stand there instead. The
snapshot itself is never changed, so any number of retries gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from astro_async._frames.columns import RESERVED_PREFIX, ROW_COLUMN
from astro_async._frames.conform import conform_rows
from astro_async._frames.parquet import load_frame
from astro_async._frames.positions import describe_positions, find_positions
from astro_async.exceptions import QuarantineError, StepError

__all__ = [
    "IS_DISCARDED",
    "apply_patches",
    "build_patch",
    "count_decisions",
    "list_decisions",
    "load_patches",
    "merge_decisions",
]

IS_DISCARDED = "is_discarded"


_ORIGINAL = "original"
_REPLACEMENT = "replacement"
_THERE = f"{RESERVED_PREFIX}there"
_IS_PATCHED = f"{RESERVED_PREFIX}is_patched"
_MOST_RANGES = 100


def build_patch(
    original: pl.DataFrame, replacement: pl.DataFrame | None, positions: pl.Series, schema: pl.Schema
) -> pl.DataFrame:
    """Return a patch as one frame.

    Args:
        original: The rows as the step was given them, in the columns of `schema`.
        replacement: What is to stand there instead, row by row; None leaves the rows out.
        positions: Their positions in the snapshot, null where not known.
        schema: The columns of the snapshot.

    Returns:
        Columns `_astro_row` (UInt64), `original` and `replacement` (structs of `schema`; the replacement is
        null where the row is left out).

    Raises:
        QuarantineError: Rows lack columns, or values do not cast without loss.
        QuarantineError: Two rows have one position.
        ValueError: The lengths differ.
    """
    before = conform_rows(original, schema)
    after = None if replacement is None else conform_rows(replacement, schema)
    if len(positions) != before.height or (after is not None and after.height != before.height):
        raise ValueError("original, replacement and positions have different lengths")
    if positions.drop_nulls().is_duplicated().any():
        raise QuarantineError("two of the rows stand at one position: decide about each row once")
    struct = pl.Struct(dict(schema))
    new = (
        pl.Series(_REPLACEMENT, [None] * before.height, dtype=struct)
        if after is None
        else after.to_struct(_REPLACEMENT)
    )
    return pl.DataFrame([positions.cast(pl.UInt64).alias(ROW_COLUMN), before.to_struct(_ORIGINAL), new])


def load_patches(groups: Sequence[Sequence[str]]) -> list[pl.DataFrame]:
    """Load patches that apply one after the other; each group of paths makes one of them.

    Raises:
        StorageError: A patch cannot be read.
    """
    return [merge_decisions([load_frame(path) for path in group]) for group in groups]


def merge_decisions(patches: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Make one patch of those about rows that one attempt set aside: the later decision on a row counts.

    A patch of positions only withdraws what stands there. The first one is no such patch.
    """
    joined = pl.concat(patches, how="diagonal")
    is_last = pl.col(ROW_COLUMN).is_null() | pl.col(ROW_COLUMN).is_last_distinct()
    return joined.filter(is_last).filter(pl.col(_ORIGINAL).is_not_null())


def count_decisions(patch: pl.DataFrame) -> tuple[int, int]:
    """Return how many rows a patch amends, and how many it leaves out."""
    discarded = patch.get_column(_REPLACEMENT).null_count()
    return patch.height - discarded, discarded


def list_decisions(patches: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return which rows patches decide about; of patches about one position the last one counts.

    Returns:
        `_astro_row` (UInt64, each once, ascending) and `is_discarded` (Boolean).
    """
    empty = pl.DataFrame(schema={ROW_COLUMN: pl.UInt64, IS_DISCARDED: pl.Boolean})
    decided = [
        patch.select(ROW_COLUMN, pl.col(_REPLACEMENT).is_null().alias(IS_DISCARDED)) for patch in patches
    ]
    return (
        pl.concat([empty, *decided]).drop_nulls(ROW_COLUMN).unique(ROW_COLUMN, keep="last").sort(ROW_COLUMN)
    )


def apply_patches(snapshot: pl.LazyFrame, patches: Sequence[pl.DataFrame], *, withdraw: str) -> pl.LazyFrame:
    """Return the rows of a snapshot with patches applied in their order.

    A patch applies at its position if the content there is the original; else to as many equal rows as it
    holds. Order is kept. A value set to null lands.

    Args:
        snapshot: The unamended rows, streamed once for each patch and once for the result.
        patches: Made by `build_patch`.
        withdraw: The command that withdraws decisions, for the message where that is the way out.

    Returns:
        The columns of the snapshot behind `_astro_row` (UInt64), the position of each row in it.

    Raises:
        StepError: Rows of a patch are not there any more, or not that often.
    """
    schema = snapshot.collect_schema()
    frame = snapshot.with_row_index(ROW_COLUMN).with_columns(pl.col(ROW_COLUMN).cast(pl.UInt64))
    for patch in patches:
        if patch.is_empty():
            continue
        places = _locate(frame, patch, schema, withdraw)
        frame = _apply(frame, patch.with_columns(places), schema)
    return frame


def _locate(frame: pl.LazyFrame, patch: pl.DataFrame, schema: pl.Schema, withdraw: str) -> pl.Series:
    """Return the position, in the snapshot, of each row of a patch."""
    asked = patch.select(ROW_COLUMN, _ORIGINAL)
    there = (
        frame.join(asked.lazy().select(ROW_COLUMN).drop_nulls(), on=ROW_COLUMN, how="semi")
        .select(ROW_COLUMN, pl.struct(schema.names()).alias(_THERE))
        .collect(engine="streaming")
    )
    places = (
        asked.join(there, on=ROW_COLUMN, how="left", maintain_order="left")
        .select(
            pl.when(pl.col(_THERE).eq_missing(pl.col(_ORIGINAL)) & pl.col(_THERE).is_not_null())
            .then(ROW_COLUMN)
            .alias(ROW_COLUMN)
        )
        .get_column(ROW_COLUMN)
    )
    if not places.null_count():
        return places
    # Rows that moved: as many equal ones as are asked for, but none that is patched already.
    taken = places.drop_nulls().to_frame().lazy()
    rest = frame.join(taken, on=ROW_COLUMN, how="anti", maintain_order="left")
    moved = patch.filter(places.is_null()).get_column(_ORIGINAL).struct.unnest()
    index = find_positions(rest.drop(ROW_COLUMN), moved)
    if lost := index.null_count():
        rows = patch.filter(places.is_null()).filter(index.is_null()).get_column(ROW_COLUMN).drop_nulls()
        chosen = describe_positions(rows.sort().to_list(), most=_MOST_RANGES) if len(rows) else ""
        raise StepError(
            f"{lost} of {patch.height} decided rows are not in the file any more as they were, or not that "
            f"often: `{withdraw} {f'--rows {chosen}' if chosen else '--all'}` takes back what was decided "
            "about them"
        )
    remaining = rest.select(ROW_COLUMN).collect(engine="streaming").get_column(ROW_COLUMN)
    filled = places.to_list()
    free = iter(remaining.gather(index).to_list())
    return pl.Series(ROW_COLUMN, [next(free) if each is None else each for each in filled], dtype=pl.UInt64)


def _apply(frame: pl.LazyFrame, patch: pl.DataFrame, schema: pl.Schema) -> pl.LazyFrame:
    changed = patch.filter(pl.col(_REPLACEMENT).is_not_null())
    left_out = patch.filter(pl.col(_REPLACEMENT).is_null()).select(ROW_COLUMN)
    kept = frame.join(left_out.lazy(), on=ROW_COLUMN, how="anti", maintain_order="left")
    if changed.is_empty():
        return kept
    new = changed.lazy().select(ROW_COLUMN, _REPLACEMENT, pl.lit(True).alias(_IS_PATCHED))
    # By a flag and not by coalescing: a value set to null must land.
    return kept.join(new, on=ROW_COLUMN, how="left", maintain_order="left").select(
        ROW_COLUMN,
        *(
            pl.when(pl.col(_IS_PATCHED))
            .then(pl.col(_REPLACEMENT).struct.field(name))
            .otherwise(pl.col(name))
            .alias(name)
            for name in schema
        ),
    )
