"""`astro` as a process of its own: signals, locks, pipes, terminals."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from astro_async.cli.app import main
from cli.commands import GATED, GOOD, HEAD, astro, document, ingest, make_project, start

PATIENCE_S = 120


class Gate:
    """Two fifos: a step tells that it has begun, and waits to be let on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        os.mkfifo(folder / "started")
        os.mkfifo(folder / "gate")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = start(*arguments, cwd=self.folder)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def wait_until_started(self) -> int:
        """Return the pid that the step runs in."""
        with open(self.folder / "started") as started:
            return int(started.read())

    def let_on(self) -> None:
        with open(self.folder / "gate", "w") as gate:
            gate.write("go")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.close()


@pytest.fixture
def gated(gate: Gate) -> Gate:
    ingest(make_project(gate.folder, GATED))
    return gate


def status_of(folder: Path) -> tuple[str, dict[str, int]]:
    (run,) = document("list", "-C", folder)["runs"]
    return run["status"], run["step_counts"]


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"{words!r} was not said")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_first_signal_lets_steps_finish(gated: Gate, number: signal.Signals, code: int) -> None:
    process = gated.start("run")
    gated.wait_until_started()
    process.send_signal(number)
    read_until(process, "stopping: running steps finish")
    gated.let_on()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "[1/2] complete    wait" in out
    assert "is interrupted: 1 complete, 1 pending" in out
    assert "goes on where it stopped" in out
    assert "Traceback" not in err
    assert status_of(gated.folder) == ("interrupted", {"complete": 1, "pending": 1})
    assert "[1/1] complete    later" in astro("run", "-C", gated.folder).stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", [["run"], ["ingest", "source"]])
def test_a_signal_while_the_pipeline_is_loaded_is_no_fault_of_the_pipeline(
    gate: Gate, command: list[str], number: signal.Signals, code: int
) -> None:
    held = (
        "import os\n"
        "open('started', 'w').write(str(os.getpid()))\n"
        "try:\n    open('gate').read()\nexcept Exception:\n    pass\n"
    )
    ingest(make_project(gate.folder, GATED))
    (gate.folder / "pipeline.py").write_text(held + GATED)
    before = status_of(gate.folder)
    process = gate.start(*command)
    gate.wait_until_started()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (code, "", "interrupted\n")
    (gate.folder / "pipeline.py").write_text(GATED)
    assert status_of(gate.folder) == before


def test_the_second_signal_cancels_and_threads_are_left_behind(gated: Gate) -> None:
    process = gated.start("run", "--mode", "json")
    gated.wait_until_started()
    process.send_signal(signal.SIGTERM)
    read_until(process, "stopping")
    process.send_signal(signal.SIGTERM)
    # The step still waits at its gate: the command ends all the same.
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["run_planned", "step_started", "step_interrupted", "run_finished"]
    assert "cancelling" in err
    assert status_of(gated.folder) == ("interrupted", {"pending": 2})


def test_the_third_signal_leaves_even_when_a_step_blocks_the_loop(gate: Gate, tmp_path: Path) -> None:
    blocking = GATED.replace("def wait", "async def wait")
    ingest(make_project(tmp_path, blocking))
    process = gate.start("run")
    gate.wait_until_started()
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping")
    process.send_signal(signal.SIGTERM)
    read_until(process, "cancelling")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert status_of(tmp_path)[0] == "interrupted"


def test_a_signal_that_interrupts_nothing_does_not_change_the_verdict(gate: Gate, tmp_path: Path) -> None:
    alone = GATED.replace(
        'self.add_step("Later", lambda ctx, files: None, READER, depends_on="wait")', "pass"
    )
    ingest(make_project(tmp_path, alone))
    process = gate.start("run")
    gate.wait_until_started()
    process.send_signal(signal.SIGTERM)
    read_until(process, "stopping")
    gate.let_on()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert status_of(tmp_path)[0] == "completed"


