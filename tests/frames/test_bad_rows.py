"""Rows of a source that cannot be read are parked with line and text, and all others survive, in order."""

from __future__ import annotations

import gzip
import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._executor.source_files import ConvertedFile, convert_file
from astro_async._frames.columns import REASON_COLUMN
from astro_async.exceptions import IngestError, PipelineError
from astro_async.ingest_spec import IngestFileSpec

TYPES = {"id": pl.Int64, "name": pl.String, "on": pl.Date}
BAD_ID = "column 'id': not Int64"
BAD_DAY = "column 'on': not Date (YYYY-MM-DD)"
FEW = "too few fields: the file has 3 columns"
MANY = "too many fields: the file has 3 columns"
UNCLOSED = "a quoted field begins here and is not closed"
STRAY = "a quote character in a field that is not quoted, or text after a closing quote"
NOT_TEXT = "bytes that are not utf-8"
NUL = "a NUL character"

Parked = list[tuple[int, int, str, str]]


def write(folder: Path, content: str | bytes, name: str = "source.csv") -> Path:
    source = folder / name
    source.write_bytes(content.encode() if isinstance(content, str) else content)
    return source


def convert(source: Path, **options: Any) -> tuple[list[tuple[Any, ...]], Parked, ConvertedFile]:
    """Convert, check that nothing but target and part is left, and return good rows and parked ones."""
    folder = source.parent
    target, part = folder / "target.parquet", folder / "part.parquet"
    before = sorted(os.listdir(folder))
    options = {"schema": TYPES, "on_bad_rows": "quarantine", **options}
    converted = convert_file(
        IngestFileSpec("x", "*", **options), str(source), str(target), claim_part=lambda: str(part)
    )
    parked: Parked = []
    made = ["target.parquet"]
    if converted.parked is not None:
        made.append("part.parquet")
        frame = pl.read_parquet(part)
        assert frame.columns == ["source_file", "line", "next_line", "raw_text", REASON_COLUMN]
        assert frame["source_file"].to_list() == [source.name] * frame.height
        assert converted.parked.rows == frame.height
        assert converted.parked.size_bytes == part.stat().st_size
        assert converted.parked.rows_in == converted.frame.rows + frame.height
        parked = frame.drop("source_file").rows()
    assert sorted(os.listdir(folder)) == sorted([*before, *made])
    good = pl.read_parquet(target).rows()
    assert converted.frame.rows == len(good)
    return good, parked, converted


def refuse(source: Path, **options: Any) -> str:
    """Convert, and return the words of the refusal, which leaves nothing behind."""
    before = sorted(os.listdir(source.parent))
    with pytest.raises(IngestError) as failure:
        convert(source, **options)
    assert sorted(os.listdir(source.parent)) == before
    return str(failure.value)


def names(good: list[tuple[Any, ...]]) -> list[Any]:
    return [row[1] for row in good]


MIXED = (
    b"id,name,on\n"  # 1
    b"1,a,2026-01-01\n"
    b'2,"b\nb",2026-01-02\n'  # 3, 4
    b"x,c,2026-01-03\n"  # 5
    b"\n"
    b"4,d\n"  # 7
    b'5,"e ""e""",2026-01-05\n'
    b"6,f,2026-01-06,more\n"  # 9
    b"7,\xff\xe9\\g,2026-01-07\n"  # 10
    b'8,"h,2026-01-08\n'  # 11
    b'9,"i",2026-01-09\n'
    b'10,5" j,2026-01-10\n'  # 13
    b'11,"k"k,2026-01-11\n'  # 14
    b'12,k "quoted" k,2026-01-12\n'
    b'y,"l\nl",yesterday\n'  # 16, 17
    b"13,\0,2026-01-13\n"  # 18
    b"14,m,\n"
    b"15,n,2026-02-30"  # 20
)
MIXED_GOOD = ["a", "b\nb", 'e "e"', "i", 'k "quoted" k', "m"]
MIXED_PARKED = [
    (5, 6, "x,c,2026-01-03", BAD_ID),
    (7, 8, "4,d", FEW),
    (9, 10, "6,f,2026-01-06,more", MANY),
    (10, 11, r"7,\xff\xe9\\g,2026-01-07", NOT_TEXT),
    (11, 12, '8,"h,2026-01-08', UNCLOSED),
    (13, 14, '10,5" j,2026-01-10', STRAY),
    (14, 15, '11,"k"k,2026-01-11', STRAY),
    (16, 18, 'y,"l\nl",yesterday', f"{BAD_ID}; {BAD_DAY}"),
    (18, 19, "13,\0,2026-01-13", NUL),
    (20, 21, "15,n,2026-02-30", BAD_DAY),
]


