"""Draws the status diagrams of the architecture page from the tables in `_core/status.py`.

`python docs/status_diagrams.py` writes them anew; a test fails when they are not what the tables say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from astro_async._core.status import RUN_TRANSITIONS, STEP_TRANSITIONS

__all__ = ["DIAGRAMS", "render_diagram"]

Transitions = Mapping[tuple[str, str], frozenset[str]]
Point = tuple[float, float]

_BOX: Final = (112.0, 34.0)
_MANY: Final = 5

_STEP_PLACES: Final[dict[str, Point]] = {
    "skipped": (230, 50),
    "pending": (230, 160),
    "blocked": (230, 270),
    "running": (490, 160),
    "complete": (790, 50),
    "quarantined": (790, 160),
    "failed": (790, 270),
}
_RUN_PLACES: Final[dict[str, Point]] = {
    "created": (80, 160),
    "ingested": (300, 160),
    "running": (520, 160),
    "quarantined": (790, 40),
    "failed": (790, 120),
    "completed": (790, 200),
    "interrupted": (790, 280),
}


def render_diagram(transitions: Transitions, places: Mapping[str, Point], title: str) -> str:
    """Return an SVG of boxes for the statuses and an arrow for each event that leads from one to another.

    An event that may come in five statuses or more is one arrow out of nowhere.

    Raises:
        KeyError: A status has no place yet.
    """
    labels: dict[tuple[str | None, str], list[str]] = {}
    for (kind, target), sources in transitions.items():
        if len(sources) >= _MANY:
            others = ", ".join(sorted(set(map(str, places)) - set(map(str, sources))))
            words = [kind, f"from any status{f' but {others}' if others else ''}"]
            labels.setdefault((None, str(target)), []).extend(words)
        else:
            for source in sorted(sources):
                labels.setdefault((str(source), str(target)), []).append(kind)
    body = [*_arrows(labels, places), *(_box(name, place) for name, place in places.items())]
    return "\n".join([*_head(title), *body, "</svg>", ""])


def _head(title: str) -> Iterator[str]:
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 320" '
    yield 'font-family="sans-serif" font-size="13">'
    yield f"<title>{title}</title>"
    yield '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
    yield '<path d="M0,0 L9,4 L0,8 z" fill="#555"/></marker></defs>'
    yield '<rect width="880" height="320" fill="#fff"/>'


def _box(name: str, place: Point) -> str:
    x, y = place[0] - _BOX[0] / 2, place[1] - _BOX[1] / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX[0]:g}" height="{_BOX[1]:g}" rx="6" fill="#eef3fb" '
        f'stroke="#356"/>'
        f'<text x="{place[0]:g}" y="{place[1] + 5:g}" text-anchor="middle" font-weight="bold">{name}</text>'
    )


def _arrows(labels: Mapping[tuple[str | None, str], list[str]], places: Mapping[str, Point]) -> Iterator[str]:
    for (source, target), kinds in labels.items():
        x, y = places[target]
        if source is None:
            left = x - _BOX[0] / 2
            yield _line((left - 106, y), (left, y), kinds, anchor=(left - 60, y - 18 - 15 * len(kinds)))
        elif source == target:
            top = y + _BOX[1] / 2
            path = f"M{x - 24:g},{top:g} C{x - 50:g},{top + 56:g} {x + 50:g},{top + 56:g} {x + 24:g},{top:g}"
            yield f'<path d="{path}" fill="none" stroke="#555" marker-end="url(#tip)"/>'
            yield _words(kinds, (x, top + 60))
        else:
            shift = 20.0 if (target, source) in labels else 0.0
            start, end = _between(places[source], places[target], shift)
            yield _line(start, end, kinds)


def _between(source: Point, target: Point, shift: float) -> tuple[Point, Point]:
    """Return the ends of an arrow from the edge of one box to that of another, moved to its left side."""
    dx, dy = target[0] - source[0], target[1] - source[1]
    length = math.hypot(dx, dy)
    scale = min(_BOX[0] / 2 / abs(dx) if dx else math.inf, _BOX[1] / 2 / abs(dy) if dy else math.inf)
    shift = min(shift, _BOX[1] / 2 - 5)
    across = (dy / length * shift, -dx / length * shift)
    start = (source[0] + dx * scale + across[0], source[1] + dy * scale + across[1])
    end = (target[0] - dx * scale + across[0], target[1] - dy * scale + across[1])
    return start, end


def _line(start: Point, end: Point, kinds: list[str], anchor: Point | None = None) -> str:
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    return (
        f'<path d="M{start[0]:g},{start[1]:g} L{end[0]:g},{end[1]:g}" stroke="#555" marker-end="url(#tip)"/>'
        + _words(kinds, middle if anchor is None else anchor)
    )


def _words(kinds: list[str], place: Point) -> str:
    drawn = []
    for number, kind in enumerate(kinds):
        where = f'x="{place[0]:g}" y="{place[1] + 4 + 15 * number:g}" text-anchor="middle"'
        # Once thick and white below, so that the arrow does not run through the words.
        drawn.append(f'<text {where} stroke="#fff" stroke-width="5">{kind}</text>')
        drawn.append(f'<text {where} fill="#222">{kind}</text>')
    return "".join(drawn)


DIAGRAMS: Final[dict[str, str]] = {
    "step_status.svg": render_diagram(STEP_TRANSITIONS, _STEP_PLACES, "What may follow what: steps"),  # type: ignore[arg-type]
    "run_status.svg": render_diagram(RUN_TRANSITIONS, _RUN_PLACES, "What may follow what: runs"),  # type: ignore[arg-type]
}


if __name__ == "__main__":
    for name, content in DIAGRAMS.items():
        Path(__file__).with_name(name).write_text(content, encoding="utf-8")