def test_a_signal_during_ingest_leaves_nothing_behind(gate: Gate, tmp_path: Path) -> None:
    # The reader of the source is held at the gate; the ingest waits for it, then drops what it read.
    reading = GATED.replace(
        '{"id": pl.Int64, "score": pl.Int64})',
        "preprocess=lambda path: (wait(None, None), pl.read_csv(path))[1])",
    )
    make_project(tmp_path, reading)
    process = gate.start("ingest", "source")
    gate.wait_until_started()
    process.send_signal(signal.SIGTERM)
    gate.let_on()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (143, "")
    assert "Traceback" not in err
    assert document("list", "-C", tmp_path)["runs"] == []
    assert list((tmp_path / ".working").iterdir()) == []


def test_a_thread_that_outlives_its_timeout_does_not_hold_up_the_command(gate: Gate) -> None:
    ingest(make_project(gate.folder, GATED.replace("wait, READER)", "wait, READER, timeout=0.1)")))
    process = gate.start("run")
    gate.wait_until_started()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "failed wait: timed out after 0.1 s; its thread is still busy" in out
    assert "threads that cannot be stopped: wait" in out
    assert err == ""


def test_an_events_file_that_fills_the_disk_does_not_harm_the_run(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    result = astro("run", "--events", "/dev/full", "-C", tmp_path)
    assert result.stderr == "warning: --events is not written any more: [Errno 28] No space left on device\n"
    assert "is completed" in result.stdout


def test_locked_by_another_process(gated: Gate) -> None:
    process = gated.start("run")
    pid = gated.wait_until_started()
    # Readers are not locked out.
    assert status_of(gated.folder)[0] == "running"
    refused = astro("run", "-C", gated.folder, code=4)
    assert f"is locked by process {pid} on {socket.gethostname()} since 20" in refused.stderr
    gated.let_on()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@pytest.mark.parametrize("arguments", [["list"], ["show"], ["run", "--dry-run"], ["run"]], ids=" ".join)
def test_a_reader_that_goes_away(tmp_path: Path, arguments: list[str]) -> None:
    ingest(make_project(tmp_path, GOOD))
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "astro_async", *arguments],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (0, "")
    if arguments == ["run"]:
        assert status_of(tmp_path)[0] == "completed"


class Terminal:
    """`astro` on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.controller, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "astro_async", *arguments],
            cwd=folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **environment},
        )
        os.close(terminal)
        self.written = b""

    def read_until(self, text: str) -> None:
        """Read until a text has been written, or the command has ended without it."""
        while text.encode() not in self.written:
            assert self._read(), self.written.decode()

    def read_rest(self, code: int = 0) -> str:
        """Return all that the command wrote, once it has ended."""
        while self._read():
            pass
        os.close(self.controller)
        assert self.process.wait() == code
        return self.written.decode()

    def _read(self) -> bool:
        try:
            chunk = os.read(self.controller, 65536)
        except OSError:
            return False
        self.written += chunk
        return bool(chunk)


def run_on_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """Run `astro` on a terminal of its own and return what it wrote there."""
    return Terminal(folder, *arguments, **environment).read_rest()


def test_a_terminal_gets_the_dashboard_and_colours(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    text = run_on_terminal(tmp_path, "run")
    assert "\x1b[32mcomplete" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert "is completed: 2 complete" in text


def test_no_color(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    text = run_on_terminal(tmp_path, "run", NO_COLOR="1")
    assert "complete" in text
    assert "\x1b[3" not in text
    assert run_on_terminal(tmp_path, "run", TERM="dumb").startswith("nothing to do")


def test_a_pipe_gets_plain_lines_though_colours_are_forced(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    done = subprocess.run(
        [sys.executable, "-m", "astro_async", "run", "--mode", "dashboard"],
        cwd=tmp_path,
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[2/2] complete    publish" in done.stdout
    assert "\x1b[?25l" not in done.stdout


def test_the_dashboard_shows_what_steps_log_and_is_not_driven_by_it(gate: Gate) -> None:
    logging = 'ctx.logger.info("half \\x1b[2J done")\n    with open("started"'
    ingest(make_project(gate.folder, GATED.replace('with open("started"', logging)))
    terminal = Terminal(gate.folder, "run")
    gate.wait_until_started()
    terminal.read_until("[wait] half \\x1b[2J done")
    gate.let_on()
    text = terminal.read_rest()
    assert "is completed: 2 complete" in text
    assert "\x1b[2J" not in text


HELD = (
    HEAD
    + """
