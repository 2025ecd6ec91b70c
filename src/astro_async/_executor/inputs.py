"""What attempts are given: the versions of files, with what is recorded of steps that leave them alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from astro_async._core.events import FileFlow
from astro_async._core.records import RunRecord

__all__ = ["FileInput", "FileInputs"]


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

    def note(self, flows: Iterable[FileFlow]) -> None:
        """Note what an attempt has published."""
        for flow in flows:
            if flow.published is not None:
                path = flow.published.path
                self._inputs[path] = FileInput.of(flow.name, path, flow.published.rows)

    def choose(self, paths: tuple[str | None, ...]) -> tuple[FileInput | None, ...]:
        """Return the versions at these paths; None for a file that was not delivered."""
        return tuple(map(self._inputs.get, paths))
