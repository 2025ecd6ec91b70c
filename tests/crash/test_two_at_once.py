"""A few of the races that `nox -s crash` runs by the hundred, and readers beside a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import astro as astro_here
from crash.two_at_once import astro, ingest, open_gate, prepare, race, race_ingests, race_runs


@pytest.mark.parametrize("at_once", [2, 4])
def test_one_run_executes_and_the_others_say_who(tmp_path: Path, at_once: int) -> None:
    race_runs(tmp_path / "race", at_once)


def test_one_ingest_into_a_serial_pipeline_wins(tmp_path: Path) -> None:
    race_ingests(tmp_path / "race", 2)


def test_readers_never_get_in_the_way(tmp_path: Path) -> None:
    """Held in the middle of a step, hundreds of readings see a whole run; then it goes on."""
    directory = prepare(tmp_path / "read")
    ingest(directory)
    winner, _ = race(directory, "run", at_once=1)
    for _ in range(50):
        (listed,) = json.loads(astro_here("list", "--json", "-C", directory).stdout)["runs"]
        shown = json.loads(astro_here("show", "--json", "-C", directory).stdout)
        assert listed["status"] == shown["status"] == "running"
        assert [step["status"] for step in shown["step_states"]] == ["running"]
    open_gate(directory, winner)
    assert json.loads(astro_here("show", "--json", "-C", directory).stdout)["status"] == "completed"


def test_a_run_starts_beside_readers(tmp_path: Path) -> None:
    """Readers that ask for the lock all the time never make a run exit 4."""
    directory = prepare(tmp_path / "read")
    ingest(directory)
    run = astro(directory, "run")
    read = 0
    while not _has_started(directory):
        for command in ("list", "show"):
            astro_here(command, "-C", directory)
            read += 1
    with open(directory / "started") as started:
        started.read()
    open_gate(directory, run)
    assert read > 2


def _has_started(directory: Path) -> bool:
    (listed,) = json.loads(astro_here("list", "--json", "-C", directory).stdout)["runs"]
    return bool(listed["status"] == "running")
