"""The validated graph of a pipeline: serial order, dependencies, and file order.

Serial order is registration order. File order says who waits for whom because of a file: a step that
touches a file waits until every earlier *writer* of it has settled. Waiting is not a dependency and
never blocks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from astro_async._core.names import StepId, check_distinct, check_name
from astro_async.exceptions import PipelineError

__all__ = ["Graph", "StepNode"]


# No garbage collection: nodes hold text and numbers only, and there may be 100,000 of them.
class StepNode(msgspec.Struct, frozen=True, gc=False):
    """What scheduling and recovery need to know of one step.

    Attributes:
        step_id: Unique in the pipeline.
        files: All files that it touches.
        writes: Those of them that it has read-write, whether or not it will save them.
        depends_on: Ids of earlier steps.
        continues: `on_quarantine="continue"`: its dependents run on the good rows.
        limits: Named limits of which it takes one unit each while it runs.
        skipped: None of its files was delivered, all being optional.
        queue: Where it may wait for a slot after it was started (see `Scheduler.look_ahead`): `threads`,
            `loop`, or nowhere.
    """

    step_id: StepId
    files: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    depends_on: tuple[StepId, ...] = ()
    continues: bool = False
    limits: tuple[str, ...] = ()
    skipped: bool = False
    queue: Literal["threads", "loop"] | None = None


@dataclass(slots=True)
class Graph:
    """Steps in serial order, with the edges that scheduling walks.

    Attributes:
        nodes: Steps in serial order; a step's position is its index here.
        position: From step id to position.
        dependents: For each position that has any, the positions that depend on it.
        writers: For each file, the positions of its writers, ascending.
        ranks: For each position, per file the number of writers before it: the step reads the file as
            the first `rank` writers leave it.
    """

    nodes: Sequence[StepNode]
    position: dict[str, int] = field(init=False)
    dependents: dict[int, list[int]] = field(init=False)
    writers: dict[str, list[int]] = field(init=False)
    ranks: list[tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        """Check the ids and the edges, and index them.

        Raises:
            PipelineError: A dependency is unknown, later or the step itself; ids collide.
        """
        for node in self.nodes:
            check_name(node.step_id, what="step_id")
        check_distinct([node.step_id for node in self.nodes], what="step_id")
        self.position = {node.step_id: i for i, node in enumerate(self.nodes)}
        self.dependents = {}
        writers: dict[str, list[int]] = {}
        self.writers = writers
        self.ranks = []
        # Most steps of a large graph have the same.
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        for i, node in enumerate(self.nodes):
            if node.depends_on:
                for earlier in self._dependencies(i, node):
                    self.dependents.setdefault(earlier, []).append(i)
            ranks = tuple([len(writers[name]) if name in writers else 0 for name in node.files])
            self.ranks.append(known.setdefault(ranks, ranks))
            for name in node.writes:
                writers.setdefault(name, []).append(i)

    def suggest(self, name: str) -> str:
        """Return, for an id that no step has, what may be meant, in words to append to a message."""
        near = difflib.get_close_matches(name, self.position, n=3)
        return f": did you mean {', '.join(map(repr, near))}?" if near else ""

    def _dependencies(self, i: int, node: StepNode) -> Iterable[int]:
        for name in dict.fromkeys(node.depends_on):
            earlier = self.position.get(name)
            if earlier is None:
                raise PipelineError(
                    f"step {node.step_id!r} depends on {name!r}, which is not a step{self.suggest(name)}"
                )
            if earlier == i:
                raise PipelineError(f"step {node.step_id!r} depends on itself")
            if earlier > i:
                raise PipelineError(
                    f"step {node.step_id!r} depends on {name!r}, which is registered after it: "
                    "depends_on names earlier steps only, so move it up"
                )
            yield earlier
