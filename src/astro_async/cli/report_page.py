"""The page of `astro report`: what is known of a run in, HTML out. Pure.

The page runs no script and fetches nothing, which its content security policy demands of the browser too.
All text is escaped by the template engine; there is no script or style that holds text of data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from astro_async import __version__
from astro_async._core.flow import Flow
from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus
from astro_async._core.timeline import Attempt, Invocation
from astro_async.cli.flow_formats import FILLS
from astro_async.cli.render_plain import Line, verdict_lines
from astro_async.cli.report_drawing import (
    BOX_HEIGHT,
    BOX_WIDTH,
    LANE_HEIGHT,
    TIMELINE_WIDTH,
    draw_graph,
    draw_timeline,
)
from astro_async.cli.report_tables import list_files, list_reasons, list_rules, list_steps
from astro_async.cli.wording import describe_count, describe_counts, describe_duration, describe_time, safe

__all__ = ["Report", "render_page"]

_MOST_INVOCATIONS: Final = 5
_MOST_ON_PATH: Final = 20

_WITHOUT_VERDICT: Final = {
    RunStatus.CREATED: "its ingest has not ended",
    RunStatus.INGESTED: "it has not been run yet",
    RunStatus.RUNNING: "it goes on: this is how it stood when the page was made",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a page is made of.

    Attributes:
        record: The run.
        invocations: What ran when, oldest first.
        critical: By the index of an invocation, its critical path.
        flow: The pipeline with the statuses of the run; None where it cannot be loaded.
        problem: Why it cannot be loaded.
        log: The end of the log.
        pipeline_dir: For the commands that are named.
        made_at: ISO time of the page.
    """

    record: RunRecord
    invocations: Sequence[Invocation]
    critical: Mapping[int, Sequence[Attempt]]
    flow: Flow | None
    problem: str | None
    log: Sequence[str]
    pipeline_dir: str
    made_at: str


def render_page(report: Report) -> str:
    """Return the page."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = lambda number: "" if number is None else f"{number:,}"
    environment.filters["time"] = describe_time
    environment.filters["safe_text"] = safe
    source = files("astro_async").joinpath("data", "report", "page.html.j2").read_text(encoding="utf-8")
    record = report.record
    counts = Counter(step.status.value for step in record.steps.values())
    rows, files_left_out = list_files(record)
    return environment.from_string(source).render(
        record=record,
        version=__version__,
        made_at=report.made_at,
        counts=describe_counts(counts) or "none yet",
        verdict=_verdict_lines(report),
        invocations=_draw_invocations(report),
        invocations_left_out=max(0, len(report.invocations) - _MOST_INVOCATIONS),
        graph=None if report.flow is None else draw_graph(report.flow),
        problem=report.problem,
        files=rows,
        files_left_out=files_left_out,
        reasons=list_reasons(record),
        rules=list_rules(record),
        steps=list_steps(record),
        log=[safe(line) for line in report.log],
        fills=FILLS,
        sizes={
            "timeline": TIMELINE_WIDTH,
            "lane": LANE_HEIGHT,
            "box": BOX_WIDTH,
            "box_height": BOX_HEIGHT,
        },
    )


def _verdict_lines(report: Report) -> Sequence[Line]:
    record = report.record
    if record.status in _WITHOUT_VERDICT:
        words = _WITHOUT_VERDICT[record.status]
        return [Line(f"run {record.run_id} is {record.status.value}: {words}", record.status.value)]
    # Whatever the lines are made of: here none of it drives anything.
    lines = verdict_lines(record, pipeline_dir=report.pipeline_dir, seconds=None)
    return [Line(safe(line.text), line.status) for line in lines]


def _draw_invocations(report: Report) -> list[dict[str, Any]]:
    """Return the newest invocations, newest first, each with its drawing and its critical path."""
    drawn = []
    for index in reversed(range(len(report.invocations))[-_MOST_INVOCATIONS:]):
        invocation, path = report.invocations[index], report.critical.get(index, ())
        slowest = sorted(path, key=lambda attempt: attempt.start_us - attempt.end_us)[:_MOST_ON_PATH]
        drawn.append(
            {
                "number": index + 1,
                "status": invocation.status,
                "began": invocation.planned.time,
                "taken": describe_duration((invocation.end_us - invocation.start_us) / 1e6),
                "jobs": invocation.planned.jobs,
                "attempts": describe_count(len(invocation.attempts), "attempt"),
                "drawing": draw_timeline(invocation, path),
                "path": [
                    {
                        "step": safe(attempt.step_id),
                        "taken": describe_duration((attempt.end_us - attempt.start_us) / 1e6),
                        "share": _share(attempt, invocation),
                        "outcome": attempt.outcome,
                    }
                    for attempt in slowest
                ],
                "path_length": describe_count(len(path), "attempt"),
            }
        )
    return drawn


def _share(attempt: Attempt, invocation: Invocation) -> str:
    return f"{(attempt.end_us - attempt.start_us) / max(1, invocation.end_us - invocation.start_us):.0%}"
