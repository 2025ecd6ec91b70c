"""What a step is given besides its files: the run, its parameters, and where to put bad rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from astro_async._core.events import StatRecorded
from astro_async._frames.columns import REASON_COLUMN, ROW_COLUMN
from astro_async._frames.conform import conform_rows
from astro_async._frames.parquet import load_frame, scan_frame
from astro_async._frames.split import RowSplit, split_lazy, split_rows
from astro_async._store.staging import RuleTally, StagedFile, StagedPart
from astro_async._threads import in_thread
from astro_async.exceptions import QuarantineError, RuleError, StepError
from astro_async.expectation import Expectation, Rules, compile_rule_set, flatten_rules
from astro_async.files import AstroFile, StepFiles

__all__ = ["Quarantine", "RunContext", "StatisticsRecorder", "StepContext"]

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all steps of an invocation share.

    Attributes:
        run_id: The run.
        run_date: Fixed when the run was created, so that a retry next week computes the same.
        run_directory: Absolute path of the run directory.
        pipeline_dir: Absolute path of the folder with `pipeline.py`.
        params: Parameters of the run.
        logger: The run's logger; it writes to `astro.log`.
        report_progress: Takes step id and fraction; may be called from any thread.
    """

    run_id: str
    run_date: date
    run_directory: str
    pipeline_dir: str
    params: Mapping[str, Any]
    logger: logging.Logger
    report_progress: Callable[[str, float], None]


class StepContext:
    """One attempt of one step.

    Attributes:
        step_id: The step.
        attempt: 1, 2, … over all invocations of the run.
    """

    __slots__ = ("_files", "_run", "_stats", "attempt", "step_id")

    def __init__(
        self, run: RunContext, step_id: str, attempt: int, stats: list[StatRecorded], files: StepFiles
    ) -> None:
        self._run = run
        self.step_id = step_id
        self.attempt = attempt
        self._stats = stats
        self._files = files

    @property
    def quarantine(self) -> Quarantine:
        """Takes rows that break a rule."""
        return Quarantine(self._files)

    @property
    def stats(self) -> StatisticsRecorder:
        """Takes numbers worth keeping."""
        return StatisticsRecorder(self.step_id, self.run_id, self._stats)

    @property
    def run_id(self) -> str:
        """Five characters of `a-z0-9`."""
        return self._run.run_id

    @property
    def run_date(self) -> date:
        """The date of the run, fixed when it was created."""
        return self._run.run_date

    @property
    def run_directory(self) -> Path:
        """The run's own directory."""
        return Path(self._run.run_directory)

    @property
    def pipeline_dir(self) -> Path:
        """The directory of `pipeline.py`."""
        return Path(self._run.pipeline_dir)

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the run: those it was created with, or the last ones given anew."""
        return self._run.params

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Writes to the run's log, with the step's id before the text."""
        return _StepLogger(self._run.logger, {"step_id": self.step_id})

    def report_progress(self, fraction: float) -> None:
        """Say how much of the step is done, from 0.0 to 1.0. From any thread; cheap."""
        self._run.report_progress(self.step_id, min(1.0, max(0.0, float(fraction))))


class _StepLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Put the step's id before the text."""
        return f"[{(self.extra or {})['step_id']}] {msg}", kwargs


