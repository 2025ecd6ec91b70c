"""Kill the real `astro run` at random moments, again and again, and look what becomes of the rows.

    PYTHONPATH=tests python -m crash.random_kills --times 500 --seed 1
    PYTHONPATH=tests python -m crash.random_kills --victim step --victim ingest --times 100

A history is one run of 23 steps: first with rules that park rows, then with the rules mended. The command is
killed at a moment drawn from the duration of an undisturbed one, and given again, until the run has ended.
After each kill everything visible is opened whole; at the end rows, order, trails, quarantine and statuses
are those of the undisturbed run. Exits 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from astro_async import list_runs, read_run
from astro_async._core.events import RunPlanned
from crash.looking import (
    State,
    children_of,
    complain,
    count_repeated,
    count_torn,
    group_members,
    journal_of,
    read_state,
    run_directory,
)

VICTIM: Final = Path(__file__).parent / "victim" / "pipeline.py"
STRICT, MENDED = "5", "0"
PATIENCE_S: Final = 120.0
# So often a phase is killed at most; then it is let finish.
MOST_KILLS: Final = 12


@dataclass
class Report:
    """What came of it. All but the first two should be 0."""

    histories: int = 0
    kills: int = 0
    torn_files: int = 0
    lost_rows: int = 0
    doubled_rows: int = 0
    other_differences: int = 0
    repeated_steps: int = 0
    hung_resumes: int = 0
    wrong_exits: int = 0
    orphans: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong, and something was tried."""
        wrong = dataclasses.astuple(self)[2:]
        return self.kills > 0 and not any(wrong)

    def __str__(self) -> str:
        """Return it in one line."""
        return ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in dataclasses.asdict(self).items())


@dataclass
class Phase:
    """An undisturbed run of one phase: how it ends, and when in it something happens.

    Attributes:
        begins_s: From the start of the process to the first change of the disk.
        lasts_s: From the start of the process to its end.
        code: The exit code.
        state: The data at the end.
    """

    begins_s: float
    lasts_s: float
    code: int
    state: State

    def note_end(self, took_s: float) -> None:
        """Note how long an undisturbed command took: a busy machine was slow when this one was measured."""
        if took_s < self.lasts_s:
            self.begins_s *= took_s / self.lasts_s
            self.lasts_s = took_s

    def draw_moment(self, dice: random.Random) -> float:
        """Draw when to kill: mostly while it works, for before that there is nothing to harm."""
        return dice.uniform(0.9 * self.begins_s, self.lasts_s)


def write_source(directory: Path) -> None:
    """Write the delivery: a tenth of the scores is too low, two teams are too small."""
    directory.mkdir(parents=True)
    rows = 400
    scores = pl.DataFrame({"id": range(rows), "team": [f"t{i % 20}" for i in range(rows)]})
    scores = scores.with_columns(score=(pl.col("id") * 37) % 100)
    scores.write_csv(directory / "scores.csv")
    cities = {"team": [f"t{i}" for i in range(20)], "city": [f"c{i % 7}" for i in range(20)]}
    pl.DataFrame({**cities, "size": [i + 4 for i in range(20)]}).write_csv(directory / "teams.csv")


