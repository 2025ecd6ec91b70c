"""`astro cleanup`: what it removes, what it never does, what it says and asks."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from astro_async._core.names import RunId
from astro_async._core.retention import select_removable
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus
from astro_async._store.atomic import Disk
from astro_async._store.lock import acquire_lock
from astro_async.cli.app import app
from astro_async.testing import read_quarantine
from cli.commands import GOOD, HEAD, PARKING, astro, document, ingest, make_project, tree, write_pipeline

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)

WRITING = HEAD + (
    "pipeline = Pipeline('p', ingest_files=FILES)\n"
    "for number in range(3):\n"
    "    save = lambda ctx, files: files[0].save_in_place(files[0].load())\n"
    "    pipeline.add_step(f's{number}', save, Scores)\n"
)


def summary(run_id: str, status: RunStatus, days: int, rows: int = 0) -> RunSummary:
    time = (NOW - timedelta(days=days)).isoformat()
    return RunSummary(RunId(run_id), status, "p", time, time, "/d", {}, rows)


def test_which_runs_are_chosen() -> None:
    runs = [
        summary("new11", RunStatus.COMPLETED, 1),
        summary("live1", RunStatus.RUNNING, 2),
        summary("park1", RunStatus.QUARANTINED, 3, rows=2),
        summary("mid11", RunStatus.COMPLETED, 10),
        summary("fail1", RunStatus.FAILED, 20),
        replace(summary("wait1", RunStatus.FAILED, 20), is_decided=True),
        summary("over1", RunStatus.FAILED, 30, rows=1),
        summary("old11", RunStatus.COMPLETED, 40),
    ]

    def chosen(**options: object) -> list[str]:
        return [run.run_id for run in select_removable(runs, now=NOW, **options)]  # type: ignore[arg-type]

    assert chosen() == ["old11", "mid11", "new11"]
    assert chosen(keep_last=1) == ["old11", "mid11"]
    assert chosen(older_than=timedelta(days=15)) == ["old11"]
    assert chosen(older_than=timedelta(days=15), unfinished=True) == ["old11", "fail1"]
    assert chosen(keep_last=3) == []


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, str, str]:
    """A folder with a completed run and one with rows in quarantine."""
    completed = ingest(make_project(tmp_path, GOOD))
    astro("run", "-C", tmp_path)
    write_pipeline(tmp_path, PARKING)
    parked = ingest(tmp_path)
    astro("run", "-C", tmp_path, code=3)
    return tmp_path, completed, parked


def test_completed_runs_only_and_never_statistics(project: tuple[Path, str, str]) -> None:
    folder, completed, parked = project
    before = tree(folder)
    said = astro("cleanup", "--dry-run", "-C", folder).stdout
    assert completed in said
    assert "to remove: 1 run, " in said
    assert parked not in said
    dry = document("cleanup", "--dry-run", "-C", folder)
    assert [(run["run_id"], run["is_removed"]) for run in dry["runs"]] == [(completed, False)]
    assert tree(folder) == before
    assert "\nfreed " in astro("cleanup", "--yes", "-C", folder).stdout
    assert [run["run_id"] for run in document("list", "-C", folder)["runs"]] == [parked]
    assert not (folder / ".working" / completed).exists()
    assert document("stats", completed, "-C", folder)["statistics"]
    assert document("quarantine", "list", parked, "-C", folder)["quarantine"]
    assert "nothing to remove" in astro("cleanup", "--yes", "--unfinished", "-C", folder).stdout


def test_it_asks(project: tuple[Path, str, str]) -> None:
    folder, completed, _ = project
    for answer, code in (("n\n", 1), ("", 1), ("y\n", 0)):
        assert (folder / ".working" / completed).exists()
        result = CliRunner().invoke(app, ["cleanup", "-C", str(folder)], input=answer)
        assert result.exit_code == code
        assert "Free " in result.output
    assert not (folder / ".working" / completed).exists()
    assert "--yes or --dry-run" in astro("cleanup", "--json", "-C", folder, code=2).stderr


def test_runs_that_are_named(project: tuple[Path, str, str]) -> None:
    folder, completed, parked = project
    refused = astro("cleanup", parked, "--yes", "-C", folder, code=1).stderr
    assert f"run {parked} is left alone: it has 1 undecided row in quarantine" in refused
    assert "has 1 undecided" in astro("cleanup", "latest", "--yes", "-C", folder, code=1).stderr
    assert "there is no run 'zzzzz'" in astro("cleanup", "zzzzz", "--yes", "-C", folder, code=1).stderr
    assert "is not a run id" in astro("cleanup", "../x", "-C", folder, code=2).stderr
    fresh = ingest(folder)
    assert "not completed (--unfinished)" in astro("cleanup", fresh, "-y", "-C", folder, code=1).stderr
    done = document("cleanup", fresh, completed, "--unfinished", "--yes", "-C", folder)
    assert [(run["run_id"], run["is_removed"]) for run in done["runs"]] == [(fresh, True), (completed, True)]


def test_a_run_that_goes_on_is_refused(project: tuple[Path, str, str]) -> None:
    folder, completed, _ = project
    paths = [str(folder / ".working" / completed / name) for name in ("run.lock", "run.holder.json")]
    lock = acquire_lock(*paths, disk=Disk(), since="2026-11-30T08:00:00Z", what="the run")
    try:
        for options in (
            [completed, "--yes"],
            ["--yes"],
            ["--yes", "--json"],
            [completed, "--versions", "-y"],
            [completed, "--quarantine", "-y"],
        ):
            refused = astro("cleanup", *options, "-C", folder, code=4)
            assert f"error: run {completed} is locked by process {os.getpid()} on " in refused.stderr
    finally:
        lock.release()
    assert (folder / ".working" / completed).exists()


def test_old_versions(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, WRITING))
    astro("run", "-C", tmp_path)
    versions = tmp_path / ".working" / run_id / "versions" / "scores"
    assert len(list(versions.iterdir())) == 3
    told = document("cleanup", "--versions", "--dry-run", "-C", tmp_path)
    (run,) = told["runs"]
    old = [path for path in versions.iterdir() if not path.name.startswith("s2")]
    assert run["size_bytes"] == sum(path.stat().st_size for path in old)
    assert "old versions of 1 run" in astro("cleanup", "--versions", "--yes", "-C", tmp_path).stdout
    assert [path.name for path in versions.iterdir()] == ["s2.1.parquet"]
    assert "nothing to remove: no old versions" in astro("cleanup", "--versions", "-C", tmp_path).stdout
    assert not document("verify", "-C", tmp_path)["faults"]
    assert "--rerun s0" in astro("run", run_id, "--rerun", "s1", "-C", tmp_path, code=1).stderr


def decide(folder: Path, run_id: str) -> None:
    """Amend the parked row of a run, with a value that is in no other place."""
    path = folder / "rows.csv"
    path.write_text("_astro_row,id,score\n1,2,424242\n")
    astro("quarantine", "amend", run_id, "check", path, "--yes", "--because", "asked", "-C", folder)
    path.unlink()


def test_runs_with_decisions_that_wait_stay(project: tuple[Path, str, str]) -> None:
    folder, completed, parked = project
    decide(folder, parked)
    # After this nothing is parked, but the decision is in no other place.
    write_pipeline(folder, PARKING.replace('pl.col("score") >= 0', 'pl.col("none") >= 0'))
    astro("run", "-C", folder, code=1)
    before = tree(folder)
    planned = document("cleanup", "--unfinished", "--dry-run", "-C", folder)
    assert [run["run_id"] for run in planned["runs"]] == [completed]
    told = astro("cleanup", parked, "--unfinished", "--yes", "-C", folder, code=1).stderr
    assert f"run {parked} is left alone: it has decisions about rows that it has yet to apply" in told
    assert tree(folder) == before
    astro("quarantine", "withdraw", parked, "check", "--all", "--yes", "-C", folder)
    done = document("cleanup", parked, "--unfinished", "--yes", "-C", folder)
    assert [(run["run_id"], run["is_removed"]) for run in done["runs"]] == [(parked, True)]


def test_what_was_decided_about_rows(project: tuple[Path, str, str]) -> None:
    folder, _, run_id = project
    decide(folder, run_id)
    refused = astro("cleanup", run_id, "--quarantine", "--yes", "-C", folder, code=1).stderr
    assert "is left alone: it has decisions about rows that it has yet to apply" in refused
    astro("run", "-C", folder)
    root = folder / ".working" / run_id
    (patch,) = (root / "patches").rglob("*.parquet")
    planned = document("cleanup", "--quarantine", "--dry-run", "-C", folder)
    assert (planned["what"], len(planned["runs"])) == ("quarantine", 1)
    assert planned["runs"][0] == {
        "run_id": run_id,
        "status": "completed",
        "size_bytes": patch.stat().st_size,
        "is_removed": False,
    }
    aged: list[str | Path] = ["cleanup", "--quarantine", "--yes", "-C", folder]
    assert "nothing to remove: no decisions about rows" in astro(*aged, "--older-than", "30d").stdout
    assert patch.exists()
    told = astro(*aged).stdout
    assert "what was decided about rows of 1 run, " in told
    assert "\nfreed " in told
    assert not list((root / "patches").rglob("*.parquet"))
    assert not document("verify", run_id, "-C", folder)["faults"]
    # What was decided stays on the record; the values do not.
    shown = astro("quarantine", "stats", run_id, "-C", folder).stdout
    assert "amended  1 row of scores: asked (removed)" in shown
    assert "nothing to remove" in astro(*aged).stdout
    told = astro("run", run_id, "--rerun", "check", "-C", folder, code=1).stderr
    assert "what was decided about rows of step 'check' was removed by `astro cleanup --quarantine`" in told
    told = astro("quarantine", "withdraw", run_id, "check", "--all", "-C", folder, code=1).stderr
    assert "so it cannot be withdrawn" in told
    assert not document("verify", run_id, "-C", folder)["faults"]


def test_a_completed_run_that_has_to_run_again_stays(project: tuple[Path, str, str]) -> None:
    folder, _, run_id = project
    decide(folder, run_id)
    astro("run", "-C", folder)
    astro("quarantine", "withdraw", run_id, "check", "--all", "--yes", "-C", folder)
    patches = list((folder / ".working" / run_id / "patches").rglob("*.parquet"))
    assert len(patches) == 2
    for options in ([], ["--quarantine"]):
        told = astro("cleanup", run_id, *options, "--yes", "-C", folder, code=1).stderr
        assert "it is interrupted, not completed (--unfinished)" in told
        astro("cleanup", *options, "--dry-run", "-C", folder)
        assert run_id not in [
            run["run_id"] for run in document("cleanup", *options, "--dry-run", "-C", folder)["runs"]
        ]
    assert all(path.exists() for path in patches)
    listed = {
        run["run_id"]: (run["status"], run["is_next"]) for run in document("list", "-C", folder)["runs"]
    }
    assert listed[run_id] == ("interrupted", True)
    assert f"run {run_id} is interrupted" in astro("status", "-C", folder, code=1).stdout
    shown = " ".join(astro("show", run_id, "-C", folder).stdout.split())
    assert "decisions that it was completed with have been withdrawn" in shown
    assert f"run {run_id}: the newest that has something to do" in astro("run", "-C", folder, code=3).stdout
    assert read_quarantine(folder, run_id, "check", "scores")["id"].to_list() == [2]
    write_pipeline(folder, PARKING.replace('pl.col("score") >= 0', 'pl.col("score") >= -9'))
    astro("run", run_id, "-C", folder)
    done = document("cleanup", run_id, "--yes", "-C", folder)
    assert [(run["run_id"], run["is_removed"]) for run in done["runs"]] == [(run_id, True)]


def test_what_an_earlier_cleanup_left_is_removed(project: tuple[Path, str, str]) -> None:
    folder, completed, parked = project
    shutil.move(folder / ".working" / completed, folder / ".working" / f".removed-{completed}")
    assert [run["run_id"] for run in document("list", "-C", folder)["runs"]] == [parked]
    said = astro("cleanup", "--yes", "-C", folder).stdout
    assert "1 run half removed by an earlier cleanup" in said
    assert {path.name for path in (folder / ".working").iterdir() if path.is_dir()} == {parked}


@pytest.mark.parametrize("harm", ["journal lost", "journal damaged", "both lost", "manifest damaged too"])
def test_a_run_that_cannot_be_read_goes_if_it_is_named(project: tuple[Path, str, str], harm: str) -> None:
    folder, completed, parked = project
    directory = folder / ".working" / parked
    journal, manifest = directory / "events.jsonl", directory / "manifest.json"
    match harm:
        case "journal lost":
            journal.unlink()
        case "journal damaged":
            journal.write_bytes(journal.read_bytes()[:-9])
        case "both lost":
            journal.unlink()
            manifest.unlink()
        case _:
            journal.write_bytes(b"{}\n")
            manifest.write_bytes(b"{}\n")
    # Neither unnamed, nor without being given up.
    assert parked not in astro("cleanup", "--unfinished", "--dry-run", "-C", folder).stdout
    assert astro("cleanup", parked, "--yes", "-C", folder, code=1).stderr.count("error: ") == 1
    told = astro("cleanup", parked, "--unfinished", "--dry-run", "-C", folder)
    assert f"warning: run {parked} cannot be read: " in told.stderr
    row = next(line for line in told.stdout.splitlines() if parked in line)
    assert "cannot be read" in row
    assert row.rstrip().endswith("kB")
    assert (
        "nobody can say whether rows are parked in a run that cannot be read; they go with it" in told.stdout
    )
    lock = acquire_lock(
        str(directory / "run.lock"),
        str(directory / "run.holder.json"),
        disk=Disk(),
        since="2026-11-30T08:00:00Z",
        what="the run",
    )
    try:
        refused = astro("cleanup", parked, "--unfinished", "--yes", "-C", folder, code=4)
        assert f"run {parked} is locked by process" in refused.stderr
    finally:
        lock.release()
    assert directory.exists()
    done = document("cleanup", parked, "--unfinished", "--yes", "-C", folder)
    assert [(run["run_id"], run["status"], run["is_removed"]) for run in done["runs"]] == [
        (parked, None, True)
    ]
    assert os.listdir(folder / ".working") == [completed]


def test_a_run_of_a_later_version_is_whole_and_stays(project: tuple[Path, str, str]) -> None:
    folder, completed, _ = project
    manifest = folder / ".working" / completed / "manifest.json"
    later = manifest.read_text().replace('"schema_version":1', '"schema_version":99')
    manifest.write_text(later)
    assert "99" in astro("cleanup", completed, "--unfinished", "--yes", "-C", folder, code=1).stderr
    assert manifest.read_text() == later


def test_without_any_run(tmp_path: Path) -> None:
    assert astro("cleanup", "-C", tmp_path).stdout.startswith("nothing to remove")
    assert document("cleanup", "--dry-run", "-C", tmp_path)["runs"] == []
    assert "there is no run" in astro("cleanup", "latest", "-C", tmp_path, code=1).stderr
    for options in (
        ["--versions", "--unfinished"],
        ["--quarantine", "--unfinished"],
        ["--quarantine", "--versions"],
        ["k3x9a", "--keep-last", "1"],
        ["--older-than", "x"],
    ):
        astro("cleanup", *options, "-C", tmp_path, code=2)
    assert list(tmp_path.iterdir()) == []
