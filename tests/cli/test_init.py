"""`astro init`: what it makes runs at once, and it overwrites nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from cli.commands import astro, document, tree


def test_what_is_made_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = astro("init")
    assert made.stdout.splitlines()[-1] == "next: astro ingest source && astro run"
    files = {"pipeline.py", "source", "source/orders.csv", "source/customers.csv"}
    assert tree(tmp_path) == files
    astro("ingest", "source")
    astro("run")
    (run,) = document("list")["runs"]
    assert (run["status"], run["step_counts"]) == ("completed", {"complete": 4})
    totals = pl.read_parquet(tmp_path / ".working" / run["run_id"] / "processed" / "totals.parquet")
    amounts = dict(totals.with_columns(pl.col("amount").cast(pl.Float64)).rows())
    assert amounts == {"DE": 39.9, "GB": 9.0 + 42.0 + 12.0, "US": 7.2 + 21.6 + 4.5}
    assert sum(value for _, value in totals.rows()) == Decimal("136.20")


def test_what_its_comments_promise(tmp_path: Path) -> None:
    made = astro("init", tmp_path / "new" / "orders")
    folder = tmp_path / "new" / "orders"
    assert f"next: cd {folder} && astro ingest source" in made.stdout
    orders = folder / "source" / "orders.csv"
    orders.write_text(orders.read_text().replace("tea,10,", "tea,-1,"))
    astro("ingest", folder / "source", "-C", folder)
    assert "1 row: the quantity is not above 0" in astro("run", "-C", folder, code=3).stdout


@pytest.mark.parametrize("name", ["pipeline.py", "source/orders.csv"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = tree(tmp_path)
    refused = astro("init", tmp_path, code=1)
    assert refused.stderr.startswith(f"error: {tmp_path} has {name} already")
    assert (path.read_text(), tree(tmp_path)) == ("mine", before)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in astro("init", tmp_path / "file" / "orders", code=1).stderr
