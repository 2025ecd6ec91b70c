"""Start several commands on one run at the same moment: one executes, the others say who does.

    PYTHONPATH=tests python -m crash.two_at_once --times 100 --at-once 5

A step holds the one that executes at a gate until the others have ended, so nothing depends on time. Exits 1
if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from astro_async import read_run
from astro_async._core.events import RunPlanned, StepFinished
from astro_async._core.lineage import active_versions
from crash.looking import journal_of, run_directory

PATIENCE_S: Final = 120

PIPELINE: Final = """
import polars as pl
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline

def hold(ctx, files):
    files[0].save_in_place(files[0].load().with_columns(held=pl.lit(ctx.attempt)))
    with open("started", "w") as started:
        started.write("held")
    with open("gate") as gate:
        gate.read()

def read(path):
    hold_ingest = open("started", "w")
    hold_ingest.close()
    with open("gate") as gate:
        gate.read()
    return pl.read_csv(path)

pipeline = Pipeline("two", ingest_files=[IngestFileSpec("scores", "scores.csv"MORE)], execution_mode="MODE")
pipeline.add_step("hold", hold, AstroFileSpec("scores"))
"""


def astro(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `astro`."""
    command = [sys.executable, "-m", "astro_async", *arguments]
    return subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ingest(directory: Path) -> None:
    """Make the one run."""
    process = astro(directory, "ingest", "source")
    output = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, output


def prepare(directory: Path, *, mode: str = "parallel", more: str = "") -> Path:
    """Make a pipeline directory with the fifos of the gate."""
    (directory / "source").mkdir(parents=True)
    (directory / "source" / "scores.csv").write_text("id\n1\n2\n")
    (directory / "pipeline.py").write_text(PIPELINE.replace("MORE", more).replace("MODE", mode))
    for fifo in ("started", "gate"):
        os.mkfifo(directory / fifo)
    return directory


def wait_for_the_others(commands: Sequence[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Wait until all but one have ended, and return that one."""
    while len(alive := [command for command in commands if command.poll() is None]) > 1:
        # Any of them may be the one that is held; the next look tells.
        try:
            alive[0].wait(0.05)
        except subprocess.TimeoutExpired:
            commands = [*commands[1:], commands[0]]
    assert alive, "none was held"
    return alive[0]


def race(
    directory: Path, *arguments: str, at_once: int
) -> tuple[subprocess.Popen[str], list[tuple[int, str]]]:
    """Start commands at once; return the one that is held at the gate, and how the others ended."""
    commands = [astro(directory, *arguments) for _ in range(at_once)]
    try:
        with open(directory / "started") as started:
            started.read()
        winner = wait_for_the_others(commands)
        others = [command for command in commands if command is not winner]
        ended = [(other.wait(), other.communicate()[0]) for other in others]
    except BaseException:
        for command in commands:
            command.kill()
        raise
    return winner, ended


def open_gate(directory: Path, winner: subprocess.Popen[str]) -> str:
    """Let the one on that is held, and return what it said."""
    with open(directory / "gate", "w") as gate:
        gate.write("go")
    output = winner.communicate(timeout=PATIENCE_S)[0]
    assert winner.returncode == 0, output
    return output


def race_runs(directory: Path, at_once: int) -> None:
    """Several `astro run` on one run: the others exit 4, and name pid, host and since when."""
    prepare(directory)
    ingest(directory)
    winner, ended = race(directory, "run", at_once=at_once)
    for code, output in ended:
        assert code == 4, output
        host = re.escape(socket.gethostname())
        assert re.search(rf"is locked by process {winner.pid} on {host} since \d{{4}}-\d\d-\d\dT", output), (
            output
        )
        assert "Traceback" not in output
    open_gate(directory, winner)
    events = journal_of(directory)
    assert [event.pid for event in events if isinstance(event, RunPlanned)] == [winner.pid]
    assert sum(isinstance(event, StepFinished) for event in events) == 1
    record = read_run(directory, "latest")
    rows = pl.read_parquet(run_directory(directory) / active_versions(record)["scores"])
    assert rows.rows() == [("1", 1), ("2", 1)]


def race_ingests(directory: Path, at_once: int) -> None:
    """Several ingests into a serial pipeline: one wins, the others say why not, and leave nothing behind."""
    prepare(directory, mode="serial", more=", preprocess=lambda path: read(path)")
    winner, ended = race(directory, "ingest", "source", at_once=at_once)
    for code, output in ended:
        assert code == 4, output
        assert f"the ingest of this serial pipeline is locked by process {winner.pid} on" in output, output
    run_id = re.findall(r"^run (\w{5}) of pipeline two is ready$", open_gate(directory, winner), re.MULTILINE)
    assert [path.name for path in (directory / ".working").glob("[!.]*")] == run_id
    assert not list((directory / ".working").glob(".ingest-*"))
    late = astro(directory, "ingest", "source")
    output = late.communicate(timeout=PATIENCE_S)[0]
    # One that comes later is told of the run that is in the way.
    assert (late.returncode, run_id[0] in output) == (1, True), output


RACES: Final = {"run": race_runs, "ingest": race_ingests}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the races; return 1 if one of them went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--race", action="append", choices=tuple(RACES), help="repeatable; default both")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args(arguments)
    wrong = 0
    for name in options.race or RACES:
        for number in range(options.times):
            folder = Path(tempfile.mkdtemp(prefix="astro-races-"))
            try:
                RACES[name](folder / "race", options.at_once)
            except AssertionError as error:
                wrong += 1
                print(f"{name} {number}: {error}", file=sys.stderr, flush=True)
            finally:
                shutil.rmtree(folder)
        print(f"{name}: races {options.times}, commands in each {options.at_once}, wrong {wrong}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
