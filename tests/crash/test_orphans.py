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
    command = start("run", cwd=project)
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


def test_ctrl_c_lets_it_finish(project: Path) -> None:
    """A terminal sends SIGINT to the step's process, too."""
    command, alive, child = start_held(project)
    os.kill(child, signal.SIGINT)
    command.send_signal(signal.SIGINT)
    assert command.stderr is not None
    assert "stopping: running steps finish" in command.stderr.readline()
    (project / "gate").write_text("go")
    out, _ = command.communicate(timeout=PATIENCE_S)
    os.close(alive)
    assert command.returncode == 130
    assert "[1/2] complete    wait" in out
    assert "[1/1] complete    later" in astro("run", "-C", project).stdout


def test_its_death_fails_the_step_and_nothing_else(project: Path) -> None:
    command, alive, child = start_held(project)
    os.kill(child, signal.SIGKILL)
    out, _ = command.communicate(timeout=PATIENCE_S)
    os.close(alive)
    assert command.returncode == 1
    assert "failed wait: its process died: it was killed" in out