class StatisticsRecorder:
    """Records numbers for the statistics database; a later value replaces an earlier one."""

    __slots__ = ("_run_id", "_stats", "_step_id")

    def __init__(self, step_id: str, run_id: str, stats: list[StatRecorded]) -> None:
        self._step_id = step_id
        self._run_id = run_id
        self._stats = stats

    def record(self, action: str, value: float, *, scope: str = "step", subject: str | None = None) -> None:
        """Record a number; it is kept if the step settles.

        Args:
            action: What was counted or measured, with its unit: `"orders_matched"`, `"wait_ms"`.
            value: The number; it is kept as a float of 64 bits.
            scope: `"step"`, `"file"` or `"run"`.
            subject: Default: the step; for scope `run`, the run. A file's ingest name for scope `file`.

        Raises:
            ValueError: The scope is none of the three, a file is not named, a name is no text, or `value` is
                not finite.
        """
        if not isinstance(action, str) or not isinstance(subject, str | None):
            raise ValueError(f"action and subject are text, not {action!r} and {subject!r}")
        if not math.isfinite(value):
            raise ValueError(f"{action}: {value!r} is not a finite number")
        if scope not in ("run", "file", "step"):
            raise ValueError(f"scope is 'run', 'file' or 'step', not {scope!r}")
        if subject is None:
            if scope == "file":
                raise ValueError("scope 'file' needs subject=, the ingest name of the file")
            subject = self._run_id if scope == "run" else self._step_id
        self._stats.append(StatRecorded(scope, subject, action, float(value)))

    def record_run(self, action: str, value: float) -> None:
        """Record a number of the run: `record(action, value, scope="run")`. For older pipelines."""
        self.record(action, value, scope="run")

    def record_file(self, file_name: str, action: str, value: float) -> None:
        """Record a number of a file, by its ingest name: `record(…, scope="file")`. For older pipelines."""
        self.record(action, value, scope="file", subject=file_name)

    def record_step(self, action: str, value: float) -> None:
        """Record a number of the step: `record(action, value)`. For older pipelines."""
        self.record(action, value)


