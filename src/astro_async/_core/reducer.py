"""Scheduling: why a step starts, waits, is blocked or is never reached.

`Scheduler.reduce` takes a fact and returns requests; it does work in proportion to the edges of the step
that the fact is about. `Scheduler.take_starts` hands out what may start now. Neither acts, waits or looks
at a clock: the executor performs the requests and reports back with facts.

A step may start when

* its dependencies are satisfied (`complete`, `skipped`, or `quarantined` with `on_quarantine="continue"`),
* for each of its files, all earlier writers have settled,
* it lies before the stop point: the earliest step, in serial order, that failed or was blocked,
* a slot and its named limits are free. All or none of them are taken.

Among the steps that may start, the earliest in serial order goes first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from astro_async._core.commands import BlockStep, Command, SkipStep, StartStep
from astro_async._core.events import (
    AnyEvent,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepStarted,
)
from astro_async._core.graph import Graph, StepNode
from astro_async._core.lineage import VersionTable
from astro_async._core.records import RunRecord, StepRecord, fold
from astro_async._core.status import SETTLED, StepStatus, is_satisfied
from astro_async.exceptions import PipelineError

__all__ = ["Scheduler"]

_STOPS = frozenset({StepStatus.FAILED, StepStatus.BLOCKED})
_ENDS = (StepFinished, StepRetrying, StepInterrupted)
_NOTHING: Final[Sequence[Command]] = ()


class Scheduler:
    """The scheduling state of one invocation.

    Attributes:
        run: The record of the run; every event that `reduce` takes is folded into it.
        graph: The pipeline.
        stop: The stop point, a position; the number of steps if nothing stopped.
    """

    def __init__(
        self,
        graph: Graph,
        run: RunRecord,
        *,
        jobs: int,
        keep_going: bool = False,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """Set the counters from the records, after the plan was folded into them.

        Raises:
            PipelineError: A step names a limit that has no size.
        """
        self.graph = graph
        self.run = run
        self.stop = len(graph.nodes)
        self._keep_going = keep_going
        self._halted = False
        self._free_slots = jobs
        self._look_ahead = 0
        self._free_limits = dict(limits or {})
        self._table = VersionTable(run)
        self._ready: list[int] = []
        self._due: list[int] = []
        self._starved: dict[str, list[int]] = {}
        self._holding: set[int] = set()
        self._held_of: dict[str | None, int] = {None: 0, "threads": 0, "loop": 0}
        self._doomed: set[int] = set()
        self._backing_off: set[int] = set()
        # For each file, how many of its writers have settled without a gap, and who waits for how many.
        self._frontier = dict.fromkeys(graph.writers, 0)
        self._waiting_for: dict[tuple[str, int], list[int]] = {}
        self._missing = [0] * len(graph.nodes)
        self._count_missing()

    # -- what the executor asks ----------------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Whether nothing more is to start."""
        return self._halted

    @property
    def backing_off(self) -> frozenset[int]:
        """Positions of the steps that wait for their next attempt."""
        return frozenset(self._backing_off)

    def record(self, position: int) -> StepRecord:
        """Return the record of the step at a position."""
        return self.run.steps[self.graph.nodes[position].step_id]

    def look_ahead(self, steps: int) -> None:
        """Let this many steps be started beyond the slots, all of one queue, while nothing else runs.

        Who serves the queue runs no more of them at once than there are slots, and need not wait for the
        coordinator between two short steps. Who raises this takes them back (`step_interrupted`) when the
        run stops.
        """
        self._look_ahead = steps

    def halt(self) -> None:
        """Start nothing more, whatever becomes ready."""
        self._halted = True

    def requeue(self, position: int) -> None:
        """Let a step whose back-off has passed start again, as soon as a slot is free."""
        if position in self._backing_off and not self._halted:
            heapq.heappush(self._due, position)

    def release(self, position: int) -> None:
        """Give back the slot and the limits of a step, if it holds them."""
        if position not in self._holding:
            return
        self._holding.discard(position)
        self._free_slots += 1
        node = self.graph.nodes[position]
        self._held_of[node.queue] -= 1
        for name in node.limits:
            self._free_limits[name] += 1
            self._feed(name)

    def take_starts(self) -> list[Command]:
        """Return what may start now, taking a slot and the limits for each; skips take none."""
        starts: list[Command] = []
        nodes, ranks, steps = self.graph.nodes, self.graph.ranks, self.run.steps
        files: tuple[str, ...] = ()
        rank: tuple[int, ...] = ()
        inputs: tuple[str | None, ...] = ()
        while self._free_slots + self._look_ahead > 0 and not self._halted:
            position = self._pop_startable()
            if position is None:
                break
            node = nodes[position]
            if node.skipped:
                starts.append(SkipStep(node.step_id, f"not delivered: {', '.join(node.files)}"))
                # The skip must be folded before anything behind it is looked at.
                break
            self._free_slots -= 1
            self._holding.add(position)
            self._held_of[node.queue] += 1
            for name in node.limits:
                self._free_limits[name] -= 1
            if node.files is not files or ranks[position] is not rank:
                # Mostly as the step before: steps that read the same share what says so.
                files, rank = node.files, ranks[position]
                inputs = self._table.versions(files, rank)
            starts.append(StartStep(position, steps[node.step_id].attempt + 1, inputs))
        return starts

    def reduce(self, event: AnyEvent, *, keeps_slot: bool = False) -> Sequence[Command]:
        """Fold a fact and return what follows from it.

        Args:
            event: A fact about this run.
            keeps_slot: The step's thread is still busy: its slot is not free until `release`.

        Raises:
            IllegalTransitionError: The fact cannot follow; nothing has changed.
        """
        status = fold(self.run, event)
        kind = type(event)
        if kind is StepStarted and not self._backing_off:
            return _NOTHING
        position = self.graph.position.get(event.step_id or "")
        if position is None:
            return _NOTHING
        if kind is StepRetrying:
            self._backing_off.add(position)
        elif self._backing_off:
            self._backing_off.discard(position)
        if kind in _ENDS and not keeps_slot:
            self.release(position)
        return self._settle(position, status) if status in SETTLED else _NOTHING

    # -- what it keeps -------------------------------------------------------------------------

    def _count_missing(self) -> None:
        nodes, steps, missing = self.graph.nodes, self.run.steps, self._missing
        settled = [steps[node.step_id].status in SETTLED for node in nodes]
        ready: list[int] = []
        for name, writers in self.graph.writers.items():
            for position in itertools.takewhile(settled.__getitem__, writers):
                self._advance(name, position)
        for i, targets in self.graph.dependents.items():
            if not settled[i]:
                for dependent in targets:
                    missing[dependent] += 1
        for i, node in enumerate(nodes):
            if not settled[i]:
                self._check_limits(node)
                if any(self.graph.ranks[i]):
                    self._count_writers(i, node)
                if not missing[i]:
                    ready.append(i)
        self._later = iter(ready)
        self._draw()

    def _check_limits(self, node: StepNode) -> None:
        for name in node.limits:
            if name not in self._free_limits:
                raise PipelineError(f"step {node.step_id!r} needs limit {name!r}, which has no size")

    def _count_writers(self, position: int, node: StepNode) -> None:
        for name, rank in zip(node.files, self.graph.ranks[position], strict=True):
            if rank > self._frontier.get(name, 0):
                self._missing[position] += 1
                self._waiting_for.setdefault((name, rank), []).append(position)

    def _pop_startable(self) -> int | None:
        while self._due or (self._ready and self._ready[0] < self.stop):
            # A step in its second attempt is running already: the stop point does not concern it.
            heap = self._due if self._due else self._ready
            node = self.graph.nodes[heap[0]]
            if self._free_slots <= 0 and not self._may_queue(node):
                return None
            position = heapq.heappop(heap)
            if position == self._drawn:
                self._draw()
            if not node.limits:
                return position
            full = next((name for name in node.limits if not self._free_limits[name]), None)
            if full is None:
                return position
            heapq.heappush(self._starved.setdefault(full, []), position)
            for name in node.limits:
                if self._free_limits[name]:
                    # This one cannot use it; another may.
                    self._feed(name)
        return None

    def _draw(self) -> None:
        """Let the next of the steps be looked at that are ready from the start: so the heap stays small."""
        self._drawn = next(self._later, -1)
        if self._drawn >= 0:
            heapq.heappush(self._ready, self._drawn)

    def _may_queue(self, node: StepNode) -> bool:
        return node.queue is not None and self._held_of[node.queue] == len(self._holding)

    def _feed(self, limit: str) -> None:
        """Let the earliest step that waits for a unit of a limit be looked at again."""
        starved = self._starved.get(limit)
        if starved:
            position = heapq.heappop(starved)
            # What waits for its next attempt is due, whatever the stop point.
            heap = self._due if position in self._backing_off else self._ready
            heapq.heappush(heap, position)

    def _settle(self, position: int, status: StepStatus) -> Sequence[Command]:
        node = self.graph.nodes[position]
        commands = _NOTHING
        if dependents := self.graph.dependents.get(position):
            if is_satisfied(status, continues=node.continues):
                for dependent in dependents:
                    self._one_less(dependent)
            else:
                commands = self._block(dependents, f"blocked by {node.step_id}, which is {status}")
        if status in _STOPS and not self._keep_going:
            self.stop = min(self.stop, position)
        for name in node.writes:
            self._close_gap(name)
        return commands

    def _block(self, dependents: Sequence[int], detail: str) -> Sequence[Command]:
        commands = []
        for dependent in dependents:
            # Several of its dependencies may end badly; it is blocked by the first.
            if dependent not in self._doomed and self.record(dependent).status is StepStatus.PENDING:
                self._doomed.add(dependent)
                commands.append(BlockStep(self.graph.nodes[dependent].step_id, detail))
        return commands

    def _close_gap(self, name: str) -> None:
        writers = self.graph.writers[name]
        while self._frontier[name] < len(writers):
            position = writers[self._frontier[name]]
            if self.record(position).status not in SETTLED:
                return
            self._advance(name, position)
            for waiting in self._waiting_for.pop((name, self._frontier[name]), ()):
                self._one_less(waiting)

    def _advance(self, name: str, position: int) -> None:
        self._frontier[name] += 1
        self._table.advance(name, self.record(position).published_versions().get(name))

    def _one_less(self, position: int) -> None:
        self._missing[position] -= 1
        if not self._missing[position] and self.record(position).status is StepStatus.PENDING:
            heapq.heappush(self._ready, position)
