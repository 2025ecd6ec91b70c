"""Steps that come ready-made: checks and filters.

Both publish in any case. Where nothing was set aside the version they were given is published again, at no
cost, so that the step is judged anew when its input changes.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from astro_async._frames.removal import split_removed, split_removed_lazy, split_twins
from astro_async._store.staging import FileOutput, StagedFile
from astro_async.context import StepContext
from astro_async.exceptions import ConservationError, StepError
from astro_async.expectation import Rules
from astro_async.files import AstroFile, StepFiles

__all__ = ["CheckStep", "FilterFn", "FilterStep"]

FilterFn = Callable[[pl.DataFrame], pl.DataFrame]
"""Given the rows of a file, returns those to remove."""


class CheckStep:
    """Quarantines the rows of each file that break a rule. Read-only files are there to be looked up in."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def __call__(self, ctx: StepContext, files: StepFiles) -> None:
        """Check each file; see `Pipeline.add_check`."""
        for file in _delivered(files):
            if file.spec.readonly:
                continue
            good, bad_rows = ctx.quarantine.split_input(file, self.rules)
            _settle(file, good, set_aside=bad_rows)
            file.output.conserves_rows = True


class FilterStep:
    """Removes rows of each file, and keeps them under `filtered/`."""

    def __init__(self, rows: FilterFn | pl.Expr, *, removes: bool) -> None:
        self.rows = rows
        self.removes = removes

    def __call__(self, ctx: StepContext, files: StepFiles) -> None:
        """Filter each file; see `Pipeline.add_filter`."""
        for file in _delivered(files):
            kept, removed = self._divide(file)
            _settle(file, kept, set_aside=0 if removed is None else removed.rows)
            # Recorded even where nothing was removed: zero is an answer.
            file.output.rows_filtered = 0 if removed is None else removed.rows
            file.output.filtered = removed

    def _divide(self, file: AstroFile) -> tuple[StagedFile | None, StagedFile | None]:
        """Stage the kept and the removed rows; None, None where nothing is removed."""
        if isinstance(self.rows, pl.Expr) and not file.is_small:
            return self._divide_streamed(file, self.rows)
        frame = file.load()
        if isinstance(self.rows, pl.Expr):
            kept, removed = split_removed(frame, self.rows, remove=self.removes)
        else:
            returned = self.rows(frame)
            if not isinstance(returned, pl.DataFrame):
                raise StepError(
                    f"the filter's function returned {type(returned).__name__}: it returns the rows to "
                    "remove, as a DataFrame"
                )
            kept, removed = split_twins(frame, returned)
        if removed.is_empty():
            return None, None
        return file.stage(kept, needs_write=True), file.stage(removed, needs_write=True)

    def _divide_streamed(self, file: AstroFile, rows: pl.Expr) -> tuple[StagedFile, StagedFile | None]:
        kept_path, removed_path = file.stage_path(), file.stage_path()
        sides = split_removed_lazy(
            file.scan(), rows, remove=self.removes, kept_path=kept_path, removed_path=removed_path
        )
        good, found = sides.true, sides.false
        kept = StagedFile(kept_path, good.rows, good.columns, good.size_bytes)
        if not found.rows:
            return kept, None
        return kept, StagedFile(removed_path, found.rows, found.columns, found.size_bytes)


def _delivered(files: StepFiles) -> list[AstroFile]:
    return [file for file in files if file is not None]


def _settle(file: AstroFile, good: StagedFile | None, *, set_aside: int) -> None:
    """Publish the good rows; without any staged, or none set aside, what was given stands."""
    output: FileOutput = file.output
    if good is not None and good.rows + set_aside != output.rows_given:
        raise ConservationError(
            f"file {file.name!r}: {output.rows_given} rows in, but {good.rows} out and {set_aside} set aside"
        )
    if good is not None and (set_aside or output.patched is not None):
        file.activate(good)
    elif output.patched is None:
        output.keeps_version = True
