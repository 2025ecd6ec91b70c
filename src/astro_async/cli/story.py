"""`astro show --story STEP`: what happened to one step, and why it has not started.

Loaded only when it is asked for: why a step waits is in the pipeline, and loading that takes Polars.
"""

from __future__ import annotations

import difflib
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from astro_async._core.events import (
    AnyEvent,
    RowsPatched,
    RunPlanned,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepStarted,
    kind_of,
)
from astro_async._core.records import RunRecord
from astro_async._core.waiting import explain_waiting
from astro_async._store.history import scan_events
from astro_async._store.layout import run_directory
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.render_plain import describe_outcome
from astro_async.cli.render_quarantine import describe_decision
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_duration, describe_time, safe, status_text
from astro_async.exceptions import PipelineError, UnknownNameError
from astro_async.loading import load_pipeline
from astro_async.reading import read_run

__all__ = ["Story", "load_story", "render_story", "story_document"]

_NO_REASON: Final = "unknown: the pipeline cannot be loaded"


class Story(NamedTuple):
    """What is known of one step of a run.

    Attributes:
        record: The run.
        step_id: The step.
        events: All events about it, oldest first.
        waits: Why it has not started; empty if it has.
    """

    record: RunRecord
    step_id: str
    events: list[AnyEvent]
    waits: list[str]

    @property
    def status(self) -> str:
        """The status of the step; pending if it was never planned."""
        step = self.record.steps.get(self.step_id)
        return "pending" if step is None else step.status.value


def load_story(pipeline_dir: str, run: str, step_id: str) -> Story:
    """Return the story of a step. Executes `pipeline.py`, to see what the step waits for.

    Raises:
        UnknownNameError: Neither the run nor the pipeline has such a step.
        AstroError: As `read_run`.
    """
    record = read_run(pipeline_dir, run)
    directory = run_directory(pipeline_dir, record.run_id)
    events = [event for event in scan_events(directory, about=step_id) if _is_about(event, step_id)]
    known = set(record.steps)
    try:
        graph = load_pipeline(pipeline_dir).graph(record.files)
    except PipelineError as error:
        waits = [] if record.steps.get(step_id) is None else _waits_without_pipeline(record, step_id, error)
    else:
        known |= graph.position.keys()
        waits = explain_waiting(graph, record, step_id) if step_id in known else []
    if step_id not in known and not events:
        near = difflib.get_close_matches(step_id, known, n=3)
        hint = f": did you mean {', '.join(map(repr, near))}?" if near else ""
        raise UnknownNameError(f"{step_id!r} is no step of run {record.run_id}{hint}")
    return Story(record, step_id, events, waits)


def _waits_without_pipeline(record: RunRecord, step_id: str, error: PipelineError) -> list[str]:
    step = record.steps[step_id]
    if step.status.value not in ("pending", "blocked"):
        return []
    return [step.detail] if step.detail else [f"{_NO_REASON} ({error})"]


def _is_about(event: AnyEvent, step_id: str) -> bool:
    if isinstance(event, RunPlanned):
        return step_id in event.removed or any(step_id in names for names in event.again.values())
    return event.step_id == step_id


def story_document(story: Story) -> dict[str, Any]:
    """Return the story as `--json` prints it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": story.record.run_id,
        "step_id": story.step_id,
        "status": story.status,
        "events": [_event_document(event, story.step_id) for event in story.events],
        "why_not_started": story.waits,
    }


def _event_document(event: AnyEvent, step_id: str) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(event, RunPlanned):
        # Of thousands of steps, only this one.
        document["again"] = {reason: [step_id] for reason, names in event.again.items() if step_id in names}
        document["removed"] = [step_id] if step_id in event.removed else []
        document.pop("order", None)
    return document


def render_story(story: Story) -> RenderableType:
    """Return the story for people."""
    table = make_table("time (UTC)", "try", "what", "", right=["try"])
    for column in table.columns[:3]:
        column.no_wrap = True
    for event in story.events:
        what, words = _describe(event, story.step_id)
        attempt = "" if event.attempt is None else str(event.attempt)
        table.add_row(describe_time(event.time), attempt, status_text(what), safe(words))
    head = Text.assemble(
        (f"step {safe(story.step_id)}", "bold"), f" of run {story.record.run_id}  ", status_text(story.status)
    )
    parts: list[RenderableType] = [head]
    if story.events:
        parts += [Text(), table]
    if story.waits:
        parts += [Text(), Text("why it has not started:", style="bold")]
        parts += [Text(f"  {safe(reason)}") for reason in story.waits]
    return Group(*parts)


def _describe(event: AnyEvent, step_id: str) -> tuple[str, str]:
    match event:
        case RunPlanned():
            if step_id in event.removed:
                return "forgotten", "it was no step of the pipeline any more"
            reason = next(reason for reason, names in event.again.items() if step_id in names)
            return "planned", f"because: {reason} (process {event.pid} on {event.host})"
        case StepStarted():
            return "running", "handed to a worker"
        case StepFinished():
            taken = describe_duration(event.duration_ms / 1000)
            return event.status.value, f"after {taken} {describe_outcome(event)}".rstrip()
        case StepRetrying():
            return "retrying", f"{event.detail} after: {event.error}"
        case StepInterrupted():
            return "interrupted", event.detail
        case RowsPatched():
            return describe_decision(event)
        case _:
            return kind_of(event).removeprefix("step_"), getattr(event, "detail", "")
