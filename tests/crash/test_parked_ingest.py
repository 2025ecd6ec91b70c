"""Die or fail at any operation of an ingest that parks rows: nothing is left half-made."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import anyio
import polars as pl

from astro_async import IngestFileSpec, Pipeline, ingest, read_run, verify
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from astro_async._store.layout import list_run_ids
from astro_async.exceptions import StorageError
from crash.faults import FAULTS, CountedDisk, FaultyDisk, MortalDisk, is_death
from crash.reference import UnhurriedDisk

SOURCE = b'id,name\n1,a\nx,b\n3,"c\n4,d\n5\n'
GOOD = [(1, "a"), (4, "d")]
PARKED = [(3, "x,b"), (4, '3,"c'), (6, "5")]


def ingest_once(directory: Path, disk: Disk) -> str:
    (directory / "source").mkdir(parents=True, exist_ok=True)
    (directory / "source/rows.csv").write_bytes(SOURCE)
    spec = IngestFileSpec("rows", "rows.csv", {"id": pl.Int64, "name": pl.String}, on_bad_rows="quarantine")
    pipeline = Pipeline("parking", ingest_files=[spec])
    services = Services(disk=disk)
    call = partial(ingest, pipeline, directory / "source", pipeline_dir=directory, services=services)
    return anyio.run(call).run_id


def assert_whole(directory: Path) -> None:
    for run_id in list_run_ids(str(directory)):
        file = read_run(directory, run_id).files["rows"]
        root = directory / ".working" / run_id
        assert pl.read_parquet(root / file.parquet_path).rows() == GOOD
        parked = pl.read_parquet(root / file.parts[0].path)
        assert parked.select("line", "raw_text").rows() == PARKED
        assert verify(directory, run_id).faults == ()


def go_on(directory: Path) -> None:
    run_id = ingest_once(directory, UnhurriedDisk())
    assert run_id in list_run_ids(str(directory))
    assert_whole(directory)
    # A folder without a note of its holder is spared while it may be a moment old.
    left = [
        path for path in (directory / ".working").glob(".ingest-*") if (path / "run.holder.json").exists()
    ]
    assert left == []
    shutil.rmtree(directory)


def count_operations(tmp_path: Path) -> int:
    disk = CountedDisk()
    ingest_once(tmp_path / "counted", disk)
    assert disk.count > 15
    return disk.count


def test_death_at_every_operation(tmp_path: Path) -> None:
    for operation in range(1, count_operations(tmp_path) + 1):
        directory = tmp_path / "dies"
        try:
            ingest_once(directory, MortalDisk(operation))
        except BaseException as error:
            if not is_death(error):
                raise
        assert_whole(directory)
        go_on(directory)


def test_a_full_disk_at_every_operation(tmp_path: Path) -> None:
    told: list[bool] = []
    for operation in range(1, count_operations(tmp_path) + 1):
        directory = tmp_path / "fails"
        disk = FaultyDisk(FAULTS[0], operation)
        run_ids: list[str] = []
        try:
            run_ids.append(ingest_once(directory, disk))
        except StorageError as error:
            told.append(disk.is_told_by(error))
        assert list_run_ids(str(directory)) == run_ids
        assert_whole(directory)
        go_on(directory)
    assert told
    assert all(told)
