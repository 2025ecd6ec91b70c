"""CSV files that are refused: the message says where and what to do, quotes no cell, and no file is left."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars._typing import PolarsDataType

from astro_async._frames.csv_convert import convert_csv
from astro_async._frames.csv_dialect import CsvDialect
from astro_async.exceptions import IngestError, PipelineError, StorageError

Schema = Mapping[str, PolarsDataType]
SECRET = "s3cr3t"


def refusal(directory: Path, data: str | bytes, schema: Schema | None = None, **options: Any) -> str:
    """Convert a file that must be refused; check that nothing is left of it, and give the message."""
    source = directory / "source.csv"
    source.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(IngestError) as caught:
        convert_csv(
            str(source), str(directory / "target.parquet"), dialect=CsvDialect(**options), schema=schema
        )
    assert os.listdir(directory) == ["source.csv"]
    message = str(caught.value)
    assert message.startswith(str(source))
    # What Polars says quotes the cell, so it must not travel along as the cause either.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message.removeprefix(str(source))


# --- values --------------------------------------------------------------------------------------------

BAD_VALUES: list[tuple[PolarsDataType, str, str]] = [
    (pl.Int64, "1.0", "Int64"),
    (pl.Int64, "1_000", "Int64"),
    (pl.Int64, '"1,000"', "Int64"),
    (pl.Int64, "9223372036854775808", "Int64"),
    (pl.UInt8, "256", "UInt8"),
    (pl.UInt8, "-1", "UInt8"),
    (pl.Float64, "1.2.3", "Float64"),
    (pl.Float64, '"1,5"', "Float64"),
    (pl.Boolean, "yes", "true, false, 1 or 0"),
    (pl.Decimal(10, 2), "1.234", "2 of them after the point"),
    (pl.Decimal(10, 2), "123456789.00", "at most 10 digits"),
    (pl.Decimal(10, 2), "1e2", "no exponent"),
    (pl.Decimal(10, 0), "0.5", "0 of them after the point"),
    (pl.Date, "01/02/2020", "YYYY-MM-DD"),
    (pl.Date, "2020-02-30", "YYYY-MM-DD"),
    (pl.Date, "20-01-02", "YYYY-MM-DD"),
    (pl.Date, "-999-01-02", "YYYY-MM-DD"),
    (pl.Date, "0000-01-02", "YYYY-MM-DD"),
    (pl.Datetime("ns"), "2262-01-01 00:00:00", "years 1680 to 2261"),
    (pl.Datetime("ns"), "1679-01-01", "years 1680 to 2261"),
    (pl.Date, "2020-01-02 00:00:00", "YYYY-MM-DD"),
    (pl.Datetime("us"), "2020-01-02T03:04:05Z", "without an offset"),
    (pl.Datetime("us"), "2020-01-02 03:04:05.1234567", "at most 6 decimals"),
    (pl.Datetime("us"), "2020-01-02 03:04:60", "YYYY-MM-DD HH:MM:SS"),
    (pl.Datetime("us"), "01/02/2020 03:04:05", "YYYY-MM-DD HH:MM:SS"),
    (pl.Datetime("us", "Europe/Berlin"), "2020-10-25 02:30:00", "a local time of Europe/Berlin"),
    (pl.Datetime("us", "Europe/Berlin"), "2020-03-29 02:30:00", "a local time of Europe/Berlin"),
    (pl.Time, "24:00", "HH:MM:SS"),
    (pl.Enum(["a", "b"]), "c", "Enum of 2 categories"),
]


@pytest.mark.parametrize(("dtype", "text", "expected"), BAD_VALUES)
def test_value_that_does_not_parse(tmp_path: Path, dtype: PolarsDataType, text: str, expected: str) -> None:
    data = f"row,value\n1,\n2,{text}\n3,\n"
    message = refusal(tmp_path, data, {"value": dtype, "row": pl.String})
    assert message.startswith(", line 3, column 'value': 1 value that does not parse; expected ")
    assert expected in message
    assert "null_values" in message
    # Blanks before it send it through the lenient pass alone, which must not be more generous.
    assert ", line 3, column 'value'" in refusal(
        tmp_path, data.replace(text, text if '"' in text else f" {text} "), {"value": dtype}
    )


def test_line_counts_skipped_rows_header_newlines_in_quotes_and_blank_lines(tmp_path: Path) -> None:
    data = f'title\n"a\n1",b\n1,"x\ny\n\nz"\n\n2,"{SECRET}"\n{SECRET},w\n{SECRET},w\n'
    message = refusal(tmp_path, data, {"a\n1": pl.Int64, "b": pl.String}, skip_rows=1)
    assert ", line 10, column 'a\\n1': 2 values, the first here, that do not parse" in message
    assert SECRET not in message


def test_all_columns_with_such_values_are_named_with_their_counts(tmp_path: Path) -> None:
    data = "a,b,c\n1,2020-01-01,x\n1,x,x\nx,x,x\nx,x,x\n"
    message = refusal(tmp_path, data, {"c": pl.String, "a": pl.Int8, "b": pl.Date})
    assert message.startswith(", line 3, column 'b': 3 values")
    assert "Other columns with such values: 'a' (2)." in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_bad_value_far_down(tmp_path: Path, encoding: str) -> None:
    data = "a,b\n" + '1,"x\ny"\n' * 70_000 + f"{SECRET},z\n" + "2,z\n" * 1000
    message = refusal(tmp_path, data.encode(encoding), {"a": pl.Int64, "b": pl.String}, encoding=encoding)
    assert message.startswith(", line 140002, column 'a': 1 value")
    assert SECRET not in message


@settings(max_examples=60, deadline=None)
@given(
    notes=st.lists(st.text(st.sampled_from('xé\n",'), max_size=4), min_size=1, max_size=12),
    data=st.data(),
)
def test_the_line_of_any_bad_value_is_right(
    tmp_path_factory: pytest.TempPathFactory, notes: list[str], data: st.DataObject
) -> None:
    bad_row = data.draw(st.integers(0, len(notes) - 1))
    text, line = "note,value\n", 0
    for row, note in enumerate(notes):
        if row == bad_row:
            line = text.count("\n") + 1
        quoted = note.replace('"', '""')
        text += f'"{quoted}",{"x" if row == bad_row else row}\n'
    message = refusal(tmp_path_factory.mktemp("bad"), text, {"note": pl.String, "value": pl.Int64})
    assert message.startswith(f", line {line}, column 'value': 1 value ")


# --- columns -------------------------------------------------------------------------------------------


def test_missing_columns_are_named_with_near_misses(tmp_path: Path) -> None:
    schema = dict.fromkeys(["qty", "order_no", "zz", "price"], pl.String)
    message = refusal(tmp_path, "Qty,Order No.,price,other\n1,2,3,4\n", schema)
    assert "lacks 3 columns of the schema: 'qty', 'order_no', 'zz'" in message
    assert "('qty' looks like 'Qty'; 'order_no' looks like 'Order No.')" in message
    assert "It has: 'Qty', 'Order No.', 'price', 'other'." in message


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("a,a", "names that occur twice: 'a'"),
        ("a,", "column 2 has no name"),
        ("a,_astro_quarantine_reason", "reserved: '_astro_quarantine_reason'"),
    ],
)
def test_header_that_is_refused(tmp_path: Path, header: str, expected: str) -> None:
    assert expected in refusal(tmp_path, f"{header}\n1,2\n")
    assert expected in refusal(tmp_path, f"{header}\n1,2\n".encode("utf-16"), encoding="utf-16")


def test_file_without_header_needs_as_many_names_as_columns(tmp_path: Path) -> None:
    message = refusal(tmp_path, "1,2\n", {"a": pl.Int8}, has_header=False)
    assert message.startswith(", line 1: the line has 2 fields, but 1 name for the columns: 'a'.")


def test_types_that_text_cannot_be_read_as(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    source.write_text("a,b\n1,2\n")
    schema: Schema = {"a": pl.List(pl.Int64), "b": pl.Int8, "c": pl.Enum, "d": pl.Duration, "e": pl.Binary}
    with pytest.raises(PipelineError, match=r"'a' \(List\(Int64\)\), 'c' .*, 'd' .*, 'e' \(Binary\)"):
        convert_csv(str(source), str(tmp_path / "target"), dialect=CsvDialect(), schema=schema)
    with pytest.raises(PipelineError, match="the schema has no columns"):
        convert_csv(str(source), str(tmp_path / "target"), dialect=CsvDialect(), schema={})
    assert os.listdir(tmp_path) == ["source.csv"]


# --- lines and quotes ----------------------------------------------------------------------------------

ROWS = "1,2,3\n" * 50_000


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"a": pl.Int64, "b": pl.Int64, "c": pl.Int64},
        {"a": pl.String, "c": pl.Int64, "b": pl.String},
        {"b": pl.String},
    ],
)
@pytest.mark.parametrize("before", ["", "1,2,\n\n", ROWS, ROWS + '1,"2",\n'])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1,2,3,4\n", "4 fields where the file has 3 columns; a separator inside a field needs quotes"),
        ("1,2\n", "2 fields where the file has 3 columns; it may have been cut off"),
        ("1\n", "1 field where the file has 3 columns"),
        ('1,"2\n', "a quoted field begins in this record and is never closed"),
        ('1,2"2,3\n', "a quote character inside a field that is not quoted"),
        ('1,"2"2,3\n', "text after a closing quote"),
        ('1, "2,2",3\n', "4 fields where the file has 3 columns"),
    ],
    ids=["long", "short", "very short", "unclosed", "stray", "after", "blank before quote"],
)
def test_lines_that_are_refused(
    tmp_path: Path, schema: Schema | None, before: str, line: str, expected: str
) -> None:
    message = refusal(tmp_path, f"a,b,c\n{before}{line}1,2,3\n", schema)
    assert message.startswith(f", line {before.count(chr(10)) + 2}: ")
    assert expected in message


def test_quotes_inside_quoted_fields_do_not_hide_a_short_record(tmp_path: Path) -> None:
    data = 'a,b,c\n"x,""y"",\nz",2,\n5" and 6",2,3\n1,2\n'
    assert refusal(tmp_path, data).startswith(", line 5: 2 fields")


# --- bytes ---------------------------------------------------------------------------------------------


def test_empty_file(tmp_path: Path) -> None:
    assert " is empty (0 bytes)" in refusal(tmp_path, "")
    assert " and no header" in refusal(tmp_path, b"\xef\xbb\xbf")
    assert " and no header" in refusal(tmp_path, "".encode("utf-16"), encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252", "shift_jis"])
@pytest.mark.parametrize("rows", [1, 100_000])
@pytest.mark.parametrize("schema", [None, {"a": pl.Int64}])
def test_bytes_that_are_not_of_the_encoding(
    tmp_path: Path, encoding: str, rows: int, schema: Schema | None
) -> None:
    data = b"a,b\n" + b'1,"x\ny"\n' * rows + b"2,\x81\xff\x8d\n3,z\n"
    message = refusal(tmp_path, data, schema, encoding=encoding)
    assert message.startswith(f", line {2 * rows + 2}: bytes that are not {encoding}. Set the encoding")


def test_character_cut_off_at_the_end(tmp_path: Path) -> None:
    assert ", line 2: bytes that are not utf-8" in refusal(tmp_path, "a,b\n1,é".encode()[:-1])
    data = "a,b\n1,2".encode("utf-16")[:-1]
    assert ", line 2: bytes that are not utf-16" in refusal(tmp_path, data, encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("rows", [1, 300_000])
def test_nul_characters(tmp_path: Path, encoding: str, rows: int) -> None:
    data = b"a,b\n" + b"1,x\n" * rows + b"2,x\0y\n"
    message = refusal(tmp_path, data, encoding=encoding)
    assert message.startswith(f", line {rows + 2}: a NUL character")


def test_utf16_that_was_not_declared(tmp_path: Path) -> None:
    assert "set encoding='utf-16'" in refusal(tmp_path, "a,b\n1,2\n".encode("utf-16"))
    assert "set encoding='utf-16-le'" in refusal(tmp_path, "a,b\n1,2\n".encode("utf-16-le"))


# --- files ---------------------------------------------------------------------------------------------


def test_source_that_cannot_be_read(tmp_path: Path) -> None:
    for source in (tmp_path / "gone.csv", tmp_path):
        with pytest.raises(IngestError, match=re.escape(f"{source} could not be read: ")):
            convert_csv(str(source), str(tmp_path / "target"), dialect=CsvDialect(), schema=None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_target_that_cannot_be_written(tmp_path: Path, encoding: str) -> None:
    source = tmp_path / "source.csv"
    source.write_text("a,b\n1,2\n")
    target = tmp_path / "no such directory" / "target.parquet"
    with pytest.raises(StorageError, match="no such directory"):
        convert_csv(str(source), str(target), dialect=CsvDialect(encoding=encoding), schema=None)
    assert os.listdir(tmp_path) == ["source.csv"]


def test_target_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "source.csv", tmp_path / "target.parquet"
    source.write_text("a,b\n1,\n1\n")
    target.write_text("precious")
    with pytest.raises(StorageError):
        convert_csv(str(source), str(target), dialect=CsvDialect(), schema=None)
    assert target.read_text() == "precious"


def test_brackets_in_a_path_are_no_pattern(tmp_path: Path) -> None:
    source, target = tmp_path / "a[1]*.csv", tmp_path / "b[1].parquet"
    source.write_text("a,b\n1,\n")
    assert convert_csv(str(source), str(target), dialect=CsvDialect(), schema=None).rows == 1
