"""Kill other systems at random moments, give their plain command again, and compare with an undisturbed run.

    python -m benchmarks.crash --runs 24 --seed 1

A run has 21 steps, one of which parks rows until its rule is mended, and then gets them back. The systems are
installed in environments of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from benchmarks.environments import EnvironmentFailedError, make_environment
from benchmarks.registry import PEERS, Peer

VICTIMS: Final = Path(__file__).parent / "victims"
STRICT, MENDED = "5", "0"
PATIENCE_S: Final = 60.0
MOST_KILLS: Final = 12
# So often the plain command is given undisturbed before a run counts as stuck.
MOST_TRIES: Final = 3

RIGHT, WRONG, STUCK = "ended right", "wrong data", "stuck"

State = dict[str, Any]


@dataclass(frozen=True)
class System:
    """A system that is killed: how it is told to go on, and where its data are."""

    peer: Peer
    folder: str
    ingest: tuple[str, ...] | None
    go: tuple[str, ...]

    def command(self, interpreter: str, arguments: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
        """Start one of its commands."""
        program = os.path.join(os.path.dirname(interpreter), arguments[0])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.Popen(
            [program, *arguments[1:]],
            cwd=directory,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


ASTRO_PIPELINE: Final = System(
    PEERS["astro-pipeline"],
    "astro_pipeline",
    ("astro", "ingest", "source"),
    ("astro", "run", "--mode", "cli"),
)
DOIT: Final = System(
    # Its tasks are written with Polars here.
    replace(PEERS["doit"], requirements=(*PEERS["doit"].requirements, "polars==2.1.0")),
    "doit",
    None,
    ("doit", "run"),
)
SYSTEMS: Final = {system.peer.name: system for system in (ASTRO_PIPELINE, DOIT)}


def read_state(directory: Path) -> State:
    """Return the status and the rows of the last version of each file, or why they cannot be read."""
    try:
        if (directory / "dodo.py").exists():
            last = {
                "scores": "made/after-4.parquet",
                "teams": "made/mark-5.parquet",
                "parked": "made/parked.parquet",
            }
            return {name: pl.read_parquet(directory / path).rows() for name, path in last.items()}
        (path,) = (directory / ".working").glob("*/manifest.json")
        manifest = json.loads(path.read_text())
        state: State = {"status": manifest["status"]}
        for file in manifest["ingested_files"]:
            state[file["name"]] = pl.read_parquet(file["parquet_path"]).rows()
        return state
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def prepare(system: System, interpreter: str, directory: Path) -> None:
    """Make a directory with a delivery, ingested where the system has the notion."""
    shutil.copytree(VICTIMS / system.folder, directory)
    source = directory / "source"
    source.mkdir()
    rows = 400
    scores = pl.DataFrame({"id": range(rows), "team": [f"t{i % 20}" for i in range(rows)]})
    scores.with_columns(score=(pl.col("id") * 37) % 100).write_csv(source / "scores.csv")
    teams = {"team": [f"t{i}" for i in range(20)], "city": [f"c{i % 7}" for i in range(20)]}
    pl.DataFrame({**teams, "size": [i + 4 for i in range(20)]}).write_csv(source / "teams.csv")
    (directory / "limit.txt").write_text(STRICT)
    if system.ingest is not None:
        process = system.command(interpreter, system.ingest, directory)
        if process.wait(PATIENCE_S):
            raise SystemExit(f"{system.peer.name}: the ingest failed in {directory}")


def go(system: System, interpreter: str, directory: Path, kill_after_s: float | None) -> bool | None:
    """Give the plain command; return whether it ended by itself, None if it hangs."""
    process = system.command(interpreter, system.go, directory)
    if kill_after_s is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(kill_after_s)
            return True
        process.kill()
        process.wait()
        return False
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    return True


def run_phase(
    system: System, interpreter: str, directory: Path, expected: State, lasts_s: float, dice: random.Random
) -> tuple[int, str]:
    """Kill and go on until the phase ends as the undisturbed one did; return the kills, and the outcome."""
    kills = 0
    while kills < MOST_KILLS:
        if go(system, interpreter, directory, dice.uniform(0.3 * lasts_s, lasts_s)):
            break
        kills += 1
    for _ in range(MOST_TRIES):
        state = read_state(directory)
        if state == expected:
            return kills, RIGHT
        if state.get("status") == expected.get("status") and "error" not in state and kills < MOST_KILLS:
            return kills, WRONG
        if go(system, interpreter, directory, None) is None:
            return kills, STUCK
        kills = min(kills, MOST_KILLS - 1)
    state = read_state(directory)
    if state == expected:
        return kills, RIGHT
    return kills, STUCK if state.get("status") != expected.get("status") or "error" in state else WRONG


def measure_phase(system: System, interpreter: str, directory: Path) -> tuple[State, float]:
    """Run a phase undisturbed; return its data, and how long it took."""
    started = time.monotonic()
    if not go(system, interpreter, directory, None):
        raise SystemExit(f"{system.peer.name} hangs undisturbed in {directory}")
    return read_state(directory), time.monotonic() - started


def kill_system(system: System, interpreter: str, runs: int, dice: random.Random, base: Path) -> str:
    """Live through runs of one system, and return its row."""
    undisturbed = base / "undisturbed"
    prepare(system, interpreter, undisturbed)
    phases = [measure_phase(system, interpreter, undisturbed)]
    (undisturbed / "limit.txt").write_text(MENDED)
    phases.append(measure_phase(system, interpreter, undisturbed))
    clean = base / "clean"
    prepare(system, interpreter, clean)
    (clean / "limit.txt").write_text(MENDED)
    # The end is to be that of a run that never stumbled; a system that cannot repair itself has its own end.
    never_stumbled = measure_phase(system, interpreter, clean)[0]
    outcomes: Counter[str] = Counter()
    kills = 0
    for number in range(runs):
        directory = base / f"run-{number}"
        prepare(system, interpreter, directory)
        outcome = RIGHT
        for (expected, lasts_s), limit in zip(phases, (STRICT, MENDED), strict=True):
            (directory / "limit.txt").write_text(limit)
            dealt, outcome = run_phase(system, interpreter, directory, expected, lasts_s, dice)
            kills += dealt
            if outcome != RIGHT:
                break
        outcomes[outcome] += 1
        print(f"{system.peer.name} run {number + 1}: {outcome}", file=sys.stderr, flush=True)
    repaired = "equals" if phases[1][0] == never_stumbled else "differs from"
    counts = ", ".join(f"{outcome} {outcomes[outcome]}" for outcome in (RIGHT, WRONG, STUCK))
    return (
        f"{system.peer.name}: runs {runs}, kills {kills}, {counts}; "
        f"its undisturbed repaired run {repaired} one that never stumbled"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each system; return 1 if one cannot be installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--system", action="append", choices=tuple(SYSTEMS), help="repeatable; default all")
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for name in options.system or SYSTEMS:
        try:
            interpreter = make_environment(name, SYSTEMS[name].peer.requirements)
        except EnvironmentFailedError as error:
            print(error, file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory(prefix="astro-peers-") as folder:
            row = kill_system(
                SYSTEMS[name], interpreter, options.runs, random.Random(options.seed), Path(folder)
            )
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
