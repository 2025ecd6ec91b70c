"""The drawings of `astro report`: where each bar, box and line goes. Pure; the template writes the SVG.

What is too much for a page is drawn together: attempts that are narrower than can be seen, the steps of a
stage where there are many steps. A drawing says what it has left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from astro_async._core.flow import Flow, FlowStep
from astro_async._core.timeline import Attempt, Invocation
from astro_async.cli.wording import describe_count, describe_counts, describe_duration, safe, shorten

__all__ = ["Bar", "Box", "Graph", "Link", "Timeline", "draw_graph", "draw_timeline"]

TIMELINE_WIDTH: Final = 1080
LANE_HEIGHT: Final = 18
_MOST_LANES: Final = 40
_MOST_BARS: Final = 3000
_TICKS: Final = 6

BOX_WIDTH: Final = 170
BOX_HEIGHT: Final = 40
_GAP_X: Final = 50
_GAP_Y: Final = 14
_MARGIN: Final = 12
_MOST_BOXES: Final = 150
_MOST_STAGES: Final = 60
_MOST_LINKS: Final = 1500
_LABEL_WIDTH: Final = 25

# What a bar of several attempts is coloured by: the first of these that one of them ended as.
_WORST: Final = ("failed", "died", "quarantined", "interrupted", "retrying", "running", "complete")


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt, or several that are too short to be told apart."""

    x: float
    y: int
    width: float
    outcome: str
    title: str
    label: str
    is_critical: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """One invocation: its bars, the times below them, and what is left out."""

    bars: Sequence[Bar]
    ticks: Sequence[tuple[float, str]]
    height: int
    lanes: int
    lanes_left_out: int
    merged: int


def draw_timeline(invocation: Invocation, critical: Sequence[Attempt]) -> Timeline:
    """Return the drawing of one invocation.

    Args:
        invocation: What ran when.
        critical: The attempts that its end waited for.
    """
    lanes = max((attempt.lane for attempt in invocation.attempts), default=0)
    shown = min(lanes, _MOST_LANES)
    span = max(1, invocation.end_us - invocation.start_us)
    attempts = [attempt for attempt in invocation.attempts if attempt.lane <= shown]
    # No lane has more bars than cells, except for attempts that are longer than a cell.
    cell = span / TIMELINE_WIDTH if len(attempts) <= _MOST_BARS else span * max(1, shown) / _MOST_BARS * 2
    is_merging = len(attempts) > _MOST_BARS
    on_path = {id(attempt) for attempt in critical}
    groups: dict[tuple[int, int], list[Attempt]] = {}
    for number, attempt in enumerate(attempts):
        is_short = is_merging and attempt.end_us - attempt.start_us < cell
        # Negative: a group of its own.
        place = int((attempt.start_us - invocation.start_us) / cell) if is_short else -1 - number
        groups.setdefault((attempt.lane, place), []).append(attempt)
    scale = TIMELINE_WIDTH / span
    bars = [
        _make_bar(group, invocation.start_us, scale, any(id(each) in on_path for each in group))
        for group in groups.values()
    ]
    return Timeline(
        bars=bars,
        ticks=[
            (round(TIMELINE_WIDTH * i / _TICKS, 1), describe_duration(span * i / _TICKS / 1e6))
            for i in range(_TICKS + 1)
        ],
        height=max(1, shown) * LANE_HEIGHT,
        lanes=lanes,
        lanes_left_out=lanes - shown,
        merged=sum(len(group) for group in groups.values() if len(group) > 1),
    )


def _make_bar(group: Sequence[Attempt], origin_us: int, scale: float, is_critical: bool) -> Bar:
    first = group[0]
    end_us = max(attempt.end_us for attempt in group)
    # Half a pixel is seen still.
    width = max(0.5, (end_us - first.start_us) * scale)
    begins = describe_duration((first.start_us - origin_us) / 1e6)
    if len(group) == 1:
        again = f", attempt {first.number}" if first.number > 1 else ""
        name = safe(first.step_id)
        taken = describe_duration((first.end_us - first.start_us) / 1e6)
        title = f"{name}{again}: {first.outcome}, {taken}, from {begins}"
        parked = sum(flow.rows_quarantined for flow in first.files if flow.parts)
        title += f", {describe_count(parked, 'row')} parked" if parked else ""
        label = shorten(name, int(width / 6.5)) if width > 40 else ""
    else:
        outcomes = Counter(attempt.outcome for attempt in group)
        told = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.most_common())
        title, label = f"{len(group):,} short attempts: {told}, from {begins}", ""
    outcomes_seen = {attempt.outcome for attempt in group}
    outcome = next((each for each in _WORST if each in outcomes_seen), first.outcome)
    x = round((first.start_us - origin_us) * scale, 1)
    return Bar(x, (first.lane - 1) * LANE_HEIGHT, round(width, 1), outcome, title, label, is_critical)


