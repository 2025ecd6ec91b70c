"""The dashboard of a run that goes on. Pure: state, size and time in, a renderable out.

With few steps it shows all of them in serial order. With more than fit it shows what needs attention, what
runs, and what settled last, each with a count of what is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from astro_async._core.status import StepStatus
from astro_async.cli.progress import RunProgress, StepView
from astro_async.cli.render_plain import describe_outcome
from astro_async.cli.wording import (
    describe_count,
    describe_counts,
    describe_duration,
    safe,
    shorten,
    status_text,
)

__all__ = ["choose_rows", "render_dashboard"]

# Title, status line, and the line below that the cursor needs.
_FRAME_LINES = 4
_LEAST_LINES = 5
_STATUS_WIDTH = 11
_TIME_WIDTH = 6
# Fewer steps, or less time, make no pace.
_LEAST_RAN = 3
_LEAST_SECONDS = 2
_RAN = (StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.FAILED)
_CALM = frozenset({StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.SKIPPED})


def render_dashboard(
    progress: RunProgress, *, title: str, width: int, height: int, now: datetime, stop_level: int = 0
) -> RenderableType:
    """Return the screen.

    Args:
        progress: The run.
        title: What runs, such as its id and pipeline.
        width: Columns of the terminal.
        height: Lines of the terminal; the result has fewer.
        now: The time, for what runs.
        stop_level: 0, or how many signals asked the run to stop.
    """
    rows = choose_rows(progress, max(_LEAST_LINES, height - _FRAME_LINES))
    return Group(
        _render_title(progress, title, width, now),
        *([_render_rows(rows, width, now)] if rows else []),
        _render_status(progress, width, now, stop_level),
    )


def choose_rows(progress: RunProgress, room: int) -> list[StepView | str]:
    """Return the steps to show, and remarks on those left out, in at most `room` rows.

    All steps where they fit. Else at most a third of the room for what needs attention, then what runs,
    then what settled last. When the run has ended, nothing: the verdict repeats what needs attention.
    """
    if progress.total <= room:
        return [progress.steps[step_id] for step_id in progress.order]
    if progress.finished is not None:
        return []
    # Two rows are kept for the remarks.
    left = room - 2
    urgent = progress.urgent[-max(1, left // 3) :]
    left -= len(urgent)
    running = list(progress.running.values())[:left]
    left -= len(running)
    shown = {view.step_id for view in urgent}
    calm = [view for view in progress.recent if view.status in _CALM and view.step_id not in shown]
    return [
        *urgent,
        *_remark(len(progress.urgent) - len(urgent), "that need attention"),
        *running,
        *_remark(len(progress.running) - len(running), "running"),
        *(calm[-left:] if left > 0 else ()),
    ]


def _remark(number: int, what: str) -> list[str]:
    return [f"{describe_count(number, 'more step')} {what}"] if number > 0 else []


def _render_title(progress: RunProgress, title: str, width: int, now: datetime) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(10, width // 2))
    grid.add_column(width=max(10, width // 5))
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=max(1, progress.total), completed=progress.settled, width=max(10, width // 5))
    elapsed = _seconds_since(progress.started_at, now)
    figures = f"{progress.settled:,}/{progress.total:,}  {describe_duration(elapsed)}"
    grid.add_row(Text(title, style="bold"), bar, figures)
    return grid


def _render_status(progress: RunProgress, width: int, now: datetime, stop_level: int) -> Text:
    counts = {status.value: number for status, number in progress.counts.items()}
    line = Text(describe_counts(counts) or "planning")
    if progress.finished is not None:
        pass
    elif stop_level == 1:
        line.append("  stopping: running steps finish (Ctrl-C again cancels them)", style="yellow")
    elif stop_level > 1:
        line.append("  cancelling (Ctrl-C again leaves at once)", style="yellow")
    else:
        line.append(_describe_pace(progress, now), style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _describe_pace(progress: RunProgress, now: datetime) -> str:
    """Return steps a second, and how long the others take at that pace; nothing while that is a guess.

    Blocked and skipped steps took no time, and say nothing of it.
    """
    elapsed = _seconds_since(progress.started_at, now)
    ran = sum(progress.counts[status] for status in _RAN)
    to_come = progress.total - progress.settled
    if elapsed < _LEAST_SECONDS or ran < _LEAST_RAN or not to_come:
        return ""
    rate = ran / elapsed
    pace = f"{rate:,.{rate < 10:d}f} steps/s" if rate >= 0.1 else f"{rate * 60:,.1f} steps/min"
    return f"  {pace}, {describe_duration(to_come / rate)} left"


def _render_rows(rows: Sequence[StepView | str], width: int, now: datetime) -> Table:
    longest = max((len(row.step_id) for row in rows if isinstance(row, StepView)), default=4)
    step_width = max(4, min(longest, width * 3 // 8))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(width=_STATUS_WIDTH, no_wrap=True)
    table.add_column(width=step_width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=_TIME_WIDTH, no_wrap=True, justify="right")
    # Fixed, for otherwise a long remark would squeeze the other columns.
    table.add_column(
        width=max(4, width - _STATUS_WIDTH - step_width - _TIME_WIDTH - 6), no_wrap=True, overflow="ellipsis"
    )
    for row in rows:
        if isinstance(row, str):
            table.add_row("", Text("…", style="dim"), "", Text(row, style="dim"))
        else:
            taken, words = _time_taken(row, now), Text(_describe(row), style="dim")
            table.add_row(status_text(row.status.value), Text(safe(row.step_id)), taken, words)
    return table


def _time_taken(view: StepView, now: datetime) -> str:
    if view.status is StepStatus.RUNNING:
        return describe_duration(_seconds_since(view.started_at, now))
    return "" if view.finished is None else describe_duration(view.finished.duration_ms / 1000)


def _describe(view: StepView) -> str:
    if view.status is StepStatus.RUNNING:
        words = [] if view.fraction is None else [f"{view.fraction:.0%}"]
        if view.attempt > 1:
            words.append(f"attempt {view.attempt}")
        if view.detail:
            words.append(safe(view.detail))
        return "  ".join(words)
    if view.finished is not None:
        return describe_outcome(view.finished)
    return shorten(safe(view.detail or ""), 200)


def _seconds_since(time: str | None, now: datetime) -> float:
    return 0.0 if time is None else max(0.0, (now - datetime.fromisoformat(time)).total_seconds())