def test_every_kind_of_fault_in_one_file(tmp_path: Path) -> None:
    good, parked, converted = convert(write(tmp_path, MIXED))
    assert names(good) == MIXED_GOOD
    assert [row[0] for row in good] == [1, 2, 5, 9, 12, 14]
    assert parked == MIXED_PARKED
    assert converted.parked is not None
    assert converted.parked.reasons == {
        BAD_ID: 2,
        BAD_DAY: 2,
        FEW: 1,
        MANY: 1,
        UNCLOSED: 1,
        STRAY: 2,
        NOT_TEXT: 1,
        NUL: 1,
    }


def test_line_ends_marks_and_compression_change_nothing(tmp_path: Path) -> None:
    crlf = MIXED.replace(b"\n", b"\r\n")
    packed = write(tmp_path, gzip.compress(b"\xef\xbb\xbf" + MIXED), "packed.csv.gz")
    assert convert(packed)[1] == MIXED_PARKED
    for left in ("target.parquet", "part.parquet"):
        (tmp_path / left).unlink()
    good, parked, _ = convert(write(tmp_path, crlf))
    assert names(good) == [name.replace("\n", "\r\n") for name in MIXED_GOOD]
    assert parked == [
        (line, after, text.replace("\n", "\r\n"), why) for line, after, text, why in MIXED_PARKED
    ]


def test_without_a_schema_only_the_shape_of_a_line_can_be_bad(tmp_path: Path) -> None:
    good, parked, _ = convert(write(tmp_path, MIXED), schema=None)
    kept = ["a", "b\nb", "c", 'e "e"', "i", 'k "quoted" k', "l\nl", "m", "n"]
    assert names(good) == kept
    assert parked == [row for row in MIXED_PARKED if not row[3].startswith("column")]


def test_other_encodings(tmp_path: Path) -> None:
    text = "id,name,on\n1,é,2026-01-01\nx,ü,2026-01-02\n3,ß,2026-01-03\n"
    good, parked, _ = convert(write(tmp_path, text.encode("latin-1")), encoding="latin-1")
    assert names(good) == ["é", "ß"]
    assert parked == [(3, 4, "x,ü,2026-01-02", BAD_ID)]
    for left in ("target.parquet", "part.parquet"):
        (tmp_path / left).unlink()
    # 0x81 is no character of cp1252.
    source = write(tmp_path, text.encode("cp1252").replace(b"\xfc", b"\x81"))
    good, parked, _ = convert(source, encoding="cp1252")
    assert names(good) == ["é", "ß"]
    assert parked == [(3, 4, r"x,\x81,2026-01-02", "bytes that are not cp1252")]
    for left in ("target.parquet", "part.parquet"):
        (tmp_path / left).unlink()
    wide = text.encode("utf-16-le").replace("ü".encode("utf-16-le"), b"\x00\xdc")
    good, parked, _ = convert(write(tmp_path, wide), encoding="utf-16-le")
    assert names(good) == ["é", "ß"]
    assert parked == [(3, 4, r"x,\x00\xdc,2026-01-02", "bytes that are not utf-16-le")]


def test_a_clean_file_parks_nothing(tmp_path: Path) -> None:
    good, parked, converted = convert(write(tmp_path, "id,name,on\n1,a,2026-01-01\n"))
    assert (names(good), parked, converted.parked) == (["a"], [], None)


def test_all_rows_bad(tmp_path: Path) -> None:
    good, parked, _ = convert(write(tmp_path, "id,name,on\nx,a,\n1,b\n"))
    assert good == []
    assert parked == [(2, 3, "x,a,", BAD_ID), (3, 4, "1,b", FEW)]


def test_an_empty_table_and_an_empty_file(tmp_path: Path) -> None:
    assert convert(write(tmp_path, "id,name,on\n"))[:2] == ([], [])
    (tmp_path / "target.parquet").unlink()
    assert "0 bytes" in refuse(write(tmp_path, ""))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,name\n1,a\nx,b\n", "'on'"),
        ('id,"name,on\n1,a,2026-01-01\n', "quotes of the first line"),
        (b"id,n\xff,on\n1,a,2026-01-01\n", "not utf-8"),
        ("i\0d,name,on\n1,a,2026-01-01\n", "NUL"),
        ("id,name,name\n1,a,2026-01-01\nx\n", "twice"),
    ],
)
def test_a_missing_column_or_a_broken_header_refuses_the_file(
    content: str | bytes, words: str, tmp_path: Path
) -> None:
    assert words in refuse(write(tmp_path, content))


