"""A step in a process of its own does not outlive the command that started it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.commands import GATED, astro, document, ingest, make_project, start

PATIENCE_S = 120

# The step holds the write end of `alive` open for as long as its process lives.
HELD = GATED.replace(
    '    with open("started", "w") as started:\n        started.write(str(os.getpid()))\n',
    '    alive = open("alive", "w")\n    print(os.getpid(), file=alive, flush=True)\n',
).replace('self.add_step("Wait", wait, READER)', 'self.add_step("Wait", wait, READER, engine="process")')


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path, HELD)
    for name in ("alive", "gate"):
        os.mkfifo(tmp_path / name)
    ingest(tmp_path)
    return tmp_path


def start_held(project: Path) -> tuple[subprocess.Popen[str], int, int]:
    """Return the command, the descriptor that ends when the step's process does, and that one's id."""
    command = start("run", cwd=project, own_group=True)
    alive = os.open(project / "alive", os.O_RDONLY)
    return command, alive, int(os.read(alive, 100))


def test_it_dies_with_a_command_that_is_killed(project: Path) -> None:
    command, alive, child = start_held(project)
    assert child != command.pid
    command.kill()
    command.communicate(timeout=PATIENCE_S)
    # The step waits at its gate, which nobody opens; it ends all the same, or this reads for ever.
    assert os.read(alive, 1) == b""
    os.close(alive)
    (run,) = document("list", "-C", project)["runs"]
    assert run["status"] == "interrupted"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_lets_it_finish(project: Path, number: signal.Signals, code: int) -> None:
    """A terminal sends SIGINT to the step's process, too, and service managers send SIGTERM to a group."""
    command, alive, child = start_held(project)
    assert os.getpgid(child) == command.pid
    os.killpg(command.pid, number)
    assert command.stderr is not None
    assert "stopping: running steps finish" in command.stderr.readline()
    (project / "gate").write_text("go")
    out, err = command.communicate(timeout=PATIENCE_S)
    os.close(alive)
    assert (command.returncode, err) == (code, "")
    assert "[1/2] complete    wait" in out
    assert "is interrupted: 1 complete, 1 pending" in out
    assert "[1/1] complete    later" in astro("run", "-C", project).stdout


def test_the_second_signal_to_all_processes_ends_it(project: Path) -> None:
    command, alive, _ = start_held(project)
    assert command.stderr is not None
    os.killpg(command.pid, signal.SIGTERM)
    assert "stopping: running steps finish" in command.stderr.readline()
    os.killpg(command.pid, signal.SIGTERM)
    # The step still waits at its gate: it is killed.
    assert os.read(alive, 1) == b""
    os.close(alive)
    command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 143
    (run,) = document("list", "-C", project)["runs"]
    assert (run["status"], run["step_counts"]) == ("interrupted", {"pending": 2})


def test_what_a_step_starts_is_ended_by_sigterm(tmp_path: Path) -> None:
    starting = """
import multiprocessing, subprocess, sys, time

def wait(ctx, files):
    started = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    started.stdout.readline()
    for each in (started, forked):
        each.terminate()
    forked.join()
    ctx.stats.record_step("started", started.wait())
    ctx.stats.record_step("forked", forked.exitcode)
"""
    step = 'self.add_step("Wait", wait, READER, engine="process")'
    body = GATED.replace('self.add_step("Wait", wait, READER)', step)
    make_project(tmp_path, body.replace("\nclass P(", f"{starting}\nclass P("))
    run_id = ingest(tmp_path)
    assert "[1/2] complete    wait" in astro("run", "-C", tmp_path).stdout
    numbers = document("stats", run_id, "-C", tmp_path)["statistics"]
    found = {each["action"]: each["value"] for each in numbers if each["subject"] == "wait"}
    assert (found["started"], found["forked"]) == (-signal.SIGTERM, -signal.SIGTERM)


def test_its_death_fails_the_step_and_nothing_else(project: Path) -> None:
    command, alive, child = start_held(project)
    os.kill(child, signal.SIGKILL)
    out, _ = command.communicate(timeout=PATIENCE_S)
    os.close(alive)
    assert command.returncode == 1
    assert "failed wait: its process died: it was killed" in out
