"""What `astro run` says in plain lines. Pure: events and records in, lines out.

A line is a text and the status that gives it its colour, where there is a colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from astro_async._core.decisions import Forecast
from astro_async._core.events import (
    Event,
    FileFlow,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
)
from astro_async._core.lineage import Plan, Reason, droppable_versions
from astro_async._core.records import RunRecord, StepRecord
from astro_async._core.status import RunStatus, StepStatus
from astro_async.cli.options import command_line
from astro_async.cli.progress import RunProgress
from astro_async.cli.wording import (
    describe_count,
    describe_counts,
    describe_duration,
    describe_names,
    describe_size,
    safe,
    shorten,
)

__all__ = ["Line", "PlainLines", "describe_outcome", "plan_lines", "verdict_lines"]

_DETAIL_WIDTH: Final = 200
_MOST_FAILURES: Final = 100
# Less is not worth a line each night.
_MUCH_BYTES: Final = 100_000_000

_REASONS: Final = {
    Reason.NEW: "has never run",
    Reason.UNFINISHED: "has not finished",
    Reason.QUARANTINED: "has rows in quarantine; it gets its whole input again",
    Reason.FAILED: "failed",
    Reason.BLOCKED: "was blocked",
    Reason.NAMED: "is named by --rerun",
    Reason.WITHDRAWN: "was given decisions about rows that have been withdrawn since",
    Reason.DEPENDENCY: "depends on {}, which runs again",
    Reason.INPUT: "reads {}, which will be another version",
}


class Line(NamedTuple):
    """One line of output."""

    text: str
    status: str | None = None


class PlainLines:
    """Makes lines of events. Steps that are blocked one after the other are counted in one line."""

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._blocked: list[str] = []

    def take(self, events: Iterable[Event]) -> Iterator[Line]:
        """Apply events and yield a line for each step that settled."""
        for event in events:
            if isinstance(event, StepBlocked):
                self._progress.apply(event)
                self._blocked.append(event.step_id or "")
                continue
            yield from self.flush()
            self._progress.apply(event)
            line = _step_line(self._progress, event)
            if line is not None:
                yield line

    def flush(self) -> Iterator[Line]:
        """Yield the line of the blocked steps that have gathered."""
        if self._blocked:
            place = f"[{self._progress.settled}/{self._progress.total}]"
            steps = describe_count(len(self._blocked), "step")
            yield Line(f"{place} blocked     {steps}: {describe_names(self._blocked)}", "blocked")
            self._blocked = []


def _step_line(progress: RunProgress, event: Event) -> Line | None:
    step_id = safe(event.step_id)
    place = f"[{progress.settled}/{progress.total}]"
    match event:
        case StepFinished():
            taken = describe_duration(event.duration_ms / 1000)
            told = f"{describe_outcome(event)} {_describe_warnings(event)}".strip()
            text = f"{place} {event.status.value:<11} {step_id} {taken} {told}"
            return Line(text.rstrip(), event.status.value)
        case StepSkipped():
            return Line(f"{place} skipped     {step_id}", "skipped")
        case StepRetrying():
            error = shorten(safe(event.error), _DETAIL_WIDTH)
            return Line(f"{place} retrying    {step_id} {safe(event.detail)}: {error}", "running")
        case StepInterrupted():
            return Line(f"{place} interrupted {step_id}", "interrupted")
        case _:
            return None


def describe_outcome(event: StepFinished) -> str:
    """Return what a settled step did with its rows, or why it failed."""
    if event.status is StepStatus.FAILED:
        return shorten(safe(event.detail or "no reason given"), _DETAIL_WIDTH)
    quarantined = [flow for flow in event.files if flow.parts]
    if quarantined:
        return ", ".join(_describe_share(flow, flow.rows_quarantined, event.files) for flow in quarantined)
    removed = [flow for flow in event.files if flow.rows_filtered]
    if removed:
        shares = [_describe_share(flow, flow.rows_filtered or 0, event.files) for flow in removed]
        return f"{', '.join(shares)} removed"
    return ""


def _describe_warnings(event: StepFinished) -> str:
    """Return, for each rule that only warns and that rows break, how many rows do."""
    shares = [
        f"{_describe_share(flow, rule.rows, event.files)}: {shorten(safe(rule.reason), _DETAIL_WIDTH)}"
        for flow in event.files
        for rule in flow.rules
        if rule.severity == "warn" and rule.rows
    ]
    return f"(warns: {'; '.join(shares)})" if shares else ""


def _describe_share(flow: FileFlow, rows: int, flows: Sequence[FileFlow]) -> str:
    of_file = f" of {safe(flow.name)}" if len(flows) > 1 else ""
    return f"{rows:,} of {describe_count(flow.rows_in, 'row')}{of_file}"


def plan_lines(record: RunRecord, plan: Plan, forecasts: Mapping[str, Sequence[Forecast]]) -> Iterator[Line]:
    """Yield what a run would run again and why, and what checks would make of the rows they have parked."""
    total = len(set(record.steps) | set(plan.again)) - len(plan.removed)
    if not plan.has_work:
        yield Line(f"nothing would run: all {describe_count(total, 'step')} are done")
    else:
        yield Line(
            f"{len(plan.again):,} of {describe_count(total, 'step')} would run; nothing is changed now"
        )
    for step_id, reason in plan.again.items():
        why = _REASONS[reason].format(safe(plan.because.get(step_id, "")))
        yield Line(f"  {safe(step_id)}: {why}")
        for forecast in forecasts.get(step_id, ()):
            yield Line(f"    {_describe_forecast(forecast)}")
    for step_id in plan.removed:
        yield Line(f"  {safe(step_id)}: is no step of the pipeline any more; its work is forgotten")
    for stale in plan.stale:
        yield Line(
            f"  {safe(stale.step_id)}: is not run again, though {safe(stale.file)} has changed since "
            f"it read it, for it published nothing (--rerun {safe(stale.step_id)} runs it)"
        )


def _describe_forecast(forecast: Forecast) -> str:
    total = describe_count(forecast.parked, "parked row")
    if forecast.problem is not None:
        return (
            f"what becomes of its {total} of {safe(forecast.file)} cannot be told: {safe(forecast.problem)}"
        )
    left_out = f", {forecast.discarded:,} discarded" if forecast.discarded else ""
    new = f"; {describe_count(forecast.new, 'other row')} would be parked" if forecast.new else ""
    return f"{forecast.passing:,} of {total} of {safe(forecast.file)} would now pass{left_out}{new}"


def verdict_lines(
    record: RunRecord, *, pipeline_dir: str, seconds: float | None, interrupted: bool = False
) -> Iterator[Line]:
    """Yield the verdict, then everything that needs attention, then what to do next.

    Args:
        record: The run.
        pipeline_dir: For the commands that are named.
        seconds: How long it took.
        interrupted: A signal kept steps from running, whatever the verdict on the others.
    """
    counts: dict[str, int] = {}
    for step in record.steps.values():
        counts[step.status.value] = counts.get(step.status.value, 0) + 1
    taken = "" if seconds is None else f" in {describe_duration(seconds)}"
    status = record.status.value
    no_fault = record.status is RunStatus.FAILED and StepStatus.FAILED.value not in counts
    why = " (only for steps that quarantine blocks)" if no_fault else ""
    yield Line(
        f"run {record.run_id} is {status}{why}: {describe_counts(counts) or 'no steps'}{taken}", status
    )
    if record.detail:
        yield Line(f"  {safe(record.detail)}", status)
    yield from _attention_lines(record, pipeline_dir)
    if interrupted or record.status is RunStatus.INTERRUPTED:
        pending = counts.get(StepStatus.PENDING.value, 0)
        yield Line(f"interrupted with {describe_count(pending, 'step')} to go", "interrupted")
        yield Line(f"next: {command_line(f'run {record.run_id}', pipeline_dir)} goes on where it stopped")
    elif record.status is RunStatus.COMPLETED:
        freeable = sum(version.size_bytes for version in droppable_versions(record))
        if freeable >= _MUCH_BYTES:
            drop = command_line(f"cleanup {record.run_id} --versions", pipeline_dir)
            yield Line(f"dropping old versions would free {describe_size(freeable)}: {drop}")
    else:
        again = command_line(f"run {record.run_id}", pipeline_dir)
        yield Line(f"next: mend pipeline.py or what it reads, then: {again}")


def _attention_lines(record: RunRecord, pipeline_dir: str) -> Iterator[Line]:
    steps = list(record.steps.values())
    quarantined = [step for step in steps if any(flow.parts for flow in step.files)]
    looked_at = {step.step_id for step in quarantined}
    for step in quarantined[:_MOST_FAILURES]:
        yield Line(f"  {step.status.value} {safe(step.step_id)}: {_describe_detail(step)}", step.status.value)
        parked = [flow for flow in step.files if flow.parts]
        for flow in parked:
            of_file = f" of {safe(flow.name)}" if len(parked) > 1 else ""
            for reason, rows in list(flow.reasons.items())[:5]:
                words = shorten(safe(reason), _DETAIL_WIDTH)
                yield Line(f"    {describe_count(rows, 'row')}{of_file}: {words}")
        look = command_line(f"quarantine show {record.run_id} {step.step_id}", pipeline_dir)
        yield Line(f"    look: {look}")
        for flow in parked:
            which = f" --file {flow.name}" if len(parked) > 1 else ""
            export = f"quarantine export {record.run_id} {step.step_id}{which} -o rows.csv"
            yield Line(f"    correct the rows: {command_line(export, pipeline_dir)}")
    failed = [step for step in steps if step.status is StepStatus.FAILED and step.step_id not in looked_at]
    for step in failed[:_MOST_FAILURES]:
        yield Line(f"  failed {safe(step.step_id)}: {_describe_detail(step)}", "failed")
    left_out = max(0, len(quarantined) - _MOST_FAILURES) + max(0, len(failed) - _MOST_FAILURES)
    if left_out:
        show = command_line(f"show {record.run_id}", pipeline_dir)
        yield Line(f"  and {left_out:,} more: {show}")
    blocked = [step.step_id for step in steps if step.status is StepStatus.BLOCKED]
    if blocked:
        yield Line(f"  blocked {describe_count(len(blocked), 'step')}: {describe_names(blocked)}", "blocked")


def _describe_detail(step: StepRecord) -> str:
    return safe(step.detail or "no reason given")
