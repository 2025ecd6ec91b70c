"""The two sides of a streamed frame: every row, in order, wherever batches end and what waits on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from polars.io.plugins import register_io_source
from polars.testing import assert_frame_equal

from astro_async._frames import partition
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.parquet import load_frame, write_frame
from astro_async._frames.partition import write_sides
from astro_async._frames.removal import split_removed_lazy
from astro_async._frames.split import split_lazy, split_rows
from astro_async._frames.verdict import RowRule
from astro_async.exceptions import ConservationError, StorageError

x = pl.col("x")
COUNT = 100_000
SOME = {
    "none": x >= 0,
    "all": x < 0,
    "every other": x % 2 == 0,
    "the first": x > 0,
    "the last": x < COUNT - 1,
    "at the edges of row groups": ~(x % 32_768).is_in([0, 32_767]),
    "a long run": ~x.is_between(20_000, 80_000),
}


def make_frame(count: int = COUNT) -> pl.DataFrame:
    number = pl.int_range(count)
    return pl.select(
        x=number,
        text=pl.concat_str(pl.lit("some text of row "), number),
        price=(number % 1000).cast(pl.Decimal(10, 2)) / Decimal(4),
        kind=pl.when(number % 7 > 0).then(pl.concat_str(pl.lit("kind "), number % 5)).cast(pl.Categorical),
        level=pl.when(number % 2 == 0)
        .then(pl.lit("high"))
        .otherwise(pl.lit("low"))
        .cast(pl.Enum(["low", "high"])),
        inner=pl.struct(a=number, b=pl.concat_list(number.cast(pl.Float64), pl.lit(float("nan")))),
        at=pl.datetime(2024, 1, 1, time_zone="Europe/Berlin") + pl.duration(seconds=number),
    )


def scan_in_batches(frame: pl.DataFrame, sizes: list[int]) -> pl.LazyFrame:
    """Make a plan that gives the rows in batches of just these sizes."""

    def read(
        columns: list[str] | None, _predicate: object, _rows: int | None, _batch: int | None
    ) -> list[pl.DataFrame]:
        chosen = frame if columns is None else frame.select(columns)
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        return [chosen[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    return register_io_source(lambda *asked: iter(read(*asked)), schema=frame.schema)


@pytest.fixture(params=["held in memory", "waiting on the disk"])
def held_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "waiting on the disk":
        monkeypatch.setattr(partition, "_HELD_BYTES", 10_000)


@pytest.mark.usefixtures("held_bytes")
@pytest.mark.parametrize("valid", SOME.values(), ids=SOME)
def test_both_sides_are_as_in_memory(valid: pl.Expr, tmp_path: Path) -> None:
    frame = make_frame()
    write_frame(frame, f"{tmp_path}/source.parquet")
    rules = [RowRule("r", valid), RowRule("every third", (x % 3 > 0) | valid)]
    expected = split_rows(frame, rules)
    done = split_lazy(
        pl.scan_parquet(f"{tmp_path}/source.parquet"),
        rules,
        good_path=f"{tmp_path}/good.parquet",
        bad_path=f"{tmp_path}/bad.parquet",
    )
    assert_frame_equal(load_frame(f"{tmp_path}/good.parquet"), expected.good)
    assert (done.good.rows, done.bad.rows) == (expected.good.height, expected.bad.height)
    assert (done.counts, done.warnings) == (expected.counts, expected.warnings)
    left = {"source.parquet", "good.parquet"}
    if expected.bad.height:
        left.add("bad.parquet")
        assert_frame_equal(load_frame(f"{tmp_path}/bad.parquet"), expected.bad)
    assert set(os.listdir(tmp_path)) == left


@pytest.mark.usefixtures("held_bytes")
@pytest.mark.parametrize(
    "sizes", [[1], [1, 0, 1, 4998, 1], [2500, 2500], [4999, 1], [0, 5000, 0], [50] * 100]
)
def test_batches_may_end_anywhere(sizes: list[int], tmp_path: Path) -> None:
    frame = make_frame(sum(sizes))
    kept, removed = f"{tmp_path}/kept.parquet", f"{tmp_path}/removed.parquet"
    last = sum(sizes) - 1
    verdict = (x % 50).is_in([0, 49]) | (x == last)
    split_removed_lazy(
        scan_in_batches(frame, sizes), verdict, remove=True, kept_path=kept, removed_path=removed
    )
    assert_frame_equal(load_frame(kept), frame.filter(~verdict))
    assert_frame_equal(load_frame(removed), frame.filter(verdict))
    assert set(os.listdir(tmp_path)) == {"kept.parquet", "removed.parquet"}


def test_warnings_are_counted_over_all_batches(tmp_path: Path) -> None:
    rules = [RowRule("even", x % 2 == 0, only_warns=True), RowRule("r", x != 7)]
    done = split_lazy(
        scan_in_batches(make_frame(1000), [10] * 100),
        rules,
        good_path=f"{tmp_path}/good.parquet",
        bad_path=f"{tmp_path}/bad.parquet",
    )
    assert (done.counts, done.warnings) == ({"r": 1}, {"even": 500})
    assert load_frame(f"{tmp_path}/bad.parquet").select("x", REASON_COLUMN, ROW_COLUMN).rows() == [
        (7, "r", 7)
    ]


def test_a_disk_that_refuses_what_waits_is_no_rule_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "_HELD_BYTES", 0)
    (tmp_path / "bad.parquet.aside").touch()
    with pytest.raises(StorageError, match="aside could not be written"):
        split_lazy(
            make_frame(10).lazy(),
            [RowRule("r", x < 5)],
            good_path=f"{tmp_path}/good.parquet",
            bad_path=f"{tmp_path}/bad.parquet",
        )
    assert not os.path.exists(f"{tmp_path}/good.parquet")
    assert not os.path.exists(f"{tmp_path}/bad.parquet")


def test_a_batch_that_is_missing_is_noticed(tmp_path: Path) -> None:
    frame = make_frame(10).with_columns(pl.Series(ROW_COLUMN, [*range(5), *range(6, 11)], dtype=pl.UInt32))
    with pytest.raises(ConservationError, match="after 5 rows"):
        write_sides(
            scan_in_batches(frame, [5, 5]),
            lambda batch: (batch["x"] > 3, batch.filter(x <= 3).select("x")),
            true_schema=pl.Schema({"x": pl.Int64()}),
            false_schema=pl.Schema({"x": pl.Int64()}),
            true_path=f"{tmp_path}/true.parquet",
            false_path=f"{tmp_path}/false.parquet",
        )
    assert os.listdir(tmp_path) == []


def test_one_thread_is_enough(tmp_path: Path) -> None:
    code = """
