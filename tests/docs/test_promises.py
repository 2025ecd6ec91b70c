"""What the pages say of the code is what the code says: commands, exit codes, layers, statuses, sessions."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import astro_async
from astro_async import exceptions
from astro_async.cli.app import AstroGroup
from docs.blocks import ROOT, find_paths

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_column(text: str, head: str) -> list[str]:
    """Return the first cell of each row of the table that begins with this one."""
    _, _, table = text.partition(f"| {head} |")
    rows = table.split("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip() for row in rows]


def test_diagrams_are_drawn_from_the_tables() -> None:
    diagrams = runpy.run_path(str(ROOT / "docs" / "status_diagrams.py"))["DIAGRAMS"]
    for name, drawn in diagrams.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawn, "run docs/status_diagrams.py"
        assert f"({name})" in read("docs/architecture.md")


def test_the_readme_names_every_command_and_no_other() -> None:
    named = {cell.split()[1] for cell in first_column(read("README.md"), "command")}
    assert {name.strip("`") for name in named} == set(AstroGroup.table)


def test_the_page_of_the_commands_is_drawn_from_them() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "command_pages.py"))["draw_page"]()
    assert read("docs/commands.md") == drawn, "run docs/command_pages.py"


@pytest.mark.parametrize("page", ["README.md", "docs/running.md"])
def test_exit_codes_are_those_of_the_errors(page: str) -> None:
    codes = {int(code) for cell in first_column(read(page), "exit code") for code in cell.split(", ")}
    assert codes == {0, 3, 130, 143} | {getattr(exceptions, name).exit_code for name in exceptions.__all__}


def test_every_dependency_has_its_reason() -> None:
    cells = first_column(read("docs/architecture.md"), "dependency")
    named = {name.strip("` ") for cell in cells for name in cell.split(",")}
    assert named == {re.split(r"[>=<]", each)[0] for each in PROJECT["project"]["dependencies"]}


def test_the_layers_are_those_that_are_checked() -> None:
    contract, *_ = PROJECT["tool"]["importlinter"]["contracts"]
    checked = [re.split(r" \| ", layer) for layer in contract["layers"]]
    page = read("docs/architecture.md")
    block = page.partition("This is checked.\n\n```text\n")[2].partition("```")[0]
    drawn = [
        sorted(re.split(r", ", layer))
        for line in block.splitlines()
        for layer in re.split(r"  +", line)[0].split(" > ")
    ]
    assert drawn == [sorted(layer) for layer in checked]


def test_every_session_of_nox_is_explained() -> None:
    functions = [node for node in ast.parse(read("noxfile.py")).body if isinstance(node, ast.FunctionDef)]
    sessions = {node.name: ast.get_docstring(node) for node in functions if node.decorator_list}
    explained = [cell.strip("`") for cell in first_column(read("CONTRIBUTING.md"), "session")]
    assert sorted(explained) == sorted(sessions)
    assert all(sessions.values())


def test_ci_runs_the_line_of_the_readme() -> None:
    lines = re.findall(r"^python3 .*$", read("README.md"), flags=re.MULTILINE)
    assert [line for line in lines if "pytest" in line] == [lines[1]]
    assert lines[0].endswith(".venv/bin/astro demo")
    assert read("README.md").count("<!-- line: tests -->") == 1
    assert "README.md" in read(".ci/run")


def test_the_changelog_begins_with_this_version() -> None:
    (version, *_) = re.findall(r"^## \[(.*?)\]", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert version == astro_async.__version__ == PROJECT["project"]["version"]


def test_pages_are_reached_from_the_index() -> None:
    pages = {path.stem for path in Path(ROOT / "docs").glob("*.md") if not path.stem.startswith("benchmarks")}
    pages -= {"index"}
    linked = set(read("docs/index.md").split())
    assert pages <= linked


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in find_paths()])
def test_links_lead_to_files_and_headings(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        path = folder / name if name else ROOT / page
        assert path.is_file(), f"{page} links to {target}"
        assert not anchor or anchor in find_anchors(path), f"{page} links to {target}"


def find_anchors(path: Path) -> set[str]:
    # What begins with # in a block of code is no heading.
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_comparison_with_other_tools_says_what_ours_does() -> None:
    code = str(Path(astro_async.__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([code, str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.rules.ours"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    told = json.loads(done.stdout)
    assert told["good"] == told["lines_good"] == [8, 9, 7]
    assert told["bad"] == [[1, 1], [1, 1], [2, 1], [3, 1], [4, 1], [5, 2]]
    assert told["bad_where_null_passes"] == [4]
    assert told["repaired"] == [8, 100, 101, 102, 103, 104, 105, 9, 7]
    assert [line for line, _ in told["lines_bad"]] == [3, 4, 5, 6]


def test_what_shows_a_promise_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", read("docs/reliability.md")))
    assert len(named) > 5
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
