"""SIGKILL real processes in the middle of the reference pipeline; then run plainly, and look at the end.

An exception, however brutal, runs `finally` blocks; a signal that kills does not. Each process is forked from
this one, which has imported everything and has no threads.

    python killing.py DIRECTORY OPERATIONS_AN_ACT

Kills each act, and the ingest, at so many of its operations; all of them for 0. Prints a line for each.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from astro_async._store.layout import list_run_ids
from cases.killed import SURVIVED, KillingDisk, fork, wait
from crash.faults import CountedDisk, choose_operations
from crash.reference import ACTS, Author, Stage, assert_no_litter, ingest_reference, lay_out, read_state

AT_ONCE = 2
KILLED = -9
INGEST = "ingest"


def set_the_scene(folder: Path, act: str) -> None:
    """Prepare what stands before the act, and note what an undisturbed one does and leaves."""
    author = lay_out(folder / "base")
    acts = (INGEST, *ACTS)
    for earlier in acts[: acts.index(act)]:
        perform(folder / "base", author, earlier)
    shutil.copytree(folder / "base", folder / "undisturbed")
    disk = CountedDisk()
    stage = perform(folder / "undisturbed", author, act, disk)
    if act == INGEST:
        stage.perform(ACTS[0])
    (folder / "scene").write_bytes(pickle.dumps((disk.count, read_state(stage))))


def perform(
    directory: Path, author: Author, act: str, disk: CountedDisk | KillingDisk | None = None
) -> Stage:
    """Perform an act, the ingest among them."""
    if act == INGEST:
        return Stage(directory, author, ingest_reference(directory, author, disk))
    stage = only_stage(directory, author)
    stage.perform(act, disk)
    return stage


def only_stage(directory: Path, author: Author) -> Stage:
    (run_id,) = list_run_ids(str(directory))
    return Stage(directory, author, run_id)


def live_and_die(folder: Path, act: str, operation: int, undisturbed: dict[str, object]) -> None:
    """Kill an act at an operation, resume with one plain run, and compare."""
    directory = folder / str(operation)
    shutil.copytree(folder / "base", directory)
    author = Author(directory / "ledger.txt", ACTS[: ACTS.index(act)] if act in ACTS else ())
    ended = wait(fork(lambda: perform(directory, author, act, KillingDisk(operation))))
    # Two jobs do not make the same number of operations each time.
    assert ended in (SURVIVED, KILLED), ended
    if act in ACTS:
        author.change(act)
    elif not list_run_ids(str(directory)):
        ingest_reference(directory, author)
    stage = only_stage(directory, author)
    stage.run()
    assert read_state(stage) == undisturbed
    assert_no_litter(stage)
    shutil.rmtree(directory)
    os.write(1, f"{act}: {operation} {'killed' if ended == KILLED else 'survived'}\n".encode())


def sweep(folder: Path, act: str, at_most: int) -> list[int]:
    """Kill an act at some operations, or all; return those after which something was amiss."""
    folder.mkdir()
    assert wait(fork(lambda: set_the_scene(folder, act))) == SURVIVED
    total, undisturbed = pickle.loads((folder / "scene").read_bytes())
    left = list(choose_operations(total, f"kill {act}", at_most or total))
    alive: dict[int, int] = {}
    wrong: list[int] = []
    while left or alive:
        while left and len(alive) < AT_ONCE:
            operation = left.pop()
            call: Callable[[], None] = partial(live_and_die, folder, act, operation, undisturbed)
            alive[fork(call)] = operation
        pid, status = os.wait()
        operation = alive.pop(pid)
        if os.waitstatus_to_exitcode(status) != SURVIVED:
            wrong.append(operation)
    return wrong


def main() -> None:
    """Sweep all acts."""
    base, at_most = Path(sys.argv[1]), int(sys.argv[2])
    wrong = {
        act: found for act in (INGEST, *ACTS) if (found := sweep(base / act.replace(" ", "-"), act, at_most))
    }
    if wrong:
        sys.exit(f"something was amiss after a kill at operations {wrong}")


if __name__ == "__main__":
    main()
