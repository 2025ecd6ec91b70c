"""Looking at a pipeline directory with one run, and at processes: what tests share that kill commands."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import polars as pl

from astro_async import RunRecord, list_runs, read_run
from astro_async._core.events import StepFinished, parse_event
from astro_async._core.lineage import active_versions, named_by
from astro_async._store.journal import read_manifest

VISIBLE: Final = ("ingested", "versions", "quarantine", "filtered", "snapshots", "current", "processed")

# A table by name, and the statuses.
State = dict[str, Any]


def run_directory(directory: Path) -> Path:
    """Return the folder of the one run."""
    return directory / ".working" / list_runs(directory)[0][0].run_id


def journal_of(directory: Path) -> list[Any]:
    """Return the events of the one run, but for a torn end."""
    content = (run_directory(directory) / "events.jsonl").read_bytes()
    return [parse_event(line) for line in content.split(b"\n")[:-1]]


def record_of(directory: Path) -> RunRecord:
    """Return the record of the one run."""
    return read_run(directory, "latest")


def count_torn(directory: Path) -> int:
    """Open everything that can be seen, and everything that a record names; return how much is not whole."""
    root = run_directory(directory)
    try:
        read_manifest(str(root))
        record = record_of(directory)
    except Exception as error:
        complain(f"{root}: {error}")
        return 1
    rows = {file.parquet_path: file.row_count for file in record.files.values()}
    for step in record.steps.values():
        for flow in step.files:
            rows[flow.read] = flow.rows_in
            rows.update({part.path: part.rows for part in flow.parts})
            if flow.published is not None:
                rows[flow.published.path] = flow.published.rows
    seen = {str(path.relative_to(root)) for each in VISIBLE for path in (root / each).rglob("*.*")}
    return sum(not is_whole(root / path, rows.get(path)) for path in sorted(seen | named_by(record)))


def is_whole(path: Path, rows: int | None) -> bool:
    """Whether a Parquet file opens and has its rows."""
    try:
        found = pl.read_parquet(path, glob=False).height
    except Exception as error:
        complain(f"{path}: {error}")
        return False
    if rows is not None and found != rows:
        complain(f"{path}: {found} rows, not {rows}")
        return False
    return True


def read_state(directory: Path) -> State:
    """Return all that a user can see of the one run, whatever the numbers of its attempts."""
    record, root = record_of(directory), run_directory(directory)
    state: State = {"status": record.status.value}

    def read(path: str) -> list[tuple[Any, ...]]:
        return pl.read_parquet(root / path, glob=False).rows()

    for name, path in active_versions(record).items():
        state[name] = read(path)
        assert (root / "current" / f"{name}.parquet").samefile(root / path)
    for step in record.steps.values():
        state[step.step_id] = step.status.value
        for flow in step.files:
            state.update({part.path: read(part.path) for part in flow.parts})
            state.update({saved.name: read(saved.name) for saved in flow.saved})
            if flow.filtered is not None:
                state[flow.filtered] = read(flow.filtered)
    return state


def count_repeated(directory: Path) -> int:
    """Return how often a step ran again that had been completed, and stood on nothing that was parked."""
    finished = Counter(
        event.step_id
        for event in journal_of(directory)
        if isinstance(event, StepFinished) and event.status != "failed"
    )
    return sum(times - 1 for step_id, times in finished.items() if str(step_id).startswith("once-"))


def group_members(group: int) -> list[int]:
    """Return the processes of a group that are alive (Linux; elsewhere none are found)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, pgrp = path.read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def children_of(parent: int) -> list[int]:
    """Return the live children of a process (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, its_parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def complain(text: str) -> None:
    """Say what is wrong."""
    print(text, file=sys.stderr, flush=True)
