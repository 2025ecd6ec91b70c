"""One source file becomes one Parquet file, whatever it is and however packed; or an error says why not."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from backports import zstd

from astro_async._executor.source_files import ConvertedFile, convert_file
from astro_async._frames import convert as convert_module
from astro_async.exceptions import IngestError, PipelineError
from astro_async.ingest_spec import IngestFileSpec

CSV = "a,b,c\n1,x,2026-01-02\n2,,2026-01-03\n"
TYPES = {"a": pl.Int64, "b": pl.String, "c": pl.Date}
ROWS = [(1, "x", date(2026, 1, 2)), (2, None, date(2026, 1, 3))]


def compress_checked(content: bytes) -> bytes:
    """Compress as the command `zstd` does, with a checksum."""
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1})


def write(directory: Path, name: str, content: str | bytes) -> Path:
    source = directory / name
    source.write_bytes(content.encode() if isinstance(content, str) else content)
    return source


def convert(source: Path, **options: Any) -> tuple[pl.DataFrame, ConvertedFile]:
    """Convert, check the digest and that nothing but the target is left, and read it back."""
    target = source.parent / "target.parquet"
    target.unlink(missing_ok=True)
    before = sorted(os.listdir(source.parent))
    converted = convert_file(IngestFileSpec("x", "*", **options), str(source), str(target))
    assert sorted(os.listdir(source.parent)) == sorted([*before, "target.parquet"])
    frame = pl.read_parquet(target)
    assert (converted.frame.rows, converted.frame.columns) == frame.shape
    assert converted.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert converted.size_bytes == source.stat().st_size
    return frame, converted


def refusal(source: Path, **options: Any) -> str:
    """Convert, and give the words of the refusal, which leaves nothing behind."""
    before = sorted(os.listdir(source.parent))
    with pytest.raises(IngestError) as failure:
        convert_file(IngestFileSpec("x", "*", **options), str(source), str(source.parent / "target.parquet"))
    assert sorted(os.listdir(source.parent)) == before
    assert str(source) in str(failure.value)
    return str(failure.value)


# --- packing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv", "a.zst", "a.txt"])
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, bytes])
def test_packing_is_told_by_content(tmp_path: Path, name: str, pack: Any) -> None:
    frame, _ = convert(write(tmp_path, name, pack(CSV.encode())), schema=TYPES)
    assert frame.rows() == ROWS


def test_parts_of_a_packed_file_are_read_to_the_end(tmp_path: Path) -> None:
    for pack in (gzip.compress, zstd.compress):
        packed = pack(CSV.encode()) + pack(b"3,y,2026-01-04\n")
        frame, _ = convert(write(tmp_path, "a.csv.gz", packed), schema=TYPES)
        assert frame["a"].to_list() == [1, 2, 3]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_packed_text_has_any_encoding(tmp_path: Path, encoding: str) -> None:
    source = write(tmp_path, "a.csv.gz", gzip.compress("name,b\ncafé,1\n".encode(encoding)))
    frame, _ = convert(source, encoding="utf-8" if encoding == "utf-8-sig" else encoding)
    assert frame.rows() == [("café", "1")]
    assert frame.columns == ["name", "b"]


def test_errors_in_packed_files_name_line_and_column(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv.gz", gzip.compress(f"{CSV}\nx,y,2026-01-01\n".encode()))
    assert f"{source}, line 5, column 'a': 1 value that does not parse" in refusal(source, schema=TYPES)
    source = write(tmp_path, "a.csv.gz", gzip.compress(b"a,b\n1,2\n1,\xff\n"))
    assert "line 3: bytes that are not utf-8" in refusal(source)


@pytest.mark.parametrize(("pack", "kind"), [(gzip.compress, "gzip"), (compress_checked, "zstd")])
def test_packed_files_that_are_cut_off_or_damaged_are_refused(tmp_path: Path, pack: Any, kind: str) -> None:
    packed = pack(os.urandom(4000).hex().encode())
    cut = write(tmp_path, "cut.csv.gz", packed[:-20])
    assert f"ends in the middle of its {kind} data" in refusal(cut)
    damaged = write(tmp_path, "bad.csv.gz", packed[:300] + b"\0" * 50 + packed[350:])
    assert f"its {kind} data is damaged" in refusal(damaged)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (gzip.compress(b"", mtime=0), "has 0 lines, and no header"),
        (gzip.compress(gzip.compress(b"a\n", mtime=0), mtime=0), "inside its gzip data is gzip data"),
        (gzip.compress(b"PK\x03\x04aaaaaaaa", mtime=0), "inside its gzip data is zip data"),
        (b"PK\x03\x04aaaaaaaa", "its end is missing: it was cut off"),
        (b"\xd0\xcf\x11\xe0aaaa", "old kind (.xls)"),
        (b"BZh91AY&SYaaaaaa", "compressed with bzip2"),
        (b"\xfd7zXZ\0aaaa", "compressed with xz"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it"),
    ],
)
def test_what_is_no_table_is_refused_with_words(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(write(tmp_path, "a.csv", content))


def test_a_zip_is_refused_with_words(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a.csv", CSV)
    assert "is a zip archive, not a table: unpack it" in refusal(source)


def test_a_header_may_begin_as_parquet_does(tmp_path: Path) -> None:
    assert convert(write(tmp_path, "a.csv", "PAR1,BZh\n1,2\n"))[0].columns == ["PAR1", "BZh"]


# --- lines and columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "\n", "\n\n  \n"])
def test_a_footer_is_left_out(tmp_path: Path, end: str) -> None:
    text = f"report of\n\n{CSV}\n2 rows\nsum;;{end}"
    frame, _ = convert(write(tmp_path, "a.csv", text), schema=TYPES, skip_rows=2, skip_footer=2)
    assert frame.rows() == ROWS


def test_a_footer_may_not_be_longer_than_the_file(tmp_path: Path) -> None:
    assert "has 2 lines, and skip_footer leaves out 3" in refusal(
        write(tmp_path, "a.csv", "a\n1\n\n"), skip_footer=3
    )
    assert "has 0 lines, and no header" in refusal(write(tmp_path, "a.csv", "a\n1\n"), skip_footer=2)


def test_a_header_may_use_another_name(tmp_path: Path) -> None:
    aliases = {"Qty": "quantity", "Menge": "quantity", "Nr.": "number"}
    types = {"number": pl.Int64, "quantity": pl.Int64}
    for header in (" Qty ,Nr.", "Menge,number", "quantity,number"):
        frame, _ = convert(write(tmp_path, "a.csv", f"{header}\n5,1\n"), schema=types, aliases=aliases)
        assert frame.rows() == [(1, 5)]
    message = refusal(write(tmp_path, "a.csv", "Menge,Qty,number\n5,1,1\n"), schema=types, aliases=aliases)
    assert "'quantity' is column 1 ('Menge') and column 2 ('Qty')" in message


def test_a_header_that_names_two_columns_alike_is_refused(tmp_path: Path) -> None:
    assert "'a' is column 1 and column 3" in refusal(write(tmp_path, "a.csv", "a,b, a \n1,2,3\n"))


def test_columns_that_are_not_wanted_are_left_out_and_named_or_refused(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "z,a,y\n1,2,3\n")
    frame, converted = convert(source, schema={"a": pl.Int64})
    assert (frame.rows(), converted.ignored, converted.inserted) == ([(2,)], ("z", "y"), ())
    message = refusal(source, schema={"a": pl.Int64}, extra_columns="raise")
    assert "has 2 columns that the schema does not name: 'z', 'y'" in message
    assert "set extra_columns='ignore'" in message


def test_columns_that_are_missing_are_refused_or_null_of_their_type(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "Qty,a\n1,2\n")
    types = {"qty": pl.Decimal(10, 2), "a": pl.Int64, "day": pl.Date}
    message = refusal(source, schema=types)
    assert "lacks 2 columns of the schema: 'qty', 'day' ('qty' looks like 'Qty')" in message
    frame, converted = convert(source, schema=types, missing_columns="insert")
    assert frame.rows() == [(None, 2, None)]
    assert frame.schema == types
    assert (converted.inserted, converted.ignored) == (("qty", "day"), ("Qty",))


def test_a_file_without_any_column_of_the_schema_is_the_wrong_file(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "a;b\n1;2\n")
    types = {"a": pl.Int64, "b": pl.Int64}
    assert "Check the separator" in refusal(source, schema=types, missing_columns="insert")


def test_values_are_judged_where_columns_are_missing_too(tmp_path: Path) -> None:
    source = write(tmp_path, "a.csv", "b,a\n1,2\nx,y\n")
    types = {"c": pl.String, "a": pl.Int64, "b": pl.Int64}
    assert "line 3, column 'b'" in refusal(source, schema=types, missing_columns="insert")


# --- formats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tsv", "A.TAB", "a.tsv.gz"])
def test_a_tsv_file_is_separated_by_tabs(tmp_path: Path, name: str) -> None:
    content = CSV.replace(",", "\t").encode()
    source = write(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)
    assert convert(source, schema=TYPES)[0].rows() == ROWS


def test_a_separator_that_is_given_counts_for_tsv_too(tmp_path: Path) -> None:
    assert convert(write(tmp_path, "a.tsv", CSV), schema=TYPES, separator=",")[0].rows() == ROWS
    source = write(tmp_path, "a.csv", CSV.replace(",", "\t"))
    assert convert(source, schema=TYPES, format="tsv")[0].rows() == ROWS


NDJSON = (
    '{"a": 1, "b": "x, \\"y\\"\\nz", "c": "2026-01-02"}\n\n'
    '{"b": "", "a": 2, "d": {"n": [1.10, "s"]}, "c": null}\n'
    '{"a": 9007199254740993, "e": 1.50, "b": " ", "f": true}\n'
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_ndjson_is_read_line_by_line(tmp_path: Path, pack: Any) -> None:
    source = write(tmp_path, "a.ndjson.gz", pack(NDJSON.encode()))
    frame, converted = convert(source, schema={**TYPES, "e": pl.Decimal(5, 2), "f": pl.Boolean})
    assert frame.rows() == [
        (1, 'x, "y"\nz', date(2026, 1, 2), None, None),
        (2, "", None, None, None),
        (9007199254740993, " ", None, Decimal("1.50"), True),
    ]
    assert converted.ignored == ("d",)


def test_ndjson_without_schema_is_text_with_the_digits_as_written(tmp_path: Path) -> None:
    frame, _ = convert(write(tmp_path, "a.jsonl", NDJSON))
    assert frame.columns == ["a", "b", "c", "d", "e", "f"]
    assert frame.row(1) == ("2", "", None, '{"n":[1.10,"s"]}', None, None)
    assert frame.row(2) == ("9007199254740993", " ", None, None, "1.50", "true")


@pytest.mark.parametrize("batch_rows", [1, 2, 10_000])
def test_values_of_ndjson_are_text_whatever_else_their_column_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(convert_module, "_BATCH_ROWS", batch_rows)
    values = [
        *("1", "-9223372036854775808", "18446744073709551616", "true", "1.50", "1e3", "null", '""'),
        *('" "', '"a,b"', '"q\\"r"', '"l\\nm\\r"', "[1, 2.0]", '{"k": "\u00e9"}', "false"),
    ]
    texts = [
        *("1", "-9223372036854775808", "18446744073709551616", "true", "1.50", "1e3", None, ""),
        *(" ", "a,b", 'q"r', "l\nm\r", "[1,2.0]", '{"k":"\u00e9"}', "false"),
    ]
    lines = [f'{{"a": {number}, "b": {value}}}\n' for number, value in enumerate(values)]
    frame, _ = convert(write(tmp_path, "a.ndjson", "".join(lines)))
    assert frame["b"].to_list() == texts
    assert frame["a"].to_list() == [str(number) for number in range(len(values))]


def test_one_column_of_ndjson_keeps_nulls_and_blanks_apart(tmp_path: Path) -> None:
    frame, _ = convert(write(tmp_path, "a.jsonl", '{"a":null}\n{"a":""}\n{"a":" "}\n{"a":"\\n"}\n'))
    assert frame["a"].to_list() == [None, "", " ", "\n"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a":1}\n\n[1]\n', "line 3: not one JSON object"),
        (b'{"a":1}\n{"a":\n', "line 2: not one JSON object"),
        (b"\n\n", "has no JSON object"),
        (b'{"a":"x"}\n{"a":"\xff"}\n', "line 2: bytes that are not utf-8"),
        (b'{"a":"\\u0000"}\n', "a NUL character"),
        (b'{"a":1}\n\n{"a":"secret"}\n', "line 3, column 'a': 1 value that does not parse; expected Int64"),
        (b'{"a":1}\n{"a":2.5}\n', "line 2, column 'a'"),
        (b'{"_astro_x":1}\n', "are reserved"),
    ],
)
def test_ndjson_errors_name_the_line(tmp_path: Path, content: bytes, words: str) -> None:
    message = refusal(write(tmp_path, "a.ndjson", content), schema={"a": pl.Int64})
    assert words in message
    assert "secret" not in message


def test_parquet_keeps_its_types_without_a_schema(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, None], "n": [[1.5], []], "s": ["x", ""]})
    frame.write_parquet(tmp_path / "a.parquet")
    read, _ = convert(tmp_path / "a.parquet")
    assert read.equals(frame)
    assert read.schema == frame.schema


def test_parquet_is_cast_where_nothing_is_lost(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "n": [1, 2],
            "x": [1.5, None],
            "day": ["2026-01-02", ""],
            "at": [
                datetime.fromisoformat("2026-01-02T00:00:00"),
                datetime.fromisoformat("2026-01-03T00:00:00"),
            ],
            "more": [1, 2],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    types = {"at": pl.Date, "day": pl.Date, "x": pl.Decimal(6, 2), "n": pl.Int8, "new": pl.String}
    read, converted = convert(tmp_path / "a.parquet", schema=types, missing_columns="insert")
    assert read.rows() == [
        (date(2026, 1, 2), date(2026, 1, 2), Decimal("1.50"), 1, None),
        (date(2026, 1, 3), None, None, 2, None),
    ]
    assert (converted.ignored, converted.inserted) == (("more",), ("new",))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1, 300], pl.Int8), ([1.0, 1.5], pl.Int64), ([0.1, 0.123], pl.Decimal(6, 2)), (["1", "x"], pl.Int64)],
)
def test_parquet_is_not_cast_where_something_is_lost(tmp_path: Path, values: list[Any], dtype: Any) -> None:
    pl.DataFrame({"a": values}).write_parquet(tmp_path / "a.parquet")
    message = refusal(tmp_path / "a.parquet", schema={"a": dtype})
    assert "row 2, column 'a': 1 value that does not parse" in message


def test_damaged_parquet_is_refused_with_words(tmp_path: Path) -> None:
    pl.DataFrame({"a": list(range(5000))}).write_parquet(tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    for torn in (content[:-100], content[:4], content[:40] + b"\xff" * 200 + content[240:]):
        source = write(tmp_path, "torn.parquet", torn)
        assert "could not be read as Parquet: it is damaged or was cut off" in refusal(source)


def test_a_file_is_what_the_pipeline_says_or_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.csv")
    assert convert(tmp_path / "a.csv")[0].rows() == [(1,)]
    assert "is Parquet, and the pipeline expects CSV" in refusal(tmp_path / "a.csv", format="csv")
    assert "should be PARQUET" in refusal(write(tmp_path, "b.parquet", CSV))
    assert "those of gzip" in refusal(write(tmp_path, "b.pq", gzip.compress(b"x")))
    assert "should be XLSX" in refusal(write(tmp_path, "b.xlsx", CSV))


# --- workbooks -------------------------------------------------------------------------------------------


def make_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> Path:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("fastexcel")
    with xlsxwriter.Workbook(str(path), {"default_date_format": "yyyy-mm-dd"}) as workbook:
        for name, rows in sheets.items():
            sheet = workbook.add_worksheet(name)
            for row, cells in enumerate(rows):
                sheet.write_row(row, 0, cells)
    return path


BOOK: list[list[Any]] = [
    ["report"],
    [],
    [" code ", "n", "x", "day", "at", "flag"],
    ["007", 1, 1.5, date(2026, 3, 1), datetime.fromisoformat("2026-03-01T12:30:00"), True],
    [],
    ["5885E9", 2, 0.1, None, None, False],
    ["sum", 3],
]
BOOK_TYPES = {
    "code": pl.String,
    "n": pl.Int64,
    "x": pl.Decimal(5, 2),
    "day": pl.Date,
    "at": pl.Datetime("us"),
    "flag": pl.Boolean,
}


def test_a_workbook_is_read(tmp_path: Path) -> None:
    source = make_workbook(tmp_path / "a.xlsx", {"Data": BOOK})
    frame, _ = convert(source, schema=BOOK_TYPES, skip_rows=1, skip_footer=1)
    assert frame.rows() == [
        ("007", 1, Decimal("1.50"), date(2026, 3, 1), datetime.fromisoformat("2026-03-01T12:30:00"), True),
        ("5885E9", 2, Decimal("0.10"), None, None, False),
    ]


def test_errors_in_a_workbook_name_row_and_column(tmp_path: Path) -> None:
    source = make_workbook(tmp_path / "a.xlsx", {"Data": BOOK})
    types = {**BOOK_TYPES, "code": pl.Int64}
    assert f"{source}, row 6, column 'code'" in refusal(source, schema=types, skip_rows=1, skip_footer=1)


def test_the_sheet_is_chosen_by_name(tmp_path: Path) -> None:
    source = make_workbook(tmp_path / "a.xlsx", {"One": [["a"], [1]], "Two": [["b"], [2]], "None": []})
    assert convert(source, sheet="Two")[0].to_dicts() == [{"b": "2"}]
    assert "has 3 sheets: 'One', 'Two', 'None'. Say with sheet=" in refusal(source)
    assert "has no sheet 'Three'" in refusal(source, sheet="Three")
    assert "the sheet is empty" in refusal(source, sheet="None")


def test_a_damaged_workbook_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.xlsx"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("xl/workbook.xml", "<nonsense")
    pytest.importorskip("fastexcel")
    assert "could not be read as an Excel workbook" in refusal(source)


# --- options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"skip_footer": -1}, "skip_footer must be 0 or more"),
        ({"aliases": {"A": "b"}, "schema": {"a": pl.Int64}}, "aliases lead to 'b'"),
        ({"aliases": {"A": "b"}, "column_names": ("b",)}, "aliases rename what a header says"),
        ({"schema": 5}, "a Pandera or dataframely schema, not int"),
        ({"schema": {}}, "has no columns"),
        ({"schema": {"a": "int"}}, "column 'a' has 'int' for a type"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        IngestFileSpec("x", "*", **options).reading()
