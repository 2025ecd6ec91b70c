"""One attempt of one step: what it is given, how it is called, what comes back.

Whatever step code raises becomes an outcome. Publication happens here, in the thread of the step, under a
claim: once the coordinator has revoked the attempt (a timeout, a second signal), it publishes nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import anyio
import msgspec
import polars as pl

from astro_async._core.decisions import withdraw_command
from astro_async._core.events import FileFlow, StatRecorded
from astro_async._core.status import StepStatus
from astro_async._executor.inputs import FileInput
from astro_async._executor.parked import scan_amended
from astro_async._frames.columns import ROW_COLUMN
from astro_async._frames.parquet import scan_frame, write_frame
from astro_async._store.atomic import Disk
from astro_async._store.staging import FileOutput, StagedFile, Staging
from astro_async._threads import in_thread
from astro_async.context import RunContext, StepContext
from astro_async.exceptions import AstroError, StepError, StorageError
from astro_async.files import AstroFile, StepFiles
from astro_async.pipeline import StepDefinition

__all__ = [
    "Attempt",
    "Outcome",
    "RunResources",
    "describe_error",
    "run_attempt",
    "run_attempt_async",
]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended.

    Attributes:
        position: The step's place in serial order.
        status: `complete`, `quarantined` or `failed`; None if the attempt was revoked and counts for nothing.
        duration_ms: From the call to the end of publication.
        detail: Why it failed, in words.
        files: What was published.
        stats: What the step recorded.
        storage_error: The disk refused: nothing more can be recorded of this or any step.
    """

    position: int
    status: StepStatus | None
    duration_ms: float
    detail: str | None = None
    files: tuple[FileFlow, ...] = ()
    stats: tuple[StatRecorded, ...] = ()
    storage_error: StorageError | None = None


@dataclass(frozen=True, slots=True)
class RunResources:
    """What all attempts of an invocation share.

    Attributes:
        context: What step code may know of the run.
        disk: The seam.
        publish: Gives what an attempt of a step wrote its final names.
        patches: By step and file, the absolute paths of the patches to apply, in order; those about rows
            that one attempt set aside are together.
        deciding: Held, for an instant, by who begins or ends an attempt.
    """

    context: RunContext
    disk: Disk
    publish: Callable[[str, int, Sequence[FileOutput]], tuple[FileFlow, ...]]
    patches: Mapping[tuple[str, str], Sequence[Sequence[str]]] = field(default_factory=dict)
    deciding: threading.Lock = field(default_factory=threading.Lock)


_MAX_DETAIL: Final = 2000

# Looking a member up costs as much as a call in Python 3.11, and this one is asked for at every step.
_COMPLETE: Final = StepStatus.COMPLETE

_NO_TIMEOUT: Final = contextlib.nullcontext()
_NO_FILES: Final = StepFiles((), lambda _: None)


