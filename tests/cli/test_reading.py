"""`astro list`, `show`, `quarantine list` and `quarantine show`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.commands import FAILING, GOOD, HEAD, PARKING, astro, document, ingest, make_project, write_pipeline

READING = [["list"], ["show"], ["quarantine", "list"], ["quarantine", "show"]]


def named_folder(message: str, pattern: str) -> Path:
    """Return the folder that a hint names, which says it relative to where one is if that is shorter."""
    (named,) = re.findall(pattern, message)
    return Path(named).resolve()


def test_without_any_run(tmp_path: Path) -> None:
    listed = astro("list", "-C", tmp_path)
    assert "no runs yet" in listed.stdout
    assert "astro ingest SOURCE_DIR" in listed.stdout
    assert document("list", "-C", tmp_path)["runs"] == []
    for command in READING[1:]:
        for more in ([], ["--json"]):
            shown = astro(*command, "-C", tmp_path, *more, code=1)
            assert shown.stdout == ""
            assert shown.stderr.startswith(f"error: there is no run in {tmp_path}")
            assert named_folder(shown.stderr, "`astro ingest SOURCE_DIR -C (.+)` makes one") == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", READING[1:], ids=" ".join)
def test_unknown_run(tmp_path: Path, command: list[str]) -> None:
    ingest(make_project(tmp_path))
    shown = astro(*command, "zzzzz", "-C", tmp_path, code=1)
    assert "there is no run 'zzzzz'" in shown.stderr
    assert named_folder(shown.stderr, "`astro list -C (.+)` shows the runs") == tmp_path
    assert "is not a run id" in astro(*command, "../x", "-C", tmp_path, code=2).stderr


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_folder_that_is_not_there(tmp_path: Path, command: list[str]) -> None:
    assert "does not exist" in astro(*command, "-C", tmp_path / "nowhere", code=2).stderr


def test_list_is_newest_first_and_marks_the_next(tmp_path: Path) -> None:
    older = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    newer = ingest(tmp_path)
    lines = astro("list", "-C", tmp_path).stdout.splitlines()
    assert lines[1].split()[:3] == [">", newer, "ingested"]
    assert lines[2].split()[:2] == [older, "failed"]
    assert "1 quarantined (1 row), 1 blocked" in lines[2]
    assert lines[-1].endswith(newer)
    runs = document("list", "-C", tmp_path)["runs"]
    assert [(run["run_id"], run["is_next"], run["rows_quarantined"]) for run in runs] == [
        (newer, True, 0),
        (older, False, 1),
    ]


def test_list_names_runs_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".working" / "abc12").mkdir(parents=True)
    listed = astro("list", "-C", tmp_path)
    assert "warning: run abc12 cannot be read" in listed.stderr
    assert document("list", "-C", tmp_path)["notices"]


def test_show(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    text = astro("show", "-C", tmp_path).stdout
    assert "2 of 3" in text
    assert "versions/scores/check.1.parquet" in text
    assert "blocked publish: blocked by check" in text
    assert f"next: astro quarantine list {run_id} -C " in text
    shown = document("show", run_id, "-C", tmp_path)
    assert shown["run_id"] == run_id
    assert shown["ingested_files"][0]["active_path"] == "versions/scores/check.1.parquet"
    check, publish = shown["step_states"]
    assert check["files"][0]["rows_quarantined"] == 1
    assert (check["status"], publish["status"]) == ("quarantined", "blocked")
    assert Path(shown["run_directory"], check["files"][0]["parts"][0]["path"]).is_file()


def test_show_counts_the_columns_of_the_active_version(tmp_path: Path) -> None:
    wider = HEAD + (
        "def widen(ctx, files):\n"
        "    files[0].save_in_place(files[0].load().with_columns(more=pl.lit(1)))\n"
        "pipeline = Pipeline('p', ingest_files=FILES)\n"
        "pipeline.add_step('widen', widen, Scores)\n"
    )
    ingest(make_project(tmp_path, wider))
    assert "scores     3        2  ingested/scores.parquet" in astro("show", "-C", tmp_path).stdout
    astro("run", "-C", tmp_path)
    assert "scores     3        3  versions/scores/widen.1.parquet" in astro("show", "-C", tmp_path).stdout


def test_show_names_files_that_were_not_delivered(tmp_path: Path) -> None:
    optional = HEAD + (
        "FILES.append(IngestFileSpec('notes', 'notes*.csv', optional=True))\n"
        "pipeline = Pipeline('p', ingest_files=FILES)\n"
        "pipeline.add_step('Read notes', lambda ctx, files: None, AstroFileSpec('notes'))\n"
    )
    ingest(make_project(tmp_path, optional))
    astro("run", "-C", tmp_path)
    assert "skipped read-notes: not delivered: notes" in astro("show", "-C", tmp_path).stdout


def test_show_of_many_steps_shows_what_needs_attention(tmp_path: Path) -> None:
    many = HEAD + (
        "def boom(ctx, files): raise ValueError('no')\n"
        "pipeline = Pipeline('many', ingest_files=FILES)\n"
        "for number in range(100):\n"
        "    pipeline.add_step(f's{number}', boom if number == 50 else lambda ctx, files: None, READER)\n"
    )
    ingest(make_project(tmp_path, many))
    astro("run", "-k", "-C", tmp_path, code=1)
    short = astro("show", "-C", tmp_path).stdout
    assert "not shown: 99 complete" in short
    assert "failed s50: ValueError: no" in short
    assert "s99" in astro("show", "--all", "-C", tmp_path).stdout


def test_text_of_authors_does_not_drive_the_terminal(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, FAILING))
    texts = [astro("run", "-C", tmp_path, code=1), astro("show", "-C", tmp_path)]
    for result in texts:
        assert "no [red]such[/red] \\x1b[31mcolumn" in result.stdout
        assert "\x1b" not in result.output


def test_quarantine_list_and_show(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    assert "has no rows in quarantine" in astro("quarantine", "list", "-C", tmp_path).stdout
    assert "has no rows in quarantine" in astro("quarantine", "show", "-C", tmp_path, code=1).stderr
    astro("run", "-C", tmp_path, code=3)
    text = astro("quarantine", "list", "-C", tmp_path).stdout
    assert "1  score must not be negative" in text
    assert "check  1 of 3 rows of scores, in 1 part  quarantined" in text
    assert f"the rows: astro quarantine show {run_id} check" in text
    (entry,) = document("quarantine", "list", run_id, "-C", tmp_path)["quarantine"]
    assert entry["reasons"] == {"score must not be negative": 1}
    assert (entry["step_id"], entry["file"], entry["rows"]) == ("check", "scores", 1)
    assert len(entry["parts"]) == 1

    shown = astro("quarantine", "show", run_id, "check", "-C", tmp_path).stdout
    assert [line.split() for line in shown.splitlines()[-2:]] == [["id", "score"], ["2", "-1"]]
    (file,) = document("quarantine", "show", "latest", "-C", tmp_path)["files"]
    assert file["rows"] == [{"id": 2, "score": -1, "_astro_quarantine_reason": "score must not be negative"}]
    assert file["columns"][0] == {"name": "id", "type": "Int64"}


def test_a_run_of_many_steps_is_shown_alike_however_it_is_read(tmp_path: Path) -> None:
    many = PARKING.replace(
        'depends_on="check")',
        'depends_on="check")\n        for i in range(70):\n'
        "            waits = 'publish' if i > 66 else ()\n"
        "            self.add_step(f's{i}', lambda ctx, files: None, READER, depends_on=waits)",
    )
    run_id = ingest(make_project(tmp_path, many))
    astro("run", "-k", "-C", tmp_path, code=3)
    short = astro("show", "-C", tmp_path).stdout
    assert "67 complete, 1 quarantined, 4 blocked" in short
    assert "not shown: 67 complete (--all shows them)" in short
    assert [line.split()[0] for line in short.splitlines() if " blocked " in line][1:3] == ["publish", "s67"]
    whole = astro("show", "--all", "-C", tmp_path).stdout
    assert "s66" in whole
    assert "s66" not in short
    manifest = tmp_path / ".working" / run_id / "manifest.json"
    # Not written by us any more, though as good: it is read whole, and shown alike.
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))
    assert astro("show", "-C", tmp_path).stdout == short
    manifest.unlink()
    assert astro("show", "-C", tmp_path).stdout == short


def test_quarantine_show_says_what_there_is(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)

    def refusal(code: int, *more: str) -> str:
        return astro("quarantine", "show", "latest", *more, "-C", tmp_path, code=code).stderr

    for step in ("check", "publish"):
        named = astro("quarantine", "show", step, "-C", tmp_path, code=1).stderr
        assert f"'{step}' is a step, and the run comes first: `astro quarantine show latest {step}" in named
    assert "is not a run id" in astro("quarantine", "show", "nothing", "-C", tmp_path, code=2).stderr
    assert "'nope' is no step of the run; in quarantine" in refusal(2, "nope")
    assert "'publish' (blocked) has no rows in quarantine" in refusal(1, "publish")
    assert "set aside no rows of 'x', but of scores" in refusal(2, "check", "--file", "x")


def test_quarantine_show_limit_reads_parts_in_order(tmp_path: Path) -> None:
    single_rows = HEAD + (
        "def park(ctx, files):\n"
        "    frame = files[0].load()\n"
        "    for number in range(12):\n"
        "        ctx.quarantine.quarantine_rows(files[0], frame[number], reason=f'r{number}')\n"
        "    files[0].save_in_place(frame[12:])\n"
        "pipeline = Pipeline('many', ingest_files=FILES)\n"
        "pipeline.add_step('park', park, Scores)\n"
    )
    csv = "id,score\n" + "".join(f"{number},0\n" for number in range(20))
    ingest(make_project(tmp_path, single_rows, csv))
    astro("run", "-C", tmp_path, code=3)
    shown = astro("quarantine", "show", "--limit", "3", "-C", tmp_path).stdout
    assert "set aside 12 rows of scores; the first 3:" in shown
    assert "r2" in shown
    assert "r3" not in shown
    assert "--limit 0" in shown
    rows = document("quarantine", "show", "--limit", "0", "-C", tmp_path)["files"][0]["rows"]
    assert [row["id"] for row in rows] == list(range(12))


def test_quarantine_is_shown_of_a_retried_run(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    astro("run", "-C", tmp_path, code=3)
    assert document("quarantine", "list", "-C", tmp_path)["quarantine"][0]["rows"] == 1
    write_pipeline(tmp_path, GOOD)
    astro("run", "-C", tmp_path)
    assert document("quarantine", "list", "-C", tmp_path)["quarantine"] == []


def test_logs_of_reading_commands_are_not_on_stdout(tmp_path: Path) -> None:
    chatty = "print('pipeline.py prints this')\n" + PARKING
    project = make_project(tmp_path, chatty)
    ingested = astro("ingest", project / "source", "-C", tmp_path, "--json")
    assert json.loads(ingested.stdout)["status"] == "ingested"
    assert "pipeline.py prints this" in ingested.stderr
