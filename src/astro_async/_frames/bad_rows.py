"""Park the rows of a text that cannot be read, and keep the others, in their order.

For a source that the fast passes have refused. Its records are walked twice: to copy those without faults,
of which Polars then judges the values, and to write down those that are bad, in the order of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from astro_async._frames.column_match import ColumnRules, compare_columns, refuse_differences
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.csv_diagnosis import BadValuesError, scan_as_text
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import CsvLayout
from astro_async._frames.csv_text import encode_row, write_temporary
from astro_async._frames.csv_values import bad_name, describe_type, is_text, read_leniently
from astro_async._frames.escapes import has_escapes, show_escapes
from astro_async._frames.parquet import (
    WrittenFrame,
    count_rows,
    iter_frame,
    remove_files,
    scan_frame,
    write_frame,
)
from astro_async._frames.source_content import SourceFacts
from astro_async._frames.source_records import SourceRecord
from astro_async.exceptions import IngestError

__all__ = ["PART_SCHEMA", "BadRowPolicy", "ParkedPart", "Parking"]

PART_SCHEMA: Final = pl.Schema(
    {
        "source_file": pl.String(),
        "line": pl.UInt64(),
        "next_line": pl.UInt64(),
        "raw_text": pl.String(),
        REASON_COLUMN: pl.String(),
    }
)
_CHUNK_BYTES: Final = 1 << 20
_BATCH_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class BadRowPolicy:
    """How many rows of a source may be parked; strictly more, and it is refused.

    Attributes:
        max_rows: So many; None for any number.
        max_fraction: That share of its rows, from 0 to 1; None for any.
    """

    max_rows: int | None = None
    max_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ParkedPart:
    """What was parked of one source.

    Attributes:
        path: The Parquet file, with the columns of `PART_SCHEMA`.
        rows: How many rows.
        size_bytes: Size of the file.
        rows_in: How many rows the source has, good and parked.
        reasons: For each reason the number of rows that it applies to.
    """

    path: str
    rows: int
    size_bytes: int
    rows_in: int
    reasons: Mapping[str, int]


@dataclass(slots=True)
class Parking:
    """One source with rows to park.

    Attributes:
        source: The source, as messages call it.
        file_name: The name of its file, as the part has it.
        target: The Parquet file for the good rows, which must not exist yet.
        claim_part: Returns the path for the part; called once there is something to park.
        policy: How many rows may be parked.
        records: Walks the records of the source; called twice.
        layout: The columns of those without faults.
        dialect: How those are written; UTF-8 with line feeds.
        schema: The columns to keep, checked; None keeps all, as String.
        rules: What becomes of columns that only one of source and schema has.
        error: Why the source was refused.
    """

    source: str
    file_name: str
    target: str
    claim_part: Callable[[], str]
    policy: BadRowPolicy
    records: Callable[[], Iterator[SourceRecord]]
    layout: CsvLayout
    dialect: CsvDialect
    schema: pl.Schema | None
    rules: ColumnRules
    error: IngestError
    _good: int = field(default=0, init=False)
    _faulty: int = field(default=0, init=False)

    def run(self, facts: SourceFacts) -> tuple[WrittenFrame, ParkedPart]:
        """Write the good rows and the parked ones; neither file is there after an error.

        Raises:
            IngestError: Too many rows are bad, or what is wrong with the source is not in single rows.
            StorageError: The disk refuses.
        """
        names = self.layout.names
        schema = pl.Schema(dict.fromkeys(names, pl.String())) if self.schema is None else self.schema
        difference = compare_columns(names, schema)
        refuse_differences(difference, names, self.source, self.rules)
        facts.ignored, facts.inserted = difference.extra, difference.missing
        present = {name: dtype for name, dtype in schema.items() if name in names}
        typed = {name: dtype for name, dtype in present.items() if not is_text(dtype)}
        judged = f"{self.target}.judged"
        try:
            with write_temporary(self._copy_good(), beside=self.target) as copy:
                self._judge(copy, schema, present, typed, judged)
            is_bad = pl.any_horizontal(pl.lit(False), *(pl.col(bad_name(name)) for name in typed))
            bad = scan_frame(judged).select(is_bad.sum()).collect(engine="streaming").item()
            parked, rows_in = self._faulty + bad, self._good + self._faulty
            if not parked:
                raise self.error
            self._refuse_too_many(parked, rows_in)
            written = write_frame(scan_frame(judged).filter(~is_bad).select(list(schema)), self.target)
            rows = scan_frame(judged).with_row_index(ROW_COLUMN).filter(is_bad)
            return written, self._write_part(rows, typed, rows_in)
        except BaseException:
            remove_files(self.target)
            raise
        finally:
            remove_files(judged)

    def _copy_good(self) -> Iterator[bytes]:
        """Yield the rows of the records without faults, in chunks."""
        chunk: list[bytes] = []
        size = 0
        for record in self.records():
            if record.faults:
                self._faulty += 1
                if self.policy.max_rows is not None and self._faulty > self.policy.max_rows:
                    self._refuse_too_many(self._faulty, None)
                continue
            self._good += 1
            chunk.append(record.row)
            size += len(record.row)
            if size > _CHUNK_BYTES:
                yield b"".join(chunk)
                chunk.clear()
                size = 0
        yield b"".join(chunk)

    def _judge(
        self,
        copy: str,
        schema: pl.Schema,
        present: Mapping[str, pl.DataType],
        typed: Mapping[str, pl.DataType],
        judged: str,
    ) -> None:
        """Write the columns of the schema, and for each column of values which rows of it are bad."""
        layout = replace(self.layout, first_line=0)
        frame = scan_as_text(copy, dialect=self.dialect, layout=layout, types={})
        frame = read_leniently(frame, present, self.dialect.nulls, self.dialect.forms)
        columns = [
            pl.col(name) if name in present else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in schema.items()
        ]
        try:
            write_frame(frame.select(*columns, *(pl.col(bad_name(name)) for name in typed)), judged)
        except PolarsError:
            # Its own error quotes the cell.
            raise self.error from None
        if count_rows(judged) != self._good:
            # The reader sees other records: then nobody can say which row a verdict is about.
            raise self.error

    def _refuse_too_many(self, parked: int, rows_in: int | None) -> None:
        limits, policy = [], self.policy
        if policy.max_rows is not None and parked > policy.max_rows:
            limits.append(f"max_bad_rows={policy.max_rows}")
        if policy.max_fraction is not None and rows_in and parked > policy.max_fraction * rows_in:
            limits.append(f"max_bad_fraction={policy.max_fraction:g}")
        if not limits:
            return
        count = "more rows" if rows_in is None else f"{parked:,} of {rows_in:,} rows"
        message = f"{self.error} Nothing is parked: {count} would be, and {' and '.join(limits)} allows less."
        if isinstance(self.error, BadValuesError):
            raise BadValuesError(message, self.error.columns)
        raise IngestError(message)

    def _write_part(self, bad: pl.LazyFrame, typed: Mapping[str, pl.DataType], rows_in: int) -> ParkedPart:
        reasons: Counter[str] = Counter()
        with write_temporary(self._encode_parked(bad, typed, reasons), beside=self.target) as copy:
            frame = pl.scan_csv(copy, has_header=False, schema=PART_SCHEMA, glob=False, raise_if_empty=False)
            path = self.claim_part()
            written = write_frame(frame, path)
        return ParkedPart(path, written.rows, written.size_bytes, rows_in, dict(reasons))

    def _encode_parked(
        self, bad: pl.LazyFrame, typed: Mapping[str, pl.DataType], reasons: Counter[str]
    ) -> Iterator[bytes]:
        words = {
            name: f"column {name!r}: not {describe_type(name, dtype, self.dialect.forms)}"
            for name, dtype in typed.items()
        }
        verdicts = _iter_verdicts(bad, list(typed))
        next_bad = next(verdicts, None)
        position = 0
        for record in self.records():
            why = record.faults
            if not why:
                if next_bad is not None and next_bad[0] == position:
                    why = tuple(words[name] for name in next_bad[1])
                    next_bad = next(verdicts, None)
                position += 1
            if why:
                reasons.update(why)
                cells = (self.file_name, str(record.line), str(record.next_line), _show(record.raw))
                yield encode_row((*cells, "; ".join(why))).encode()


def _iter_verdicts(bad: pl.LazyFrame, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the position of each bad row, and its bad columns."""
    if not names:
        return
    for batch in iter_frame(bad.select(ROW_COLUMN, *map(bad_name, names)), _BATCH_ROWS):
        for position, *verdicts in batch.iter_rows():
            yield position, [name for name, verdict in zip(names, verdicts, strict=True) if verdict]


def _show(raw: bytes) -> str:
    """Return the bytes of a record as text, without the line end after it."""
    text = raw.decode("utf-8", "surrogatepass")
    text = text.removesuffix("\n").removesuffix("\r")
    return show_escapes(text) if has_escapes(text) else text