def astro(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `astro` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "astro_async", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def start_run(directory: Path) -> subprocess.Popen[str]:
    """Start the plain command; `-k`, for what runs beyond the stop point is else a matter of time."""
    return astro(directory, "run", "-k", "--jobs", "3", "--mode", "quiet")


def prepare(directory: Path) -> Path:
    """Make a pipeline directory with one ingested run."""
    write_source(directory / "source")
    shutil.copy(VICTIM, directory / "pipeline.py")
    (directory / "limit.txt").write_text(STRICT)
    process = astro(directory, "ingest", "source")
    output = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, output
    return directory


def measure(directory: Path) -> Phase:
    """Run a phase undisturbed."""
    started, at = time.monotonic(), time.time()
    process = start_run(directory)
    output = process.communicate(timeout=PATIENCE_S)[0]
    lasts_s = time.monotonic() - started
    assert process.returncode in (0, 3), output
    plans = [event for event in journal_of(directory) if isinstance(event, RunPlanned)]
    begins_s = datetime.fromisoformat(plans[-1].time).timestamp() - at
    return Phase(begins_s, lasts_s, process.returncode, read_state(directory))


def compare(state: State, expected: State, report: Report) -> None:
    """Count what is missing, what is there twice, and what is otherwise not as expected."""
    for name in sorted(state.keys() | expected.keys()):
        got, wanted = state.get(name, []), expected.get(name, [])
        if got == wanted:
            continue
        complain(f"{name} differs: {str(got)[:300]} is not {str(wanted)[:300]}")
        if isinstance(got, str) or isinstance(wanted, str):
            report.other_differences += 1
            continue
        lost: Counter[Any] = Counter(wanted) - Counter(got)
        more: Counter[Any] = Counter(got) - Counter(wanted)
        report.lost_rows += lost.total()
        report.doubled_rows += more.total()
        report.other_differences += not (lost or more)


# -- killing ---------------------------------------------------------------------------------------

Strike = Callable[["subprocess.Popen[str]", random.Random], bool]


def strike_kill(process: subprocess.Popen[str], _dice: random.Random) -> bool:
    """SIGKILL the command alone: what it started has to end by itself."""
    process.kill()
    return True


def strike_term(process: subprocess.Popen[str], _dice: random.Random) -> bool:
    """Ask once, as a service manager does."""
    process.terminate()
    return True


def strike_interrupt(process: subprocess.Popen[str], dice: random.Random) -> bool:
    """Press Ctrl-C twice: a terminal sends it to all processes of the command."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(dice.uniform(0, 0.1))
        os.killpg(process.pid, signal.SIGINT)
    return True


def strike_step(process: subprocess.Popen[str], _dice: random.Random) -> bool:
    """Kill the process of a step, if there is one at this moment."""
    children = children_of(process.pid)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return bool(children)


STRIKES: Final[dict[str, Strike]] = {
    "kill": strike_kill,
    "term": strike_term,
    "interrupt": strike_interrupt,
    "step": strike_step,
}
# 1: the step whose process died. 2 is never right: the pipeline can be loaded.
GOOD_CODES: Final = {
    "kill": {-signal.SIGKILL},
    "term": {143, -signal.SIGTERM},
    "interrupt": {130, -signal.SIGINT},
    "step": {1},
}


def run_until_done(
    directory: Path, phase: Phase, victim: str, dice: random.Random, report: Report, most_kills: int
) -> bool:
    """Give the plain command, and strike, until the phase has ended; False if it never does."""
    for attempt in range(most_kills + 2):
        started = time.monotonic()
        process = start_run(directory)
        struck = False
        if attempt < most_kills:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(phase.draw_moment(dice))
            if process.poll() is None:
                struck = STRIKES[victim](process, dice)
        try:
            output = process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            complain(f"{directory}: hangs")
            os.killpg(process.pid, signal.SIGKILL)
            report.hung_resumes += 1
            return False
        report.kills += struck
        if attempt == 0 and not struck:
            phase.note_end(time.monotonic() - started)
        report.torn_files += count_torn(directory)
        report.orphans += count_orphans(process.pid)
        code = process.returncode
        if code not in {phase.code, *(GOOD_CODES[victim] if struck else ())}:
            complain(f"{directory}: exit {code}\n{output}")
            report.wrong_exits += 1
        if code == phase.code:
            return True
    complain(f"{directory}: does not come to an end")
    report.hung_resumes += 1
    return False


def count_orphans(group: int) -> int:
    """Return how many processes outlive their command by more than a moment."""
    deadline = time.monotonic() + 30
    while members := group_members(group):
        if time.monotonic() > deadline:
            for member in members:
                complain(f"left behind: {member} {Path(f'/proc/{member}/cmdline').read_bytes()!r}")
                os.kill(member, signal.SIGKILL)
            return len(members)
        time.sleep(0.005)
    return 0


def kill_runs(victim: str, times: int, dice: random.Random, base: Path, most_kills: int) -> Report:
    """Live through histories of one kind until so many blows were dealt."""
    report = Report()
    prepared = prepare(base / "prepared")
    undisturbed = shutil.copytree(prepared, base / "undisturbed", symlinks=True)
    first = measure(undisturbed)
    (undisturbed / "limit.txt").write_text(MENDED)
    second = measure(undisturbed)
    assert (first.code, second.code) == (3, 0)
    while report.kills < times:
        directory = shutil.copytree(prepared, base / f"{victim}-{report.histories}", symlinks=True)
        report.histories += 1
        for number, phase in enumerate((first, second), start=1):
            if number == 2:
                (directory / "limit.txt").write_text(MENDED)
            if not run_until_done(directory, phase, victim, dice, report, most_kills):
                break
            compare(read_state(directory), phase.state, report)
        report.repeated_steps += count_repeated(directory)
        shutil.rmtree(directory)
    return report


# -- the ingest ------------------------------------------------------------------------------------


def kill_ingests(times: int, dice: random.Random, base: Path) -> Report:
    """Kill `astro ingest`: a run appears whole or not at all, and what is left over goes with the next."""
    report = Report()
    prepared = prepare(base / "prepared")
    expected = ingested_rows(prepared, run_directory(prepared).name)
    started = time.monotonic()
    astro(prepared, "ingest", "source").communicate(timeout=PATIENCE_S)
    lasts_s = time.monotonic() - started
    while report.kills < times:
        directory = base / f"ingest-{report.histories}"
        shutil.copytree(prepared, directory, ignore=shutil.ignore_patterns(".working", ".astro"))
        report.histories += 1
        code: int | None = None
        while code != 0:
            process = astro(directory, "ingest", "source")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(dice.uniform(0.4 * lasts_s, 1.1 * lasts_s))
            struck = process.poll() is None
            process.kill()
            output = process.communicate(timeout=PATIENCE_S)[0]
            code = process.returncode
            report.kills += struck
            if code not in (0, -signal.SIGKILL):
                complain(f"{directory}: exit {code}\n{output}")
                report.wrong_exits += 1
                break
            look_at_ingests(directory, expected, report)
        # Nobody is killed any more: what was left behind goes, but for folders of this very minute.
        left = [path for path in (directory / ".working").glob(".ingest-*") if (path / "run.lock").exists()]
        report.other_differences += len(left)
        shutil.rmtree(directory)
    return report


def look_at_ingests(directory: Path, expected: State, report: Report) -> None:
    """Whatever run can be seen has all of its rows."""
    summaries, notices = list_runs(directory)
    report.torn_files += len(notices)
    for summary in summaries:
        compare(ingested_rows(directory, summary.run_id), expected, report)


def ingested_rows(directory: Path, run_id: str) -> State:
    """Return the rows of each ingested file of a run."""
    record = read_run(directory, run_id)
    root = directory / ".working" / run_id
    return {
        name: pl.read_parquet(root / file.parquet_path, glob=False).rows()
        for name, file in record.files.items()
    }


# --------------------------------------------------------------------------------------------------

VICTIMS: Final = (*STRIKES, "ingest")


def kill_at_random(victim: str, times: int, seed: int, *, most_kills: int = MOST_KILLS) -> Report:
    """Deal at least so many blows to one kind of victim; the same seed draws the same moments."""
    dice = random.Random(f"{victim} {seed}")
    with temporary_directory() as base:
        if victim == "ingest":
            return kill_ingests(times, dice, base)
        return kill_runs(victim, times, dice, base, most_kills)


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="astro-kills-") as folder:
        yield Path(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each kind of victim; return 1 if anything is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--victim", action="append", choices=VICTIMS, help="repeatable; default all")
    parser.add_argument("--times", type=int, default=500, help="kills for each kind of victim")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    is_good = True
    for victim in options.victim or VICTIMS:
        report = kill_at_random(victim, options.times, options.seed)
        is_good = is_good and report.is_good
        print(f"{victim}: {report}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
