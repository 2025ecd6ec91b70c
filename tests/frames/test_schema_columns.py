"""Schemas of Pandera and dataframely say what the columns are, and what rows must be like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async._executor.source_files import convert_file
from astro_async.exceptions import IngestError, PipelineError
from astro_async.ingest_spec import IngestFileSpec

pa: Any = pytest.importorskip("pandera.polars")
dy: Any = pytest.importorskip("dataframely")


class Scores(pa.DataFrameModel):  # type: ignore[misc, unused-ignore]
    id: int
    score: float = pa.Field(ge=0)
    name: str = pa.Field(nullable=True)


class Orders(dy.Schema):  # type: ignore[misc, unused-ignore]
    id = dy.Int64(primary_key=True)
    amount = dy.Decimal(10, 2)
    kind = dy.Enum(["a", "b"])


def take_in(folder: Path, text: str, schema: Any, **options: Any) -> pl.DataFrame:
    source, target = folder / "source.csv", folder / "target.parquet"
    source.write_text(text)
    target.unlink(missing_ok=True)
    convert_file(IngestFileSpec("x", "*", schema, **options), str(source), str(target))
    return pl.read_parquet(target)


def refusal(folder: Path, text: str, schema: Any) -> str:
    with pytest.raises(IngestError) as failure:
        take_in(folder, text, schema)
    assert not (folder / "target.parquet").exists()
    return str(failure.value)


@pytest.mark.parametrize("schema", [Scores, Scores.to_schema()])
def test_pandera_gives_types(tmp_path: Path, schema: Any) -> None:
    frame = take_in(tmp_path, "score,extra,name,id\n1,x,,7\n", schema)
    assert frame.rows() == [(7, 1.0, None)]
    assert frame.schema == {"id": pl.Int64, "score": pl.Float64, "name": pl.String}


def test_checks_of_pandera_refuse_the_file_and_name_no_values(tmp_path: Path) -> None:
    message = refusal(tmp_path, "id,score,name\n1,-77,a\n2,,b\n3,-88,c\n", Scores)
    assert "score: greater_than_or_equal_to(0) (2)" in message
    assert "score: not_nullable (1)" in message
    assert "77" not in message


def test_uniqueness_is_judged_over_the_whole_file(tmp_path: Path) -> None:
    schema = pa.DataFrameSchema({"a": pa.Column(int, unique=True)})
    assert take_in(tmp_path, "a\n1\n2\n", schema).height == 2
    assert "a: field_uniqueness (2)" in refusal(tmp_path, "a\n1\n2\n1\n", schema)


def test_strictness_of_pandera_is_about_extra_columns(tmp_path: Path) -> None:
    text = "a,b\n1,2\n"
    for strict in ("filter", False):
        frame = take_in(tmp_path, text, pa.DataFrameSchema({"a": pa.Column(str)}, strict=strict))
        assert frame.rows() == [("1",)]
    strictly = pa.DataFrameSchema({"a": pa.Column(str)}, strict=True)
    assert "does not name: 'b'" in refusal(tmp_path, text, strictly)
    assert take_in(tmp_path, text, strictly, extra_columns="ignore").columns == ["a"]


def test_a_column_that_pandera_does_not_require_is_null_where_it_is_missing(tmp_path: Path) -> None:
    columns = {"a": pa.Column(int), "b": pa.Column(pl.Date, required=False, nullable=True)}
    frame = take_in(tmp_path, "a\n1\n", pa.DataFrameSchema(columns))
    assert frame.rows() == [(1, None)]
    assert frame.schema["b"] == pl.Date


def test_a_pattern_of_pandera_is_refused(tmp_path: Path) -> None:
    schema = pa.DataFrameSchema({"^a.*$": pa.Column(int, regex=True)})
    with pytest.raises(PipelineError, match="is a pattern; name each column"):
        take_in(tmp_path, "a\n1\n", schema)


def test_dataframely_gives_types_and_rules(tmp_path: Path) -> None:
    frame = take_in(tmp_path, "kind,id,amount\na,1,1.50\nb,2,2\n", Orders)
    assert frame.columns == ["id", "amount", "kind"]
    assert frame["kind"].to_list() == ["a", "b"]
    assert frame.schema["amount"] == pl.Decimal(10, 2)
    message = refusal(tmp_path, "kind,id,amount\na,1,1.50\nb,1,\n", Orders)
    assert "primary_key (2)" in message
    assert "amount: nullability (1)" in message


def test_values_that_do_not_parse_come_first(tmp_path: Path) -> None:
    assert "line 3, column 'id'" in refusal(tmp_path, "id,score,name\n1,-1,a\nx,1,b\n", Scores)


def test_what_preprocess_returns_is_judged_too(tmp_path: Path) -> None:
    good = take_in(
        tmp_path, "-", Scores, preprocess=lambda path: pl.DataFrame({"score": [1], "id": [2], "name": ["x"]})
    )
    assert good.rows() == [(2, 1.0, "x")]
    with pytest.raises(IngestError, match=r"score: greater_than_or_equal_to\(0\) \(1\)"):
        take_in(
            tmp_path,
            "-",
            Scores,
            preprocess=lambda path: pl.DataFrame({"score": [-1], "id": [2], "name": ["x"]}),
        )
