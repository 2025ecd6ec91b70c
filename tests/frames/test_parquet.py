"""Parquet files: what is written is read back, and what cannot be written leaves nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

from astro_async._frames.parquet import (
    WrittenFrame,
    count_rows,
    iter_frame,
    load_frame,
    load_parts,
    read_schema,
    scan_frame,
    write_frame,
)
from astro_async.exceptions import StepError, StorageError
from frames.samples import SCHEMA, contents, frames

REASON = "_astro_quarantine_reason"


@given(frame=frames())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_frames_survive_the_round_trip(frame: pl.DataFrame, tmp_path: Path) -> None:
    path = f"{tmp_path}/a=1 [x]*.parquet"
    for given_frame in (frame, frame.lazy()):
        written = write_frame(given_frame, path)
        assert written == WrittenFrame(frame.height, frame.width, os.path.getsize(path))
        assert contents(load_frame(path)) == contents(frame)
        assert (read_schema(path), count_rows(path)) == (frame.schema, frame.height)
        assert contents(scan_frame(path).collect()) == contents(frame)
        os.remove(path)


def test_some_columns_are_loaded_in_the_order_asked(tmp_path: Path) -> None:
    path = f"{tmp_path}/f.parquet"
    write_frame(pl.DataFrame({"a": [1], "b": [2], "c": [3]}), path)
    assert load_frame(path, ["c", "a"]).select("c", "a").rows() == [(3, 1)]
    assert set(load_frame(path, ["c", "a"]).columns) == {"a", "c"}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([object()], pl.Object()),
        ([{}], pl.Struct([])),
        ([[{}]], pl.List(pl.Struct([]))),
        ([{"a": {}}], pl.Struct({"a": pl.Struct([])})),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_what_parquet_cannot_hold_is_named_and_leaves_no_file(
    values: list[object], dtype: pl.DataType, lazy: bool, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"fine": [1], "odd": pl.Series(values, dtype=dtype)})
    with pytest.raises(StepError, match="'odd'") as caught:
        write_frame(frame.lazy() if lazy else frame, f"{tmp_path}/f.parquet")
    assert "'fine'" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lazy", [False, True])
def test_a_missing_folder_is_a_storage_error(lazy: bool, tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1]})
    with pytest.raises(StorageError, match=r"nowhere/f\.parquet could not be written"):
        write_frame(frame.lazy() if lazy else frame, f"{tmp_path}/nowhere/f.parquet")


WRITE_UNDER_A_LIMIT = """
import sys
import polars as pl
from astro_async._frames.parquet import write_frame
from astro_async.exceptions import StorageError
frame = pl.select(x=pl.int_range(3_000_000).shuffle(seed=1))
for given in (frame, frame.lazy()):
    try:
        write_frame(given, sys.argv[1])
    except StorageError as error:
        print("refused", sys.argv[1] in str(error))
"""


def limit_file_size() -> None:
    # Without this the kernel would end the process instead of failing the write.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_write_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_LIMIT, f"{tmp_path}/f.parquet"],
        preexec_fn=limit_file_size,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["refused True", "refused True"]
    assert list(tmp_path.iterdir()) == []


def test_a_failing_plan_raises_its_own_error_and_leaves_no_file(tmp_path: Path) -> None:
    plan = pl.LazyFrame({"x": ["1", "z"]}).select(pl.col("x").cast(pl.Int64))
    with pytest.raises(pl.exceptions.InvalidOperationError):
        write_frame(plan, f"{tmp_path}/f.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lazy", [False, True])
def test_a_file_that_is_there_is_never_written_over(lazy: bool, tmp_path: Path) -> None:
    path = f"{tmp_path}/f.parquet"
    write_frame(pl.DataFrame({"x": [1]}), path)
    frame = pl.DataFrame({"x": [2]})
    with pytest.raises(StorageError, match="exists"):
        write_frame(frame.lazy() if lazy else frame, path)
    assert load_frame(path).rows() == [(1,)]


def test_missing_and_torn_files_are_storage_errors(tmp_path: Path) -> None:
    torn = tmp_path / "torn.parquet"
    write_frame(pl.DataFrame({"x": range(1000)}), str(torn))
    torn.write_bytes(torn.read_bytes()[:-20])
    for path in (str(torn), f"{tmp_path}/missing.parquet"):
        for read in (load_frame, read_schema, count_rows):
            with pytest.raises(StorageError, match=os.path.basename(path)) as caught:
                read(path)
            assert str(caught.value).endswith(". Put this right and give the command again")
        with pytest.raises(StorageError, match=os.path.basename(path)):
            list(iter_frame(path, 10))
        with pytest.raises(StorageError, match=os.path.basename(path)):
            load_parts([path], pl.Schema({"x": pl.Int64()}))


def test_parts_are_read_in_the_order_given(tmp_path: Path) -> None:
    numbers = ["99999", "100000", "00002", "00010"]
    paths = [f"{tmp_path}/f.part-{number}.parquet" for number in numbers]
    for number, path in zip(numbers, paths, strict=True):
        write_frame(pl.DataFrame({"x": [number], REASON: ["r"]}), path)
    loaded = load_parts(paths, pl.Schema({"x": pl.String()}))
    assert loaded.rows() == [(number, "r") for number in numbers]


def test_no_parts_are_an_empty_typed_frame() -> None:
    loaded = load_parts([], SCHEMA)
    assert (loaded.height, dict(loaded.schema)) == (0, {**SCHEMA, REASON: pl.String()})


@pytest.mark.parametrize("batch_rows", [1, 3, 4, 7, 1000])
@pytest.mark.parametrize("rows", [0, 1, 12, 13])
def test_batches_are_in_order_and_of_the_size_asked(batch_rows: int, rows: int, tmp_path: Path) -> None:
    path = f"{tmp_path}/f.parquet"
    write_frame(pl.DataFrame({"x": range(rows)}, schema={"x": pl.Int64}), path)
    for source in (path, scan_frame(path), pl.LazyFrame({"x": range(rows)})):
        batches = [batch["x"].to_list() for batch in iter_frame(source, batch_rows)]
        assert [x for batch in batches for x in batch] == list(range(rows))
        assert [len(batch) for batch in batches[:-1]] == [batch_rows] * (len(batches) - 1)


def test_batches_of_a_large_file_are_in_order(tmp_path: Path) -> None:
    path = f"{tmp_path}/f.parquet"
    write_frame(pl.select(x=pl.int_range(700_001)).lazy(), path)
    batches = iter_frame(path, 100_000)
    first = next(batches)
    rest = [first, *batches]
    assert [batch.height for batch in rest] == [100_000] * 7 + [1]
    assert pl.concat(rest)["x"].equals(pl.int_range(700_001, eager=True).alias("x"))


def test_iteration_may_be_given_up(tmp_path: Path) -> None:
    path = f"{tmp_path}/f.parquet"
    write_frame(pl.select(x=pl.int_range(500_000)), path)
    assert next(iter_frame(path, 10)).height == 10
    assert next(iter_frame(path, 10)).height == 10


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        iter_frame(pl.LazyFrame({"x": [1]}), 0)
