"""`on_finish`, `--notify-command` and `--notify-url`: told once, kept where it failed, never values."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

import astro_async
from astro_async import RunResult
from cli.commands import FAILING, GOOD, PARKING, astro, ingest, make_project, write_pipeline

TO_FILE = "sh -c 'cat >> \"$0\"' {}"


def untold(folder: Path, run_id: str) -> dict[str, Any]:
    path = folder / ".working" / run_id / "untold.json"
    found: dict[str, Any] = json.loads(path.read_text())["untold"] if path.exists() else {}
    return found


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_command_is_told_counts_and_names_and_no_values(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, PARKING))
    path = tmp_path / "told.jsonl"
    astro("run", "-C", tmp_path, "--notify-command", TO_FILE.format(path), code=3)
    (notice,) = told(path)
    assert (notice["kind"], notice["run_id"], notice["pipeline_name"]) == ("run_finished", run_id, "scores")
    assert (notice["status"], notice["exit_code"]) == ("failed", 3)
    assert notice["step_counts"] == {"quarantined": 1, "blocked": 1}
    assert notice["quarantine"] == [{"step_id": "check", "file": "scores", "rows": 1}]
    assert "negative" not in path.read_text()
    assert untold(tmp_path, run_id) == {}
    write_pipeline(tmp_path, FAILING)
    astro("run", "-C", tmp_path, "--notify-command", TO_FILE.format(path), code=1)
    assert told(path)[1]["failed"] == ["boom"]
    assert "such" not in path.read_text()


def test_what_a_command_missed_is_told_by_the_next_invocation(tmp_path: Path) -> None:
    first = ingest(make_project(tmp_path, GOOD))
    failed = astro("run", "-C", tmp_path, "--notify-command", "sh -c 'echo away >&2; exit 7'")
    assert "nobody was told by --notify-command: sh ended with 7: away; the next `astro run`" in failed.stderr
    assert untold(tmp_path, first)["command"]["status"] == "completed"
    missing = astro("run", "-C", tmp_path, "--notify-command", "/nowhere/to/be/found")
    assert "nothing to do" in missing.stdout
    assert "cannot be run" in missing.stderr
    second = ingest(tmp_path)
    path = tmp_path / "told.jsonl"
    # Without the option nobody is told, and nothing is forgotten.
    astro("run", "-C", tmp_path)
    assert untold(tmp_path, first)
    astro("run", second, "--rerun", "publish", "-C", tmp_path, "--notify-command", TO_FILE.format(path))
    assert sorted(notice["run_id"] for notice in told(path)) == sorted([first, second])
    assert untold(tmp_path, first) == untold(tmp_path, second) == {}


def test_a_dry_run_tells_nobody(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    path = tmp_path / "told.jsonl"
    astro("run", "--dry-run", "-C", tmp_path, "--notify-command", TO_FILE.format(path))
    assert not path.exists()


class Receiver:
    """An HTTP server on this machine that answers with `code`, and keeps what it is sent."""

    def __init__(self) -> None:
        self.code = 204
        self.bodies: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                if receiver.code < 300:
                    receiver.bodies.append(json.loads(body))
                self.send_response(receiver.code)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=secret"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "*")
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def test_an_address_is_told(tmp_path: Path, receiver: Receiver) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    receiver.code = 503
    failed = astro("run", "-C", tmp_path, "--notify-url", receiver.url)
    assert "nobody was told by --notify-url: 127.0.0.1 answered 503" in failed.stderr
    assert "secret" not in failed.output
    assert "secret" not in (tmp_path / ".working" / run_id / "untold.json").read_text()
    receiver.code = 204
    assert astro("run", "-C", tmp_path, "--notify-url", receiver.url).stderr == ""
    assert [(body["run_id"], body["exit_code"]) for body in receiver.bodies] == [(run_id, 0)]
    assert untold(tmp_path, run_id) == {}
    astro("run", "-C", tmp_path, "--notify-url", receiver.url)
    assert len(receiver.bodies) == 1


def test_an_address_where_nobody_is(tmp_path: Path, receiver: Receiver) -> None:
    run_id = ingest(make_project(tmp_path, PARKING))
    receiver.server.server_close()
    failed = astro("run", "-C", tmp_path, "--notify-url", receiver.url, "--mode", "quiet", code=3)
    assert "nobody was told by --notify-url: 127.0.0.1 cannot be reached: " in failed.stderr
    assert set(untold(tmp_path, run_id)) == {"url"}


@pytest.mark.parametrize(
    "option",
    [
        ["--notify-url", "file:///etc/passwd"],
        ["--notify-url", "example.org"],
        ["--notify-url", "http://[x"],
        ["--notify-command", ""],
        ["--notify-command", "mail 'x"],
    ],
    ids=" ".join,
)
def test_what_is_no_command_or_address(tmp_path: Path, option: list[str]) -> None:
    make_project(tmp_path)
    assert option[0] in astro("run", "-C", tmp_path, *option, code=2).stderr


WATCHED = """
    def on_finish(self, result):
        with open("finished.txt", "a") as file:
            print(result.run_id, result.status.value, result.exit_code, file=file)
        if os.path.exists("away"):
            raise ConnectionError("mail is away")

