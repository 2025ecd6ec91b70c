"""The story that `astro demo` tells: the commands that a user would type, run in this process."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
from collections.abc import Iterator
from importlib.resources import as_file, files
from typing import Final

import polars as pl
import typer
import typer.main
from rich.text import Text

from astro_async._core.lineage import active_versions
from astro_async._core.records import RunRecord
from astro_async._frames.parquet import count_rows, load_frame
from astro_async._store.layout import run_directory
from astro_async.cli import ingest_command, list_command, quarantine_show, run_command
from astro_async.cli.output import Screen, open_screen
from astro_async.cli.render_runs import make_table
from astro_async.exceptions import ConservationError
from astro_async.reading import read_run

__all__ = ["tell_story"]

_COMMANDS: Final = {
    "ingest": ingest_command.command,
    "run": run_command.command,
    "quarantine show": quarantine_show.command,
    "list": list_command.command,
}


def tell_story(folder: str) -> None:
    """Make the demo's files in an empty folder, and show a night that stumbles and is put right.

    Raises:
        ConservationError: A row was lost or doubled.
    """
    screen = open_screen()
    with _demo_data() as data, contextlib.chdir(folder):
        os.mkdir("source")
        shutil.copyfile(f"{data}/penguins.csv", "source/penguins.csv")
        shutil.copyfile(f"{data}/pipeline_strict.py", "pipeline.py")
        screen.print(Text(f"$ cd {folder}"))
        screen.print("  source/penguins.csv   344 penguins; NA: nobody measured it")
        screen.print("  pipeline.py           checks each row, then sums up by species")

        _head(screen, 1, "Take in tonight's file")
        _type(screen, "ingest", ["source"], expected=0)
        run_id = read_run(".", "latest").run_id

        _head(screen, 2, "Run. Incomplete rows are parked, and the sums wait: exit code 3, not a crash")
        _type(screen, "run", [], expected=3)
        _prove(screen, run_id)

        _head(screen, 3, "Look at what was parked, and why")
        _type(screen, "quarantine show", ["latest", "check-measurements", "--limit", "5"], expected=0)

        _head(screen, 4, "Decide: an unknown sex is fine; the two that nobody measured may go")
        _show_difference(screen, "pipeline.py", f"{data}/pipeline_mended.py")
        shutil.copyfile(f"{data}/pipeline_mended.py", "pipeline.py")

        _head(screen, 5, "Run again. Parked rows come back to their old places")
        _type(screen, "run", [], expected=0)

        _head(screen, 6, "Nothing was lost")
        _prove(screen, run_id)
        _show_summary(screen, run_id)
        _type(screen, "list", [], expected=0)


@contextlib.contextmanager
def _demo_data() -> Iterator[str]:
    """Yield the folder of the files that are shipped for the demo."""
    with as_file(files("astro_async").joinpath("data", "demo")) as folder:
        yield str(folder)


def _head(screen: Screen, number: int, words: str) -> None:
    screen.print()
    screen.print(Text(f"{number}. {words}", style="bold"), soft_wrap=True)


def _type(screen: Screen, name: str, arguments: list[str], *, expected: int) -> None:
    """Run a command as if it had been typed."""
    screen.print(Text(" ".join(["$ astro", name, *arguments]), style="cyan"), soft_wrap=True)
    screen.flush()
    command = typer.main.get_command(_COMMANDS[name])
    code = command.main(args=arguments, prog_name=f"astro {name}", standalone_mode=False) or 0
    if code != expected:
        raise RuntimeError(f"astro {name} ended with exit code {code}, not {expected}")


def _prove(screen: Screen, run_id: str) -> None:
    """Count the rows of the files on disk, and show that none is missing."""
    record: RunRecord = read_run(".", run_id)
    directory = run_directory(".", record.run_id)
    flows = [flow for step in record.steps.values() for flow in step.files]
    taken_in = count_rows(f"{directory}/{record.files['penguins'].parquet_path}")
    good = count_rows(f"{directory}/{active_versions(record)['penguins']}")
    removed = sum(count_rows(f"{directory}/{flow.filtered}") for flow in flows if flow.filtered is not None)
    parked = sum(count_rows(f"{directory}/{part.path}") for flow in flows for part in flow.parts)
    if taken_in != good + removed + parked:
        raise ConservationError(f"{taken_in} rows in, but {good} out, {removed} removed, {parked} parked")
    words = f"{taken_in} rows in = {good} good + {removed} removed + {parked} parked"
    screen.print(Text(f"{words} (counted in the files)", style="green"))


def _show_difference(screen: Screen, old_path: str, new_path: str) -> None:
    with open(old_path, encoding="utf-8") as old, open(new_path, encoding="utf-8") as new:
        lines = difflib.unified_diff(old.readlines(), new.readlines(), n=0)
    styles = {"+": "green", "-": "red"}
    for line in list(lines)[2:]:
        if not line.startswith("@@"):
            screen.print(Text(line.rstrip(), style=styles.get(line[0], "")), soft_wrap=True)


def _show_summary(screen: Screen, run_id: str) -> None:
    directory = run_directory(".", read_run(".", run_id).run_id)
    summary: pl.DataFrame = load_frame(os.path.realpath(f"{directory}/processed/species.parquet"))
    screen.print("\nprocessed/species.parquet, which waited for this:")
    table = make_table(*summary.columns, right=summary.columns[1:])
    for row in summary.rows():
        table.add_row(*(str(value) for value in row))
    screen.print(table)
    screen.print()