import sys
import polars as pl
from astro_async._frames import partition
from astro_async._frames.split import split_lazy
from astro_async._frames.verdict import RowRule
partition._HELD_BYTES = 10_000
assert pl.thread_pool_size() == 1
frame = pl.LazyFrame({"x": range(200_000)})
rules = [RowRule("r", pl.col("x") % 3 > 0), RowRule("twin", pl.col("x").is_unique())]
done = split_lazy(frame, rules, good_path=sys.argv[1], bad_path=sys.argv[2])
print(done.good.rows, done.bad.rows)
"""
    good, bad = f"{tmp_path}/good.parquet", f"{tmp_path}/bad.parquet"
    done = subprocess.run(
        [sys.executable, "-c", code, good, bad],
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout == "133333 66667\n"
    assert load_frame(bad)["x"].to_list() == list(range(0, 200_000, 3))


def test_a_few_rows_do_not_keep_the_texts_of_their_batch(tmp_path: Path) -> None:
    batch = make_frame(1000).with_columns(text=pl.concat_str("text", pl.lit("x" * 1000)))
    aside = partition._Aside(batch.schema, f"{tmp_path}/aside")
    aside.add(0, batch.height, batch.filter(x == 7))
    assert sum(map(len, aside._held)) < 10_000
    assert aside.finish() == 1000
    assert aside.write(f"{tmp_path}/false.parquet").rows == 1
    assert_frame_equal(load_frame(f"{tmp_path}/false.parquet"), batch.filter(x == 7))
