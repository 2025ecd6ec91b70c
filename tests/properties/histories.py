"""Random pipelines, random histories, and what must come of them.

The content of a version is a value made of all that ever went into it, so equal contents mean equal work on
equal inputs. `undisturbed` computes, without any engine, what a run in which nothing ever stumbles leaves.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from astro_async._core.graph import Graph, StepNode
from astro_async._core.names import StepId

Content = tuple[object, ...]


@dataclass(frozen=True)
class RandomStep:
    """A step that always saves the same of its files."""

    number: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    saves: tuple[str, ...]
    depends_on: tuple[int, ...]
    continues: bool

    @property
    def step_id(self) -> StepId:
        return StepId(f"step-{self.number}")

    def node(self) -> StepNode:
        return StepNode(
            step_id=self.step_id,
            files=self.reads + self.writes,
            writes=self.writes,
            depends_on=tuple(StepId(f"step-{number}") for number in self.depends_on),
            continues=self.continues,
        )


@dataclass(frozen=True)
class Mood:
    """What goes wrong in one invocation."""

    quarantines: frozenset[int] = frozenset()
    fails: frozenset[int] = frozenset()


class Author:
    """Writes random pipelines, and edits them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files = [f"file{i}" for i in range(rng.randint(1, 4))]
        self._count = 0

    def pipeline(self) -> list[RandomStep]:
        steps: list[RandomStep] = []
        for _ in range(self.rng.randint(2, 8)):
            steps.append(self._step(steps))
        return steps

    def edit(self, steps: Sequence[RandomStep]) -> list[RandomStep]:
        edited = list(steps)
        if self.rng.random() < 0.25:
            place = self.rng.randint(0, len(edited))
            edited.insert(place, self._step(edited[:place]))
        if self.rng.random() < 0.25 and len(edited) > 2:
            gone = edited.pop(self.rng.randrange(len(edited))).number
            edited = [
                dataclasses.replace(step, depends_on=tuple(n for n in step.depends_on if n != gone))
                for step in edited
            ]
        if self.rng.random() < 0.25:
            place = self.rng.randrange(len(edited) - 1)
            first, second = edited[place : place + 2]
            if first.number not in second.depends_on:
                edited[place : place + 2] = [second, first]
        return edited

    def mood(self, *, fail_share: float = 0.15) -> Mood:
        numbers = range(1, self._count + 1)
        return Mood(
            frozenset(n for n in numbers if self.rng.random() < 0.3),
            frozenset(n for n in numbers if self.rng.random() < fail_share),
        )

    def _step(self, earlier: Sequence[RandomStep]) -> RandomStep:
        rng = self.rng
        self._count += 1
        touched = rng.sample(self.files, rng.randint(1, min(3, len(self.files))))
        writes = tuple(name for name in touched if rng.random() < 0.7)
        return RandomStep(
            number=self._count,
            reads=tuple(name for name in touched if name not in writes),
            writes=writes,
            saves=tuple(name for name in writes if rng.random() < 0.8),
            depends_on=tuple(step.number for step in earlier if rng.random() < 0.2),
            continues=rng.random() < 0.2,
        )


def graph_of(steps: Sequence[RandomStep]) -> Graph:
    return Graph([step.node() for step in steps])


def work(step: RandomStep, inputs: Mapping[str, object], *, quarantines: bool) -> dict[str, Content]:
    """What a step makes of its inputs."""
    given = tuple(sorted((name, str(content)) for name, content in inputs.items()))
    return {name: (step.number, quarantines, name, hash(given)) for name in step.saves}


def undisturbed(steps: Sequence[RandomStep], files: Sequence[str]) -> dict[str, Content]:
    contents: dict[str, Content] = {name: ("ingested", name) for name in files}
    for step in steps:
        inputs = {name: contents[name] for name in step.reads + step.writes}
        contents.update(work(step, inputs, quarantines=False))
    return contents
