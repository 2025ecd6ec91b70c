"""Schemas of pandera and dataframely as rules: what they report of a frame becomes one rule a reason.

Neither library is imported before a schema of it is at hand. They judge in their own way (null, NaN,
coercion); only which rows fail, and for what, is taken from them. No cell values.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any, Literal

import polars as pl

from astro_async._frames.columns import ROW_COLUMN
from astro_async._frames.verdict import RowRule
from astro_async.exceptions import RuleError

__all__ = ["find_schema_kind", "judge_by_schema"]

SchemaKind = Literal["pandera", "dataframely"]


def find_schema_kind(candidate: object) -> SchemaKind | None:
    """Say which library a schema is of, by the names of its classes; None if it is no schema."""
    classes = candidate.__mro__ if isinstance(candidate, type) else type(candidate).__mro__
    homes = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in classes}
    if isinstance(candidate, type):
        if "dataframely.Schema" in homes:
            return "dataframely"
        return "pandera" if "pandera.DataFrameModel" in homes else None
    return "pandera" if "pandera.DataFrameSchema" in homes else None


def judge_by_schema(schema: Any, frame: pl.LazyFrame) -> list[RowRule]:
    """Let a schema judge a frame, and return a rule with ready verdicts for each of its reasons.

    The frame is evaluated here and must give the same rows again when it is split. Pandera judges it whole
    and in memory. Dataframely streams, as far as its rules do.

    Raises:
        RuleError: The schema cannot be used, or does not fit the columns: no row is to blame.
    """
    kind = find_schema_kind(schema)
    name = getattr(schema, "__name__", None) or getattr(schema, "name", None) or type(schema).__name__
    library = _import_library("pandera.polars" if kind == "pandera" else "dataframely", str(name))
    try:
        if kind == "pandera":
            failing = _ask_pandera(library, schema, frame.collect(engine="streaming"), str(name))
        else:
            failing = _ask_dataframely(library, schema, frame, str(name))
        height = frame.select(pl.len()).collect(engine="streaming").item()
    except RuleError:
        raise
    except Exception as error:
        raise RuleError(
            f"the schema {name!r} raised {type(error).__name__}. Its message may show values, so it is left "
            "to the original error"
        ) from error
    rows = pl.int_range(height, dtype=pl.UInt32, eager=True)
    return [RowRule(reason, ~rows.is_in(bad.implode())) for reason, bad in failing.items()]


def _import_library(module: str, schema: str) -> Any:
    extra = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        raise RuleError(
            f"the schema {schema!r} needs {module}, which cannot be imported ({error}): "
            f"pip install 'astro-async[{extra}]'"
        ) from error


def _ask_dataframely(library: Any, schema: Any, frame: pl.LazyFrame, name: str) -> dict[str, pl.Series]:
    """Return, for each rule of a schema, the rows that break it."""
    # A schema takes away the columns that it does not name, so one that names the row numbers is made of it.
    numbered = type(schema)(name, (schema,), {ROW_COLUMN: library.UInt32(nullable=True)})
    numbered_frame = frame.with_row_index(ROW_COLUMN)
    try:
        failure = numbered.filter(numbered_frame).failure
        details = failure.details()
    except library.exc.SchemaError as error:
        raise RuleError(f"the schema {name!r} does not fit the columns: {error}") from error
    reasons = [column for column in details.columns if details.schema[column] == pl.Enum(_OUTCOMES)]
    source = set(frame.collect_schema())
    return {
        reason.replace("|", ": "): details.filter(pl.col(reason) == "invalid").get_column(ROW_COLUMN)
        for reason in reasons
        if reason not in source
    }


_OUTCOMES = ("valid", "invalid", "unknown")


def _ask_pandera(library: Any, schema: Any, frame: pl.DataFrame, name: str) -> dict[str, pl.Series]:
    """Return, for each check that some rows fail, those rows."""
    backend = copy.copy(schema) if not isinstance(schema, type) else schema.to_schema()  # type: ignore[attr-defined]
    if not isinstance(backend, library.DataFrameSchema):
        raise RuleError(f"the schema {name!r} is one of pandera, but not of pandera.polars")
    # It would take bad rows out in silence.
    backend.drop_invalid_rows = False
    try:
        backend.validate(frame, lazy=True)
    except library.errors.SchemaErrors as error:
        cases = error.failure_cases
    else:
        return {}
    of_frame = pl.col("column").is_null() | (pl.col("schema_context") == "DataFrameSchema")
    # Only of these two checks the failing "value" is the name of a column.
    names_column = pl.col("check").is_in(["column_in_dataframe", "column_in_schema"])
    reason = (
        pl.when(names_column)
        .then(pl.format("{}: {}", "failure_case", "check"))
        .when(of_frame)
        .then(pl.col("check"))
        .otherwise(pl.format("{}: {}", "column", "check"))
        .alias("reason")
    )
    found = cases.select(reason, pl.col("index").cast(pl.UInt32))
    if whole := found.filter(pl.col("index").is_null())["reason"].unique(maintain_order=True).to_list():
        raise RuleError(f"the schema {name!r} does not fit the frame as a whole: {'; '.join(whole)}")
    groups = found.unique(maintain_order=True).group_by("reason", maintain_order=True)
    return {str(key): rows.get_column("index") for (key,), rows in groups}
