"""`astro quarantine export`, `amend`, `discard`, `withdraw` and `stats`, and what others say of decisions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from astro_async import read_run
from astro_async._store.atomic import Disk
from astro_async._store.layout import holder_path, lock_path
from astro_async._store.lock import acquire_lock
from astro_async.cli.app import app
from astro_async.testing import read_file
from cli.commands import HEAD, PARKING, astro, document, ingest, make_project, write_pipeline

TWO_CHECKS = (
    HEAD
    + """
pipeline = Pipeline("scores", ingest_files=FILES)
pipeline.add_check("Low", expect("too low", pl.col("score") >= 0), Scores)
pipeline.add_check("High", expect("too high", pl.col("score") <= 100), Scores)
"""
)
CSV = "id,score\n1,-5\n2,1\n3,500\n4,-7\n5,500\n6,500\n"
DECIDING = [
    ["amend", "latest", "low", "rows.csv", "--yes"],
    ["discard", "latest", "low", "--all", "--because", "x", "--yes"],
]


WITHDRAWING = ["withdraw", "latest", "low", "--all", "--yes"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path, TWO_CHECKS, CSV)
    ingest(tmp_path)
    astro("run", "-C", tmp_path, code=3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(path: str, *changes: tuple[str, str]) -> None:
    text = Path(path).read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    Path(path).write_text(text)


def test_20d_two_steps_on_one_file_are_amended_and_one_retry_lands_every_row(project: Path) -> None:
    told = astro("quarantine", "export", "latest", "low", "-o", "low.csv").stdout
    run_id = read_run(project, "latest").run_id
    assert told == (
        "low.csv: 2 rows that low set aside of scores\n"
        f"next: correct the values, then: astro quarantine amend {run_id} low low.csv\n"
    )
    astro("quarantine", "export", "latest", "high", "-o", "high.csv")
    edit("low.csv", ("1,-5", "1,5"), ("4,-7", "4,"))
    edit("high.csv", ("3,500", "3,50"), ("5,500", "5,60"))
    told = astro("quarantine", "amend", run_id, "low", "low.csv", "--yes").stdout
    assert told == (
        "2 of 2 rows differ:\n  score: 2 of 2 rows, 1 of them to null\namended 2 rows of scores\n"
        f"low waits for a run with 2 rows amended\nnext: astro run {run_id}\n"
    )
    amended = document(
        "quarantine", "amend", run_id, "high", "high.csv", "--yes", "--because", "typing errors"
    )
    assert (amended["rows"], amended["because"]) == (2, "typing errors")
    # Row 6 of the delivery stands third in what `high` was given: 2, 3, 5, 6.
    told = astro("quarantine", "discard", run_id, "high", "--rows", "3", "--because", "twice", "--yes").stdout
    assert "discarded 1 row of scores\nhigh waits for a run with 2 rows amended, 1 row discarded" in told
    # A null is parked again by the first check; that one is put right, too.
    astro("run", code=3)
    assert read_file(project, run_id, "scores").rows() == [(1, 5), (2, 1), (3, 50), (5, 60)]
    astro("quarantine", "export", "latest", "low", "-o", "low.csv", "--force")
    edit("low.csv", ("too low,4,", "too low,4,7"))
    astro("quarantine", "amend", run_id, "low", "low.csv", "--yes")
    astro("run")
    assert read_file(project, run_id, "scores").rows() == [(1, 5), (2, 1), (3, 50), (4, 7), (5, 60)]
    flows = {step.step_id: step.files[0] for step in read_run(project, run_id).steps.values()}
    assert (flows["low"].rows_in, flows["low"].rows_out, flows["low"].rows_discarded) == (6, 6, 0)
    assert (flows["high"].rows_in, flows["high"].rows_out, flows["high"].rows_discarded) == (6, 5, 1)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.xlsx"])
def test_a_file_that_nobody_touched_amends_nothing(name: str, project: Path) -> None:
    exported = document("quarantine", "export", "latest", "low", "-o", name)
    assert (exported["rows"], exported["rows_parked"], exported["rows_without_position"]) == (2, 2, 0)
    told = astro("quarantine", "amend", "latest", "low", name).stdout
    assert told == "nothing to amend: 2 rows, all as they were parked\n"
    assert document("quarantine", "amend", "latest", "low", name) == {
        "schema_version": 1,
        "run_id": exported["run_id"],
        "step_id": "low",
        "file": "scores",
        "rows": 0,
        "rows_still_amended": 0,
        "rows_still_discarded": 0,
    }
    assert read_run(project, "latest").patches == []


def test_rows_as_they_were_parked_do_not_take_a_decision_back_and_that_is_said(project: Path) -> None:
    run_id = read_run(project, "latest").run_id
    astro("quarantine", "export", "latest", "low", "-o", "low.csv")
    Path("wrong.csv").write_text("_astro_row,id,score\n0,1,5\n")
    astro("quarantine", "amend", "latest", "low", "wrong.csv", "--yes")
    told = astro("quarantine", "amend", "latest", "low", "low.csv").stdout
    withdraw = f"astro quarantine withdraw {run_id} low --rows"
    assert told == (
        "nothing to amend: 2 rows, all as they were parked\nof rows that are as they were parked, 1 was "
        f"amended before, and that stands; to take it back: {withdraw} 0\n"
    )
    told = astro("quarantine", "export", "latest", "low", "-o", "again.csv").stdout
    assert "1 of them is decided already (amended 1); the file shows it as it was parked\n" in told
    assert Path("again.csv").read_text() == Path("low.csv").read_text()
    astro("quarantine", "discard", "latest", "low", "--rows", "3", "--because", "x", "--yes")
    told = astro("quarantine", "export", "latest", "low", "-o", "again.csv", "--force").stdout
    assert "2 of them are decided already (amended 1, discarded 1); the file shows them as they were" in told
    # Only the rows that are written count.
    made = document("quarantine", "export", "latest", "low", "-o", "one.csv", "--limit", "1")
    assert (made["rows"], made["rows_amended_waiting"], made["rows_discarded_waiting"]) == (1, 1, 0)
    told = astro("quarantine", "amend", "latest", "low", "low.csv").stdout
    assert (
        f"1 was amended and 1 was discarded before, and that stands; to take it back: {withdraw} 0,3" in told
    )
    # Where another row differs it is said, too.
    edit("low.csv", ("1,-5", "1,6"))
    made = document("quarantine", "amend", "latest", "low", "low.csv", "--yes")
    assert (made["rows"], made["rows_still_amended"], made["rows_still_discarded"]) == (1, 0, 1)
    assert len(read_run(project, "latest").patches) == 3
    # A row that is parked as a decision made it is no longer decided about.
    edit("low.csv", ("1,6", "1,-6"))
    astro("quarantine", "amend", "latest", "low", "low.csv", "--yes")
    astro("run", code=3)
    astro("quarantine", "export", "latest", "low", "-o", "again.csv", "--force")
    assert Path("again.csv").read_text().splitlines()[1:] == ["0,too low,1,-6"]
    told = astro("quarantine", "amend", "latest", "low", "again.csv").stdout
    assert told == "nothing to amend: 1 row, all as they were parked\n"


def test_amend_shows_values_only_when_asked_and_asks_before_it_stores(project: Path) -> None:
    Path("rows.csv").write_text("_astro_row;id;score\r\n0;1;77777\r\n", encoding="utf-8-sig")
    answer = CliRunner().invoke(app, ["quarantine", "amend", "latest", "low", "rows.csv"], input="n\n")
    assert answer.exit_code == 1
    assert "1 of 1 row (2 are parked) differ:\n  score: 1 of 1 row\n" in answer.stdout
    assert "77777" not in answer.output
    assert "nothing is stored" in answer.stderr
    assert "nobody answered" in astro("quarantine", "amend", "latest", "low", "rows.csv", code=1).stderr
    assert read_run(project, "latest").patches == []
    shown = ["quarantine", "amend", "latest", "low", "rows.csv", "--show-values"]
    answer = CliRunner().invoke(app, shown, input="y\n")
    assert (answer.exit_code, "row 0, score: -5 -> 77777" in answer.stdout) == (0, True)
    assert read_run(project, "latest").patches[0].rows == 1
    # No value is in the journal or the log.
    (run,) = (project / ".working").glob("?????")
    assert "77777" not in (run / "events.jsonl").read_text() + (run / "astro.log").read_text()


def test_amend_warns_of_a_spreadsheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(
        tmp_path, PARKING.replace('"id": pl.Int64', '"id": pl.String'), "id,score\n" + "007,-1\n" * 6
    )
    ingest(tmp_path)
    monkeypatch.chdir(tmp_path)
    astro("run", code=3)
    astro("quarantine", "export", "latest", "-o", "rows.csv")
    Path("rows.csv").write_text(Path("rows.csv").read_text().replace("007", "7"))
    told = CliRunner().invoke(app, ["quarantine", "amend", "latest", "check", "rows.csv"], input="n\n").stdout
    assert "id: 6 of 6 rows" in told
    assert "warning: nearly every row of id differs: has a spreadsheet reformatted it?" in told


def test_the_later_decision_counts_and_says_so(project: Path) -> None:
    discard = ["quarantine", "discard", "latest", "low", "--because", "first", "--yes"]
    astro(*discard, "--all")
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n")
    told = astro("quarantine", "amend", "latest", "low", "rows.csv", "--yes").stdout
    assert "amended 1 row of scores; of them 1 was discarded before, and this counts now\n" in told
    assert "low waits for a run with 1 row amended, 1 row discarded\n" in told
    counted = document("quarantine", "stats", "latest", "low")["quarantine"]
    assert counted == [
        {
            "step_id": "low",
            "file": "scores",
            "rows_in": 6,
            "rows_quarantined": 2,
            "rows_amended_waiting": 1,
            "rows_discarded_waiting": 1,
            "rows_withdrawn_waiting": 0,
            "rows_undecided": 0,
            "reasons": {"too low": 2},
        }
    ]
    assert [patch.because for patch in read_run(project, "latest").patches] == ["first", None]
    shown = astro("show").stdout
    assert (
        "decided for low: 1 row amended, 1 row discarded, of 2 rows of scores; the next run applies it"
        in shown
    )
    planned = astro("run", "--dry-run").stdout
    assert "1 of 2 parked rows of scores would now pass, 1 discarded" in planned
    assert (
        "what becomes of its 3 parked rows of scores cannot be told: low makes scores anew before" in planned
    )
    first = document("run", "--dry-run")["again"][0]
    assert first["forecast"][0]["passing"] == 1
    astro("run", code=3)
    assert "decided" not in astro("show").stdout
    assert astro("quarantine", "stats").stdout.split()[7:14] == ["high", "scores", "5", "3", "0", "0", "3"]


def test_a_retry_with_nothing_new_says_so(project: Path) -> None:
    told = astro("run", code=3).stderr
    assert "step low set the same number of rows aside for the same reasons again" in told


def test_stats_tell_of_every_step(project: Path) -> None:
    lines = [line.split() for line in astro("quarantine", "stats").stdout.splitlines()]
    assert lines[1] == ["low", "scores", "6", "2", "0", "0", "2"]
    assert lines[2] == ["high", "scores", "4", "3", "0", "0", "3"]
    assert lines[-2:] == [["2", "low", "scores", "too", "low"], ["3", "high", "scores", "too", "high"]]
    write_pipeline(project, TWO_CHECKS.replace(">= 0", ">= -9").replace("<= 100", "<= 999"))
    astro("run")
    assert "has no rows in quarantine" in astro("quarantine", "stats").stdout
    assert document("quarantine", "stats")["quarantine"] == []


def test_nothing_of_it_needs_the_pipeline(project: Path) -> None:
    (project / "pipeline.py").unlink()
    astro("quarantine", "export", "latest", "low", "-o", "rows.csv")
    edit("rows.csv", ("1,-5", "1,5"))
    for command in (*DECIDING, WITHDRAWING):
        astro("quarantine", *command)
    astro("quarantine", "stats")


@pytest.mark.parametrize("command", [*DECIDING, WITHDRAWING], ids=["amend", "discard", "withdraw"])
def test_decisions_wait_for_nobody(command: list[str], project: Path) -> None:
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n")
    if command is WITHDRAWING:
        astro("quarantine", *DECIDING[1])
    patches = read_run(project, "latest").patches
    directory = str(project / ".working" / read_run(project, "latest").run_id)
    lock = acquire_lock(
        lock_path(directory), holder_path(directory), disk=Disk(), since="midnight", what="this run"
    )
    try:
        told = astro("quarantine", *command, code=4).stderr
        # Reading is not kept from anything.
        astro("quarantine", "export", "latest", "low", "-o", "again.csv")
        astro("quarantine", "stats")
    finally:
        lock.release()
    assert "is locked by process" in told
    assert "since midnight" in told
    assert read_run(project, "latest").patches == patches


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["export", "zzzzz", "low", "-o", "x.csv"], 1, "there is no run 'zzzzz'"),
        (["export", "latest", "none", "-o", "x.csv"], 2, "'none' is no step of the run"),
        (
            ["export", "latest", "low", "--file", "none", "-o", "x.csv"],
            2,
            "set aside no rows of 'none', but of",
        ),
        (["export", "latest", "low", "--reason", "none", "-o", "x.csv"], 2, "has the reason 'none'"),
        (["export", "latest", "-o", "x.csv"], 1, "several steps of run"),
        (["export", "latest", "low", "-o", "x.ods"], 1, "x.ods ends as none of"),
        (["export", "latest", "low", "-o", "x.csv", "--separator", "|"], 2, "separator"),
        (["export", "latest", "low"], 2, "--output"),
        (["amend", "latest", "low", "none.csv"], 1, "none.csv does not exist"),
        (["amend", "latest", "none", "none.csv"], 2, "'none' is no step of the run"),
        (["discard", "latest", "low", "--all"], 2, "--because"),
        (["discard", "latest", "low", "--because", "x"], 2, "either --rows 3,7-9 or --all"),
        (["discard", "latest", "low", "--rows", "0", "--all", "--because", "x"], 2, "either --rows"),
        (["discard", "latest", "low", "--rows", "0-x", "--because", "x"], 2, "no list of rows such as 3,7-9"),
        (["discard", "latest", "low", "--rows", "9-7", "--because", "x"], 2, "smaller number first"),
        (
            ["discard", "latest", "low", "--rows", "0,2-3", "--because", "x", "--yes"],
            1,
            "no row 2 of 'scores'",
        ),
        (["withdraw", "latest", "low"], 2, "either --rows 3,7-9 or --all"),
        (["withdraw", "latest", "low", "--rows", "0", "--all"], 2, "either --rows 3,7-9 or --all"),
        (["withdraw", "latest", "low", "--rows", "9-7"], 2, "smaller number first"),
        (["withdraw", "latest", "low", "--all"], 1, "nothing is decided about rows of step 'low'"),
        (["withdraw", "latest", "none", "--all"], 2, "'none' is no step of run"),
        (["withdraw", "zzzzz", "low", "--all"], 1, "there is no run 'zzzzz'"),
        (["stats", "latest", "none"], 2, "'none' is no step of the run"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], code: int, message: str, project: Path) -> None:
    told = astro("quarantine", *arguments, code=code)
    assert message in " ".join(told.stderr.replace("│", " ").split())
    assert told.stdout == ""
    assert read_run(project, "latest").patches == []
    assert not list(project.glob("*.csv"))


def test_a_step_without_parked_rows_and_a_run_that_is_gone(project: Path) -> None:
    write_pipeline(project, TWO_CHECKS.replace(">= 0", ">= -9"))
    astro("run", code=3)
    told = astro("quarantine", "export", "latest", "low", "-o", "x.csv", code=1).stderr
    assert "'low' (complete) has no rows in quarantine; in quarantine of run" in told
    shutil.rmtree(project / ".working")
    for command in (["stats"], WITHDRAWING, DECIDING[1]):
        assert "there is no run" in astro("quarantine", *command, code=1).stderr


@pytest.mark.parametrize("name", ["export", "amend", "discard", "withdraw", "stats"])
def test_help_has_an_example_and_the_exit_codes(name: str) -> None:
    told = astro("quarantine", name, "--help").stdout
    assert f"astro quarantine {name}" in told.partition("Example")[2]
    assert name == "stats" or "Exit codes" in told


def test_json_is_one_document_even_where_something_is_asked(project: Path) -> None:
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n")
    answer = CliRunner().invoke(
        app, ["quarantine", "amend", "latest", "low", "rows.csv", "--json"], input="y\n"
    )
    document = json.loads(answer.stdout)
    assert document["changes"] == [{"column": "score", "rows": 1, "emptied": 0, "suspicious": False}]
    assert (document["rows"], document["rows_amended_waiting"]) == (1, 1)
    rows = pl.read_parquet(next((project / ".working").glob("*/patches/low/*.parquet")), glob=False)
    assert rows["_astro_row"].to_list() == [0]


def test_a_decision_is_withdrawn_and_everybody_says_so(project: Path) -> None:
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n")
    run_id = read_run(project, "latest").run_id
    astro("quarantine", "amend", "latest", "low", "rows.csv", "--yes", "--because", "asked ada")
    astro("quarantine", "discard", "latest", "low", "--rows", "3", "--because", "a test", "--yes")
    shown = astro("quarantine", "show", "latest", "low").stdout
    assert "amended    1 row of scores (_astro_row 0): asked ada" in shown
    assert "discarded  1 row of scores (_astro_row 3): a test" in shown
    withdraw = ["quarantine", "withdraw", "latest", "low", "--rows", "0"]
    answer = CliRunner().invoke(app, withdraw, input="n\n")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "withdraw what was decided about 1 row of scores? [y/N] " in answer.stderr
    assert "nothing is stored" in answer.stderr
    told = astro(*withdraw, "--yes", "--because", "the wrong ada").stdout
    assert told == (
        "withdrew what was decided about 1 row of scores: 1 amended\n"
        f"low waits for a run with 1 row discarded\nnext: astro run {run_id}\n"
    )
    told = astro("quarantine", "stats", "latest", "low").stdout
    assert told.splitlines()[1].split() == ["low", "scores", "6", "2", "0", "1", "1"]
    words = [line.split("  1  ")[1].split("  ") for line in told.splitlines()[-3:]]
    assert [[word.strip() for word in line if word.strip()] for line in words] == [
        ["amended", "1 row of scores: asked ada"],
        ["discarded", "1 row of scores: a test"],
        ["withdrawn", "1 row of scores: the wrong ada"],
    ]
    counted = document("quarantine", "stats", "latest", "low")
    assert [(each["what"], each["rows"], each["because"]) for each in counted["decisions"]] == [
        ("amended", 1, "asked ada"),
        ("discarded", 1, "a test"),
        ("withdrawn", 1, "the wrong ada"),
    ]
    assert "decided for low: 1 row discarded, of 2 rows of scores" in astro("show").stdout
    assert "0 of 2 parked rows of scores would now pass, 1 discarded" in astro("run", "--dry-run").stdout
    told = astro("show", "--story", "low").stdout
    assert "withdrawn    1 row of scores: the wrong ada" in told
    assert "discarded    1 row of scores: a test" in told
    # A later run has been given the decision: that is told, too.
    astro("run", code=3)
    done = document("quarantine", "withdraw", "latest", "low", "--all", "--yes", "--because", "none of it")
    assert done == {
        "schema_version": 1,
        "run_id": run_id,
        "step_id": "low",
        "file": "scores",
        "rows": 1,
        "rows_replaced": 1,
        "rows_amended_before": 0,
        "rows_discarded_before": 1,
        "rows_amended_waiting": 0,
        "rows_discarded_waiting": 0,
        "rows_withdrawn_waiting": 1,
        "because": "none of it",
    }
    assert "decided for low: 1 row given as it came, of 1 row of scores" in astro("show").stdout
    told = astro("quarantine", "stats", "latest", "low").stdout
    assert "1 row of scores: a test (withdrawn)" in told
    assert astro("verify").stdout.splitlines()[0].endswith("sound")
    astro("run", code=3)
    assert document("quarantine", "show", "latest", "low")["files"][0]["rows_quarantined"] == 2


def test_the_failure_names_the_command_that_helps(project: Path) -> None:
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n3,4,7\n")
    run_id = read_run(project, "latest").run_id
    astro("quarantine", "amend", "latest", "low", "rows.csv", "--yes")
    filtering = 'pipeline.add_filter("Drop", Scores, remove=pl.col("id") == 4)\npipeline.add_check("Low"'
    write_pipeline(project, TWO_CHECKS.replace('pipeline.add_check("Low"', filtering))
    told = astro("run", "--mode", "plain", code=1).stdout
    command = f"astro quarantine withdraw {run_id} low --file scores --rows 3"
    assert f"`{command}` takes back what was decided about them" in told
    # Nothing is parked now, but what was decided is still told.
    told = astro("quarantine", "stats", "latest", "low").stdout
    assert f"run {run_id} (failed) has no rows in quarantine\n" in told
    assert "2 rows of scores" in told
    astro(*command.split()[1:], "--yes")
    astro("run", code=3)
    assert read_file(project, run_id, "scores").rows() == [(1, 5), (2, 1)]


def test_what_was_decided_before_is_told_as_it_was(project: Path) -> None:
    discard = ["quarantine", "discard", "latest", "low", "--because", "x", "--yes"]
    Path("rows.csv").write_text("_astro_row,id,score\n0,1,5\n3,4,7\n")
    amend = ["quarantine", "amend", "latest", "low", "rows.csv", "--yes"]
    assert "\namended 2 rows of scores\n" in astro(*amend).stdout
    assert "2 rows of scores; of them 2 were amended before, and this counts now\n" in astro(*amend).stdout
    told = astro(*discard, "--rows", "0").stdout
    assert "discarded 1 row of scores; of them 1 was amended before, and this counts now\n" in told
    assert "of them 1 was discarded before, and" in astro(*discard, "--rows", "0").stdout
    told = astro(*amend).stdout
    assert "of them 1 was amended and 1 was discarded before, and this counts now\n" in told
