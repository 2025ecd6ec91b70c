"""Files that go out to a person and come back: every value as it was, every edit on its row."""

from __future__ import annotations

import datetime as dt
import string
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import xlsxwriter  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astro_async._frames.amendments import Amendment, compare_rows
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.desk_files import Separator, file_format, read_rows, write_rows
from astro_async._frames.patches import list_decisions
from astro_async.exceptions import DeskError

KINDS = ["csv", "parquet", "xlsx"]
UNDECIDED = list_decisions([])


def parked(columns: dict[str, pl.Series], rows: list[int | None] | None = None) -> pl.DataFrame:
    height = len(next(iter(columns.values())))
    numbers = pl.Series(ROW_COLUMN, list(range(height)) if rows is None else rows, dtype=pl.UInt64)
    reasons = pl.repeat("the author's words, and more", height, eager=True).alias(REASON_COLUMN)
    return pl.DataFrame([numbers, reasons, *(series.alias(name) for name, series in columns.items())])


def schema_of(frame: pl.DataFrame) -> pl.Schema:
    return pl.Schema({name: dtype for name, dtype in frame.schema.items() if not name.startswith("_astro_")})


def there_and_back(frame: pl.DataFrame, path: Path, **options: Any) -> Amendment:
    with path.open("wb") as file:
        write_rows(frame, file, file_format(str(path)), **options)
    back = read_rows(str(path), schema_of(frame))
    assert back.rows.schema == frame.drop(REASON_COLUMN).schema
    assert back.rows.equals(frame.drop(REASON_COLUMN), null_equal=True)
    return compare_rows(frame, back, UNDECIDED)


UTC = dt.UTC
TEXTS = st.text(alphabet=st.sampled_from(string.printable.replace("\r", "") + "äß€'\"\n,;\t"), max_size=8)
DAYS = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 30))
MOMENTS = st.builds(dt.datetime.combine, DAYS, st.times())
COLUMNS: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "text": (
        pl.String(),
        TEXTS | st.sampled_from(["", "007", " ", "null", '""', "NaN", "1e5", "a\n\nb", "=1+1"]),
    ),
    "whole": (pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    "large": (pl.UInt64(), st.integers(0, 2**64 - 1)),
    "float": (pl.Float64(), st.floats(allow_nan=True, allow_infinity=True)),
    "small float": (pl.Float32(), st.floats(width=32)),
    "exact": (pl.Decimal(38, 3), st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-3))),
    "truth": (pl.Boolean(), st.booleans()),
    "day": (pl.Date(), DAYS),
    "time": (pl.Time(), st.times()),
    "moment": (pl.Datetime("us"), MOMENTS),
    "instant": (pl.Datetime("us", "UTC"), MOMENTS.map(lambda each: each.replace(tzinfo=UTC))),
    "span": (pl.Duration("us"), st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))),
    "kind": (pl.Categorical(), TEXTS),
    "one of": (pl.Enum(["a", "b c", ""]), st.sampled_from(["a", "b c", ""])),
    "bytes": (pl.Binary(), st.binary(max_size=4)),
    "list": (pl.List(pl.Int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3)),
    "struct": (
        pl.Struct({"x": pl.Decimal(20, 2), "y": pl.List(pl.String())}),
        st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(-(10**17), 10**17).map(lambda n: Decimal(n).scaleb(-2)),
                "y": st.none() | st.lists(st.none() | TEXTS, max_size=2),
            }
        ),
    ),
    "list of structs": (
        pl.List(pl.Struct({"f": pl.Float64(), "t": pl.Datetime("ms", "UTC")})),
        st.lists(
            st.none()
            | st.fixed_dictionaries(
                {
                    "f": st.none() | st.floats(),
                    "t": st.none()
                    | st.dates(dt.date(1970, 1, 1)).map(
                        lambda day: dt.datetime(day.year, day.month, day.day, tzinfo=UTC)
                    ),
                }
            ),
            max_size=2,
        ),
    ),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=6, unique=True))
    height = draw(st.integers(1, 5))
    columns = {}
    for name in names:
        dtype, values = COLUMNS[name]
        drawn = draw(st.lists(st.none() | values, min_size=height, max_size=height))
        columns[name] = pl.Series(name, drawn, dtype=dtype)
    return parked(columns)


