"""Removing runs and old versions: whole or not at all, wherever the process dies."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import polars as pl
import pytest

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline
from astro_async._core.names import RunId
from astro_async._store.atomic import Disk
from astro_async._store.layout import list_run_ids, run_directory, statistics_path
from astro_async._store.lock import acquire_lock
from astro_async._store.removal import (
    drop_files,
    measure_droppable,
    measure_run,
    remove_leftovers,
    remove_run,
    scan_leftovers,
)
from astro_async._store.statistics import load_statistics
from astro_async.exceptions import (
    RunLockedError,
    RunNotFoundError,
    RunRefusedError,
    StorageError,
)
from astro_async.testing import ingest_frames, read_file
from core.samples import TIME
from properties.real_run import Death, MortalDisk
from store.samples import tree


def make_pipeline(*, parks: bool = False) -> Pipeline:
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("a", "a.csv")])
    for number in (1, 2, 3):

        def add(ctx: astro_async.StepContext, files: astro_async.StepFiles, number: int = number) -> None:
            frame = files[0].load()
            if parks and number == 3:
                ctx.quarantine.quarantine_rows(files[0], frame, reason="no")
                frame = frame.clear()
            files[0].save_in_place(frame.with_columns(pl.lit(number).alias(f"c{number}")))

        pipeline.add_step(f"s{number}", add, AstroFileSpec("a"))
    return pipeline


def make_run(folder: Path, *, parks: bool = False, is_run: bool = True) -> RunId:
    async def go() -> str:
        pipeline = make_pipeline(parks=parks)
        run_id = await ingest_frames(pipeline, {"a": pl.DataFrame({"x": ["1", "2"]})}, folder)
        if is_run:
            await astro_async.run(pipeline, pipeline_dir=folder, run_id=run_id)
        return run_id

    return RunId(anyio.run(go))


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunId]:
    folder = tmp_path_factory.mktemp("completed")
    return folder, make_run(folder)


@pytest.fixture
def copies(completed: tuple[Path, RunId], tmp_path: Path) -> Iterator[Path]:
    """Fresh copies of a folder with a completed run, links and all."""

    def copy() -> Iterator[Path]:
        number = 0
        while True:
            number += 1
            folder = tmp_path / str(number)
            shutil.copytree(completed[0], folder, copy_function=os.link)
            # What is appended to must be the copy's own.
            for path in folder.rglob("*"):
                if path.is_file() and path.suffix != ".parquet":
                    content = path.read_bytes()
                    path.unlink()
                    path.write_bytes(content)
            yield folder

    return copy()


def assert_sound(folder: Path, run_id: RunId) -> None:
    assert not astro_async.verify(folder, run_id).faults
    assert read_file(folder, run_id, "a").columns == ["x", "c1", "c2", "c3"]


def test_a_run_is_removed_and_its_statistics_stay(
    copies: Iterator[Path], completed: tuple[Path, RunId]
) -> None:
    folder, run_id = next(copies), completed[1]
    remove_run(str(folder), run_id, disk=Disk(), now=TIME)
    assert list(tree(folder / ".working")) == []
    assert load_statistics(statistics_path(str(folder)), run_id)
    with pytest.raises(RunNotFoundError):
        remove_run(str(folder), run_id, disk=Disk(), now=TIME)


def test_dying_while_a_run_is_removed(copies: Iterator[Path], completed: tuple[Path, RunId]) -> None:
    run_id = completed[1]
    deaths = 0
    while True:
        folder = next(copies)
        try:
            remove_run(str(folder), run_id, disk=MortalDisk(deaths + 1), now=TIME)
            break
        except Death:
            deaths += 1
        if list_run_ids(str(folder)):
            assert_sound(folder, run_id)
            assert scan_leftovers(str(folder)) == []
            remove_run(str(folder), run_id, disk=Disk(), now=TIME)
        else:
            assert len(scan_leftovers(str(folder))) == 1
            remove_leftovers(scan_leftovers(str(folder)), Disk())
        assert list(tree(folder / ".working")) == []
    assert deaths >= 6


def test_dying_while_a_run_that_cannot_be_read_is_removed(
    copies: Iterator[Path], completed: tuple[Path, RunId]
) -> None:
    run_id = completed[1]
    deaths = 0
    while True:
        folder = next(copies)
        (folder / ".working" / run_id / "events.jsonl").unlink()
        before = tree(folder / ".working" / run_id)
        with pytest.raises(StorageError, match=r"events\.jsonl"):
            remove_run(str(folder), run_id, disk=Disk(), now=TIME, unfinished=True)
        try:
            remove_run(str(folder), run_id, disk=MortalDisk(deaths + 1), now=TIME, unreadable=True)
            break
        except Death:
            deaths += 1
        if list_run_ids(str(folder)):
            # Whole: all but the words of the lock are as they were.
            assert set(before) <= set(tree(folder / ".working" / run_id))
            remove_run(str(folder), run_id, disk=Disk(), now=TIME, unreadable=True)
        else:
            assert len(scan_leftovers(str(folder))) == 1
            remove_leftovers(scan_leftovers(str(folder)), Disk())
        assert list(tree(folder / ".working")) == []
    assert deaths >= 4


def test_dying_in_the_middle_of_a_tree(copies: Iterator[Path], completed: tuple[Path, RunId]) -> None:
    class HalfDisk(Disk):
        def remove_tree(self, path: str) -> None:
            if os.path.isdir(path):
                shutil.rmtree(f"{path}/versions")
                os.unlink(f"{path}/events.jsonl")
                raise Death

    folder, run_id = next(copies), completed[1]
    with pytest.raises(Death):
        remove_run(str(folder), run_id, disk=HalfDisk(), now=TIME)
    assert list_run_ids(str(folder)) == []
    assert astro_async.list_runs(folder) == ([], [])
    # A run of the same id that is removed later takes its place.
    shutil.copytree(completed[0] / ".working" / run_id, folder / ".working" / run_id)
    remove_run(str(folder), run_id, disk=Disk(), now=TIME)
    assert list(tree(folder / ".working")) == []


def test_dying_while_versions_are_dropped(copies: Iterator[Path], completed: tuple[Path, RunId]) -> None:
    run_id = completed[1]
    deaths = 0
    while True:
        folder = next(copies)
        directory = run_directory(str(folder), run_id)
        before = measure_droppable(directory, astro_async.read_run(folder, run_id), "versions")
        assert before > 0
        try:
            drop_files(str(folder), run_id, "versions", disk=MortalDisk(deaths + 1), now=TIME)
        except Death:
            deaths += 1
            assert_sound(folder, run_id)
            drop_files(str(folder), run_id, "versions", disk=Disk(), now=TIME)
            is_over = False
        else:
            is_over = True
        assert_sound(folder, run_id)
        assert measure_droppable(directory, astro_async.read_run(folder, run_id), "versions") == 0
        versions = os.listdir(f"{directory}/versions/a")
        assert versions == ["s3.1.parquet"]
        if is_over:
            break
    assert deaths > 10


def test_what_is_not_removed(tmp_path: Path) -> None:
    parked = make_run(tmp_path, parks=True)
    fresh = make_run(tmp_path, is_run=False)
    for unfinished in (False, True):
        with pytest.raises(RunRefusedError, match="has 2 undecided rows in quarantine"):
            remove_run(str(tmp_path), parked, disk=Disk(), now=TIME, unfinished=unfinished)
    with pytest.raises(RunRefusedError, match="is ingested, not completed"):
        remove_run(str(tmp_path), fresh, disk=Disk(), now=TIME)
    for run_id in (parked, fresh):
        with pytest.raises(RunRefusedError, match="keeps its files, for a retry may need them"):
            drop_files(str(tmp_path), run_id, "versions", disk=Disk(), now=TIME)
    remove_run(str(tmp_path), fresh, disk=Disk(), now=TIME, unfinished=True)
    assert list_run_ids(str(tmp_path)) == [parked]


def test_a_run_that_goes_on(copies: Iterator[Path], completed: tuple[Path, RunId]) -> None:
    folder, run_id = next(copies), completed[1]
    directory = run_directory(str(folder), run_id)
    lock = acquire_lock(
        f"{directory}/run.lock", f"{directory}/run.holder.json", disk=Disk(), since=TIME, what=""
    )
    try:
        for act in (remove_run, partial(drop_files, what="versions"), partial(drop_files, what="quarantine")):
            with pytest.raises(RunLockedError, match=f"run {run_id} is locked by process {os.getpid()}"):
                act(str(folder), run_id, disk=Disk(), now=TIME)
    finally:
        lock.release()
    assert_sound(folder, run_id)


def test_a_run_behind_a_symlink_is_left_alone(copies: Iterator[Path], completed: tuple[Path, RunId]) -> None:
    folder, run_id = next(copies), completed[1]
    shutil.move(folder / ".working" / run_id, folder / "elsewhere")
    (folder / ".working" / run_id).symlink_to(folder / "elsewhere")
    with pytest.raises(StorageError, match="is a symbolic link"):
        remove_run(str(folder), run_id, disk=Disk(), now=TIME)
    (folder / ".working" / run_id).unlink()
    shutil.move(folder / "elsewhere", folder / ".working" / run_id)
    assert_sound(folder, run_id)


def test_sizes_count_a_file_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1000)
    os.link(tmp_path / "one", tmp_path / "two")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "three").write_bytes(b"x" * 10)
    assert measure_run(str(tmp_path)) == 1010