def test_limits(tmp_path: Path) -> None:
    source = write(tmp_path, "id,name,on\n1,a,\nx,b,\n3,c\n4,d,\n")
    for options in ({"max_bad_rows": 2}, {"max_bad_fraction": 0.5}):
        good, parked, _ = convert(source, **options)
        assert (names(good), len(parked)) == (["a", "d"], 2)
        for left in ("target.parquet", "part.parquet"):
            (tmp_path / left).unlink()
    told = refuse(source, max_bad_rows=1)
    assert "2 of 4 rows would be" in told
    assert "max_bad_rows=1" in told
    assert "max_bad_rows=0" in refuse(source, max_bad_rows=0)
    told = refuse(source, max_bad_rows=5, max_bad_fraction=0.49)
    assert "max_bad_fraction=0.49" in told
    assert "max_bad_rows" not in told


def test_without_quarantine_a_bad_row_refuses_the_file(tmp_path: Path) -> None:
    assert "line 2" in refuse(write(tmp_path, "id,name,on\nx,a,\n"), on_bad_rows="raise")


def test_a_line_of_another_separator_or_without_quoting(tmp_path: Path) -> None:
    source = write(tmp_path, 'id\tname\ton\n1\t5" a\t2026-01-01\nx\t"b\t\n3\tc\n', "source.tsv")
    good, parked, _ = convert(source, quote_char=None)
    assert names(good) == ['5" a']
    assert parked == [(3, 4, 'x\t"b\t', BAD_ID), (4, 5, "3\tc", FEW)]


def test_head_and_foot_are_left_out_as_ever(tmp_path: Path) -> None:
    text = "made today\n\nid;name;on\n1;a;\nx;b;\n3;c\ntotal: 3\n"
    good, parked, _ = convert(write(tmp_path, text), separator=";", skip_rows=1, skip_footer=1)
    assert names(good) == ["a"]
    assert parked == [(5, 6, "x;b;", BAD_ID), (6, 7, "3;c", FEW)]


def test_one_column_of_which_blank_lines_are_null(tmp_path: Path) -> None:
    good, parked, _ = convert(write(tmp_path, "id\n1\n\nx\n4,5\n6\n"), schema={"id": pl.Int64})
    assert good == [(1,), (None,), (6,)]
    columns = "too many fields: the file has 1 column"
    assert parked == [(4, 5, "x", BAD_ID), (5, 6, "4,5", columns)]


def test_a_long_record_of_several_lines_is_parked_whole(tmp_path: Path) -> None:
    text = 'id,name,on\n1,"a\na",,,\n2,"b\nb",\n3,"c,\n4,d,\n5,e,"\n'
    good, parked, _ = convert(write(tmp_path, text))
    assert names(good) == ["b\nb", "d"]
    assert parked == [
        (2, 4, '1,"a\na",,,', MANY),
        (6, 7, '3,"c,', UNCLOSED),
        (8, 9, '5,e,"', UNCLOSED),
    ]


def test_ndjson(tmp_path: Path) -> None:
    lines = (
        b'{"id": 1, "name": "a", "on": "2026-01-01"}\n'
        b'{"id": 2, "name": "b"\n'
        b"\n"
        b'{"id": "x", "name": "c\\nc", "on": null}\n'
        b"[1]\n"
        b'{"id": 5, "name": "\xff"}\n'
        b'{"id": 6, "name": "\\u0000"}\n'
        b'{"id": 7, "name": "g"}\n'
        b'{"id": 8.5}'
    )
    good, parked, _ = convert(write(tmp_path, lines, "source.ndjson"))
    assert names(good) == ["a", "g"]
    no_object = "not one JSON object"
    assert parked == [
        (2, 3, '{"id": 2, "name": "b"', no_object),
        (4, 5, '{"id": "x", "name": "c\\nc", "on": null}', BAD_ID),
        (5, 6, "[1]", no_object),
        (6, 7, r'{"id": 5, "name": "\xff"}', NOT_TEXT),
        (7, 8, '{"id": 6, "name": "\\u0000"}', NUL),
        (9, 10, '{"id": 8.5}', BAD_ID),
    ]