LIMITS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@LIMITS
@given(frame=frames(), separator=st.sampled_from([",", ";"]), has_mark=st.booleans())
def test_csv_that_nobody_touched_changes_nothing(
    tmp_path: Path, frame: pl.DataFrame, separator: Separator, has_mark: bool
) -> None:
    amendment = there_and_back(frame, tmp_path / "rows.csv", separator=separator, has_mark=has_mark)
    assert (amendment.rows, amendment.changes) == (0, ())
    assert amendment.rows_given == amendment.rows_parked == frame.height


@LIMITS
@given(before=frames(), data=st.data())
def test_edits_land_on_exactly_their_rows(tmp_path: Path, before: pl.DataFrame, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(before.columns[2:]))
    dtype, values = COLUMNS[name]
    edited = data.draw(st.sets(st.integers(0, before.height - 1)))
    new = [data.draw(st.none() | values) if row in edited else each for row, each in enumerate(before[name])]
    after = before.with_columns(pl.Series(name, new, dtype=dtype))
    # In any order, and some left out.
    kept = data.draw(st.permutations(range(before.height)))[: data.draw(st.integers(1, before.height))]
    path = tmp_path / "rows.csv"
    with path.open("wb") as file:
        write_rows(after[kept], file, "csv")
    amendment = compare_rows(before, read_rows(str(path), schema_of(before)), UNDECIDED)
    differs = before[name].ne_missing(after[name])
    expected = [row for row in range(before.height) if row in kept and differs[row]]
    assert amendment.positions.to_list() == expected
    assert amendment.original.equals(before[expected, 2:], null_equal=True)
    assert amendment.replacement.equals(after[expected, 2:], null_equal=True)
    assert sum(change.rows for change in amendment.changes) == len(expected)


