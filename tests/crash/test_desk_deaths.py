"""Die at every operation on the disk while something is decided or withdrawn: it is stored whole or not.

And while what was decided is removed from a completed run: it is all there, or on record as removed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import polars as pl
import pytest

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    amend,
    discard,
    expect,
    read_run,
    run,
    verify,
    withdraw,
)
from astro_async._core.names import RunId
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from astro_async._store.removal import drop_files
from astro_async.exceptions import StorageError
from astro_async.testing import ingest_frames, read_file
from core.samples import TIME
from properties.real_run import Death, MortalDisk
from store.disks import RefusingDisk, refuse_from, refuse_only

SCHEMA = {"name": pl.String, "score": pl.Int64}
FRAME = pl.DataFrame({"name": ["b", "a", "a", "c"], "score": [1, -1, -1, 2]}, schema=SCHEMA)
AMENDED = [("b", 1), ("a", 10), ("a", -1), ("c", 2)]
# What the run ends with once the check lets all pass: with the decision, and without it.
ENDS = {
    "amend": (AMENDED, FRAME.rows()),
    "discard": ([("b", 1), ("a", -1), ("c", 2)], FRAME.rows()),
    "amend again": ([("b", 1), ("a", 20), ("a", -1), ("c", 2)], AMENDED),
    "withdraw": (FRAME.rows(), AMENDED),
    "withdraw one": ([("b", 1), ("a", 10), ("a", -1), ("c", 2)], [("b", 1), ("a", 10), ("c", 2)]),
    "withdraw later": (FRAME.rows(), AMENDED),
}
# What was decided before the act.
BEFORE = {
    "amend again": ("amend",),
    "withdraw": ("amend",),
    "withdraw one": ("amend", "discard twin"),
    # A run has been given the decision, and has parked only the other twin.
    "withdraw later": ("amend", "run"),
}


def make_pipeline(lowest: int) -> Pipeline:
    pipeline = Pipeline("desk", ingest_files=[IngestFileSpec("scores", "scores.csv", SCHEMA)])
    pipeline.add_check("check", expect("too low", pl.col("score") >= lowest), AstroFileSpec("scores"))
    return pipeline


def decide(act: str, directory: Path, run_id: str, disk: MortalDisk | RefusingDisk) -> None:
    services = Services(disk=disk)
    call: Callable[[], Awaitable[object]]
    where = {"pipeline_dir": directory, "run_id": run_id, "services": services}
    if act.startswith("discard"):
        row = 2 if act == "discard twin" else 1
        call = partial(discard, [row], because="no", **where)  # type: ignore[arg-type]
    elif act.startswith("withdraw"):
        rows = [2] if act == "withdraw one" else None
        call = partial(withdraw, rows, step_id="check", **where)  # type: ignore[arg-type]
    else:
        path = directory / "rows.csv"
        path.write_text(f"_astro_row,name,score\n1,a,{20 if act == 'amend again' else 10}\n")
        call = partial(amend, path, **where)  # type: ignore[arg-type]
    anyio.run(call)


def start(act: str, directory: Path) -> str:
    directory.mkdir()
    run_id = anyio.run(ingest_frames, make_pipeline(0), {"scores": FRAME}, directory)
    anyio.run(partial(run, make_pipeline(0), pipeline_dir=directory, run_id=run_id))
    for earlier in BEFORE.get(act, ()):
        if earlier == "run":
            anyio.run(partial(run, make_pipeline(0), pipeline_dir=directory, run_id=run_id))
        else:
            decide(earlier, directory, run_id, MortalDisk())
    return run_id


def end(directory: Path, run_id: str) -> list[tuple[object, ...]]:
    """Run on with a check that lets all pass; nothing is lost or left behind."""
    anyio.run(partial(run, make_pipeline(-1), pipeline_dir=directory, run_id=run_id))
    record = read_run(directory, run_id)
    (flow,) = record.steps["check"].files
    assert flow.rows_out is not None
    assert flow.rows_in == flow.rows_out + flow.rows_quarantined + flow.rows_discarded
    root = directory / ".working" / run_id
    assert not (root / "staging").exists()
    on_disk = {str(path.relative_to(root)) for path in (root / "patches").rglob("*.*")}
    assert on_disk == {patch.path for patch in record.patches}
    assert verify(directory, run_id).findings == ()
    return read_file(directory, run_id, "scores").rows()


def sweep(act: str, tmp_path: Path, fails_at: Callable[[int], MortalDisk | RefusingDisk]) -> None:
    base = tmp_path / "base"
    run_id = start(act, base)
    decided, undecided = ENDS[act]
    before = len(read_run(base, run_id).patches)
    untouched = shutil.copytree(base, tmp_path / "undisturbed", symlinks=True)
    disk = MortalDisk()
    decide(act, untouched, run_id, disk)
    assert end(untouched, run_id) == decided
    seen = set()
    for operation in range(disk.count + 1):
        directory = shutil.copytree(base, tmp_path / f"at-{operation}", symlinks=True)
        with contextlib.suppress(Death, StorageError):
            decide(act, directory, run_id, fails_at(operation))
        is_stored = len(read_run(directory, run_id).patches) > before
        seen.add(is_stored)
        assert end(directory, run_id) == (decided if is_stored else undecided), f"at operation {operation}"
        shutil.rmtree(directory)
    # It was cut off on either side of the point at which it is stored.
    assert seen == {True, False}
    assert disk.count > 10


@pytest.mark.parametrize("act", list(ENDS))
def test_death_at_every_operation(act: str, tmp_path: Path) -> None:
    sweep(act, tmp_path, MortalDisk)


@pytest.mark.parametrize("refuse", [refuse_from, refuse_only])
@pytest.mark.parametrize("act", ["amend again", "withdraw later"])
def test_a_disk_that_refuses_at_every_operation(
    act: str, refuse: Callable[[int], RefusingDisk], tmp_path: Path
) -> None:
    sweep(act, tmp_path, refuse)


def test_death_while_decisions_are_removed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    run_id = start("withdraw one", base)
    rows = [("b", 1), ("a", 10), ("c", 2)]
    assert end(base, run_id) == rows
    deaths = 0
    while True:
        directory = shutil.copytree(base, tmp_path / f"at-{deaths}", symlinks=True)
        remove = partial(drop_files, str(directory), RunId(run_id), "quarantine", now=TIME)
        try:
            remove(disk=MortalDisk(deaths))
            is_over = True
        except Death:
            is_over = False
            deaths += 1
            assert not verify(directory, run_id).faults
            remove(disk=Disk())
        root = directory / ".working" / run_id
        assert not list((root / "patches").rglob("*.*"))
        record = read_run(directory, run_id)
        assert record.dropped == {patch.path for patch in record.patches}
        assert verify(directory, run_id).findings == ()
        assert read_file(directory, run_id, "scores").rows() == rows
        shutil.rmtree(directory)
        if is_over:
            break
    assert deaths > 10
