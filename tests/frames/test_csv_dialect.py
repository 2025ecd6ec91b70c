"""What a dialect accepts, and which columns it finds in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.csv_layout import read_layout
from astro_async.exceptions import IngestError, PipelineError


def header_of(tmp_path: Path, data: str | bytes, **options: Any) -> list[str]:
    path = tmp_path / "source.csv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(read_layout(str(path), str(path), CsvDialect(**options)).names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "nope"}, r"encoding 'nope' is not a text encoding .* 'cp1252'"),
        ({"encoding": "hex"}, "encoding 'hex' is not a text encoding"),
        ({"encoding": ""}, "encoding '' is not a text encoding"),
        ({"separator": ""}, "separator must be one ASCII character"),
        ({"separator": "||"}, "separator must be one ASCII character"),
        ({"separator": "§"}, "separator must be one ASCII character"),
        ({"separator": "\n"}, "separator must be one ASCII character"),
        ({"quote_char": ""}, "quote_char must be one ASCII character"),
        ({"quote_char": ","}, "separator and quote_char are both ','"),
        ({"skip_rows": -1}, "skip_rows must be 0 or more, not -1"),
        ({"column_names": "ab"}, "column_names must be a tuple"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        CsvDialect(**options)


def test_defaults_are_those_of_rfc_4180_in_utf8() -> None:
    dialect = CsvDialect()
    assert (dialect.encoding, dialect.separator, dialect.quote_char) == ("utf-8", ",", '"')
    assert (dialect.has_header, dialect.column_names, dialect.skip_rows, dialect.nulls) == (True, None, 0, ())


@pytest.mark.parametrize(
    ("encoding", "is_utf8"),
    [("UTF8", True), ("utf-8-sig", True), ("ascii", False), ("latin-1", False), ("utf-16", False)],
)
def test_only_utf8_is_read_in_place(encoding: str, is_utf8: bool) -> None:
    assert CsvDialect(encoding=encoding).is_utf8 is is_utf8


def test_one_null_text_may_be_given_alone() -> None:
    assert CsvDialect(null_values="NA").nulls == ("NA",)
    assert CsvDialect(null_values=("NA", "-")).nulls == ("NA", "-")


@pytest.mark.parametrize(
    ("data", "options", "names"),
    [
        ("a,b\n1,2\n", {}, ["a", "b"]),
        ("a,b", {}, ["a", "b"]),
        (" rec_id, given_name ,c\t\n", {}, ["rec_id", "given_name", "c"]),
        ('"a, b","c ""d""","two\nlines"\n', {}, ["a, b", 'c "d"', "two\nlines"]),
        ("a\tb\n", {"separator": "\t"}, ["a", "b"]),
        ("'a;b';c\n", {"separator": ";", "quote_char": "'"}, ["a;b", "c"]),
        ('5" nails,b\n', {"quote_char": None}, ['5" nails', "b"]),
        ('Report "of\n\na,b\n', {"skip_rows": 1}, ["a", "b"]),
        ("\n\na,b\n", {}, ["a", "b"]),
        ("a,b\r\n1,2\r\n", {}, ["a", "b"]),
        ("a,b\r1,2\r", {}, ["a", "b"]),
        ("é,ß\n".encode("cp1252"), {"encoding": "cp1252"}, ["é", "ß"]),
        ("é,ß\n".encode("utf-16"), {"encoding": "utf-16"}, ["é", "ß"]),
        ("\ufeffé,ß\n".encode("utf-16-le"), {"encoding": "utf-16-le"}, ["é", "ß"]),
        (b"\xef\xbb\xbfa,b\n", {}, ["a", "b"]),
        (b'\xef\xbb\xbf"a",b\n', {"encoding": "utf-8-sig"}, ["a", "b"]),
        ("A,A,\n", {"column_names": ("x", "y", "z")}, ["x", "y", "z"]),
        ("1,2\n", {"has_header": False}, ["column_1", "column_2"]),
        ("1,2\n", {"has_header": False, "column_names": ("x", "y")}, ["x", "y"]),
    ],
)
def test_header(tmp_path: Path, data: str | bytes, options: dict[str, Any], names: list[str]) -> None:
    assert header_of(tmp_path, data, **options) == names


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("a,b,a\n", {}, "line 1: names that occur twice: 'a'"),
        ("a, a\n", {}, "line 1: names that occur twice: 'a'"),
        ("a,,b,\n", {}, "line 1: column 2, 4 has no name"),
        ("a,_astro_row\n", {}, "line 1: names that begin with '_astro_' are reserved: '_astro_row'"),
        ("a,*,^b$\n", {}, r"line 1: names that Polars takes for patterns: '\*', '\^b\$'"),
        ("a\n", {"column_names": ("_astro_x",)}, "reserved: '_astro_x'"),
        ("x\na,b\n", {"skip_rows": 1, "column_names": ("x",)}, "line 2: the line has 2 fields, but 1 name"),
        ("1\n", {"has_header": False, "column_names": ("x", "y")}, "has 1 field, but 2 names .* 'x', 'y'"),
        ('"a,b\n1,2\n', {}, "line 1: the quotes of the first line do not come in pairs"),
        ("a\nb\n", {"skip_rows": 5}, "has 2 lines, and no header after the 5 lines"),
        ("\n \n", {}, "has 2 lines, and no header"),
        ("", {"has_header": False}, "has 0 lines, and no data"),
        (b"a\nb\xe9\n", {}, "line 2: bytes that are not utf-8"),
        ("a,b\n".encode("utf-16"), {}, "set encoding='utf-16'"),
    ],
)
def test_header_that_is_refused(
    tmp_path: Path, data: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(IngestError, match=message) as caught:
        header_of(tmp_path, data, **options)
    assert "source.csv" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match=r"gone\.csv could not be read: No such file"):
        read_layout(str(tmp_path / "gone.csv"), str(tmp_path / "gone.csv"), CsvDialect())
