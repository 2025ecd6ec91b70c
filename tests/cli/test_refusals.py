"""Bad pipelines and sources: what, where, what to do; nothing half-made is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.commands import CSV, GOOD, HEAD, PARKING, astro, make_project, tree, write_pipeline

PIPELINES = {
    "raises": (
        "x = 1\nraise OSError('warehouse away')",
        ["pipeline.py raised OSError: warehouse away, line 2"],
    ),
    "syntax": ("x = (", ["SyntaxError", "line 1"]),
    "none": ("x = 1", ["`pipeline`", "assign your Pipeline"]),
    "kind": ("pipeline = 5", ["a int `pipeline`"]),
    "import": ("import nowhere_to_be_found", ["ModuleNotFoundError", "line 1"]),
    "later": (PARKING.replace('depends_on="check"', 'depends_on="later"'), ["'publish'", "'later'"]),
    "twice": (PARKING.replace('"Publish"', '"CHECK"'), ["'check'"]),
    "file": (PARKING.replace("READER, depends", "AstroFileSpec('nope'), depends"), ["'nope'", "'scores'"]),
    "spec": (
        HEAD + "FILES = [IngestFileSpec('x', 5, max_bad_rows=-1, nope=1)]",
        [
            "pipeline.py, line 11: IngestFileSpec: argument 2: input should be a valid string; max_bad_rows: "
            "input should be greater than or equal to 0; nope: unexpected keyword argument\n"
        ],
    ),
    "policy": (
        HEAD + "pipeline = Pipeline('p', ingest_files=FILES)\n"
        "pipeline.add_step('a', print, READER, timeout='5', max_quarantined_fraction='x')",
        ["pipeline.py, line 12: step 'a': timeout is a number of seconds above 0\n"],
    ),
    "mode": (
        HEAD + "pipeline = Pipeline('p', ingest_files=FILES, execution_mode='parallell')",
        ["pipeline.py: execution_mode is 'serial' or 'parallel', not 'parallell'\n"],
    ),
    "exits": ("import sys; sys.exit(0)", ["pipeline.py raised SystemExit"]),
}


@pytest.mark.parametrize("command", ["ingest", "run"])
@pytest.mark.parametrize("name", PIPELINES)
def test_bad_pipelines(tmp_path: Path, name: str, command: str) -> None:
    text, says = PIPELINES[name]
    make_project(tmp_path, text)
    before = tree(tmp_path)
    arguments = [tmp_path / "source"] if command == "ingest" else []
    result = astro(command, *arguments, "-C", tmp_path, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for words in [str(tmp_path), *says]:
        assert words in result.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", ["ingest", "run"])
def test_no_pipeline(tmp_path: Path, command: str) -> None:
    arguments = [tmp_path] if command == "ingest" else []
    result = astro(command, *arguments, "-C", tmp_path, code=2)
    assert f"there is no pipeline.py in {tmp_path}" in result.stderr
    assert "-C" in result.stderr
    assert list(tmp_path.iterdir()) == []


ROWS = "".join(f"{number},{number}\n" for number in range(70_000))

SOURCES: dict[str, tuple[dict[str, bytes], list[str]]] = {
    "empty": ({}, ["'scores' (scores*.csv) is missing"]),
    "missing": (
        {"other.csv": CSV.encode()},
        ["'scores' (scores*.csv) is missing", "other.csv is not expected"],
    ),
    "surplus": ({"scores.csv": CSV.encode(), "x.txt": b""}, ["x.txt is not expected: remove it"]),
    "doubled": ({"scores1.csv": b"", "scores2.csv": b""}, ["matches scores1.csv, scores2.csv: leave one"]),
    "empty csv": ({"scores.csv": b""}, ["scores.csv"]),
    "no column": ({"scores.csv": b"id,points\n1,2\n"}, ["scores.csv", "'score'"]),
    "wrong type": (
        {"scores.csv": f"id,score\n{ROWS}1,five\n".encode()},
        ["scores.csv", "line 70002", "'score'", "Int64"],
    ),
}


@pytest.mark.parametrize("arguments", [["ingest"], ["run", "--source"]], ids=["ingest", "run"])
@pytest.mark.parametrize("name", SOURCES)
def test_bad_sources(tmp_path: Path, name: str, arguments: list[str]) -> None:
    files, says = SOURCES[name]
    make_project(tmp_path)
    (tmp_path / "source" / "scores.csv").unlink()
    for file, content in files.items():
        (tmp_path / "source" / file).write_bytes(content)
    before = tree(tmp_path)
    result = astro(*arguments, tmp_path / "source", "-C", tmp_path, code=1)
    assert result.stdout == ""
    for words in [str(tmp_path / "source"), *says]:
        assert words in result.stderr
    assert left_behind(tmp_path) == before


def left_behind(folder: Path) -> set[str]:
    # The folder of the runs, and the statistics, may be there; no run may, hidden or not.
    return tree(folder) - {".working"}


@pytest.mark.parametrize("arguments", [["ingest"], ["run", "--source"]], ids=["ingest", "run"])
def test_source_that_is_no_directory(tmp_path: Path, arguments: list[str]) -> None:
    make_project(tmp_path)
    before = tree(tmp_path)
    file = astro(*arguments, tmp_path / "source" / "scores.csv", "-C", tmp_path, code=1)
    assert "is a file, not a directory: give the directory" in file.stderr
    nowhere = astro(*arguments, tmp_path / "nowhere", "-C", tmp_path, code=1)
    assert "does not exist: give the directory" in nowhere.stderr
    assert left_behind(tmp_path) == before


def test_header_only_is_an_empty_file_and_fine(tmp_path: Path) -> None:
    make_project(tmp_path, GOOD, "id,score\n")
    assert "ingested scores: 0 rows, 2 columns" in astro("ingest", tmp_path / "source", "-C", tmp_path).stdout
    astro("run", "-C", tmp_path)


def test_unknown_encoding(tmp_path: Path) -> None:
    make_project(
        tmp_path,
        HEAD
        + (
            "FILES = [IngestFileSpec('scores', 'scores.csv', encoding='klingon')]\n"
            "pipeline = Pipeline('p', ingest_files=FILES)\n"
        ),
    )
    result = astro("ingest", tmp_path / "source", "-C", tmp_path, code=None)
    assert result.exit_code in (1, 2)
    assert "klingon" in result.stderr
    assert left_behind(tmp_path) == tree(tmp_path) - {".working"}


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    # Root ignores modes, so a file stands where the folder of the runs would be made.
    make_project(tmp_path)
    (tmp_path / ".working").write_text("in the way")
    result = astro("ingest", tmp_path / "source", "-C", tmp_path, code=1)
    assert f"{tmp_path}/.working" in result.stderr
    assert (tmp_path / ".working").read_text() == "in the way"


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    make_project(tmp_path)
    for command in (["list"], ["show"], ["run"], ["ingest", "source"]):
        result = astro(*command, "-C", tmp_path / "pipeline.py" / "below", code=2)
        assert "does not exist" in result.stderr


def test_an_edit_within_the_same_second_counts(tmp_path: Path) -> None:
    make_project(tmp_path, PARKING)
    os.utime(tmp_path / "pipeline.py", (1_700_000_000, 1_700_000_000))
    astro("ingest", tmp_path / "source", "-C", tmp_path)
    assert "[1/2] quarantined check" in astro("run", "-C", tmp_path, code=3).stdout
    write_pipeline(tmp_path, PARKING.replace(">= 0", "<= 9"))
    os.utime(tmp_path / "pipeline.py", (1_700_000_000, 1_700_000_000))
    assert "[1/2] complete    check" in astro("run", "-C", tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["run", "latest", "--rerun", "chek"], 2, "'chek', which is not a step of this pipeline"),
        (
            ["run", "latest", "--rerun", "chek", "--dry-run"],
            2,
            "'chek', which is not a step of this pipeline",
        ),
        (["show", "--story", "nope"], 2, "'nope' is no step of run"),
        (["run", "--mode", "nope"], 2, "Invalid value for '--mode': 'nope' is not one of 'auto'"),
        (["describe", "--format", "nope"], 2, "'--format': 'nope' is not one of"),
        (["stats", "trend", "--by", "nope"], 2, "'--by': 'nope' is not one of"),
    ],
)
def test_a_name_that_there_is_none_of_is_wrong_usage(
    tmp_path: Path, arguments: list[str], code: int, told: str
) -> None:
    make_project(tmp_path, GOOD)
    astro("ingest", tmp_path / "source", "-C", tmp_path)
    result = astro(*arguments, "-C", tmp_path, code=code)
    assert told in " ".join(result.stderr.replace("│", " ").split())
    assert "Value error" not in result.stderr
