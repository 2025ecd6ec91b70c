"""CSV files that are in order become Parquet with exactly the declared values."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars._typing import PolarsDataType
from polars.testing import assert_frame_equal

from astro_async._frames.csv_convert import convert_csv
from astro_async._frames.csv_dialect import CsvDialect

Schema = Mapping[str, PolarsDataType]


def convert(directory: Path, data: str | bytes, schema: Schema | None = None, **options: Any) -> pl.DataFrame:
    """Convert, check what the call says it wrote and that nothing else is left, and read it back."""
    source, target = directory / "source.csv", directory / "target.parquet"
    source.write_bytes(data.encode() if isinstance(data, str) else data)
    target.unlink(missing_ok=True)
    written = convert_csv(str(source), str(target), dialect=CsvDialect(**options), schema=schema)
    assert sorted(os.listdir(directory)) == ["source.csv", "target.parquet"]
    frame = pl.read_parquet(target)
    assert (written.rows, written.columns) == frame.shape
    assert written.size_bytes == target.stat().st_size
    return frame


def column(directory: Path, texts: list[str], dtype: PolarsDataType, **options: Any) -> list[Any]:
    """Convert one column of the type beside one of text, and give its values."""
    data = "value,row\n" + "".join(f"{text},{row}\n" for row, text in enumerate(texts))
    schema: Schema = {"value": dtype, "row": pl.String}
    frame = convert(directory, data, schema, **options)
    assert frame.schema["value"] == (dtype() if isinstance(dtype, type) else dtype)
    assert frame["row"].to_list() == [str(row) for row in range(len(texts))]
    return frame["value"].to_list()


# --- columns -------------------------------------------------------------------------------------------


def test_without_schema_every_column_is_text_as_written(tmp_path: Path) -> None:
    frame = convert(tmp_path, "a,b,c\n007, x ,1.50\n5885E9,,NA\n")
    assert_frame_equal(frame, pl.DataFrame({"a": ["007", "5885E9"], "b": [" x ", None], "c": ["1.50", "NA"]}))


def test_columns_are_matched_by_name_in_the_order_of_the_schema(tmp_path: Path) -> None:
    frame = convert(tmp_path, " b , extra, a\nx,9,1\ny,8,2\n", {"a": pl.Int64, "b": pl.String})
    assert_frame_equal(frame, pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}))


def test_names_replace_a_header_or_stand_for_one(tmp_path: Path) -> None:
    expected = pl.DataFrame({"x": [1], "y": ["b"]})
    schema = {"x": pl.Int64, "y": pl.String}
    assert_frame_equal(convert(tmp_path, "A,A\n1,b\n", schema, column_names=("x", "y")), expected)
    assert_frame_equal(
        convert(tmp_path, "b,1\n", schema, has_header=False, column_names=("y", "x")), expected
    )
    assert_frame_equal(convert(tmp_path, "1,b\n", schema, has_header=False), expected)


def test_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    schema: Schema = {"b": pl.Decimal(8, 2), "a": pl.Date}
    for data in ("a,b", "a,b\n", "a,b\r\n", "a,b\n\n\n"):
        assert convert(tmp_path, data, schema).schema == pl.Schema({"b": pl.Decimal(8, 2), "a": pl.Date()})


# --- lines and quotes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        'a,b\n1,"x\ny"\n2,z\n',
        'a,b\n1,"x\ny"\n2,z',
        '\ufeffa,b\n1,"x\ny"\n2,z\n',
        '\n\na,b\n\n1,"x\ny"\n   \n\n2,z\n\n\n',
        'a,b\n1,"x\ny"\n2,"z"',
    ],
    ids=["plain", "no last line end", "byte order mark", "blank lines", "quote at the end"],
)
def test_lines(tmp_path: Path, data: str) -> None:
    expected = pl.DataFrame({"a": [1, 2], "b": ["x\ny", "z"]})
    assert_frame_equal(convert(tmp_path, data, {"a": pl.Int64, "b": pl.String}), expected)


@pytest.mark.parametrize("tail", ["\n", "\n\n  \n", "\r\n\r\n", "\n" * 100_000])
@pytest.mark.parametrize("last", ["3,z", '3,"z\n\n"', "3,"])
def test_blank_lines_at_the_end(tmp_path: Path, tail: str, last: str) -> None:
    schema: Schema = {"a": pl.Int8, "b": pl.String}
    expected = convert(tmp_path, f"a,b\n1,x\n2,\n{last}\n", schema)
    assert expected.height == 3
    assert_frame_equal(convert(tmp_path, f"a,b\n1,x\n2,\n{last}\n{tail}", schema), expected)
    assert convert(tmp_path, f"a,b\n{tail}", schema).height == 0


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_of_other_systems(tmp_path: Path, line_end: str) -> None:
    data = line_end.join(["a,b", "1,x", "2,", '3,"y"', "", "4,z", ""])
    expected = pl.DataFrame({"a": [1, 2, 3, 4], "b": ["x", None, "y", "z"]})
    assert_frame_equal(convert(tmp_path, data, {"a": pl.Int64, "b": pl.String}), expected)


def test_carriage_return_inside_a_field_is_kept(tmp_path: Path) -> None:
    assert convert(tmp_path, 'a,b\n1,"x\r\ny"\n').item(0, "b") == "x\r\ny"


def test_blank_line_of_a_file_with_one_column_is_a_null(tmp_path: Path) -> None:
    assert convert(tmp_path, 'a\n1\n\n""\n2\n')["a"].to_list() == ["1", None, "", "2"]


def test_line_of_separators_is_a_row_of_nulls(tmp_path: Path) -> None:
    frame = convert(tmp_path, "a\tb\n1\t2\n\t\n\n3\t4\n", separator="\t")
    assert frame.rows() == [("1", "2"), (None, None), ("3", "4")]


def test_null_and_empty_text_stay_apart(tmp_path: Path) -> None:
    frame = convert(tmp_path, 'a,b\n,""\n"",\n', {"a": pl.String, "b": pl.Categorical})
    assert frame.rows() == [(None, ""), ("", None)]


def test_quotes_are_text_when_there_is_no_quote_character(tmp_path: Path) -> None:
    frame = convert(tmp_path, 'a,b\n5" nails,"x\n', quote_char=None)
    assert frame.rows() == [('5" nails', '"x')]


def test_skipped_rows_are_physical_lines_of_any_content(tmp_path: Path) -> None:
    frame = convert(tmp_path, 'Report "of,,,\n===\na,b\n1,2\n', skip_rows=2)
    assert frame.rows() == [("1", "2")]


def test_null_values_apply_to_all_columns_quoted_or_not(tmp_path: Path) -> None:
    data = 'a,b,c\nNA,NA,NA\n NA ,"NA",-\n1,"N,A",2020-01-01\n'
    schema = {"a": pl.Int64, "b": pl.String, "c": pl.Date}
    frame = convert(tmp_path, data, schema, null_values=("NA", "-", "N,A"))
    assert frame.rows() == [(None, None, None), (None, None, None), (1, None, date(2020, 1, 1))]
    assert convert(tmp_path, "a,b\nNA,x\n", null_values="NA").rows() == [(None, "x")]


def test_empty_last_fields_are_no_short_records(tmp_path: Path) -> None:
    data = 'a,b,c\n1,"x,y",\n2,"x\n,y",\n3,5" and 6"," ""q"", "\n'
    expected = [("1", "x,y", None), ("2", "x\n,y", None), ("3", '5" and 6"', ' "q", ')]
    assert convert(tmp_path, data).rows() == expected


# --- types ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.Int8, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt64])
def test_integers(tmp_path: Path, dtype: PolarsDataType) -> None:
    texts = ["1", "007", " 2", "3 ", '" 4 "', "+5", "", '""', "  "]
    assert column(tmp_path, texts, dtype) == [1, 7, 2, 3, 4, 5, None, None, None]


def test_integers_keep_every_digit(tmp_path: Path) -> None:
    assert column(tmp_path, ["9223372036854775807"], pl.Int64) == [2**63 - 1]
    assert column(tmp_path, ["-170141183460469231731687303715884105728"], pl.Int128) == [-(2**127)]


def test_floats(tmp_path: Path) -> None:
    texts = ["1.5", " .5 ", "5.", "-1e3", "inf", ""]
    assert column(tmp_path, texts, pl.Float64) == [1.5, 0.5, 5.0, -1000.0, float("inf"), None]
    assert column(tmp_path, ["nan"], pl.Float64) != column(tmp_path, ["nan"], pl.Float64)
    assert column(tmp_path, ["0.5", "1 "], pl.Float32) == [0.5, 1.0]


def test_booleans(tmp_path: Path) -> None:
    texts = ["true", "False", "TRUE", "1", "0", " false ", ""]
    assert column(tmp_path, texts, pl.Boolean) == [True, False, True, True, False, False, None]


def test_decimals_are_exact(tmp_path: Path) -> None:
    texts = ["0.1", "-1.20", " 3.1400 ", "+7", ".5", "99999999.99", ""]
    expected = [Decimal(text.strip()) for text in texts[:-1]]
    assert column(tmp_path, texts, pl.Decimal(10, 2)) == [*expected, None]
    digits = "12345678901234567890123456789012345.678"
    assert column(tmp_path, [digits], pl.Decimal(38, 3)) == [Decimal(digits)]


def test_dates_and_times(tmp_path: Path) -> None:
    assert column(tmp_path, ["2020-02-29", " 0001-01-01 ", ""], pl.Date) == [
        date(2020, 2, 29),
        date(1, 1, 1),
        None,
    ]
    assert column(tmp_path, ["12:34", "01:02:03 ", "23:59:59.5"], pl.Time) == [
        time(12, 34),
        time(1, 2, 3),
        time(23, 59, 59, 500_000),
    ]


@pytest.mark.parametrize("dtype", [pl.Datetime, pl.Datetime("us"), pl.Datetime("ns")])
def test_datetimes_without_zone_in_all_iso_forms(tmp_path: Path, dtype: PolarsDataType) -> None:
    texts = ["2020-01-02", "2020-01-02 03:04", "2020-01-02T03:04:05", " 2020-01-02 03:04:05.123456000 ", ""]
    data = "value,row\n" + "".join(f"{text},0\n" for text in texts)
    assert convert(tmp_path, data, {"value": dtype})["value"].to_list() == [
        datetime(2020, 1, 2),  # noqa: DTZ001 - the column has no zone
        datetime(2020, 1, 2, 3, 4),  # noqa: DTZ001
        datetime(2020, 1, 2, 3, 4, 5),  # noqa: DTZ001
        datetime(2020, 1, 2, 3, 4, 5, 123456),  # noqa: DTZ001
        None,
    ]


def test_datetimes_with_zone_are_local_unless_they_have_an_offset(tmp_path: Path) -> None:
    texts = [
        "2020-06-01 12:00:00",
        "2020-06-01T12:00:00Z",
        "2020-06-01 12:00+05:30",
        "2020-10-25T02:30:00+01:00",
        "2020-10-25T02:30:00.5+0200",
    ]
    values = column(tmp_path, texts, pl.Datetime("us", "Europe/Berlin"))
    assert [value.astimezone(UTC).isoformat() for value in values] == [
        "2020-06-01T10:00:00+00:00",
        "2020-06-01T12:00:00+00:00",
        "2020-06-01T06:30:00+00:00",
        "2020-10-25T01:30:00+00:00",
        "2020-10-25T00:30:00.500000+00:00",
    ]


def test_nanoseconds_reach_from_1680_to_2261(tmp_path: Path) -> None:
    texts = ["1680-01-01 00:00:00", "2261-12-31 23:59:59.999999999", "1969-12-31", "2026-01-01"]
    frame = convert(tmp_path, "value\n" + "\n".join(texts), {"value": pl.Datetime("ns")})
    assert frame["value"].dt.to_string("%Y-%m-%d").to_list() == [text[:10] for text in texts]


def test_categories(tmp_path: Path) -> None:
    assert column(tmp_path, ["a", "b", "", "a"], pl.Categorical) == ["a", "b", None, "a"]
    assert column(tmp_path, ["a", '""', "", "b"], pl.Enum(["a", "b"])) == ["a", None, None, "b"]
    assert column(tmp_path, ["a", '""', ""], pl.Enum(["a", ""])) == ["a", "", None]


def test_types_are_declared_and_not_inferred_from_the_first_rows(tmp_path: Path) -> None:
    data = "a,b\n" + "1,x\n" * 70_000 + "2,late\n"
    frame = convert(tmp_path, data, {"a": pl.Int16, "b": pl.String})
    assert frame.height == 70_001
    assert frame.row(70_000) == (2, "late")
    assert frame.schema == pl.Schema({"a": pl.Int16(), "b": pl.String()})


# --- encodings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding",
    ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "shift_jis", "gb18030", "cp037"],
)
def test_encodings_give_the_same_data(tmp_path: Path, encoding: str) -> None:
    text = "name,n\n" + '"caf\n, a",1\n' * 3000
    text = text if encoding in ("shift_jis",) else text.replace("caf", "café")
    expected = convert(tmp_path, text, {"name": pl.String, "n": pl.Int8})
    assert expected.height == 3000
    frame = convert(tmp_path, text.encode(encoding), {"name": pl.String, "n": pl.Int8}, encoding=encoding)
    assert_frame_equal(frame, expected)


def test_characters_that_straddle_chunks_of_the_copy(tmp_path: Path) -> None:
    # One megabyte is read at a time; a row of 7 characters puts its line end at every offset of a chunk.
    text = "a,b\n" + "né,ü😀\n" * 200_000
    for encoding in ("utf-16-le", "gb18030"):
        frame = convert(tmp_path, text.encode(encoding), encoding=encoding)
        assert frame.height == 200_000
        assert frame.unique().rows() == [("né", "ü😀")]


def test_byte_order_mark_is_dropped_where_the_encoding_keeps_it(tmp_path: Path) -> None:
    data = codecs.BOM_UTF16_LE + "a,b\n1,2\n".encode("utf-16-le")
    assert convert(tmp_path, data, encoding="utf-16-le").columns == ["a", "b"]


# --- any table -----------------------------------------------------------------------------------------

_TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from(list("\",;\n\r\t ' é")),
    max_size=6,
)


@st.composite
def _tables(draw: st.DrawFn, texts: st.SearchStrategy[str] = _TEXTS) -> list[list[str]]:
    width = draw(st.integers(1, 5))
    return draw(st.lists(st.lists(texts, min_size=width, max_size=width), min_size=1, max_size=8))


@settings(max_examples=150, deadline=None)
@given(
    rows=_tables(),
    separator=st.sampled_from(",;\t|"),
    quote=st.sampled_from("\"'"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]),
)
def test_any_table_of_text_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[str]],
    separator: str,
    quote: str,
    line_end: str,
    encoding: str,
) -> None:
    names = [f"c{position}" for position in range(len(rows[0]))]
    text = io.StringIO(newline="")
    writer = csv.writer(
        text, delimiter=separator, quotechar=quote, lineterminator=line_end, quoting=csv.QUOTE_ALL
    )
    writer.writerows([names, *rows])
    frame = convert(
        tmp_path_factory.mktemp("table"),
        text.getvalue().encode(encoding),
        separator=separator,
        quote_char=quote,
        encoding=encoding,
    )
    assert_frame_equal(frame, pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row"))


@settings(max_examples=100, deadline=None)
# The writer leaves a carriage return bare, and at the end of a line that is half of a CRLF.
@given(rows=_tables(_TEXTS.filter(lambda text: "\r" not in text)), line_end=st.sampled_from(["\n", "\r\n"]))
def test_any_table_with_quotes_only_where_needed(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], line_end: str
) -> None:
    names = [f"c{position}" for position in range(len(rows[0]))]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows([names, *rows])
    frame = convert(tmp_path_factory.mktemp("table"), text.getvalue())
    # Unquoted, an empty field is null; the writer quotes it only where it is the whole record.
    expected = [[value or None if len(row) > 1 else value for value in row] for row in rows]
    assert_frame_equal(frame, pl.DataFrame(expected, schema=dict.fromkeys(names, pl.String), orient="row"))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False),
            st.none()
            | st.decimals(
                allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12
            ),
            st.none() | st.dates(),
            st.none() | st.datetimes(),
            st.none() | st.times(),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=10,
    ),
    blanks=st.sampled_from(["", " ", "\t "]),
)
def test_any_typed_values_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[Any, ...]], blanks: str
) -> None:
    schema = {
        "integer": pl.Int64(),
        "float": pl.Float64(),
        "decimal": pl.Decimal(20, 4),
        "date": pl.Date(),
        "datetime": pl.Datetime("us"),
        "time": pl.Time(),
        "boolean": pl.Boolean(),
    }
    lines = [",".join(schema)]
    for row in values:
        texts = (
            "" if value is None else format(value, "f") if isinstance(value, Decimal) else str(value)
            for value in row
        )
        lines.append(",".join(f"{blanks}{text}{blanks}" for text in texts))
    frame = convert(tmp_path_factory.mktemp("typed"), "\n".join(lines), schema)
    assert_frame_equal(frame, pl.DataFrame(values, schema=schema, orient="row"))