def test_what_cannot_be_parked_is_refused_as_a_pipeline(tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    pl.DataFrame({"id": [1]}).write_parquet(source)
    with pytest.raises(PipelineError, match="PARQUET"):
        convert(source)
    with pytest.raises(PipelineError, match="preprocess"):
        IngestFileSpec("x", "*", on_bad_rows="quarantine", preprocess=pl.read_csv).reading()
    with pytest.raises(PipelineError, match="max_bad_rows"):
        IngestFileSpec("x", "*", max_bad_rows=3).reading()


def test_raw_text_is_not_cut(tmp_path: Path) -> None:
    long = "x," + "ä" * 300_000 + ","
    good, parked, _ = convert(write(tmp_path, f"id,name,on\n1,a,\n{long}\n3,c,\n"))
    assert names(good) == ["a", "c"]
    assert parked == [(3, 4, long, BAD_ID)]


CELLS = st.text(alphabet='ab ,"\né\\', max_size=6)
FAULTS = st.sampled_from(
    [
        ("no number,z,", BAD_ID),
        ("9,z,32.1.2026", BAD_DAY),
        ("9,z", FEW),
        ("9,z,,more", MANY),
        ('9,"z"z,', STRAY),
        ("9,z\udcff,", NOT_TEXT),
        ("9,\0,", NUL),
        ('no number,"z\nz",', BAD_ID),
        ('9,"z\nz",,more', MANY),
    ]
)
# Of a quote that is never closed only what follows it can tell: it comes before a line of its own.
ROWS = st.lists(st.one_of(st.tuples(st.just("good"), CELLS), st.tuples(st.just("bad"), FAULTS)), max_size=30)


@pytest.mark.parametrize(("stray", "text"), [('9,z" z,', 'z" z'), ('9,z",', 'z"')])
def test_a_lone_quote_is_parked_or_kept_as_the_text_it_is(stray: str, text: str, tmp_path: Path) -> None:
    quoted, plain = '3,"\n\n",', "4,plain,"
    kept = 0
    for order in itertools.product([stray, quoted, plain], repeat=4):
        with TemporaryDirectory(dir=tmp_path) as folder:
            source = write(Path(folder), "\n".join(["id,name,on", *order, "5,last,"]))
            good, parked, _ = convert(source)
        ids = {stray: (9, text, None), quoted: (3, "\n\n", None), plain: (4, "plain", None)}
        if parked:
            assert good == [*(ids[line] for line in order if line != stray), (5, "last", None)]
            assert [row[2:] for row in parked] == [(stray, STRAY)] * order.count(stray)
        else:
            # Two of them with line ends in quotes between: to the reader nothing is wrong.
            assert good == [*(ids[line] for line in order), (5, "last", None)]
            kept += stray in order
    assert 0 < kept < 10


@settings(deadline=None)
@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_good_rows_are_those_untouched_and_parked_ones_those_injected(
    rows: list[tuple[str, Any]], line_end: str, ends: bool
) -> None:
    lines, expected, parked = ["id,name,on"], [], []
    number = 2
    for position, (kind, value) in enumerate(rows):
        if kind == "good":
            cell = value.replace("\n", line_end)
            expected.append((position, cell, None))
            text = f'{position},"{cell.replace(chr(34), chr(34) * 2)}",'
        else:
            text, why = value[0].replace("\n", line_end), value[1]
            after = number + 1 + text.count("\n")
            parked.append((number, after, text.replace("\udcff", "\\xff"), why))
        lines.append(text)
        number += 1 + text.count("\n")
    # At the very end the reader takes a lone quote for text, and passes over a separator too many.
    lines.append(f"{len(rows)},last,")
    expected.append((len(rows), "last", None))
    content = line_end.join(lines) + line_end * ends
    with TemporaryDirectory() as folder:
        source = write(Path(folder), content.encode("utf-8", "surrogateescape"))
        assert convert(source)[:2] == (expected, parked)


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_after_a_quote_that_is_never_closed_reading_takes_up_at_the_next_line(opens: list[bool]) -> None:
    lines = ["id,name,on"]
    for position, is_open in enumerate(opens):
        lines.append(f'{position},"{"open" if is_open else "whole" + chr(34)},')
    with TemporaryDirectory() as folder:
        good, parked, _ = convert(write(Path(folder), "\n".join(lines)))
    assert [row[0] for row in good] == [position for position, is_open in enumerate(opens) if not is_open]
    assert [row[:3] for row in parked] == [
        (position + 2, position + 3, lines[position + 1]) for position, is_open in enumerate(opens) if is_open
    ]
