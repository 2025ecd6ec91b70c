"""The table of commands, help, lazy imports, `--version`, `--debug`, the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import typer
import typer.main

from astro_async.cli.app import app
from astro_async.cli.lazy import LazyGroup
from cli.commands import astro, document, ingest, make_project

ROOT = typer.main.get_command(app)


def commands(group: LazyGroup, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in group.table:
        command = group.load_command(name)
        found.append((*path, name))
        if isinstance(command, LazyGroup):
            found += commands(command, *path, name)
    return found


assert isinstance(ROOT, LazyGroup)
ALL = commands(ROOT)


def test_the_table_says_what_the_commands_say_of_themselves() -> None:
    def check(group: LazyGroup) -> None:
        for name, row in group.table.items():
            command = group.load_command(name)
            assert command.help.splitlines()[0] == row.summary
            if isinstance(command, LazyGroup):
                check(command)

    assert isinstance(ROOT, LazyGroup)
    check(ROOT)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    text = astro(*path, "--help").stdout
    assert "Example" in text
    assert f"    astro {' '.join(path)}" in text
    assert "--debug" in text


def test_help_and_version() -> None:
    text = astro("--help").stdout
    for name in ("demo", "ingest", "run", "list", "show", "quarantine"):
        assert f"  {name} " in text
    assert "astro demo                 see it work" in text
    assert astro("--version").stdout.startswith("astro-async ")
    assert "Did you mean 'list'" in astro("lst", code=2).stderr
    astro("--debug", "list", "--debug")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["list"], ["show"], ["quarantine", "list"], ["logs"], ["stats"], ["status"]],
    ids=" ".join,
)
def test_reading_does_not_load_polars(tmp_path: Path, arguments: list[str]) -> None:
    ingest(make_project(tmp_path))
    script = (
        "import sys\nfrom astro_async.cli.app import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as end:\n    assert end.code in (0, 1), end.code\n"
        "assert 'polars' not in sys.modules\n"
        f"assert {arguments!r} == ['logs'] or 'anyio' not in sys.modules\n"
        f"assert {arguments!r} != ['--help'] or not {{'rich', 'msgspec'}} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True)


def test_demo(tmp_path: Path) -> None:
    folder = tmp_path / "play"
    text = astro("demo", "-C", folder).stdout
    assert "344 rows in = 333 good + 0 removed + 11 parked" in text
    assert "344 rows in = 342 good + 2 removed + 0 parked" in text
    assert f"All of it is in {folder}" in text
    (run,) = document("list", "-C", folder)["runs"]
    assert run["status"] == "completed"
    current = folder / ".working" / run["run_id"] / "current" / "penguins.parquet"
    frame = pl.read_parquet(current)
    source = pl.read_csv(folder / "source" / "penguins.csv", null_values="NA")
    assert frame.equals(source.filter(pl.col("body_mass_g").is_not_null()))
    refused = astro("demo", "-C", folder, code=1)
    assert "is not empty" in refused.stderr


def test_demo_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    astro("demo", "--no-keep")
    assert list(tmp_path.iterdir()) == []
    astro("demo")
    (folder,) = tmp_path.iterdir()
    assert (folder / "pipeline.py").is_file()


def complete(words: str, position: int, cwd: Path) -> list[str]:
    """Ask as bash does when Tab is pressed."""
    asked = {"_ASTRO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    script = "from astro_async.cli.app import app; app(prog_name='astro')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_shell_completes_commands_options_and_runs(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path / "night"))
    assert complete("astro li", 1, tmp_path) == ["list"]
    assert {"list", "show"} <= set(complete("astro quarantine ", 2, tmp_path))
    assert "--story" in complete("astro show --st", 2, tmp_path)
    for command in ("show", "run", "describe", "stats", "cleanup", "verify"):
        assert complete(f"astro {command} ", 2, tmp_path / "night") == ["latest", run_id]
    assert complete(f"astro show {run_id[:2]}", 2, tmp_path / "night") == [run_id]
    assert complete("astro show -C night ", 4, tmp_path) == ["latest", run_id]
    assert complete("astro show -C nowhere ", 4, tmp_path) == ["latest"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = "from astro_async.cli.app import app; app(prog_name='astro')"
    done = subprocess.run(
        [sys.executable, "-c", script, "--show-completion", shell], capture_output=True, text=True, check=True
    )
    assert f"_ASTRO_COMPLETE=complete_{shell}" in done.stdout
