"""What `astro stats` prints. Pure: numbers in, renderables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from astro_async._core.statistics import Statistic
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_count, describe_duration, describe_size, describe_time, safe

__all__ = [
    "Point",
    "Series",
    "describe_value",
    "draw_bars",
    "gather_series",
    "render_statistics",
    "render_trend",
]

_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "·"
_MOST_POINTS: Final = 60
_SCOPES: Final = ("run", "file", "step")


class Point(NamedTuple):
    """One run's number."""

    run_id: str
    ingested_at: str
    value: float


class Series(NamedTuple):
    """The numbers of one step, file or pipeline, oldest run first."""

    subject: str
    points: tuple[Point, ...]


def gather_series(found: Iterable[tuple[str, str, str, float]]) -> list[Series]:
    """Group numbers by their subject, in the order in which subjects appear."""
    grouped: dict[str, list[Point]] = {}
    for subject, run_id, ingested_at, value in found:
        grouped.setdefault(subject, []).append(Point(run_id, ingested_at, value))
    return [Series(subject, tuple(points)) for subject, points in grouped.items()]


def describe_value(action: str, value: float) -> str:
    """Return a number in the unit that the name of its action ends in."""
    if action.endswith("_ms"):
        return describe_duration(value / 1000)
    if action.endswith("_bytes"):
        return describe_size(int(value))
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def render_statistics(run_id: str, statistics: Sequence[Statistic]) -> RenderableType:
    """Return the numbers of a run: those of the run, of its files, of its steps."""
    parts: list[RenderableType] = [Text(f"run {run_id}", style="bold")]
    for scope in _SCOPES:
        chosen = [each for each in statistics if each.scope == scope]
        if not chosen:
            continue
        table = make_table(scope, "number", "value", right=["value"])
        last = None
        for each in chosen:
            subject = "" if each.subject == last else safe(each.subject)
            table.add_row(subject, safe(each.action), describe_value(each.action, each.value))
            last = each.subject
        parts += [Text(), table]
    return Group(*parts)


def render_trend(series: Sequence[Series], *, by: str, action: str, width: int) -> RenderableType:
    """Return a line for each subject: a bar for each run, and what the bars stand for.

    Bars of a line start at 0 and end at its greatest value. A run that has no number for it is a dot.
    """
    runs = list(dict.fromkeys((p.ingested_at, p.run_id) for each in series for p in each.points))
    runs.sort()
    subject_width = min(40, max(len(each.subject) for each in series))
    room = max(8, min(_MOST_POINTS, width - subject_width - 42))
    shown = [run_id for _, run_id in runs[-room:]]
    table = make_table(
        by,
        describe_count(len(shown), "run"),
        "last",
        "least",
        "mean",
        "most",
        right=["last", "least", "mean", "most"],
    )
    table.columns[1].no_wrap = True
    for each in series:
        values = {point.run_id: point.value for point in each.points}
        numbers = [point.value for point in each.points]
        table.add_row(
            safe(each.subject),
            draw_bars([values.get(run_id) for run_id in shown]),
            *(
                describe_value(action, number)
                for number in (numbers[-1], min(numbers), sum(numbers) / len(numbers), max(numbers))
            ),
        )
    span = f"{describe_time(runs[0][0])[:10]} to {describe_time(runs[-1][0])[:10]}"
    title = f"{safe(action)} by {by}, {describe_count(len(runs), 'run')} from {span}"
    return Group(Text(title, style="bold"), table)


def draw_bars(values: Sequence[float | None]) -> str:
    """Return a bar of one to eight eighths for each number, and a dot where there is none."""
    most = max((value for value in values if value is not None), default=0.0)
    top = len(_BARS) - 1
    return "".join(
        _GAP
        if value is None
        else _BARS[min(top, max(0, round(value / most * top)))]
        if most > 0
        else _BARS[0]
        for value in values
    )
