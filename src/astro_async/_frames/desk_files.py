"""The files in which parked rows go out to a person and come back: CSV, Parquet, XLSX.

Beside the columns of the file they have `_astro_row` and the reason. In CSV an unquoted empty field is null
and `""` is empty text. In XLSX every cell is text, so that no spreadsheet reformats it; an empty cell
is null, and a cell with two quote characters is empty text. Cells that became dates there are read as such.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, Final, Literal

import polars as pl
from polars.exceptions import PolarsError

from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.conform import conform_rows
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_records import find_line, iter_odd_records
from astro_async._frames.desk_text import describe_text, format_values, parse_values
from astro_async._frames.parquet import load_frame
from astro_async.exceptions import DeskError, QuarantineError, StorageError

__all__ = ["FORMATS", "GivenRows", "Separator", "file_format", "read_rows", "write_rows"]

Separator = Literal[",", ";"]

FORMATS: Final = ("csv", "parquet", "xlsx")

_EMPTY_CELL: Final = '""'
_MOST_PLACES: Final = 5
_MOST_NAMES: Final = 8
_INSTALL: Final = "XLSX needs more packages: pip install 'astro-async[xlsx]', or use .csv or .parquet"


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows that came back.

    Attributes:
        path: The file.
        rows: `_astro_row` (UInt64) and the columns of the file, with its dtypes.
        place: Says where in the file the n-th row is, such as `line 3`.
    """

    path: str
    rows: pl.DataFrame
    place: Callable[[int], str]


def file_format(path: str) -> str:
    """Return `csv`, `parquet` or `xlsx`, by the ending of a name.

    Raises:
        DeskError: It has another.
    """
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending not in FORMATS:
        raise DeskError(f"{path} ends as none of {', '.join(f'.{each}' for each in FORMATS)}: name it so")
    return ending


def write_rows(
    rows: pl.DataFrame, file: IO[bytes], kind: str, *, separator: Separator = ",", has_mark: bool = False
) -> None:
    """Write rows so that `read_rows` gives the same again.

    Raises:
        DeskError: The format cannot hold a column, or needs a package that is not installed.
    """
    if kind == "parquet":
        rows.write_parquet(file)
        return
    texts = format_values(rows)
    _refuse_losses(rows, texts, kind)
    if kind == "csv":
        texts.write_csv(file, separator=separator, include_bom=has_mark, quote_style="necessary")
    else:
        _write_workbook(texts, file)


def read_rows(path: str, schema: pl.Schema) -> GivenRows:
    """Read rows that a person may have edited, with the dtypes of the file they belong to.

    Raises:
        DeskError: The file cannot be read, has other columns, or a value is none of its type. The message
            names file, line and column, and never the value.
    """
    kind = file_format(path)
    if not os.path.isfile(path):
        raise DeskError(f"{path} does not exist: name the file that `astro quarantine export` wrote")
    if kind == "parquet":
        return _read_parquet(path, schema)
    texts, place = _read_csv(path, schema) if kind == "csv" else _read_workbook(path, schema)
    _check_columns(path, texts.columns, schema)
    numbered = texts.with_row_index("\0place").filter(~pl.all_horizontal(pl.col(texts.columns).is_null()))
    places = numbered["\0place"].to_list()

    def place_of(row: int) -> str:
        return place(places[row])

    full = {ROW_COLUMN: pl.UInt64(), **schema}
    values, bad = parse_values(numbered.select(list(full)), full)
    if bad:
        raise DeskError(f"{path}: {_describe_bad(bad, full, place_of)}. Mend it; nothing is stored")
    return GivenRows(path, values, place_of)


def _refuse_losses(rows: pl.DataFrame, texts: pl.DataFrame, kind: str) -> None:
    # What is not the same after the way there and back would look like an edit.
    given = texts
    if kind == "xlsx":
        given = texts.select(_from_cell(_to_cell(pl.col(name))).alias(name) for name in texts.columns)
    back, _ = parse_values(given, rows.schema)
    lost = [name for name in rows.columns if rows[name].ne_missing(back[name]).any()]
    if lost:
        raise DeskError(
            f"{kind} cannot hold all values of {_describe_names(lost)} as they are: "
            f"export to .parquet{' or .csv' if kind == 'xlsx' else ''}"
        )


# -- CSV ---------------------------------------------------------------------------------------


def _read_csv(path: str, schema: pl.Schema) -> tuple[pl.DataFrame, Callable[[int], str]]:
    content = _read_text(path)
    dialect = CsvDialect(separator=_detect_separator(content, schema))
    names = _split_header(content, dialect.separator)
    width = len(names)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise DeskError(
            f"{path} has {_describe_names(twice)} twice: name each column once. Nothing is stored"
        )
    for record in iter_odd_records(path, dialect, first_line=0, width=width):
        if record.is_blank:
            continue
        what = f"{record.fields} fields where the header has {width}"
        if record.is_open or record.has_stray_quote:
            what = "quotes that do not come in pairs around a whole field"
        raise DeskError(f"{path}, line {record.line}: {what}. Mend it; nothing is stored")
    try:
        # As a header, its names would keep the quotes that are doubled in it.
        records = pl.read_csv(
            content.encode(), separator=dialect.separator, infer_schema=False, has_header=False
        )
        texts = records.rename(dict(zip(records.columns, names, strict=True)))[1:]
    except PolarsError as error:
        # It may quote the line, which is data.
        raise DeskError(f"{path} is no CSV file that can be read ({type(error).__name__})") from None

    def place(row: int) -> str:
        # The header is the first record.
        return f"line {find_line(path, dialect, first_line=0, row=row + 1)}"

    return texts, place


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DeskError(f"{path} cannot be read: {error.strerror}") from None
    advice = "save it as UTF-8 (in Excel: 'CSV UTF-8')"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DeskError(f"{path}, line {line}: bytes that are not UTF-8: {advice}") from None
    if not text.strip():
        raise DeskError(f"{path} is empty: export the rows again")
    if "\0" in text or ("\r" in text and "\n" not in text):
        raise DeskError(f"{path} is no text with ordinary line ends: {advice}")
    return text


