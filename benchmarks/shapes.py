"""Graphs of no-op steps, as plain numbers: the same for every system.

Nothing here knows how a system runs them. Only the standard library is imported, for this module is also
loaded in the environments of the peers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["QUICK_SHAPES", "SHAPES", "Edges", "Shape", "chain", "fan_out", "layered", "sinks_of"]

Edges = list[tuple[int, ...]]
"""For each step, in serial order, the positions of the earlier steps that it depends on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One graph.

    Attributes:
        name: What `--shape` takes.
        text: For readers of the report.
        steps: How many steps the graph has.
        edges: Builds it.
    """

    name: str
    text: str
    steps: int
    edges: Callable[[], Edges]


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


def _by_name(*shapes: Shape) -> dict[str, Shape]:
    return {shape.name: shape for shape in shapes}


SHAPES: Final = _by_name(
    _fan_out_shape(10_000),
    _chain_shape(1_000),
    _layered_shape(100, 100),
    _fan_out_shape(300),
    _fan_out_shape(1_000),
)

# Too small to say anything about speed.
QUICK_SHAPES: Final = _by_name(_fan_out_shape(50), _chain_shape(20), _layered_shape(5, 5))
