"""What attempts are given: the versions of files, with what is recorded of steps that leave them alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from astro_async._core.events import FileFlow
from astro_async._core.lineage import Plan
from astro_async._core.records import RunRecord
from astro_async.exceptions import RunRefusedError

__all__ = ["FileInput", "FileInputs", "refuse_missing"]


class FileInput(NamedTuple):
    """The version of a file that attempts are given.

    Attributes:
        path: Relative to the run directory.
        rows: Number of rows.
        only_read: What is recorded of a step that has the file read-only: one flow.
        let_pass: What is recorded of a step that may write it and did not: one flow.
    """

    path: str
    rows: int
    only_read: tuple[FileFlow, ...]
    let_pass: tuple[FileFlow, ...]

    @classmethod
    def of(cls, name: str, path: str, rows: int) -> FileInput:
        """Return the input that a version of a file makes. One object serves all steps that read it."""
        return cls(
            path,
            rows,
            (FileFlow(name, path, rows, None, 0, None),),
            (FileFlow(name, path, rows, rows, 0, None),),
        )


class FileInputs:
    """All versions that attempts of a run may be given, by path."""

    def __init__(self, run: RunRecord) -> None:
        """Take them from the record."""
        self._inputs: dict[str | None, FileInput] = {
            file.parquet_path: FileInput.of(file.name, file.parquet_path, file.row_count)
            for file in run.files.values()
        }
        for record in run.steps.values():
            if record.files:
                self.note(record.files)
        # What was asked for last: many steps read the same, and what is at a path never changes.
        self._last: tuple[tuple[str | None, ...], tuple[FileInput | None, ...]] = ((), ())

    def note(self, flows: Iterable[FileFlow]) -> None:
        """Note what an attempt has published."""
        for flow in flows:
            if flow.published is not None:
                path = flow.published.path
                self._inputs[path] = FileInput.of(flow.name, path, flow.published.rows)

    def choose(self, paths: tuple[str | None, ...]) -> tuple[FileInput | None, ...]:
        """Return the versions at these paths; None for a file that was not delivered."""
        if paths is not self._last[0]:
            self._last = (paths, tuple(map(self._inputs.get, paths)))
        return self._last[1]


def refuse_missing(directory: str, run: RunRecord, plan: Plan, rerun: Sequence[str]) -> None:
    """Refuse a run of which somebody has removed versions that it needs. Blocks on the disk.

    Args:
        directory: Absolute path of the run directory.
        run: The run as its journal tells it.
        plan: What it has to do.
        rerun: Steps that the operator has named.

    Raises:
        RunRefusedError: A version is not there. Tells which, and what makes all of them anew.
    """
    missing = [path for path in plan.needed if not os.path.lexists(f"{directory}/{path}")]
    if not missing:
        return
    makers = {
        flow.published.path: step_id
        for step_id, record in run.steps.items()
        for flow in record.files
        if flow.published is not None and flow.published.path != flow.read
    }
    # One that was ingested no step makes: that is told first.
    path = next((path for path in missing if path not in makers), missing[0])
    what = f"{path} is missing from run {run.run_id}"
    if plan.needed[path] is not None:
        what += f", and step {plan.needed[path]!r} would read it"
    if len(missing) > 1:
        what += f" ({len(missing) - 1:,} more missing)"
    if path not in makers:
        raise RunRefusedError(
            f"{what}: no step makes it, so restore it from a copy, or ingest {run.source_directory} again"
        )
    names = dict.fromkeys([*rerun, *(makers[path] for path in missing)])
    command = f"astro run {run.run_id}{''.join(f' --rerun {name}' for name in names)}"
    raise RunRefusedError(f"{what}: step {makers[path]!r} made it, and `{command}` makes it anew")