# Not for the garbage collector: `files` lets go of the attempt when it is closed, so there is no cycle.
class Attempt(msgspec.Struct, gc=False, eq=False):
    """One start of one step.

    Attributes:
        position: The step's place in serial order.
        step: The step as declared.
        number: 1, 2, … over all invocations.
        inputs: For each file of the step, in its order; None if the file was not delivered.
        resources: Shared by all attempts.
        is_last: Whether no other attempt follows in this invocation if this one fails.
        host: The cancel scope of the task that waits for the attempt, once it runs.
        files: The step's view of its files; empty until `open`.
        outputs: What the step did with each file that it looked at.
        stats: What it recorded.
    """

    position: int
    step: StepDefinition
    number: int
    inputs: tuple[FileInput | None, ...]
    resources: RunResources
    is_last: bool = True
    host: anyio.CancelScope | None = None
    files: StepFiles = _NO_FILES
    outputs: list[FileOutput] = []
    stats: list[StatRecorded] = []
    _staging: Staging | None = None
    _is_begun: bool = False
    _is_claimed: bool = False

    def open(self) -> StepContext:
        """Make the step's view of its files, and return the context that step code is given.

        Blocks on the disk if the operator has amended rows of the step.
        """
        step = self.step
        self.files = StepFiles(step.file_names, self._open)
        if self.resources.patches and self.is_amended:
            for name in step.file_names:
                # What an operator decided lands, whether or not the step looks at the file.
                self.files[name]
        return StepContext(self.resources.context, step.step_id, self.number, self.stats, self.files)

    @property
    def staging(self) -> Staging:
        """What it writes, until it is published; nothing is on disk before that.

        First asked for before the step's threads are let loose on it: while the first file is opened.
        """
        if self._staging is None:
            directory = self.resources.context.run_directory
            self._staging = Staging(directory, self.step.step_id, self.number, self.resources.disk)
        return self._staging

    @property
    def is_amended(self) -> bool:
        """Whether the operator has amended rows of the step."""
        patches = self.resources.patches
        return any((self.step.step_id, name) in patches for name in self.step.file_names)

    @property
    def uses_disk(self) -> bool:
        """Whether anything was written."""
        return self._staging is not None and self._staging.is_used

    def _open(self, index: int) -> AstroFile | None:
        spec, given = self.step.files[index], self.inputs[index]
        if given is None:
            return None
        output = FileOutput(spec.ingest_name, given.path, given.rows, spec.readonly)
        self.outputs.append(output)
        path = f"{self.staging.run_directory}/{given.path}"
        patches = self.resources.patches.get((self.step.step_id, spec.ingest_name))
        if patches:
            withdraw = withdraw_command(self.resources.context.run_id, self.step.step_id, spec.ingest_name)
            path = _stage_patched(output, path, patches, self.staging, withdraw)
        return AstroFile(spec, output, path, self.staging)

    def flows(self, published: Sequence[FileFlow]) -> tuple[FileFlow, ...]:
        """Return what is recorded of each file, in the order of the step: most files were not touched."""
        touched = {flow.name: flow for flow in published} if published else {}
        found: tuple[FileFlow, ...] = ()
        for index, given in enumerate(self.inputs):
            spec = self.step.files[index]
            if spec.ingest_name in touched:
                found += (touched[spec.ingest_name],)
            elif given is not None:
                # For the many steps with one file this adds nothing to memory: they share the flow.
                found += given.only_read if spec.readonly else given.let_pass
        return found

    def begin(self) -> bool:
        """Decide, once, whether a worker begins this attempt or the coordinator takes it back."""
        with self.resources.deciding:
            is_first = not self._is_begun
            self._is_begun = True
        return is_first

    def claim(self) -> bool:
        """Decide, once, who ends this attempt. True for the first who asks."""
        with self.resources.deciding:
            is_first = not self._is_claimed
            self._is_claimed = True
        return is_first


def _stage_patched(
    output: FileOutput, path: str, patches: Sequence[Sequence[str]], staging: Staging, withdraw: str
) -> str:
    """Stage what patches make of a version, and note it in the output; return its path. Blocks.

    Raises:
        StepError: Rows of a patch are not in the version any more.
        StorageError: The disk refuses.
    """
    patched = scan_amended(path, patches, withdraw=withdraw)
    whole, given, rows = staging.next_path(), staging.next_path(), staging.next_path()
    write_frame(patched, whole)
    written = write_frame(scan_frame(whole).drop(ROW_COLUMN), given)
    write_frame(scan_frame(whole).select(ROW_COLUMN), rows)
    output.patched = StagedFile(given, written.rows, written.columns, written.size_bytes)
    output.snapshot_rows = rows
    return given


def run_attempt(attempt: Attempt) -> Outcome:
    """Call a plain step function in this thread, and settle what it did. Never raises."""
    started = perf_counter()
    try:
        call_step(attempt)
    except BaseException as error:
        return fail_attempt(attempt, error, started)
    return settle_attempt(attempt, started)


def call_step(attempt: Attempt) -> None:
    """Call a plain step function.

    Raises:
        StepError: It returned something that was still to be awaited or iterated, so it did nothing.
        Whatever the function raises.
    """
    context = attempt.open()
    returned = attempt.step.fn(context, attempt.files)
    if returned is not None:
        _refuse_returned(attempt.step, returned)


