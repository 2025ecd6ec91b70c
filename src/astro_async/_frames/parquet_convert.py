"""Take in a Parquet file: choose its columns, and change their types where nothing is lost by it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from polars._typing import PolarsDataType
from polars.exceptions import PanicException, PolarsError

from astro_async._frames.column_match import ColumnRules, compare_columns, refuse_differences
from astro_async._frames.columns import ROW_COLUMN, refuse_reserved
from astro_async._frames.csv_diagnosis import count_bad, explain_bad_values
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import name_columns
from astro_async._frames.csv_values import bad_name, is_text, read_leniently, refuse_bad
from astro_async._frames.dtypes import as_instance
from astro_async._frames.parquet import WrittenFrame, scan_frame, write_frame
from astro_async._frames.source_content import SourceFacts
from astro_async.exceptions import IngestError, StepError, StorageError

__all__ = ["convert_parquet"]


def convert_parquet(
    source: str,
    target: str,
    *,
    dialect: CsvDialect,
    schema: Mapping[str, PolarsDataType] | None,
    rules: ColumnRules,
    facts: SourceFacts,
) -> WrittenFrame:
    """Rewrite one Parquet file as the schema says, streamed.

    Text is read as text of a CSV file is. Another value is changed to its declared type only if it can be
    changed back. Without a schema, columns keep their types.

    Raises:
        IngestError: The file is damaged, or its columns or values are not what the schema says.
        StorageError: Target could not be written.
    """
    try:
        frame = scan_frame(source)
        types = frame.collect_schema()
        names = name_columns(types.names(), source, dialect)
        frame = frame.select(pl.col(old).alias(new) for old, new in zip(types.names(), names, strict=True))
        types = pl.Schema(zip(names, types.dtypes(), strict=True))
        wanted = types if schema is None else pl.Schema({n: as_instance(d) for n, d in schema.items()})
        refuse_reserved(types.names())
        difference = compare_columns(names, wanted)
        refuse_differences(difference, names, source, rules)
        facts.ignored, facts.inserted = difference.extra, difference.missing
        dialect.forms.check(wanted)
        changed = {name: dtype for name, dtype in wanted.items() if name in types and types[name] != dtype}
        # Text is a category as it is; no verdict is made of it.
        judged = [
            name for name, dtype in changed.items() if not (types[name] == pl.String and is_text(dtype))
        ]
        read = _read_changed(frame, types, changed, dialect)
        plan = read.select(
            pl.lit(None, dtype=dtype).alias(name)
            if name not in types
            else (refuse_bad(name) if name in judged else pl.col(name))
            for name, dtype in wanted.items()
        )
        try:
            return write_frame(plan, target)
        except PolarsError:
            verdicts = _read_changed(frame.with_row_index(ROW_COLUMN), types, changed, dialect)
            bad = count_bad(verdicts, judged) if judged else {}
            if not bad:
                raise
            raise explain_bad_values(
                source, bad, changed, dialect.forms, lambda row: f"row {row + 1}"
            ) from None
    except StepError as error:
        raise IngestError(f"{source}: {error}") from error
    except (PolarsError, PanicException):
        raise _damaged(source) from None
    except StorageError as error:
        if source in str(error) or target not in str(error):
            raise _damaged(source) from None
        raise


def _read_changed(
    frame: pl.LazyFrame, types: pl.Schema, changed: Mapping[str, pl.DataType], dialect: CsvDialect
) -> pl.LazyFrame:
    """Read columns as other types, with a verdict for each value, as `read_leniently` has them."""
    texts = {name: dtype for name, dtype in changed.items() if types[name] == pl.String}
    others = {name: dtype for name, dtype in changed.items() if name not in texts}
    frame = read_leniently(frame, texts, dialect.nulls, dialect.forms)
    return frame.with_columns(
        expression
        for name, dtype in others.items()
        for expression in (
            pl.col(name).cast(dtype, strict=False).alias(name),
            _is_lost(pl.col(name), types[name], dtype).alias(bad_name(name)),
        )
    )


def _is_lost(column: pl.Expr, given: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    there = column.cast(wanted, strict=False)
    return column.is_not_null() & there.cast(given, strict=False).ne_missing(column)


def _damaged(source: str) -> IngestError:
    return IngestError(
        f"{source} could not be read as Parquet: it is damaged or was cut off. Ask for the file again."
    )