pipeline = P()
"""


def test_on_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = ingest(make_project(tmp_path, PARKING.replace("\npipeline = P()\n", WATCHED)))
    astro("run", code=3)
    lines = tmp_path / "finished.txt"
    assert lines.read_text() == f"{first} failed 3\n"
    assert untold(tmp_path, first) == {}
    (tmp_path / "away").touch()
    write_pipeline(tmp_path, GOOD.replace("\npipeline = P()\n", WATCHED))
    failed = astro("run")
    assert "on_finish raised ConnectionError: mail is away (the next `astro run`" in failed.stderr
    assert "on_finish" in untold(tmp_path, first)
    second = ingest(tmp_path)
    (tmp_path / "away").unlink()
    astro("run")
    assert lines.read_text().splitlines()[1:] == [
        f"{first} completed 0",
        f"{second} completed 0",
        f"{first} completed 0",
    ]
    assert untold(tmp_path, first) == untold(tmp_path, second) == {}


def test_on_finish_is_called_again_when_nothing_is_to_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = ingest(make_project(tmp_path, GOOD.replace("\npipeline = P()\n", WATCHED)))
    (tmp_path / "away").touch()
    astro("run")
    (tmp_path / "away").unlink()
    astro("run", "--dry-run")
    assert "on_finish" in untold(tmp_path, run_id)
    assert "nothing to do" in astro("run").stdout
    assert untold(tmp_path, run_id) == {}
    assert (tmp_path / "finished.txt").read_text() == f"{run_id} completed 0\n" * 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_on_finish_may_be_async_and_may_exit(tmp_path: Path, backend: str) -> None:
    ingest(make_project(tmp_path, GOOD))
    pipeline = astro_async.load_pipeline(tmp_path)
    results: list[RunResult] = []

    async def note(result: RunResult) -> None:
        await anyio.lowlevel.checkpoint()
        results.append(result)
        raise SystemExit(9)

    pipeline.on_finish = note
    result = anyio.run(lambda: astro_async.run(pipeline, pipeline_dir=tmp_path), backend=backend)
    assert result.exit_code == 0
    assert results == [result]
    assert result.run_id is not None
    assert set(untold(tmp_path, result.run_id)) == {"on_finish"}
    pipeline.on_finish = results.append
    nothing = anyio.run(lambda: astro_async.run(pipeline, pipeline_dir=tmp_path), backend=backend)
    assert nothing.run_id is None
    assert [each.run_id for each in results] == [result.run_id] * 2
    assert results[1].record is not None
    assert results[1].status == "completed"
