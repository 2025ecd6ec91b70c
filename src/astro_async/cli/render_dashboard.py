"""The dashboard of a run that goes on. Pure: state, log lines, size and time in, a renderable out.

With few steps it shows all of them in serial order. With more than fit it shows what needs attention, what
runs, and what settled last, each with a count of what is left out. Below stand the last lines of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.progress_bar import ProgressBar

from astro_async._core.status import StepStatus
from astro_async.cli.picture import Picture, Piece, cut, pad
from astro_async.cli.progress import RunProgress, StepView
from astro_async.cli.render_plain import describe_outcome
from astro_async.cli.wording import (
    STATUS_STYLES,
    describe_counts,
    describe_duration,
    describe_rate,
    safe,
    shorten,
)

__all__ = ["MOST_LOG_LINES", "choose_rows", "render_dashboard"]

MOST_LOG_LINES: Final = 8

# Title, counts, pace, and the line below that the cursor needs.
_FRAME_LINES: Final = 4
_STATUS_WIDTH: Final = 11
_TIME_WIDTH: Final = 6
# Fewer steps, or less time, make no pace.
_LEAST_RAN: Final = 3
_LEAST_SECONDS: Final = 2
_RAN: Final = (StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.FAILED)
_CALM: Final = frozenset({StepStatus.COMPLETE, StepStatus.SKIPPED})
_LEVEL_STYLES: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def render_dashboard(
    progress: RunProgress,
    *,
    title: str,
    width: int,
    height: int,
    now: datetime,
    log: Sequence[str] = (),
    stop_level: int = 0,
) -> RenderableType:
    """Return the screen.

    Args:
        progress: The run.
        title: What runs, such as its id and pipeline.
        width: Columns of the terminal.
        height: Lines of the terminal; the result has fewer.
        now: The time, for what runs.
        log: The last lines of the run's log, as `astro.log` has them; as many as there is room for are shown.
        stop_level: 0, or how many signals asked the run to stop.
    """
    room = max(0, height - _FRAME_LINES)
    # The steps go first; where they do not all fit, the log has a fifth of the screen.
    log_room = room - progress.total if progress.total <= room else height // 5
    shown_log = log[-log_room:] if log_room > 0 and progress.finished is None else ()
    rows = choose_rows(progress, room - len(shown_log))
    lines = [
        _title_line(progress, title, width, now),
        *_row_lines(rows, width, now),
        *map(_log_line, shown_log),
        _counts_line(progress),
        _pace_line(progress, now, stop_level),
    ]
    return Picture([line for line in lines if line][: max(1, height - 1)])


def choose_rows(progress: RunProgress, room: int) -> list[StepView | str]:
    """Return the steps to show, and remarks on those left out, in at most `room` rows.

    All steps where they fit. Else at most a third of the room for what needs attention, what failed before
    what has rows in quarantine; then what runs, then what settled last. When the run has ended, nothing: the
    verdict repeats what needs attention.
    """
    if progress.total <= room:
        return [progress.steps[step_id] for step_id in progress.order]
    if progress.finished is not None:
        return []
    # Two rows are kept for the remarks.
    left = max(1, room - 2)
    share = max(1, left // 3)
    failed = progress.failed[-share:]
    quarantined = progress.quarantined[-(share - len(failed)) :] if len(failed) < share else []
    left -= len(failed) + len(quarantined)
    running = list(progress.running.values())[: max(0, left)]
    left -= len(running)
    calm = [view for view in progress.recent if view.status in _CALM]
    rows = [
        *failed,
        *quarantined,
        *_remark(
            {
                "failed": len(progress.failed) - len(failed),
                "quarantined": len(progress.quarantined) - len(quarantined),
            }
        ),
        *running,
        *_remark({"running": len(progress.running) - len(running)}),
        *(calm[-left:] if left > 0 else ()),
    ]
    return rows[: max(0, room)]


def _remark(numbers: dict[str, int]) -> list[str]:
    words = [f"{number:,} more {what}" for what, number in numbers.items() if number > 0]
    return [", ".join(words)] if words else []


def _title_line(progress: RunProgress, title: str, width: int, now: datetime) -> list[Piece]:
    bar_width = max(10, width // 5)
    bar = ProgressBar(total=max(1, progress.total), completed=progress.settled, width=bar_width)
    elapsed = _seconds_since(progress.started_at, now)
    figures = f"  {progress.settled:,}/{progress.total:,}  {describe_duration(elapsed)}"
    return [(cut(title, max(10, width // 2)), "bold"), ("  ", ""), bar, (figures, "")]


def _counts_line(progress: RunProgress) -> list[Piece]:
    counts = {status.value: number for status, number in progress.counts.items()}
    return [(describe_counts(counts, progress.rows_quarantined) or "planning", "")]


def _pace_line(progress: RunProgress, now: datetime, stop_level: int) -> list[Piece]:
    if progress.finished is None and stop_level == 1:
        return [("stopping: running steps finish (Ctrl-C again cancels them)", "yellow")]
    if progress.finished is None and stop_level > 1:
        return [("cancelling (Ctrl-C again leaves at once)", "yellow")]
    pace = _describe_pace(progress, now)
    return [(pace, "dim")] if pace else []


def _describe_pace(progress: RunProgress, now: datetime) -> str:
    """Return steps and rows a second, and how long the rest takes at that pace; nothing while it is a guess.

    Rows are those that settled steps were given. Blocked and skipped steps took no time, and do not count.
    """
    elapsed = _seconds_since(progress.started_at, now)
    ran = sum(progress.counts[status] for status in _RAN)
    to_come = progress.total - progress.settled
    if elapsed < _LEAST_SECONDS or not to_come or progress.finished is not None:
        return ""
    words = [describe_rate(ran / elapsed, "steps")] if ran >= _LEAST_RAN else []
    words += [describe_rate(progress.rows_in / elapsed, "rows")] if progress.rows_in else []
    words += [f"{describe_duration(to_come * elapsed / ran)} left"] if ran >= _LEAST_RAN else []
    return ", ".join(words)


def _row_lines(rows: Sequence[StepView | str], width: int, now: datetime) -> Iterator[list[Piece]]:
    longest = max((cell_len(safe(row.step_id)) for row in rows if isinstance(row, StepView)), default=4)
    step_width = max(4, min(longest, width * 3 // 8))
    for row in rows:
        if isinstance(row, str):
            yield [(" " * (_STATUS_WIDTH + 2), ""), (f"… {row}", "dim")]
            continue
        status = row.status.value
        step = pad(safe(row.step_id), step_width)
        taken = _time_taken(row, now)
        yield [
            (f"{status:<{_STATUS_WIDTH}}", STATUS_STYLES.get(status, "")),
            (f"  {step}  {taken:>{_TIME_WIDTH}}  ", ""),
            (_describe(row), "dim"),
        ]


def _log_line(line: str) -> list[Piece]:
    """Return the time of day, the level where it matters, and the text of a line of the log."""
    time, _, rest = safe(line).partition(" ")
    level, _, text = rest.partition(" ")
    pieces: list[Piece] = [(f"| {time[11:19]} ", "dim")]
    if level in _LEVEL_STYLES:
        pieces.append((f"{level.lower()} ", _LEVEL_STYLES[level]))
    return [*pieces, (text, "dim")]


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
