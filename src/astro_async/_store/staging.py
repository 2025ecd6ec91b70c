"""What one attempt of a step has written so far, before anything of it is published.

Step code writes only here. If the step fails or the process dies, this is litter.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, field

from astro_async._store.atomic import Disk, refuse_symlinks
from astro_async._store.layout import STAGING, staging_prefix

__all__ = ["FileOutput", "RuleTally", "StagedFile", "StagedPart", "Staging"]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished Parquet file in the staging folder.

    Attributes:
        path: Absolute.
        rows: Number of rows.
        columns: Number of columns.
        size_bytes: Size of the file.
    """

    path: str
    rows: int
    columns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Rows set aside, and where known their positions in the snapshot."""

    rows: StagedFile
    positions: StagedFile | None


@dataclass(slots=True)
class RuleTally:
    """What became of one rule.

    Attributes:
        rows: Rows that break it.
        max_rows: Strictly more and the step is `failed`; None for no limit.
        max_fraction: The same as a share of the rows of the file.
    """

    rows: int = 0
    max_rows: int | None = None
    max_fraction: float | None = None


@dataclass(slots=True)
class FileOutput:
    """What a step did with one file.

    Attributes:
        name: The file.
        read: Relative path of the version that it was given.
        rows_in: Rows of that version.
        readonly: The step only reads it.
        version: What it saved last; None if it saved nothing.
        keeps_version: It vouches for the version it was given: that one is published again, at no cost.
        conserves_rows: The step is a check, see `FileFlow`.
        saved: Names given with `save_to`, with what was written.
        parts: Quarantine parts, in order.
        patched: What the operator's patches make of the version that was given; None without patches.
        snapshot_rows: With patches, the position in the snapshot of each row of `patched`.
        filtered: Rows removed by a filter, if there are any.
        rows_filtered: Their number; None if the step is no filter.
        reasons: For each reason, how many rows it applies to.
        rules: The rules by which rows were judged, by reason and severity.
    """

    name: str
    read: str
    rows_in: int
    readonly: bool = False
    version: StagedFile | None = None
    keeps_version: bool = False
    conserves_rows: bool = False
    saved: dict[str, StagedFile] = field(default_factory=dict)
    parts: list[StagedPart] = field(default_factory=list)
    patched: StagedFile | None = None
    snapshot_rows: str | None = None
    filtered: StagedFile | None = None
    rows_filtered: int | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    rules: dict[tuple[str, str], RuleTally] = field(default_factory=dict)

    @property
    def rows_quarantined(self) -> int:
        """Rows in all parts."""
        return sum(part.rows.rows for part in self.parts)

    @property
    def rows_given(self) -> int:
        """Rows that the step was given: those of the version, less those that are left out."""
        return self.rows_in if self.patched is None else self.patched.rows

    @property
    def is_idle(self) -> bool:
        """Whether the step did nothing with the file that is to be recorded."""
        is_silent = not self.keeps_version and self.rows_filtered is None and self.patched is None
        return is_silent and not self.rules and self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing of it to publish on disk."""
        return not (self.version or self.saved or self.parts or self.filtered)


class Staging:
    """What one attempt writes: files of its own in the staging folder of the run, which all attempts share.

    A folder for each would cost most of what a small file does.

    Attributes:
        run_directory: Absolute path of the run directory.
    """

    __slots__ = ("_count", "_paths", "_prefix", "disk", "run_directory")

    def __init__(self, run_directory: str, step_id: str, attempt: int, disk: Disk) -> None:
        self.run_directory = run_directory
        self.disk = disk
        self._prefix = staging_prefix(step_id, attempt)
        self._count = itertools.count(1)
        self._paths: list[str] = []

    @property
    def is_used(self) -> bool:
        """Whether anything was or is about to be written."""
        return bool(self._paths)

    def next_path(self) -> str:
        """Return the path of a new file; the folder is there then. Safe to call from any thread."""
        if not self._paths:
            refuse_symlinks(self.run_directory, STAGING)
            # Each attempt looks anew: the folder may be removed while the run goes on.
            self.disk.make_directory(f"{self.run_directory}/{STAGING}", is_kept=False)
        # Counting is atomic, so no two threads of a step get one path.
        path = f"{self.run_directory}/{self._prefix}{next(self._count)}.parquet"
        self._paths.append(path)
        self.disk.announce("write", path)
        return path

    def adopt(self) -> None:
        """Take charge of what another process has written for this attempt, if it has."""
        folder, prefix = os.path.split(f"{self.run_directory}/{self._prefix}")
        with contextlib.suppress(FileNotFoundError):
            self._paths = [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith(prefix)]

    def discard(self) -> None:
        """Remove what was written and not published.

        A thread that outlives its step may still open a file that it was about to write: litter that the next
        run removes.
        """
        paths, self._paths = self._paths, []
        for path in paths:
            if os.path.lexists(path):
                self.disk.remove(path)