class Quarantine:
    """Sets rows aside, each with a reason. Any number of threads or tasks of the step may use it at once.

    The rows are published with the step, as numbered Parquet parts. Free-form steps must leave quarantined
    rows out of what they save; `split` does it for them.
    """

    __slots__ = ("_files",)

    def __init__(self, files: StepFiles) -> None:
        self._files = files

    def quarantine_rows(self, file: AstroFile, rows: pl.DataFrame | pl.LazyFrame, *, reason: str) -> None:
        """Set rows of a file aside, as one new part. A LazyFrame is streamed.

        Args:
            file: The file of this step that the rows come from.
            rows: At least one row, with all columns of the file as the step was given it, and values that
                fit their dtypes. Other columns are left out.
            reason: Why, in words for people.

        Raises:
            ValueError: `reason` or `rows` is empty; nothing is written.
            QuarantineError: A column of the file is missing, or values do not cast without loss.
            FileAccessError: The file is read-only, or the step has ended.
            StorageError: The disk refuses.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError("reason is empty: say why these rows are set aside")
        self._check_own(file)
        if not isinstance(rows, pl.DataFrame | pl.LazyFrame):
            raise QuarantineError(f"rows is a Polars DataFrame or LazyFrame, not {type(rows).__name__}")
        if isinstance(rows, pl.DataFrame) and rows.is_empty():
            raise ValueError("rows is empty: call only when there are rows to set aside")
        conformed = _conform(rows, file.input_schema()).with_columns(
            pl.lit(reason, dtype=pl.String).alias(REASON_COLUMN)
        )
        staged = file.stage(conformed, needs_write=True)
        if not staged.rows:
            raise ValueError("rows is empty: call only when there are rows to set aside")
        self._add(file, StagedPart(staged, None), {reason: staged.rows})

    rows = quarantine_rows

    def quarantine_row(self, file: AstroFile, row: Mapping[str, Any], *, reason: str) -> None:
        """Set one row aside, as a part of its own.

        Args:
            file: The file of this step that the row comes from.
            row: Its values by column: all columns of the file as the step was given it, with values that fit
                their dtypes. Other names are left out.
            reason: Why, in words for people.

        Raises:
            ValueError: `reason` is empty; nothing is written.
            QuarantineError: A column of the file is missing, or a value does not fit its dtype.
            FileAccessError: The file is read-only, or the step has ended.
            StorageError: The disk refuses.
        """
        schema = file.input_schema()
        missing = [name for name in schema.names() if name not in row]
        if missing:
            raise QuarantineError(f"the row lacks column {', '.join(map(repr, missing))} of {file.name!r}")
        try:
            frame = pl.DataFrame({name: [row[name]] for name in schema.names()}, schema=schema, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            # Values that need a cast: let the one lossless cast judge them, column by column.
            frame = pl.DataFrame({name: [row[name]] for name in schema.names()})
        self.quarantine_rows(file, frame, reason=reason)

    def split(self, file: AstroFile, frame: Frame, *rules: Rules) -> Frame:
        """Set aside the rows of a frame that break a rule, and return the good ones in order.

        Each rule is evaluated once. A bad row is set aside once, with all its reasons joined with `"; "`.
        Rows that break only rules of severity `"warn"` are counted and told, and good.

        A LazyFrame is streamed through in one pass, in bounded memory; rules that look at other rows
        (`expect_unique`, `.over(…)`) or at another file (`expect_foreign`) hold what they need. With a schema
        the rows are first written to disk, and pandera then loads them whole.

        Args:
            file: The file of this step that the rows come from.
            frame: The rows, with all columns of the file.
            *rules: Made by `expect` and its kin, schemas of pandera.polars or dataframely, or sequences of
                them. Without any, all rows are good.

        Returns:
            The good rows: a DataFrame for a DataFrame, a LazyFrame for a LazyFrame.

        Raises:
            RuleError: A rule is broken; nothing is set aside.
            QuarantineError: The frame lacks columns of the file.
            FileAccessError: The file is read-only, or the step has ended.
            StorageError: The disk refuses.
        """
        self._check_own(file)
        if isinstance(frame, pl.LazyFrame):
            good, _ = self.split_staged(file, frame, rules)
            return scan_frame(good.path)
        return self._split_rows(file, frame, list(flatten_rules(rules))).good

    def split_input(self, file: AstroFile, rules: Rules) -> tuple[StagedFile | None, int]:
        """Split what the step was given; return the staged good rows and the number of bad ones.

        For the package itself: a check publishes that file instead of writing the rows again. Of a small file
        all is done in memory, and where no row is bad nothing is staged: None.
        """
        if not file.is_small:
            return self.split_staged(file, file.scan(), rules, is_input=True)
        split = self._split_rows(file, file.load(), list(flatten_rules(rules)), is_input=True)
        good = None if split.bad.is_empty() else file.stage(split.good, needs_write=True)
        return good, split.bad.height

    def split_staged(
        self,
        file: AstroFile,
        frame: pl.LazyFrame,
        rules: Rules,
        *,
        is_input: bool = False,
    ) -> tuple[StagedFile, int]:
        """Split a plan and return the staged file of good rows and the number of bad ones.

        For the package itself.

        Args:
            file: The file of this step that the rows come from.
            frame: The rows.
            rules: As `split` takes them.
            is_input: The plan is known to be what the step was given, whole and in order.
        """
        good_path, bad_path = file.stage_path(), file.stage_path()
        flat = list(flatten_rules(rules))
        if not is_input and not all(isinstance(rule, Expectation) for rule in flat):
            # A schema looks at the rows before they are split; a plan may give others the next time.
            frame = scan_frame(file.stage(frame, needs_write=True).path)
        compiled = compile_rule_set(flat, frame, self._scan_other)
        split = split_lazy(frame, compiled, good_path=good_path, bad_path=bad_path)
        if split.bad.rows:
            positions = load_frame(bad_path, [ROW_COLUMN])
            bad = scan_frame(bad_path).drop(ROW_COLUMN)
            height = split.good.rows + split.bad.rows
            self._add_judged(file, bad, positions, split.counts, height=height, is_input=is_input)
        self._note_rules(file, flat, split.counts, split.warnings)
        good = StagedFile(good_path, split.good.rows, split.good.columns, split.good.size_bytes)
        return good, split.bad.rows

    async def aquarantine_rows(
        self, file: AstroFile, rows: pl.DataFrame | pl.LazyFrame, *, reason: str
    ) -> None:
        """Do what `quarantine_rows` does, in a worker thread."""
        await in_thread(self.quarantine_rows, file, rows, reason=reason)

    async def aquarantine_row(self, file: AstroFile, row: Mapping[str, Any], *, reason: str) -> None:
        """Do what `quarantine_row` does, in a worker thread."""
        await in_thread(self.quarantine_row, file, row, reason=reason)

    async def asplit(self, file: AstroFile, frame: Frame, *rules: Rules) -> Frame:
        """Do what `split` does, in a worker thread."""
        return await in_thread(self.split, file, frame, *rules)

    # ------------------------------------------------------------------------------------------

    def _check_own(self, file: AstroFile) -> None:
        if not self._files.owns(file):
            raise StepError("quarantine takes rows of a file of this step: pass one of its `files`")

    def _scan_other(self, name: str) -> pl.LazyFrame:
        try:
            other: AstroFile | None = self._files[name]
        except KeyError as error:
            raise RuleError(f"a rule looks at {error.args[0]}") from None
        if other is None:
            raise RuleError(f"a rule looks at file {name!r}, which was not delivered")
        return other.scan()

    def _note_rules(
        self, file: AstroFile, rules: Sequence[Any], counts: Mapping[str, int], warnings: Mapping[str, int]
    ) -> None:
        limits = {
            rule.reason: rule
            for rule in rules
            if isinstance(rule, Expectation) and (rule.max_rows, rule.max_fraction) != (None, None)
        }
        with self._files.lock:
            for severity, by_reason in (("quarantine", counts), ("warn", warnings)):
                for reason, rows in by_reason.items():
                    tally = file.output.rules.setdefault((reason, severity), RuleTally())
                    tally.rows += rows
                    limit = limits.get(reason)
                    if severity == "quarantine" and limit is not None:
                        tally.max_rows, tally.max_fraction = limit.max_rows, limit.max_fraction

    def _split_rows(
        self, file: AstroFile, frame: pl.DataFrame, rules: Sequence[Any], *, is_input: bool = False
    ) -> RowSplit:
        """Split a frame in memory, and set its bad rows aside; `is_input` as in `split_staged`."""
        split = split_rows(frame, compile_rule_set(rules, frame.lazy(), self._scan_other))
        if not split.bad.is_empty():
            positions, bad = split.bad.select(ROW_COLUMN), split.bad.drop(ROW_COLUMN)
            self._add_judged(file, bad, positions, split.counts, height=frame.height, is_input=is_input)
        self._note_rules(file, rules, split.counts, split.warnings)
        return split

    def _add_judged(
        self,
        file: AstroFile,
        bad: pl.DataFrame | pl.LazyFrame,
        positions: pl.DataFrame,
        counts: dict[str, int],
        *,
        height: int,
        is_input: bool,
    ) -> None:
        # The reason column rides along: it is no column of the source, so it is part of the target schema.
        schema = pl.Schema({**file.input_schema(), REASON_COLUMN: pl.String()})
        staged = file.stage(_conform(bad, schema), needs_write=True)
        sidecar = None
        if is_input or self._are_input_positions(file, staged, positions, height):
            if file.output.snapshot_rows is not None:
                # Rows were left out of what the step was given: count as the snapshot does.
                rows = load_frame(file.output.snapshot_rows).get_column(ROW_COLUMN)
                positions = rows.gather(positions.get_column(ROW_COLUMN)).to_frame()
            sidecar = file.stage(positions, needs_write=True)
        self._add(file, StagedPart(staged, sidecar), counts)

    def _are_input_positions(
        self, file: AstroFile, staged: StagedFile, positions: pl.DataFrame, height: int
    ) -> bool:
        """Whether positions in the split frame are positions in what the step was given.

        They are if the frame is that file, whole and in order: then the same rows stand at those places.
        """
        if height != file.output.rows_given:
            return False
        wanted = positions.with_columns(pl.col(ROW_COLUMN).cast(pl.UInt32))
        there = (
            file.scan_input()
            .with_row_index(ROW_COLUMN)
            .join(wanted.lazy(), on=ROW_COLUMN, how="semi", maintain_order="left")
            .drop(ROW_COLUMN)
            .collect(engine="streaming")
        )
        return there.equals(load_frame(staged.path).drop(REASON_COLUMN), null_equal=True)

    def _add(self, file: AstroFile, part: StagedPart, counts: Mapping[str, int]) -> None:
        # Held only to append a finished part, so parts are written side by side and numbered without gaps.
        with self._files.lock:
            output = file.output
            output.parts.append(part)
            for reason, rows in counts.items():
                if rows:
                    output.reasons[reason] = output.reasons.get(reason, 0) + rows


def _conform(rows: pl.DataFrame | pl.LazyFrame, schema: pl.Schema) -> pl.DataFrame | pl.LazyFrame:
    if isinstance(rows, pl.LazyFrame):
        return conform_rows(rows, schema)
    return conform_rows(rows, schema)