def everything() -> pl.DataFrame:
    instants = pl.Series(["2026-10-25 00:30:00", "2026-10-25 01:30:00", "1850-01-01 00:00:00"])
    utc = instants.str.to_datetime("%Y-%m-%d %H:%M:%S", time_zone="UTC")
    return parked(
        {
            "id": pl.Series(["007", "", None]),
            "text": pl.Series(['say "no", or\nelse; so', " both ", "=SUM(A1)"]),
            "amount": pl.Series(["1.10", None, "-99999999999999999.01"]).cast(pl.Decimal(19, 2)),
            # The hour that a clock change repeats, and a day of an offset with seconds.
            "berlin": utc.dt.convert_time_zone("Europe/Berlin"),
            "tick": pl.Series([1, None, -1]).cast(pl.Datetime("ns")),
            "pair": pl.Series([[1, None], None, [3, 4]], dtype=pl.Array(pl.Int16, 2)),
            "nothing": pl.Series([None, None, None]),
            "tags": pl.Series([[""], [], None], dtype=pl.List(pl.String)),
            "truth": pl.Series([True, None, False]),
        },
        rows=[3, 7, None],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_value_in_every_format(kind: str, tmp_path: Path) -> None:
    assert there_and_back(everything(), tmp_path / f"rows.{kind}").rows == 0


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_name_of_a_column_in_every_format(kind: str, separator: Separator, tmp_path: Path) -> None:
    names = ['say "hi"', "x,y", "a;b", "two\nlines", '"', '""', " padded ", "column_3", "tab\there", "ä"]
    frame = parked({name: pl.Series([f"{name} 0", None]) for name in names})
    path = tmp_path / f"rows.{kind}"
    assert there_and_back(frame, path, separator=separator).rows == 0
    edited = frame.with_columns(pl.Series('say "hi"', ['say "hi" 0', "new"]))
    with path.open("wb") as file:
        write_rows(edited, file, kind, separator=separator)
    amendment = compare_rows(frame, read_rows(str(path), schema_of(frame)), UNDECIDED)
    assert [(each.column, each.rows) for each in amendment.changes] == [('say "hi"', 1)]
    assert amendment.replacement.rows() == [("new", *[None] * (len(names) - 1))]


def test_of_many_columns_only_some_are_named(tmp_path: Path) -> None:
    frame = parked({f"c{number}": pl.Series([1]) for number in range(300)})
    path = tmp_path / "rows.csv"
    path.write_text(f"{ROW_COLUMN},c0\n0,1\n")
    with pytest.raises(DeskError) as caught:
        read_rows(str(path), schema_of(frame))
    assert str(caught.value) == (
        f"{path} lacks 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8' and 291 more: the columns are those of "
        f"the export, '{ROW_COLUMN}' and 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7' and 292 more. "
        "Nothing is stored"
    )


def test_null_and_empty_text_stay_apart_in_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    there_and_back(parked({"id": pl.Series(["", None, "007"])}), path)
    words = '"the author\'s words, and more"'
    assert path.read_text() == f'{ROW_COLUMN},{REASON_COLUMN},id\n0,{words},""\n1,{words},\n2,{words},007\n'


def test_what_a_spreadsheet_does_to_a_file_is_understood(tmp_path: Path) -> None:
    """A mark, semicolons, CRLF, capitals, other order of columns, no reasons, blank lines at the end."""
    frame = parked({"id": pl.Series(["007", "008"]), "truth": pl.Series([True, None])})
    path = tmp_path / "rows.csv"
    path.write_bytes(f"\ufefftruth;{ROW_COLUMN};id\r\nFALSE;1;008\r\nTRUE;0;007\r\n;;\r\n".encode())
    amendment = compare_rows(frame, read_rows(str(path), schema_of(frame)), UNDECIDED)
    assert amendment.positions.to_list() == [1]
    assert amendment.replacement.rows() == [("008", False)]


def test_a_reformatted_column_is_suspicious(tmp_path: Path) -> None:
    frame = parked({"id": pl.Series([f"00{n}" for n in range(8)]), "n": pl.Series(range(8))})
    path = tmp_path / "rows.csv"
    lines = [f"{ROW_COLUMN},id,n", *(f"{n},{n},{9 if n == 3 else n}" for n in range(8))]
    path.write_text("\n".join(lines))
    changes = {
        each.column: each
        for each in compare_rows(frame, read_rows(str(path), schema_of(frame)), UNDECIDED).changes
    }
    assert (changes["id"].rows, changes["id"].is_suspicious) == (8, True)
    assert (changes["n"].rows, changes["n"].is_suspicious) == (1, False)


SMALL = parked({"id": pl.Series(["a", "b"]), "score": pl.Series([1, 2])}, rows=[4, 6])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (f"{ROW_COLUMN},id\n4,a\n", "lacks 'score'"),
        (f"{ROW_COLUMN},id,score,extra\n4,a,1,x\n", "has 'extra'"),
        (f"{ROW_COLUMN},id,score,id\n4,a,1,x\n", "has 'id' twice"),
        ("id,score\na,1\n", f"lacks '{ROW_COLUMN}'"),
        (f"{ROW_COLUMN},id,score\n4,a\n", "line 2: 2 fields where the header has 3"),
        (f"{ROW_COLUMN},id,score\n4,a,1,9\n", "line 2: 4 fields"),
        (f'{ROW_COLUMN},id,score\n4,"a,1\n', "line 2: quotes"),
        (f'{ROW_COLUMN},id,score\n4,"a\nb",1\n6,b,secret\n', "line 4, column 'score': not Int64"),
        (f"{ROW_COLUMN},id,score\n4,a,1.5\n", "line 2, column 'score': not Int64"),
        (f"{ROW_COLUMN},id,score\nx,a,1\n", f"line 2, column '{ROW_COLUMN}': not UInt64"),
        (f"{ROW_COLUMN},id,score\n5,a,1\n", f"line 2: {ROW_COLUMN} is that of no parked row"),
        (f"{ROW_COLUMN},id,score\n4,a,1\n4,a,7\n", f"line 2, line 3: {ROW_COLUMN} is there twice"),
        (f"{ROW_COLUMN},id,score\n,a,1\n", f"line 2: {ROW_COLUMN} is empty"),
    ],
)
def test_what_does_not_fit_is_refused_by_line_and_without_values(
    content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(DeskError) as caught:
        compare_rows(SMALL, read_rows(str(path), schema_of(SMALL)), UNDECIDED)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(f"{ROW_COLUMN},id,score\n4,\xe4,1\n".encode("latin-1"))
    with pytest.raises(DeskError, match="line 2: bytes that are not UTF-8"):
        read_rows(str(path), schema_of(SMALL))


@pytest.mark.parametrize("kind", KINDS)
def test_rubbish_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(b"\x00rubbish")
    with pytest.raises(DeskError, match=f"rows.{kind}"):
        read_rows(str(path), schema_of(SMALL))
    with pytest.raises(DeskError, match="does not exist"):
        read_rows(str(tmp_path / f"none.{kind}"), schema_of(SMALL))


def test_a_parquet_of_other_types_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    SMALL.with_columns(score=pl.Series(["1", "2"])).write_parquet(path)
    with pytest.raises(DeskError, match=r"'score' \(String to Int64\)"):
        read_rows(str(path), schema_of(SMALL))


def write_cells(path: Path, rows: list[list[Any]]) -> None:
    """Write a workbook in which days and instants are cells of dates, as a spreadsheet makes them."""
    with xlsxwriter.Workbook(str(path)) as book:
        sheet, shown = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd"})
        for number, values in enumerate(rows):
            for column, value in enumerate(values):
                if isinstance(value, dt.date):
                    sheet.write_datetime(number, column, value, shown)
                else:
                    sheet.write(number, column, value)


def test_cells_of_dates_are_days_and_instants(tmp_path: Path) -> None:
    day, moment = dt.date(2026, 2, 28), dt.datetime.fromisoformat("2026-03-01 04:05:06.250")
    frame = parked(
        {
            "day": pl.Series([day, day, None], dtype=pl.Date),
            "moment": pl.Series([moment, moment, None], dtype=pl.Datetime("us")),
        }
    )
    path = tmp_path / "rows.xlsx"
    head = [ROW_COLUMN, "day", "moment"]
    midnight = dt.datetime.fromisoformat("2026-12-31")
    # Untouched but made dates of; other ones; one as text, and a day where an instant is due.
    rows = [
        ["0", day, moment],
        ["1", dt.date(2026, 3, 1), midnight],
        ["2", "2026-01-02", dt.date(1999, 1, 1)],
    ]
    write_cells(path, [head, *rows])
    amendment = compare_rows(frame, read_rows(str(path), schema_of(frame)), UNDECIDED)
    assert amendment.positions.to_list() == [1, 2]
    assert amendment.replacement.rows() == [
        (dt.date(2026, 3, 1), midnight),
        (dt.date(2026, 1, 2), dt.datetime.fromisoformat("1999-01-01")),
    ]


def test_a_cell_with_a_time_is_no_day(tmp_path: Path) -> None:
    frame = parked(
        {
            "day": pl.Series([None, None], dtype=pl.Date),
            "instant": pl.Series([None, None], dtype=pl.Datetime("us", "UTC")),
        }
    )
    path = tmp_path / "rows.xlsx"
    head = [ROW_COLUMN, "day", "instant"]
    moment = dt.datetime.fromisoformat("2026-03-01 00:00:01")
    write_cells(path, [head, ["0", dt.date(2026, 3, 1)], ["1", moment]])
    with pytest.raises(DeskError, match=r"row 3, column 'day': not Date"):
        read_rows(str(path), schema_of(frame))
    # As a text without offset, it is of the zone of the column.
    write_cells(path, [head, ["0", dt.date(2026, 3, 1), moment]])
    back = read_rows(str(path), schema_of(frame)).rows
    assert back.rows() == [(0, dt.date(2026, 3, 1), moment.replace(tzinfo=UTC))]


def test_a_cell_that_a_sheet_cannot_hold_is_refused(tmp_path: Path) -> None:
    for text in ("x" * 32_768, "a\rb", '""'):
        with (
            (tmp_path / "rows.xlsx").open("wb") as file,
            pytest.raises(DeskError, match=r"export to \.(csv|parquet)"),
        ):
            write_rows(parked({"id": pl.Series([text])}), file, "xlsx")


@pytest.mark.parametrize("package", ["xlsxwriter", "fastexcel"])
def test_the_extra_is_named_where_it_is_missing(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.xlsx"
    there_and_back(SMALL, path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DeskError, match=r"astro-async\[xlsx\]"):
        there_and_back(SMALL, path)


def test_another_ending_is_refused() -> None:
    with pytest.raises(DeskError, match=r"ends as none of \.csv, \.parquet, \.xlsx"):
        file_format("rows.ods")
