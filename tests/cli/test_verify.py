"""`astro verify`: what it prints, and its exit codes."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.commands import GATED, GOOD, PARKING, astro, document, ingest, make_project, start, write_pipeline


def run_folder(folder: Path, run_id: str) -> Path:
    return folder / ".working" / run_id


def test_without_any_run(tmp_path: Path) -> None:
    assert astro("verify", "-C", tmp_path, code=1).stderr.startswith(f"error: there is no run in {tmp_path}")
    assert astro("verify", "--all", "-C", tmp_path).stdout == "no runs yet: nothing to verify\n"
    assert document("verify", "--all", "-C", tmp_path) == {"schema_version": 1, "faults": 0, "runs": []}
    assert "there is no run 'zzzzz'" in astro("verify", "zzzzz", "-C", tmp_path, code=1).stderr
    assert "is not a run id" in astro("verify", "../x", "-C", tmp_path, code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_or_all_of_them(tmp_path: Path) -> None:
    older = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    newer = ingest(tmp_path)
    shown = astro("verify", "-C", tmp_path).stdout
    assert shown.startswith(f"run {newer}  ingested  sound\n  1 file, 3 rows, ")
    assert astro("verify", "latest", "-C", tmp_path).stdout == shown
    assert f"run {older}  failed  sound" in astro("verify", older, "-C", tmp_path).stdout
    runs = document("verify", "--all", "-C", tmp_path)["runs"]
    assert {run["run_id"]: run["files"] for run in runs} == {newer: 1, older: 4}
    assert "not both" in astro("verify", older, "--all", "-C", tmp_path, code=2).stderr


def test_faults_are_told_and_the_exit_code_is_1(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    part = "quarantine/check/scores.part-00001.parquet"
    (run_folder(tmp_path, run_id) / part).unlink()
    (run_folder(tmp_path, run_id) / "current" / "scores.parquet").unlink()
    shown = astro("verify", "-C", tmp_path, code=1).stdout
    assert f"run {run_id}  failed  2 faults" in shown
    assert f"fault  {part} is missing" in shown
    assert f"`astro run {run_id} --rerun check` makes it anew" in shown
    assert "fault  current/scores.parquet is missing, or is not versions/scores/check.1.parquet" in shown
    (run,) = (found := document("verify", "-C", tmp_path, code=1))["runs"]
    assert found["faults"] == 2
    assert run["faults"][0] == {
        "kind": "missing",
        "message": f"{part} is missing",
        "path": part,
        "step_id": "check",
        "advice": f"`astro run {run_id} --rerun check` makes it anew",
        "is_repairable": False,
    }
    repaired = astro("verify", "--repair", "-C", tmp_path, code=1).stdout
    assert "repaired  current/scores.parquet was linked to versions/scores/check.1.parquet" in repaired
    assert f"run {run_id}  failed  1 fault\n" in repaired
    write_pipeline(tmp_path, GOOD)
    astro("run", run_id, "--rerun", "check", "-C", tmp_path)
    assert f"run {run_id}  completed  sound" in astro("verify", "-C", tmp_path).stdout


def test_all_tells_every_run_though_one_cannot_be_read(tmp_path: Path) -> None:
    sound = ingest(make_project(tmp_path))
    (run_folder(tmp_path, "abc12")).mkdir()
    shown = astro("verify", "--all", "-C", tmp_path, code=1).stdout
    assert f"run {sound}  ingested  sound" in shown
    assert "run abc12  not readable  2 faults" in shown
    runs = document("verify", "--all", "-C", tmp_path, code=1)["runs"]
    assert {run["run_id"]: run["status"] for run in runs} == {"abc12": None, sound: "ingested"}
    # Repair makes nothing of nothing.
    assert "2 faults" in astro("verify", "abc12", "--repair", "-C", tmp_path, code=1).stdout


def test_what_is_in_records_cannot_drive_the_terminal(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    journal = run_folder(tmp_path, run_id) / "events.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"ingested/scores.parquet", b"x\\u001b[31m[red]y"))
    (run_folder(tmp_path, run_id) / "manifest.json").unlink()
    shown = astro("verify", run_id, "-C", tmp_path, code=1).stdout
    # Broken into lines as the screen is wide.
    assert "[31m[red]y" in "".join(shown.split())
    assert "\x1b" not in shown


def test_the_demo_is_sound(tmp_path: Path) -> None:
    astro("demo", "-C", tmp_path / "demo")
    found = document("verify", "--all", "-C", tmp_path / "demo")
    (run,) = found["runs"]
    assert (run["faults"], run["notes"], run["differences"]) == ([], [], [])
    assert run["rows"] > 344


def test_while_another_process_is_on_the_run(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GATED))
    os.mkfifo(tmp_path / "started")
    os.mkfifo(tmp_path / "gate")
    other = start("run", cwd=tmp_path)
    try:
        with open(tmp_path / "started") as started:
            started.read()
        shown = astro("verify", "-C", tmp_path).stdout
        assert f"run {run_id}  running  sound\n" in shown
        assert "as the journal stood" in shown
        assert document("verify", "--all", "-C", tmp_path)["runs"][0]["is_live"] is True
        refused = astro("verify", "--repair", "-C", tmp_path, code=4)
        assert f"error: run {run_id} is locked by process {other.pid} on " in refused.stderr
        refused = astro("verify", "--all", "--repair", "-C", tmp_path, code=4)
        assert f"is locked by process {other.pid}" in refused.stderr
        with open(tmp_path / "gate", "w") as gate:
            gate.write("go")
        # It was not disturbed.
        other.communicate(timeout=120)
        assert other.returncode == 0
    finally:
        other.kill()
        other.communicate()
    assert f"run {run_id}  completed  sound" in astro("verify", "-C", tmp_path).stdout


@pytest.mark.parametrize("pipeline", [PARKING, GOOD])
def test_after_a_killed_run_there_are_notes_at_most(tmp_path: Path, pipeline: str) -> None:
    run_id = ingest(make_project(tmp_path, pipeline))
    staging = run_folder(tmp_path, run_id) / "staging"
    staging.mkdir(parents=True)
    (staging / "check.1.1.parquet").write_bytes(b"half")
    shown = astro("verify", "-C", tmp_path).stdout
    assert f"run {run_id}  ingested  sound" in shown
    assert "note  staging is what an attempt left that did not end" in shown
    assert "the next `astro run` puts it right" in shown
    shown = astro("verify", "--repair", "-C", tmp_path).stdout
    assert "repaired  staging was removed: no record names it" in shown
    assert not staging.exists()


def test_a_run_that_was_completed_by_a_process_that_died_is_taken_up(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    manifest = run_folder(tmp_path, run_id) / "manifest.json"
    early = manifest.read_bytes()
    astro("run", "-C", tmp_path)
    whole = manifest.read_bytes()
    # As after a kill between the last line of the journal and the last checkpoint.
    manifest.write_bytes(early)
    with closing(sqlite3.connect(tmp_path / ".astro" / "stats.db")) as connection, connection:
        connection.execute("DELETE FROM statistics WHERE scope = 'step'")
    assert "note" in astro("verify", "-C", tmp_path).stdout
    shown = astro("run", "--mode", "plain", "-C", tmp_path).stdout
    assert f"run {run_id}: the newest that has something to do (completed)" in shown
    assert f"run {run_id} is completed" in shown
    assert manifest.read_bytes() == whole
    assert f"run {run_id}  completed  sound" in (sound := astro("verify", "-C", tmp_path).stdout)
    assert "note" not in sound
    assert "nothing to do" in astro("run", "--mode", "plain", "-C", tmp_path).stdout
    assert "completed and has nothing to do" in astro("run", run_id, "-C", tmp_path, code=1).stderr


def test_a_run_says_that_its_numbers_could_not_be_kept(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    database = tmp_path / ".astro" / "stats.db"
    database.write_bytes(b"this was a database" * 1000)
    run = astro("run", "--mode", "plain", "-C", tmp_path)
    assert run.stdout.count("statistics are incomplete") + run.stderr.count("statistics are incomplete") == 1
    assert "statistics are incomplete" in (run_folder(tmp_path, run_id) / "astro.log").read_text()
    astro("verify", "-C", tmp_path, code=1)
    astro("verify", "--repair", "-C", tmp_path)
    assert "note" not in astro("verify", "-C", tmp_path).stdout
