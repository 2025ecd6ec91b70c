"""`astro ingest` and `astro run`: what they say, write and return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from astro_async._core.selection import RunSummary
from astro_async._store.catalogue import load_summaries
from cli.commands import (
    FAILING,
    GOOD,
    HEAD,
    PARKING,
    astro,
    document,
    ingest,
    make_project,
    tree,
    write_pipeline,
)


def test_ingest_prints_the_run_and_what_is_next(tmp_path: Path) -> None:
    make_project(tmp_path)
    lines = astro("ingest", tmp_path / "source", "-C", tmp_path).stdout.splitlines()
    run_id = document("list", "-C", tmp_path)["runs"][0]["run_id"]
    assert lines[0].startswith("ingested scores: 3 rows, 2 columns, ")
    assert lines[1] == f"run {run_id} of pipeline scores is ready"
    assert lines[2].startswith(f"next: astro run {run_id} -C ")


def test_params_are_read_and_kept(tmp_path: Path) -> None:
    make_project(tmp_path)
    given = [
        "a=5",
        "b=0.5",
        "c=true",
        "d=null",
        "e=007",
        "f=x=y",
        "g=",
        "h=[1]",
        "i=NaN",
        f"j={2**70}",
        "a=6",
    ]
    arguments = [word for pair in given for word in ("--param", pair)]
    shown = document("ingest", tmp_path / "source", "-C", tmp_path, *arguments)
    assert shown["params"] == {
        "a": 6,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "007",
        "f": "x=y",
        "g": "",
        "h": "[1]",
        "i": "NaN",
        "j": str(2**70),
    }
    astro("run", "--param", "a=7", "-C", tmp_path, code=3)
    assert document("show", "-C", tmp_path)["params"]["a"] == 7
    assert "is not K=V" in astro("run", "--param", "a", "-C", tmp_path, code=2).stderr


def test_a_run_that_parks_rows(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    lines = astro("run", "-C", tmp_path, code=3).stdout.splitlines()
    assert lines[0] == f"run {run_id}: the newest that has something to do (ingested)"
    assert lines[1].startswith("[1/2] quarantined check ")
    assert lines[1].endswith(" 1 of 3 rows")
    assert lines[2] == "[2/2] blocked     1 step: publish"
    assert lines[3].startswith(f"run {run_id} is failed (only for steps that quarantine blocks): ")
    assert lines[-1].startswith("next: mend pipeline.py or what it reads, then: astro run ")
    assert any(f"look: astro quarantine show {run_id} check" in line for line in lines)
    correct = f"correct the rows: astro quarantine export {run_id} check -o rows.csv"
    assert any(correct in line for line in lines)
    astro("run", "--allow-quarantined", "-C", tmp_path)


def test_a_run_that_fails_repeats_failures_last(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, FAILING))
    failed = astro("run", "-C", tmp_path, "--allow-quarantined", code=1)
    last = failed.stdout.splitlines()[-4:]
    assert last[1].startswith("  failed boom: ValueError: no ")
    assert last[2] == "  blocked 1 step: publish"
    # The traceback is in the log of the run, and on stderr only with --debug.
    assert failed.stderr == ""
    for arguments in (["--debug", "run"], ["run", "--debug"]):
        assert "in boom" in astro_debug(*arguments, "-C", str(tmp_path))


def astro_debug(*arguments: str) -> str:
    from typer.testing import CliRunner

    from astro_async.cli.app import app

    return CliRunner().invoke(app, list(arguments)).stderr


def test_a_run_that_completes_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    assert f"run {run_id} is completed: 2 complete in " in astro("run", "-C", tmp_path).stdout
    before = tree(tmp_path)
    again = astro("run", "-C", tmp_path)
    assert again.stdout.startswith("nothing to do: no run is unfinished; `astro ingest SOURCE_DIR -C ")
    for named in (run_id, "latest"):
        refused = astro("run", named, "-C", tmp_path, code=1)
        assert f"error: run {run_id} is completed" in refused.stderr
    assert tree(tmp_path) == before
    assert "[1/2] complete    check" in astro("run", run_id, "--rerun", "check", "-C", tmp_path).stdout


def test_nothing_to_do_where_nothing_was_ingested(tmp_path: Path) -> None:
    make_project(tmp_path)
    before = tree(tmp_path)
    assert "nothing to do" in astro("run", "-C", tmp_path).stdout
    assert document("run", "-C", tmp_path)["run_id"] is None
    assert tree(tmp_path) == before


def test_others_that_wait_are_named(tmp_path: Path) -> None:
    older = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    newer = ingest(tmp_path)
    first = astro("run", "-C", tmp_path, code=3).stdout.splitlines()[0]
    assert first == (
        f"run {newer}: the newest that has something to do (ingested); waiting: {older} (failed, 1 row)"
    )
    assert astro("run", "--run-id", older, "-C", tmp_path, code=3).stdout.startswith(
        f"run {older}: named (fa"
    )
    assert astro("run", "latest", "-C", tmp_path, code=3).stdout.startswith(
        f"run {newer}: the latest (failed)"
    )


def test_source_ingests_and_runs_just_that(tmp_path: Path) -> None:
    older = ingest(make_project(tmp_path))
    lines = astro("run", "--source", tmp_path / "source", "-C", tmp_path, code=3).stdout.splitlines()
    assert lines[0].startswith("ingested scores: 3 rows")
    assert "just ingested from" in lines[1]
    assert lines[1].endswith(f"; waiting: {older} (ingested)")
    statuses = {run["run_id"]: run["status"] for run in document("list", "-C", tmp_path)["runs"]}
    assert statuses.pop(older) == "ingested"
    assert list(statuses.values()) == ["failed"]


def test_dry_run_changes_nothing(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    before = tree(tmp_path)
    assert "  check: has never run" in astro("run", "--dry-run", "-C", tmp_path).stdout
    assert tree(tmp_path) == before
    astro("run", "-C", tmp_path, code=3)
    before = tree(tmp_path)
    journal = next(tmp_path.glob(".working/*/events.jsonl")).read_bytes()
    events = tmp_path / "e.jsonl"
    lines = astro("run", "--dry-run", "-C", tmp_path, "--events", events).stdout.splitlines()
    assert lines[1] == "2 of 2 steps would run; nothing is changed now"
    assert lines[2] == "  check: has rows in quarantine; it gets its whole input again"
    assert lines[3] == "    0 of 1 parked row of scores would now pass"
    assert lines[4] == "  publish: was blocked"
    planned = document("run", "--dry-run", "-C", tmp_path)
    forecast = {"file": "scores", "parked": 1, "passing": 0, "discarded": 0, "new": 0, "problem": None}
    assert planned["again"][0] == {
        "step_id": "check",
        "reason": "quarantined",
        "because": None,
        "forecast": [forecast],
    }
    assert tree(tmp_path) == before
    assert next(tmp_path.glob(".working/*/events.jsonl")).read_bytes() == journal


def test_dry_run_of_a_completed_run(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    astro("run", "-C", tmp_path)
    assert "nothing would run" in astro("run", "latest", "--dry-run", "-C", tmp_path).stdout
    named = astro("run", "latest", "--dry-run", "--rerun", "check", "-C", tmp_path).stdout
    assert "  check: is named by --rerun" in named
    assert "  publish: depends on check, which runs again" in named


def parse_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_mode_json_is_one_event_a_line_and_nothing_else(tmp_path: Path) -> None:
    printing = GOOD.replace("lambda ctx, files: None", "lambda ctx, files: print('step prints this')")
    run_id = ingest(make_project(tmp_path, "print('pipeline prints this')\n" + printing))
    events = tmp_path / "events.jsonl"
    events.write_text("earlier\n")
    result = astro("run", "--mode", "json", "--events", events, "-C", tmp_path)
    told = parse_lines(result.stdout)
    assert [event["kind"] for event in told] == [
        "run_planned",
        "step_started",
        "step_finished",
        "step_started",
        "step_finished",
        "run_finished",
    ]
    assert all(event["run_id"] == run_id and event["time"] and event["seq"] for event in told)
    assert (told[1]["step_id"], told[1]["attempt"]) == ("check", 1)
    assert "pipeline prints this" in result.stderr
    assert "step prints this" in result.stderr
    assert events.read_text() == "earlier\n" + result.stdout


def test_json_is_one_document_at_the_end(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    result = astro("run", "--json", "-C", tmp_path, code=3)
    assert json.loads(result.stdout)["status"] == "failed"
    assert result.stderr.startswith("run ")
    assert "choose one" in astro("run", "--json", "--mode", "json", "-C", tmp_path, code=2).stderr


def test_quiet_speaks_only_of_trouble(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    parked = astro("run", "--mode", "quiet", "-C", tmp_path, code=3)
    assert parked.stdout == ""
    assert "is failed" in parked.stderr
    write_pipeline(tmp_path, GOOD)
    assert astro("run", "--mode", "quiet", "-C", tmp_path).output == ""


@pytest.mark.parametrize("mode", ["cli", "plain", "auto", "dashboard"])
def test_modes_without_a_terminal_are_plain(tmp_path: Path, mode: str) -> None:
    ingest(make_project(tmp_path, GOOD))
    text = astro("run", "--mode", mode, "-C", tmp_path).stdout
    assert "[2/2] complete    publish " in text
    assert "\x1b" not in text


def test_blocked_steps_are_counted_in_one_line(tmp_path: Path) -> None:
    many = HEAD + (
        "pipeline = Pipeline('many', ingest_files=FILES)\n"
        "pipeline.add_check('check', expect('bad', pl.col('score') >= 0), Scores)\n"
        "for number in range(300):\n"
        "    pipeline.add_step(f's{number}', lambda ctx, files: None, READER, depends_on='check')\n"
    )
    ingest(make_project(tmp_path, many))
    lines = astro("run", "-k", "-C", tmp_path, code=3).stdout.splitlines()
    assert lines[2] == "[301/301] blocked     300 steps: s0, s1, s2, … 297 more"
    assert len(lines) < 12


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--jobs", "0"], "--jobs"),
        (["--jobs", "x"], "--jobs"),
        (["--mode", "loud"], "--mode"),
        (["abc12", "--run-id", "xyz12"], "name one run"),
        (["abc12", "--source", "."], "does not go with run abc12"),
        (["--dry-run", "--source", "."], "changes nothing"),
        (["../x"], "is not a run id"),
        (["--nope"], "--nope"),
    ],
)
def test_usage_errors(tmp_path: Path, arguments: list[str], says: str) -> None:
    make_project(tmp_path)
    before = tree(tmp_path)
    result = astro("run", *arguments, "-C", tmp_path, code=2)
    assert says in result.stderr
    assert result.stdout == ""
    assert tree(tmp_path) == before


def test_unknown_run_and_step(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    unknown = astro("run", "zzzzz", "-C", tmp_path, code=1)
    assert unknown.stdout == ""
    assert "there is no run 'zzzzz'" in unknown.stderr
    assert "--rerun names 'nope'" in astro("run", "--rerun", "nope", "-C", tmp_path, code=2).stderr


def test_events_file_that_cannot_be_opened(tmp_path: Path) -> None:
    make_project(tmp_path)
    before = tree(tmp_path)
    events = tmp_path / "pipeline.py" / "e"
    refused = astro("run", "--source", tmp_path / "source", "--events", events, "-C", tmp_path, code=1)
    assert "--events" in refused.stderr
    assert "Not a directory" in refused.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("arguments", [[], ["latest"], ["RUN"], ["RUN", "--dry-run"], ["--source", "SOURCE"]])
def test_runs_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    waiting = ingest(make_project(tmp_path))
    meanings = {"RUN": ingest(tmp_path), "SOURCE": str(tmp_path / "source")}
    listings: list[str] = []

    def list_and_count(pipeline_dir: str) -> tuple[list[RunSummary], list[str]]:
        listings.append(pipeline_dir)
        return load_summaries(pipeline_dir)

    monkeypatch.setattr("astro_async.reading.load_summaries", list_and_count)
    result = astro(
        "run",
        *(meanings.get(each, each) for each in arguments),
        "-C",
        tmp_path,
        code=0 if "--dry-run" in arguments else 3,
    )
    assert f"{waiting} (ingested)" in result.stdout.partition("; waiting: ")[2]
    assert len(listings) == 1


def test_a_run_that_is_named_is_read_without_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(make_project(tmp_path))
    run_id = ingest(tmp_path)

    def explode(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("astro_async.reading.load_summaries", explode)
    for command in ("show", "quarantine list"):
        assert run_id in astro(*command.split(), run_id, "-C", tmp_path).stdout


def test_other_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("very \x1b[31modd")

    monkeypatch.setattr("astro_async.cli.list_command.list_runs", explode)
    result = astro("list", "-C", tmp_path, code=1)
    assert result.stderr == (
        "error: unexpected ZeroDivisionError: very \\x1b[31modd; run again with --debug to see where\n"
    )


def test_hints_are_for_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader of files or a step does to the working directory."""
    away = tmp_path / "away"
    away.mkdir()
    straying = (
        PARKING.replace("lambda ctx, files: None", f"lambda ctx, files: os.chdir({str(away)!r})")
        .replace('depends_on="check"', "")
        .replace(
            '{"id": pl.Int64, "score": pl.Int64})',
            f"preprocess=lambda path: (os.chdir({str(away)!r}), pl.read_csv(path))[1])",
        )
    )
    make_project(tmp_path / "project", straying)
    monkeypatch.chdir(tmp_path)
    ingested = astro("ingest", "project/source", "-C", "project")
    assert Path.cwd() == tmp_path
    assert "-C project" in ingested.stdout
    told = astro("run", "-C", "project", code=3).stdout
    assert Path.cwd() == tmp_path
    hints = [words for line in told.splitlines() for words in line.split(" -C ")[1:]]
    assert len(hints) > 1
    assert [words.split()[0] for words in hints] == ["project"] * len(hints)
