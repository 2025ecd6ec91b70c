"""`astro ingest`: what is recorded of a delivery, said of one that comes again, and told by `--check`."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest
from typer.testing import Result

from astro_async._core.events import FileIngested, parse_event
from astro_async._core.manifest import parse_manifest
from astro_async._store.catalogue import load_run
from cli import commands

PIPELINE = """
import polars as pl
from astro_async import IngestFileSpec, Pipeline

pipeline = Pipeline(
    "shop",
    ingest_files=[
        IngestFileSpec("orders", "orders*", {"id": pl.Int64, "qty": pl.Int64, "day": pl.Date}),
        IngestFileSpec("items", "items*.csv", optional=True),
        IngestFileSpec(
            "prices", "prices*.csv", {"id": pl.Int64, "price": pl.Float64, "note": pl.String}, optional=True,
            missing_columns="insert", extra_columns="raise", separator=";", decimal_comma=True,
        ),
    ],
)
"""


def astro(*arguments: str) -> Result:
    return commands.astro(*arguments, code=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    return tmp_path


def deliver(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / "in" / f"{name}.csv").write_text(text)
    return str(folder / "in")


GOOD = "id,qty,day,note\n1,2,2026-01-01,x\n"


def test_what_was_delivered_is_recorded(folder: Path) -> None:
    source = deliver(folder, orders=GOOD, prices="id;price\n1;2,5\n")
    result = astro("ingest", source, "-C", str(folder), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    files = {file["name"]: file for file in document["ingested_files"]}
    content = (folder / "in/orders.csv").read_bytes()
    assert files["orders"]["source_sha256"] == hashlib.sha256(content).hexdigest()
    assert files["orders"]["source_size_bytes"] == len(content)
    assert files["orders"]["ignored_columns"] == ["note"]
    assert files["prices"]["inserted_columns"] == ["note"]
    directory = Path(document["run_directory"])
    events = [parse_event(line) for line in (directory / "events.jsonl").read_bytes().splitlines()]
    told = {event.name: event for event in events if isinstance(event, FileIngested)}
    assert told["orders"].source_sha256 == files["orders"]["source_sha256"]
    manifest = parse_manifest((directory / "manifest.json").read_bytes())
    assert [file.source_sha256 for file in manifest.ingested_files] == [
        event.source_sha256 for event in told.values()
    ]


def test_columns_that_are_left_out_or_inserted_are_said(folder: Path) -> None:
    source = deliver(folder, orders=GOOD, prices="id;price\n1;2,5\n")
    lines = astro("ingest", source, "-C", str(folder)).stdout.splitlines()
    assert lines[0].endswith("orders.csv; left out: 'note'")
    assert lines[1].endswith("prices.csv; not in the file, so null: 'note'")


def test_a_delivery_that_comes_again_is_said_and_taken(folder: Path) -> None:
    source = deliver(folder, orders=GOOD)
    first = json.loads(astro("ingest", source, "-C", str(folder), "--json").stdout)["run_id"]
    again = astro("ingest", source, "-C", str(folder), "--json")
    second = json.loads(again.stdout)["run_id"]
    assert again.exit_code == 0
    assert f"warning: run {second} has the very same files as run {first}, byte for byte" in again.stderr
    third = astro("ingest", source, "-C", str(folder))
    assert third.stderr.count(f"the very same files as run {second}") == 1
    assert "same" not in astro("ingest", deliver(folder, items="a\n1\n"), "-C", str(folder)).stderr
    assert "same" not in astro("ingest", deliver(folder, orders=f"{GOOD}\n"), "-C", str(folder)).stderr


def test_a_run_without_digests_or_with_a_torn_journal_is_no_reason_to_stop(folder: Path) -> None:
    source = deliver(folder, orders=GOOD)
    directories = [
        Path(json.loads(astro("ingest", source, "-C", str(folder), "--json").stdout)["run_directory"])
        for _ in range(2)
    ]
    old, torn = (directory / "events.jsonl" for directory in directories)
    lines = [json.loads(line) for line in old.read_bytes().splitlines()]
    for line in lines:
        line.pop("source_sha256", None)
        line.pop("ignored_columns", None)
    old.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    os.remove(directories[0] / "manifest.json")
    assert load_run(str(folder), directories[0].name).files["orders"].source_sha256 is None  # type: ignore[arg-type]
    torn.write_bytes(torn.read_bytes()[:200])
    result = astro("ingest", source, "-C", str(folder))
    assert result.exit_code == 0, result.output
    assert "same" not in result.stderr


def test_a_check_of_a_good_delivery_makes_no_run(folder: Path) -> None:
    source = deliver(folder, orders=GOOD, items="a,b\n1,2\n", prices="id;price\n1;2,5\n")
    before = sorted(os.walk(folder))
    result = astro("ingest", "--check", source, "-C", str(folder), "--json")
    assert result.exit_code == 0
    assert sorted(os.walk(folder)) == before
    document = json.loads(result.stdout)
    assert document["is_good"] is True
    found = {
        file["name"]: {column["name"]: column["verdict"] for column in file["columns"]}
        for file in document["files"]
    }
    assert found == {
        "orders": {"id": "ok", "qty": "ok", "day": "ok", "note": "left out"},
        "items": {"a": "ok", "b": "ok"},
        "prices": {"id": "ok", "price": "ok", "note": "null"},
    }
    assert [file["rows"] for file in document["files"]] == [1, 1, 1]
    text = astro("ingest", "--check", source, "-C", str(folder))
    assert text.stdout.splitlines()[0] == "orders, orders.csv: 1 row"
    assert text.stdout.splitlines()[-1] == "nothing stands in the way of an ingest"


def test_a_check_tells_all_that_does_not_fit(folder: Path) -> None:
    source = deliver(
        folder,
        orders="id,Qty,day\n1,2,2026-01-01\nx,secret,01/01/2026\ny,3,2026-01-03\n",
        items="a,b\n1\n",
        prices="id;price;Note\n1;2.5;\n",
        stray="a\n",
    )
    before = sorted(os.walk(folder))
    result = astro("ingest", "--check", source, "-C", str(folder), "--json")
    assert result.exit_code == 1
    assert sorted(os.walk(folder)) == before
    document = json.loads(result.stdout)
    assert document["problems"] == ["stray.csv is not expected: remove it, or add an IngestFileSpec for it"]
    orders, items, prices = document["files"]
    assert [(column["name"], column["verdict"], column["detail"]) for column in orders["columns"]] == [
        ("id", "bad", "line 3: 2 values not Int64"),
        ("qty", "missing", "'Qty' looks like it"),
        ("day", "bad", "line 3: 1 value not Date (YYYY-MM-DD)"),
        ("Qty", "left out", ""),
    ]
    assert len(orders["problems"]) == 2
    assert "line 2: 1 field where the file has 2 columns" in items["problems"][0]
    assert [(column["name"], column["verdict"]) for column in prices["columns"]] == [
        ("id", "ok"),
        ("price", "bad"),
        ("note", "null"),
        ("Note", "extra"),
    ]
    text = astro("ingest", "--check", source, "-C", str(folder))
    assert text.exit_code == 1
    assert "problem: stray.csv is not expected" in text.stdout
    assert "secret" not in text.output
    assert text.stdout.splitlines()[-1] == "this would not be ingested"


def test_a_check_of_a_file_with_none_of_the_columns(folder: Path) -> None:
    source = deliver(folder, orders="a;b\n1;2\n")
    document = json.loads(astro("ingest", "--check", source, "-C", str(folder), "--json").stdout)
    verdicts = [(column["name"], column["verdict"]) for column in document["files"][0]["columns"]]
    assert verdicts == [("id", "missing"), ("qty", "missing"), ("day", "missing"), ("a;b", "left out")]


def test_a_check_of_no_directory(folder: Path) -> None:
    result = astro("ingest", "--check", str(folder / "nowhere"), "-C", str(folder))
    assert result.exit_code == 1
    assert "does not exist: give the directory that holds the files" in result.stderr


def test_a_failed_ingest_of_a_packed_file_leaves_nothing(folder: Path) -> None:
    (folder / "in/orders.csv.gz").write_bytes(gzip.compress(GOOD.encode() * 99)[:-9])
    result = astro("ingest", str(folder / "in"), "-C", str(folder))
    assert result.exit_code == 1
    assert "ends in the middle of its gzip data" in result.stderr
    assert [name for name in os.listdir(folder / ".working") if not name.startswith(".ingest.")] == []


def test_a_check_ends_as_the_ingest_would_where_rows_would_be_parked(folder: Path) -> None:
    parking = PIPELINE.replace("pl.Date})", 'pl.Date}, on_bad_rows="quarantine")')
    (folder / "pipeline.py").write_text(parking)
    source = deliver(folder, orders="id,qty,day\n1,2,2026-01-01\nx,3,2026-01-02\n")
    checked = astro("ingest", "--check", source, "-C", str(folder))
    assert (checked.exit_code, checked.stdout.splitlines()[0]) == (
        3,
        "orders, orders.csv: 1 row; 1 row would be parked",
    )
    assert astro("ingest", "--check", source, "-C", str(folder), "--allow-quarantined").exit_code == 0
    assert astro("ingest", source, "-C", str(folder)).exit_code == 3