@dataclass(frozen=True, slots=True)
class Box:
    """One step, or the steps of a stage; `shares` is the width of each status in it."""

    x: int
    y: int
    label: str
    note: str
    title: str
    shares: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class Link:
    """A line from the right of one box to the left of another."""

    path: str
    is_dependency: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The boxes and what leads to what; `stages` tells that a box stands for many steps."""

    boxes: Sequence[Box]
    links: Sequence[Link]
    width: int
    height: int
    stages: int
    is_by_stage: bool
    links_left_out: int


def draw_graph(flow: Flow) -> Graph:
    """Return the drawing of a pipeline: stages from left to right; of very many steps only the stages."""
    stages: dict[int, list[FlowStep]] = {}
    for step in flow.steps:
        stages.setdefault(step.stage, []).append(step)
    return _draw_stages(stages) if len(flow.steps) > _MOST_BOXES else _draw_steps(flow, stages)


def _draw_steps(flow: Flow, stages: dict[int, list[FlowStep]]) -> Graph:
    """Return a box for each step; lines that pass a stage have a lane of their own there, behind no box."""
    stage_of = {step.step_id: step.stage for step in flow.steps}
    before = {
        step.step_id: list(dict.fromkeys([*step.depends_on, *step.follows.values()])) for step in flow.steps
    }
    last_use: dict[str, int] = {}
    for step in flow.steps:
        for each in before[step.step_id]:
            last_use[each] = max(last_use.get(each, 0), step.stage)
    # The height of a step, and of the lane of what leads on from it, by stage.
    height: dict[tuple[str, int], float] = {}
    boxes: list[Box] = []
    for stage in sorted(stages):
        members = {step.step_id: step for step in stages[stage]}
        passing = [name for name, until in last_use.items() if stage_of[name] < stage < until]
        wanted = {
            name: _mean(height[each, stage - 1] for each in before[name] if (each, stage - 1) in height)
            for name in members
        }
        wanted |= {name: height[name, stage - 1] for name in passing}
        y = float(_MARGIN)
        for name in sorted(wanted, key=wanted.__getitem__):
            size = BOX_HEIGHT if name in members else 0
            height[name, stage] = y + size / 2
            if name in members:
                boxes.append(_make_box(members[name], _left(stage), int(y)))
            y += size + _GAP_Y
    links = [
        Link(_route(each, step, stage_of[each], height), is_dependency=each in step.depends_on)
        for step in flow.steps
        for each in before[step.step_id]
    ]
    return _make_graph(boxes, links, stages=len(stages), is_by_stage=False)


def _mean(heights: Iterable[float]) -> float:
    known = list(heights)
    return sum(known) / len(known) if known else 0.0


def _left(stage: int) -> int:
    return _MARGIN + (stage - 1) * (BOX_WIDTH + _GAP_X)


def _make_box(step: FlowStep, x: int, y: int) -> Box:
    status = "pending" if step.status is None else step.status.value
    rows = f", {describe_count(step.rows_quarantined, 'row')}" if step.rows_quarantined else ""
    name = safe(step.step_id)
    shares = [(status, 0.0, float(BOX_WIDTH))]
    return Box(x, y, shorten(name, _LABEL_WIDTH), f"{status}{rows}", f"{name}: {status}{rows}", shares)


def _route(begin: str, end: FlowStep, stage: int, height: dict[tuple[str, int], float]) -> str:
    """Return the path of a line: curves between stages, straight where it passes one."""
    path = f"M{_left(stage) + BOX_WIDTH} {height[begin, stage]:g}"
    for number in range(stage + 1, end.stage + 1):
        is_end = number == end.stage
        y0, y1 = height[begin, number - 1], height[end.step_id if is_end else begin, number]
        x0, x1 = _left(number) - _GAP_X, _left(number)
        path += f"C{x0 + _GAP_X // 2} {y0:g} {x1 - _GAP_X // 2} {y1:g} {x1} {y1:g}"
        path += "" if is_end else f"h{BOX_WIDTH}"
    return path


def _draw_stages(stages: dict[int, list[FlowStep]]) -> Graph:
    numbers = sorted(stages)
    each = -(-len(numbers) // _MOST_STAGES)
    boxes: list[Box] = []
    for begin in range(0, len(numbers), each):
        span = numbers[begin : begin + each]
        steps = [step for number in span for step in stages[number]]
        counts = Counter("pending" if step.status is None else step.status.value for step in steps)
        shares, at = [], 0.0
        for status, number in counts.most_common():
            width = BOX_WIDTH * number / len(steps)
            shares.append((status, round(at, 1), round(width, 1)))
            at += width
        label = f"stage {span[0]:,}" if len(span) == 1 else f"stages {span[0]:,} to {span[-1]:,}"
        title = f"{label}: {describe_counts(counts)}"
        x = _MARGIN + len(boxes) % 5 * (BOX_WIDTH + _GAP_X)
        y = _MARGIN + len(boxes) // 5 * (BOX_HEIGHT + _GAP_Y)
        boxes.append(Box(x, y, label, describe_count(len(steps), "step"), title, shares))
    return _make_graph(boxes, [], stages=len(stages), is_by_stage=True)


def _make_graph(boxes: Sequence[Box], links: Sequence[Link], *, stages: int, is_by_stage: bool) -> Graph:
    return Graph(
        boxes=boxes,
        links=links[:_MOST_LINKS],
        width=max((box.x for box in boxes), default=0) + BOX_WIDTH + _MARGIN,
        height=max((box.y for box in boxes), default=0) + BOX_HEIGHT + _MARGIN,
        stages=stages,
        is_by_stage=is_by_stage,
        links_left_out=max(0, len(links) - _MOST_LINKS),
    )