def hold(path):
    with open("started", "w") as started:
        started.write(str(os.getpid()))
    with open("gate") as gate:
        gate.read()
    return pl.read_csv(path)

pipeline = Pipeline("scores", ingest_files=[IngestFileSpec("scores", "scores*.csv", preprocess=hold)])
"""
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("arguments", [("ingest", "source"), ("run", "--source", "source")])
def test_an_ingest_that_is_interrupted_says_what_became_of_it(
    gate: Gate, number: signal.Signals, code: int, arguments: tuple[str, ...]
) -> None:
    make_project(gate.folder, HELD)
    process = gate.start(*arguments)
    gate.wait_until_started()
    process.send_signal(number)
    gate.let_on()
    out, err = process.communicate(timeout=PATIENCE_S)
    told = "interrupted: nothing was ingested and no run was made; the same command starts again\n"
    assert (process.returncode, out, err) == (code, "", told)
    assert os.listdir(gate.folder / ".working") == []


def test_an_ingest_tells_a_terminal_how_far_it_is_and_a_pipe_nothing(gate: Gate) -> None:
    make_project(gate.folder, HELD)
    terminal = Terminal(gate.folder, "ingest", "source")
    gate.wait_until_started()
    terminal.read_until("converting 22 B: 0 B of Parquet written")
    gate.let_on()
    text = terminal.read_rest()
    assert "0 of 1 file ingested, 22 B in all" in text
    assert "ingested scores: 3 rows" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    process = gate.start("ingest", "source")
    gate.wait_until_started()
    gate.let_on()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err.startswith("warning: run")
    assert "Parquet" not in err


def test_a_trace_of_a_run_that_goes_on(gated: Gate) -> None:
    process = gated.start("run")
    gated.wait_until_started()
    trace = json.loads(astro("trace", "-o", "-", "-C", gated.folder).stdout)
    (slice_,) = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert slice_["args"]["outcome"] == "running"
    assert not [event for event in trace["traceEvents"] if "died" in str(event)]
    gated.let_on()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


# Does what `-m` does, and sends SIGINT when a module is looked for, as a quick hand would.
QUICK_HAND = """
import os, runpy, signal, sys

class Hand:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Hand())
runpy.run_module("astro_async", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("typer", ["list"]),
        ("astro_async.cli.list_command", ["list"]),
        ("polars", ["run"]),
        ("astro_async.cli.quarantine_show", ["quarantine", "show"]),
    ],
)
def test_ctrl_c_while_modules_are_loaded(tmp_path: Path, module: str, command: list[str]) -> None:
    ingest(make_project(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", QUICK_HAND, module, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        # Whoever runs the tests may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
    assert status_of(tmp_path) == ("ingested", {})


def test_ctrl_c_where_it_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As in a shell script, of what it starts with `&`."""
    ingest(make_project(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", QUICK_HAND, "typer", "list", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert [run["status"] for run in json.loads(done.stdout)["runs"]] == ["ingested"]


def test_ctrl_c_after_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("astro_async.cli.app.app", interrupt)
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_both_scripts_are_installed() -> None:
    for name in ("astro", "astro-async"):
        script = Path(sys.executable).parent / name
        shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
        assert shown.stdout.startswith("astro-async ")


def test_output_that_cannot_be_written_is_no_success(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    for command in ("list", "--help"):
        with open("/dev/full", "w") as full:
            arguments = [sys.executable, "-m", "astro_async", command]
            done = subprocess.run(arguments, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1
        assert done.stderr == b"error: the output cannot be written: No space left on device\n"