def _refuse_returned(step: StepDefinition, returned: object) -> None:
    if isinstance(returned, pl.DataFrame | pl.LazyFrame):
        raise StepError(
            f"step {step.step_id!r} returned a {type(returned).__name__}, which goes nowhere: "
            "save it, as in files[0].save_in_place(frame)"
        )
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        returned.close()
        raise StepError(
            f"step {step.step_id!r} returned a {type(returned).__name__}, whose code nobody has run: "
            "declare the function `async def`, or let it return nothing"
        )


async def run_attempt_async(attempt: Attempt) -> Outcome:
    """Await an async step function on this loop, and settle what it did in a worker thread.

    Raises:
        The cancellation of the host task, where it is the executor's or the caller's own. A cancellation
        that the step brought upon itself is a failure of the step.
    """
    started = perf_counter()
    timeout_s = attempt.step.timeout_s
    error: BaseException | None = None
    with _NO_TIMEOUT if timeout_s is None else anyio.move_on_after(timeout_s) as timer:
        try:
            is_slow = attempt.resources.patches and attempt.is_amended
            context = await in_thread(attempt.open) if is_slow else attempt.open()
            await attempt.step.fn(context, attempt.files)
        except BaseException as raised:
            is_cancellation = isinstance(raised, anyio.get_cancelled_exc_class())
            if is_cancellation and anyio.current_effective_deadline() == -math.inf:
                raise
            error = raised
    # A step that held the loop, or swallowed its cancellation, returns as if nothing had been.
    if timer is not None and (
        timer.cancelled_caught or (error is None and anyio.current_time() >= timer.deadline)
    ):
        error = TimeoutError(f"timed out after {timeout_s:g} s")
    # In a thread where the disk is touched; a publication once begun is finished and recorded.
    try:
        if attempt.uses_disk:
            return await in_thread(_end_attempt, attempt, error, started)
        return _end_attempt(attempt, error, started)
    finally:
        # Its traceback holds this frame, and what the step had loaded: no cycle, so that all is free at once.
        del error


def _end_attempt(attempt: Attempt, error: BaseException | None, started: float) -> Outcome:
    if error is not None:
        return fail_attempt(attempt, error, started)
    return settle_attempt(attempt, started)


def settle_attempt(attempt: Attempt, started: float) -> Outcome:
    """Check what a step that returned has done, publish it, and tell. Blocks on the disk; never raises."""
    is_claimed = False
    try:
        attempt.files.close()
        outputs = attempt.outputs
        for output in outputs:
            if not output.readonly and output.version is None:
                output.version = output.patched
        excess = (_over_limit(attempt) or _over_rule_limit(attempt)) if outputs else None
        if excess is not None:
            # Its parts are kept to read; nothing else of it is.
            for output in outputs:
                output.version, output.keeps_version, output.filtered = None, False, None
                output.saved.clear()
                if not attempt.is_last:
                    # The next attempt sets its own aside, under the same names.
                    output.parts.clear()
        is_claimed = attempt.claim()
        if not is_claimed:
            attempt.staging.discard()
            return Outcome(attempt.position, None, _ms_since(started))
        published: Sequence[FileFlow] = ()
        if outputs and (busy := [each for each in outputs if not each.is_idle]):
            published = attempt.resources.publish(attempt.step.step_id, attempt.number, busy)
        flows = attempt.flows(published)
    except BaseException as error:
        return fail_attempt(attempt, error, started, is_claimed=is_claimed)
    if attempt.uses_disk:
        with contextlib.suppress(StorageError):
            # What is left of it is litter: no reason to undo what is published.
            attempt.staging.discard()
    status, detail = _COMPLETE, excess
    if excess is not None:
        status = StepStatus.FAILED
    elif published and any(flow.parts for flow in published):
        status, detail = StepStatus.QUARANTINED, _count_quarantined(flows)
    return Outcome(attempt.position, status, _ms_since(started), detail, flows, tuple(attempt.stats))


