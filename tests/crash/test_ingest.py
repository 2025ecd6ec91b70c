"""Die or fail at any operation of an ingest: a run that is seen is whole, and a fresh ingest works."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from astro_async._store.layout import list_run_ids
from astro_async.exceptions import StorageError
from crash.faults import FAULTS, CountedDisk, Fault, FaultyDisk, MortalDisk, choose_operations, is_death
from crash.reference import FILES, Stage, ingest_reference, lay_out, load, prepare, read_state


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return read_state(prepare(tmp_path_factory.mktemp("undisturbed") / "pipeline", ("first",)))


@pytest.fixture
def operations(tmp_path: Path) -> int:
    disk = CountedDisk()
    directory = tmp_path / "counted"
    ingest_reference(directory, lay_out(directory), disk)
    assert disk.count > 20
    return disk.count


def test_death_at_every_operation_of_an_ingest(
    tmp_path: Path, operations: int, undisturbed: dict[str, object]
) -> None:
    for operation in choose_operations(operations, "death ingest", 10):
        directory = tmp_path / "dies"
        author = lay_out(directory)
        try:
            ingest_reference(directory, author, MortalDisk(operation))
        except BaseException as error:
            if not is_death(error):
                raise
        for run_id in list_run_ids(str(directory)):
            assert_runs(Stage(directory, author, run_id), undisturbed)
        go_on(directory, undisturbed)


@pytest.mark.parametrize("fault", [*FAULTS, Fault(errno.EXDEV, False)], ids=str)
def test_a_fault_at_every_operation_of_an_ingest(
    fault: Fault, tmp_path: Path, operations: int, undisturbed: dict[str, object]
) -> None:
    told: list[bool] = []
    for operation in choose_operations(operations, f"{fault} ingest", 6):
        directory = tmp_path / "fails"
        author = lay_out(directory)
        disk = FaultyDisk(fault, operation)
        run_ids: list[str] = []
        try:
            run_ids.append(ingest_reference(directory, author, disk))
        except StorageError as error:
            told.append(disk.is_told_by(error))
        assert list_run_ids(str(directory)) == run_ids
        for run_id in run_ids:
            assert_runs(Stage(directory, author, run_id), undisturbed)
        go_on(directory, undisturbed)
    assert told
    assert all(told)


def assert_runs(stage: Stage, undisturbed: dict[str, object]) -> None:
    """What is seen of a run is whole, and running it ends as it would have."""
    for name, frame in FILES.items():
        assert load(stage.root / f"ingested/{name}.parquet") == frame.to_dict(as_series=False)
    stage.run()
    assert read_state(stage) == undisturbed


def go_on(directory: Path, undisturbed: dict[str, object]) -> None:
    """Ingest afresh and run; what the first ingest left is out of the way."""
    author = lay_out(directory)
    run_id = ingest_reference(directory, author)
    assert_runs(Stage(directory, author, run_id), undisturbed)
    # A folder without a note of its holder is spared while it may be a moment old.
    folders = (directory / ".working").glob(".ingest-*")
    left = [path for path in folders if (path / "run.holder.json").exists()]
    assert left == []
    shutil.rmtree(directory)
