"""Numbers and days as people write them: exactly one reading, or none."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async._frames.csv_convert import convert_csv
from astro_async._frames.csv_dialect import CsvDialect
from astro_async._frames.value_forms import ValueForms
from astro_async.exceptions import IngestError, PipelineError


def read(directory: Path, texts: list[str], dtype: Any, **forms: Any) -> list[Any]:
    """Read one column of the type beside one of text."""
    source, target = directory / "source.csv", directory / "target.parquet"
    target.unlink(missing_ok=True)
    source.write_text("row|value\n" + "".join(f"{row}|{text}\n" for row, text in enumerate(texts)), "utf-8")
    dialect = CsvDialect(separator="|", forms=ValueForms(**forms))
    convert_csv(str(source), str(target), dialect=dialect, schema={"row": pl.String, "value": dtype})
    frame = pl.read_parquet(target)
    assert frame["row"].to_list() == [str(row) for row in range(len(texts))]
    return frame["value"].to_list()


@pytest.mark.parametrize(
    ("dtype", "texts", "values"),
    [
        (pl.Float64, ["1,5", "-0,25", ",5", "3", "1,5e3", "", " 2,0 ", "nan"], None),
        (pl.Decimal(12, 2), ["1,5", "-1234,50", ",05", "7"], ["1.50", "-1234.50", "0.05", "7.00"]),
        (pl.Int64, ["12", "-3", ""], [12, -3, None]),
    ],
)
def test_a_comma_stands_before_decimals(tmp_path: Path, dtype: Any, texts: list[str], values: Any) -> None:
    found = read(tmp_path, texts, dtype, decimal_comma=True)
    if dtype == pl.Float64:
        assert found[:-1] == [1.5, -0.25, 0.5, 3.0, 1500.0, None, 2.0]
        assert found[-1] != found[-1]
    elif dtype == pl.Int64:
        assert found == values
    else:
        assert found == [Decimal(value) for value in values]


@pytest.mark.parametrize("text", ["1.5", "1,5,0", "1,", "x", "1 000,5", "1,005"])
def test_what_is_no_decimal_with_a_comma_is_an_error(tmp_path: Path, text: str) -> None:
    dtype = pl.Decimal(10, 2)
    if text == "1,":
        assert read(tmp_path, [text], dtype, decimal_comma=True) == [Decimal("1.00")]
        return
    with pytest.raises(IngestError, match="line 2, column 'value': 1 value that does not parse") as failure:
        read(tmp_path, [text], dtype, decimal_comma=True)
    assert "',' before decimals" in str(failure.value)


@pytest.mark.parametrize(
    ("mark", "texts"),
    [
        (".", ["1.234.567,5", "1234567,5"]),
        (" ", ["1 234 567,5", "1\u00a0234\u202f567,5"]),
        ("'", ["1'234'567,5", "1\u2019234\u2019567,5"]),
    ],
)
def test_thousands_may_be_set_apart(tmp_path: Path, mark: str, texts: list[str]) -> None:
    found = read(tmp_path, texts, pl.Float64, decimal_comma=True, thousands_separator=mark)
    assert found == [1234567.5, 1234567.5]
    whole = [text.removesuffix(",5") for text in texts]
    assert read(tmp_path, whole, pl.Int32, decimal_comma=True, thousands_separator=mark) == [1234567] * 2


def test_thousands_may_be_set_apart_by_commas_too(tmp_path: Path) -> None:
    assert read(tmp_path, ["1,234.5", "-12,345"], pl.Float64, thousands_separator=",") == [1234.5, -12345.0]


@pytest.mark.parametrize("text", ["1.23", "1.2345", "12.34.567", ".234", "1..234", "1234.567"])
def test_groups_have_three_digits(tmp_path: Path, text: str) -> None:
    with pytest.raises(IngestError, match="does not parse"):
        read(tmp_path, [text], pl.Int64, decimal_comma=True, thousands_separator=".")


def test_days_are_read_by_the_first_format_that_fits(tmp_path: Path) -> None:
    texts = ["01.02.2026", "1.2.26", "", "31.12.1999", "3 Feb 2026"]
    found = read(tmp_path, texts, pl.Date, date_formats=("%d.%m.%Y", "%d.%m.%y", "%d %b %Y"))
    assert found == [date(2026, 2, 1), date(2026, 2, 1), None, date(1999, 12, 31), date(2026, 2, 3)]


@pytest.mark.parametrize(
    "text", ["2026-02-01", "32.01.2026", "29.02.2025", "01.02.26", "01.02.0000", "01.02.2026 x", "1.2.12026"]
)
def test_a_day_in_no_format_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(IngestError, match=r"line 2, column 'value'.*written as %d\.%m\.%Y"):
        read(tmp_path, [text], pl.Date, date_formats={"value": ("%d.%m.%Y",)})


def test_digits_without_anything_between_them_have_their_full_width(tmp_path: Path) -> None:
    assert read(tmp_path, ["20260301"], pl.Date, date_formats=("%Y%m%d",)) == [date(2026, 3, 1)]
    with pytest.raises(IngestError):
        read(tmp_path, ["2026111"], pl.Date, date_formats=("%Y%m%d",))


def test_times_and_instants_have_formats_too(tmp_path: Path) -> None:
    american = read(tmp_path, ["3/1/2026 5:07 PM"], pl.Datetime, date_formats=("%m/%d/%Y %I:%M %p",))
    assert american == [datetime.fromisoformat("2026-03-01T17:07:00")]
    day_alone = read(tmp_path, ["01.03.2026"], pl.Datetime("ms"), date_formats=("%d.%m.%Y",))
    assert day_alone == [datetime.fromisoformat("2026-03-01T00:00:00")]
    fraction = read(tmp_path, ["01.03.2026 05:07:01.25"], pl.Datetime, date_formats=("%d.%m.%Y %H:%M:%S.%f",))
    assert fraction == [datetime.fromisoformat("2026-03-01T05:07:01.250000")]
    zone = pl.Datetime("us", "UTC")
    offset = read(tmp_path, ["01.03.2026 05:07 +0200"], zone, date_formats=("%d.%m.%Y %H:%M %z",))
    assert offset == [datetime(2026, 3, 1, 3, 7, tzinfo=UTC)]
    assert read(tmp_path, ["5:07"], pl.Time, date_formats=("%H:%M",)) == [time(5, 7)]


def test_a_local_time_that_a_clock_change_repeats_is_no_value(tmp_path: Path) -> None:
    zone = pl.Datetime("us", "Europe/Berlin")
    with pytest.raises(IngestError, match="does not parse"):
        read(tmp_path, ["25.10.2026 02:30"], zone, date_formats=("%d.%m.%Y %H:%M",))


def test_null_values_come_before_forms(tmp_path: Path) -> None:
    source, target = tmp_path / "source.csv", tmp_path / "target.parquet"
    source.write_text("day;amount\n00.00.0000;-\n01.02.2026;1,5\n")
    dialect = CsvDialect(
        separator=";",
        null_values=("-", "00.00.0000"),
        forms=ValueForms(decimal_comma=True, date_formats=("%d.%m.%Y",)),
    )
    schema = {"day": pl.Date, "amount": pl.Float64}
    convert_csv(str(source), str(target), dialect=dialect, schema=schema)
    assert pl.read_parquet(target).rows() == [(None, None), (date(2026, 2, 1), 1.5)]


@pytest.mark.parametrize(
    ("forms", "words"),
    [
        ({"thousands_separator": "x"}, "thousands_separator must be one of"),
        ({"thousands_separator": ","}, None),
        ({"thousands_separator": ",", "decimal_comma": True}, "cannot stand for decimals and thousands both"),
        ({"thousands_separator": "."}, "cannot stand for decimals and thousands both"),
        ({"date_formats": ("%d.%m.%Q",)}, "has %Q: the directives are"),
        ({"date_formats": ("d.m.Y",)}, "has no directive"),
        ({"date_formats": ("%d.%m.%",)}, "directive"),
        ({"date_formats": {"day": ()}}, "no format for column 'day'"),
    ],
)
def test_forms_that_make_no_sense_are_refused(forms: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert ValueForms(**forms).thousands_separator == ","
        return
    with pytest.raises(PipelineError, match=words):
        ValueForms(**forms)


@pytest.mark.parametrize(
    ("formats", "dtype", "words"),
    [
        ({"other": ("%d.%m.%Y",)}, pl.Date(), "names 'other', which is no column of days"),
        ({"day": ("%d.%m.%Y",)}, pl.Int64(), "names 'day', which is no column of days"),
        (("%d.%m.%Y",), pl.String(), "no column of the schema has days"),
        (("%d.%m.",), pl.Date(), "does not name a year, a month and a day"),
        (("%d.%m.%Y %H:%M",), pl.Date(), "has a time, which a Date cannot hold"),
        (("%d.%m.%Y :%M",), pl.Datetime("us"), "a time without its hour"),
        (("%d.%m.%Y %I:%M",), pl.Datetime("us"), "a time without its hour"),
        (("%d.%m.%Y %H %z",), pl.Datetime("us"), "declare a time zone"),
        (("%d.%m.%Y",), pl.Time(), "names no time of a day alone"),
    ],
)
def test_formats_must_go_with_their_columns(formats: Any, dtype: pl.DataType, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        ValueForms(date_formats=formats).check({"day": dtype})
