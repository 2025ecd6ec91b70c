"""Graphs of steps, as plain numbers: the same for every system.

Nothing here knows how a system runs them. Only the standard library is imported, for this module is also
loaded in the environments of the peers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "FILES",
    "QUICK_SHAPES",
    "SHAPES",
    "Edges",
    "Shape",
    "Work",
    "bipartite",
    "chain",
    "fan_out",
    "layered",
    "sinks_of",
    "suppliers",
]

Edges = list[tuple[int, ...]]
"""For each step, in serial order, the positions of the earlier steps that it depends on."""

Work = Literal["nothing", "async", "publish", "quarantine", "suppliers"]
"""What a step does: nothing, nothing on the event loop, a small version of a file, one quarantined row, or
its part in the work of the suppliers."""

FILES: Final = 100
"""So many files share the steps that publish or quarantine: writers of one file take turns."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One graph.

    Attributes:
        name: What `--shape` takes.
        text: For readers of the report.
        steps: How many steps the graph has.
        edges: Builds it.
        work: What its steps do.
        calls: How many steps call the task's no-op; the others are ready-made checks and filters.
    """

    name: str
    text: str
    steps: int
    edges: Callable[[], Edges]
    work: Work = "nothing"
    calls: int | None = None

    @property
    def expected_calls(self) -> int:
        """How often the no-op is called if every step runs once."""
        return self.steps if self.calls is None else self.calls


def fan_out(count: int) -> Edges:
    """Return `count` steps that depend on nothing."""
    return [()] * count


def chain(count: int) -> Edges:
    """Return `count` steps, each of which depends on the one before."""
    return [(i - 1,) if i else () for i in range(count)]


def layered(layers: int, width: int) -> Edges:
    """Return layers of steps; each step depends on two of the layer before: its own column and the next."""
    edges: Edges = [()] * width
    for layer in range(1, layers):
        above = (layer - 1) * width
        edges.extend((above + column, above + (column + 1) % width) for column in range(width))
    return edges


def bipartite(width: int) -> Edges:
    """Return `width` steps, and as many behind each of those: `width` squared edges."""
    return [()] * width + [tuple(range(width))] * width


def suppliers(count: int) -> Edges:
    """Return a check, a filter and a writing step for each of `count` files, and one step behind them all."""
    edges: Edges = []
    for _ in range(count):
        edges.extend([(), (len(edges),), (len(edges) + 1,)])
    return [*edges, tuple(range(2, 3 * count, 3))]


def sinks_of(edges: Edges) -> list[int]:
    """Return the positions of the steps that nothing depends on, ascending."""
    needed = {earlier for each in edges for earlier in each}
    return [position for position in range(len(edges)) if position not in needed]


def _fan_out_shape(count: int) -> Shape:
    return Shape(f"fan-out-{count}", f"{count:,} independent steps", count, functools.partial(fan_out, count))


def _chain_shape(count: int) -> Shape:
    return Shape(
        f"chain-{count}",
        f"{count:,} steps, each behind the one before",
        count,
        functools.partial(chain, count),
    )


def _layered_shape(layers: int, width: int) -> Shape:
    return Shape(
        f"layered-{layers}x{width}",
        f"{layers} layers of {width} steps, each behind two of the layer before",
        layers * width,
        functools.partial(layered, layers, width),
    )


def _bipartite_shape(width: int) -> Shape:
    return Shape(
        f"bipartite-{width}x{width}",
        f"{width} steps, and {width} steps behind each of them",
        2 * width,
        functools.partial(bipartite, width),
    )


def _working_shape(work: Work, count: int, text: str) -> Shape:
    return Shape(f"{work}-{count}", text, count, functools.partial(fan_out, count), work)


def _async_shape(count: int) -> Shape:
    return _working_shape(
        "async", count, f"{count:,} independent steps, each an `async def` that awaits nothing"
    )


def _publish_shape(count: int) -> Shape:
    return _working_shape(
        "publish", count, f"{count:,} steps, each of which publishes a version of three rows"
    )


def _quarantine_shape(count: int) -> Shape:
    return _working_shape("quarantine", count, f"{count:,} steps, each of which quarantines one row")


def _suppliers_shape(count: int) -> Shape:
    text = f"{count} files of flights, each ingested, checked, filtered and written; one step behind them all"
    edges = functools.partial(suppliers, count)
    return Shape(f"suppliers-{count}", text, 3 * count + 1, edges, "suppliers", calls=count + 1)


def _by_name(*shapes: Shape) -> dict[str, Shape]:
    return {shape.name: shape for shape in shapes}


SHAPES: Final = _by_name(
    _fan_out_shape(300),
    _fan_out_shape(1_000),
    _fan_out_shape(10_000),
    _fan_out_shape(100_000),
    _chain_shape(1_000),
    _layered_shape(100, 100),
    _bipartite_shape(100),
    _async_shape(10_000),
    _publish_shape(10_000),
    _quarantine_shape(10_000),
    _suppliers_shape(365),
)

# Too small to say anything about speed.
QUICK_SHAPES: Final = _by_name(
    _fan_out_shape(50),
    _chain_shape(20),
    _layered_shape(5, 5),
    _bipartite_shape(5),
    _async_shape(20),
    _publish_shape(20),
    _quarantine_shape(20),
    _suppliers_shape(5),
)