def _split_header(content: str, separator: str) -> list[str]:
    return next(csv.reader(io.StringIO(content, newline=""), delimiter=separator), [])


def _detect_separator(content: str, schema: pl.Schema) -> str:
    """Return the separator with which the header has the most names that it should have."""
    known = {ROW_COLUMN, REASON_COLUMN, *schema}
    return max(",;\t", key=lambda each: len(known.intersection(_split_header(content, each))))


# -- XLSX --------------------------------------------------------------------------------------


def _write_workbook(texts: pl.DataFrame, file: IO[bytes]) -> None:
    try:
        xlsxwriter: Any = import_module("xlsxwriter")
    except ImportError:
        raise DeskError(_INSTALL) from None
    cells = texts.select(_to_cell(pl.col(name)).alias(name) for name in texts.columns)
    book = xlsxwriter.Workbook(file, {"in_memory": True})
    sheet = book.add_worksheet("rows")
    # Text, in cells that stay text when somebody types into them.
    text, bold = book.add_format({"num_format": "@"}), book.add_format({"num_format": "@", "bold": True})
    sheet.set_column(0, max(0, cells.width - 1), 16, text)
    sheet.freeze_panes(1, 1)
    refused = 0
    for column, name in enumerate(cells.columns):
        refused += sheet.write_string(0, column, name, bold) != 0
        for row, value in enumerate(cells[name], start=1):
            if value is not None:
                refused += sheet.write_string(row, column, value, text) != 0
    if refused:
        raise DeskError(
            f"a sheet cannot hold {refused} of the values (32,767 characters, 1,048,576 rows, 16,384 "
            "columns): export to .csv or .parquet"
        )
    book.close()


def _read_workbook(path: str, schema: pl.Schema) -> tuple[pl.DataFrame, Callable[[int], str]]:
    try:
        import_module("fastexcel")
    except ImportError:
        raise DeskError(_INSTALL) from None
    try:
        cells = pl.read_excel(
            path,
            sheet_id=1,
            engine="calamine",
            read_options={"dtypes": "string"},
            infer_schema_length=0,
            drop_empty_rows=False,
            drop_empty_cols=False,
            raise_if_empty=False,
        )
    except Exception as error:
        raise DeskError(f"{path} is no workbook that can be read ({type(error).__name__})") from None
    days = {name for name, dtype in schema.items() if isinstance(dtype, pl.Date)}
    texts = cells.select(
        _from_cell(_drop_midnight(pl.col(name)) if name in days else pl.col(name)).alias(name)
        for name in cells.columns
    )
    return texts, lambda row: f"row {row + 2}"


def _drop_midnight(cell: pl.Expr) -> pl.Expr:
    # Sheets have no days, only instants that are shown as days.
    return cell.cast(pl.String).str.replace(r"^(\d{4}-\d{2}-\d{2}) 00:00:00$", "$1")


def _to_cell(text: pl.Expr) -> pl.Expr:
    return pl.when(text == "").then(pl.lit(_EMPTY_CELL)).otherwise(text)


def _from_cell(cell: pl.Expr) -> pl.Expr:
    text = cell.cast(pl.String)
    # Line ends of a sheet are line feeds.
    plain = text.str.replace_all("\r\n", "\n", literal=True).str.replace_all("\r", "\n", literal=True)
    return pl.when(text == _EMPTY_CELL).then(pl.lit("")).when(text != "").then(plain)


# -- Parquet -----------------------------------------------------------------------------------


def _read_parquet(path: str, schema: pl.Schema) -> GivenRows:
    try:
        frame = load_frame(path)
    except (StorageError, PolarsError):
        raise DeskError(f"{path} is no Parquet file that can be read") from None
    _check_columns(path, frame.columns, schema)
    try:
        rows = conform_rows(frame, pl.Schema({ROW_COLUMN: pl.UInt64(), **schema}))
    except QuarantineError as error:
        raise DeskError(f"{path}: {error}") from None
    return GivenRows(path, rows, lambda row: f"row {row + 1}")


# ----------------------------------------------------------------------------------------------


def _check_columns(path: str, columns: Sequence[str], schema: pl.Schema) -> None:
    wanted = {ROW_COLUMN, *schema}
    missing = [name for name in (ROW_COLUMN, *schema) if name not in columns]
    extra = [name for name in columns if name not in wanted | {REASON_COLUMN}]
    problems = [
        f"{what} {_describe_names(names)}" for what, names in (("lacks", missing), ("has", extra)) if names
    ]
    if problems:
        raise DeskError(
            f"{path} {' and '.join(problems)}: the columns are those of the export, {ROW_COLUMN!r} and "
            f"{_describe_names(list(schema))}. Nothing is stored"
        )


def _describe_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(map(repr, names[:_MOST_NAMES]))}{more}"


def _describe_bad(
    bad: dict[str, pl.Series], schema: dict[str, pl.DataType], place: Callable[[int], str]
) -> str:
    told = []
    for name, is_bad in bad.items():
        rows = is_bad.arg_true()
        shown = ", ".join(place(row) for row in rows.head(_MOST_PLACES))
        more = f" and {len(rows) - _MOST_PLACES} more" if len(rows) > _MOST_PLACES else ""
        told.append(f"{shown}{more}, column {name!r}: not {describe_text(schema[name])}")
    return "; ".join(told)
