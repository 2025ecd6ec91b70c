"""Kill -9 a run at each store operation in turn; then run plainly, and look whether anything is amiss.

Each history is a real process that a real SIGKILL ends. They are forked from this one, which has imported
everything and has no threads, so that one costs milliseconds and not the start of an interpreter.

    python killed.py rerun|quarantine|retry DIRECTORY

Prints a line for each operation, and one for how the process ended there.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio._backends._asyncio  # here, and not in every forked process
import polars as pl

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunRecord,
    RunResult,
    StepContext,
    StepFiles,
    read_run,
    run,
)
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from astro_async.testing import ingest_frames, read_file, read_quarantine

SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [10, -20, 30]})
SURVIVED, WRONG = 0, 3
AT_ONCE = 2


class PatientDisk(Disk):
    """Does not wait for the device: what a process wrote survives its death."""

    def sync(self, path: str) -> None:
        """Pass the seam only."""
        self.before("sync", path)


class KillingDisk(PatientDisk):
    """Kills the process before the k-th operation, and says which one that was; 0 only counts."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.left = k

    def before(self, operation: str, path: str) -> None:
        """Count, and kill."""
        self.left -= 1
        if self.left == 0:
            os.write(1, f"{operation}: {path}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class Tag:
    """A step that appends its letter to a column."""

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def __call__(self, _ctx: StepContext, files: StepFiles) -> None:
        """Do it."""
        rows = files[0].load()
        if "tags" not in rows.columns:
            rows = rows.with_columns(tags=pl.lit(""))
        files[0].save_in_place(rows.with_columns(pl.col("tags") + self.letter))


def validate(ctx: StepContext, files: StepFiles) -> None:
    """Set negative scores aside in two parts of one row, unless they are accepted."""
    rows = files[0].load()
    if not ctx.params.get("accept"):
        for row in rows.filter(pl.col("score") < 0).iter_slices(1):
            ctx.quarantine.quarantine_rows(files[0], row, reason="negative")
        rows = rows.filter(pl.col("score") >= 0)
    files[0].save_to("processed", "scores.parquet", rows)


def make_pipeline() -> Pipeline:
    """Make three steps on one file; the middle one quarantines."""
    pipeline = Pipeline("killed", ingest_files=[IngestFileSpec("scores", "scores.csv")])
    scores = AstroFileSpec("scores")
    pipeline.add_step("a", Tag("a"), scores)
    pipeline.add_step("v", validate, scores)
    pipeline.add_step("c", Tag("c"), scores)
    return pipeline


def go(directory: Path, disk: Disk, **options: Any) -> RunResult:
    """Run once."""

    async def main() -> RunResult:
        return await run(make_pipeline(), pipeline_dir=directory, services=Services(disk=disk), **options)

    return anyio.run(main)


def ingest(directory: Path, *, accept: bool) -> None:
    """Ingest the three rows."""

    async def main() -> None:
        params = {"accept": True} if accept else {}
        await ingest_frames(make_pipeline(), {"scores": SCORES}, directory, params=params)

    anyio.run(main)


def only_run(directory: Path) -> RunRecord:
    """Return the one run there is."""
    return read_run(directory, "latest")


def check_rows(directory: Path, kept: list[int], parked: list[int]) -> None:
    """Every row is there once: among the good ones, with each step's work done once, or in quarantine."""
    record = only_run(directory)
    rows = read_file(directory, record.run_id, "scores")
    assert rows["id"].to_list() == kept, rows
    assert rows["tags"].to_list() == ["ac"] * len(kept), rows
    aside = read_quarantine(directory, record.run_id, "v", "scores")
    assert aside["id"].to_list() == parked, aside
    run_directory = directory / ".working" / record.run_id
    assert pl.read_parquet(run_directory / "processed/scores.parquet")["id"].to_list() == kept
    assert pl.read_parquet(run_directory / "current/scores.parquet").equals(rows)


def check_no_litter(directory: Path) -> None:
    """Nothing is on disk that no record names."""
    record = only_run(directory)
    run_directory = directory / ".working" / record.run_id
    named = set(record.named_paths())
    for step_id, step in record.steps.items():
        named.update(f"snapshots/{step_id}/{flow.name}.parquet" for flow in step.files)
    for folder in ("versions", "quarantine", "snapshots", "filtered", "staging"):
        for path in (run_directory / folder).rglob("*"):
            assert path.is_dir() or str(path.relative_to(run_directory)) in named, path
    for name in named:
        assert (run_directory / name).exists(), name


def finish(directory: Path) -> None:
    """Give the plain command until there is nothing to do; once does it, or none if all had been done."""
    assert go(directory, Disk()).exit_code == 0
    assert only_run(directory).status == "completed"


def rerun(directory: Path, act: str, disk: Disk) -> None:
    """Case 20b: `--rerun` a completed step, kill -9, plain run."""
    match act:
        case "prepare":
            ingest(directory, accept=True)
            go(directory, disk)
        case "die":
            go(directory, disk, run_id="latest", rerun=["a"])
        case _:
            finish(directory)
            check_rows(directory, [1, 2, 3], [])


def quarantine(directory: Path, act: str, disk: Disk) -> None:
    """Case 31: kill -9 anywhere in a run that quarantines, between part and finish among them."""
    match act:
        case "prepare":
            ingest(directory, accept=False)
        case "die":
            go(directory, disk)
        case _:
            assert go(directory, disk).exit_code == 3
            check_rows(directory, [1, 3], [2])


def retry(directory: Path, act: str, disk: Disk) -> None:
    """Kill -9 anywhere in the retry that takes the rows back."""
    match act:
        case "prepare":
            ingest(directory, accept=False)
            go(directory, disk)
        case "die":
            go(directory, disk, params={"accept": True})
        case _:
            # It may have died before it had said what is accepted; then the rows wait as before.
            if go(directory, disk).exit_code == 3:
                check_rows(directory, [1, 3], [2])
                go(directory, disk, params={"accept": True})
            finish(directory)
            check_rows(directory, [1, 2, 3], [])


Case = Callable[[Path, str, Disk], None]
CASES: dict[str, Case] = {"rerun": rerun, "quarantine": quarantine, "retry": retry}


def fork(call: Callable[[], object]) -> int:
    """Start a process that makes a call and ends; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = WRONG
    try:
        call()
        code = SURVIVED
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for a process; return how it ended, a signal as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def live_and_die(case: Case, directory: Path, prepared: Path, k: int) -> None:
    """Take a copy of the prepared run, kill its process at operation k, and look what becomes of it."""
    shutil.copytree(prepared, directory)
    ended = wait(fork(lambda: case(directory, "die", KillingDisk(k))))
    assert ended in (SURVIVED, -signal.SIGKILL), ended
    case(directory, "look", PatientDisk())
    check_no_litter(directory)
    shutil.rmtree(directory)
    os.write(1, f"{k} {'survived' if ended == SURVIVED else 'killed'}\n".encode())


def count_operations(case: Case, directory: Path, prepared: Path) -> None:
    """Write down how many operations there are to be killed at."""
    shutil.copytree(prepared, directory)
    disk = KillingDisk(0)
    case(directory, "die", disk)
    (prepared.parent / "count").write_text(str(-disk.left))


def main() -> None:
    """Kill at operation 1, 2, … as many as there are; print a line for each."""
    case, base = CASES[sys.argv[1]], Path(sys.argv[2])
    prepared = base / "prepared"
    prepared.mkdir()
    assert wait(fork(lambda: case(prepared, "prepare", PatientDisk()))) == SURVIVED
    assert wait(fork(lambda: count_operations(case, base / "counted", prepared))) == SURVIVED
    left = list(range(int((base / "count").read_text()), 0, -1))
    histories: dict[int, int] = {}
    wrong: list[int] = []
    while left or histories:
        while left and len(histories) < AT_ONCE:
            k = left.pop()
            directory = base / str(k)
            call = functools.partial(live_and_die, case, directory, prepared, k)
            histories[fork(call)] = k
        pid, status = os.wait()
        k = histories.pop(pid)
        if os.waitstatus_to_exitcode(status) != SURVIVED:
            wrong.append(k)
    if wrong:
        sys.exit(f"something was amiss after a kill at operation {', '.join(map(str, sorted(wrong)))}")


if __name__ == "__main__":
    main()