def fail_attempt(
    attempt: Attempt, error: BaseException, started: float, *, is_claimed: bool = False
) -> Outcome:
    """Return the outcome of an attempt that raised; what it staged is dropped. Never raises."""
    attempt.files.close()
    is_revoked = not is_claimed and not attempt.claim()
    storage_error = error if isinstance(error, StorageError) else None
    try:
        if not is_revoked and not isinstance(error, TimeoutError | AstroError):
            trace = "".join(traceback.format_exception(error))
            logger = attempt.resources.context.logger
            logger.error("[%s] attempt %d: %s", attempt.step.step_id, attempt.number, trace)
        attempt.staging.discard()
    except StorageError as also:
        storage_error = storage_error or also
    except BaseException as also:
        # An outcome must come of it in any case: the coordinator waits for one.
        error.add_note(f"clearing up after it failed too: {also!r}")
    detail = describe_error(error)
    if not isinstance(error, TimeoutError | AstroError):
        detail += _describe_place(attempt.step.fn, error)
    if is_revoked:
        return Outcome(attempt.position, None, _ms_since(started))
    return Outcome(
        attempt.position, StepStatus.FAILED, _ms_since(started), detail, storage_error=storage_error
    )


def describe_error(error: BaseException) -> str:
    """Return an error in one line, cut at 2,000 characters: the text of our own, type and text of others."""
    # What is no valid text, such as a file name in another encoding, is escaped: it goes into the journal.
    text = " ".join(str(error).split()).encode("utf-8", "backslashreplace").decode()
    if len(text) > _MAX_DETAIL:
        text = f"{text[:_MAX_DETAIL]}…"
    if isinstance(error, AstroError):
        return text
    if isinstance(error, TimeoutError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _describe_place(fn: Callable[..., Any], error: BaseException) -> str:
    """Return where in the author's file an error came through, in words to append."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return ""
    lines = [
        lineno
        for frame, lineno in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == code.co_filename
    ]
    return f" ({os.path.basename(code.co_filename)}, line {lines[-1]}; more in astro.log)" if lines else ""


def _over_limit(attempt: Attempt) -> str | None:
    step = attempt.step
    if step.max_quarantined is None and step.max_quarantined_fraction is None:
        return None
    rows = sum(output.rows_quarantined for output in attempt.outputs)
    if step.max_quarantined is not None and rows > step.max_quarantined:
        return (
            f"{rows:,} rows quarantined, more than max_quarantined={step.max_quarantined:,}{_kept(attempt)}"
        )
    fraction = step.max_quarantined_fraction
    if fraction is not None:
        for output in attempt.outputs:
            # By multiplication, so that nothing in and nothing bad is no share at all.
            if output.rows_quarantined > fraction * output.rows_in:
                return (
                    f"{output.rows_quarantined:,} of {output.rows_in:,} rows of {output.name!r} quarantined, "
                    f"more than max_quarantined_fraction={fraction:g}{_kept(attempt)}"
                )
    return None


def _over_rule_limit(attempt: Attempt) -> str | None:
    rows: dict[str, int] = {}
    for output in attempt.outputs:
        for (reason, _), tally in output.rules.items():
            if tally.max_rows is not None:
                rows[reason] = rows.get(reason, 0) + tally.rows
                if rows[reason] > tally.max_rows:
                    limit = f"more than max_rows={tally.max_rows:,}"
                    return f"{rows[reason]:,} rows break the rule {reason!r}, {limit}{_kept(attempt)}"
            if tally.max_fraction is not None and tally.rows > tally.max_fraction * output.rows_in:
                return (
                    f"{tally.rows:,} of {output.rows_in:,} rows of {output.name!r} break the rule "
                    f"{reason!r}, more than max_fraction={tally.max_fraction:g}{_kept(attempt)}"
                )
    return None


def _kept(attempt: Attempt) -> str:
    return "; they are kept to read" if attempt.is_last else ""


def _count_quarantined(flows: tuple[FileFlow, ...]) -> str:
    counts = []
    for flow in flows:
        if flow.parts:
            text = f"{flow.rows_quarantined:,} of {flow.rows_in:,} rows of {flow.name!r} quarantined"
            surplus = (flow.rows_out or 0) + flow.rows_quarantined + flow.rows_discarded - flow.rows_in
            if surplus > 0:
                # A step may add rows; but mostly it forgot to leave out what it set aside.
                text += f", and {surplus:,} more kept and quarantined than came in: is it kept too?"
            counts.append(text)
    return "; ".join(counts)


def _ms_since(started: float) -> float:
    # Whole microseconds; `round` costs as much as all the rest of a small step's bookkeeping.
    return int((perf_counter() - started) * 1e6) / 1000
