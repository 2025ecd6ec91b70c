"""The guard: `python -m benchmarks.guard` fails when a step costs about twice what it used to.

Ours and a floor take turns in one process, and what is compared is processor time, of all threads: other
programs on the machine make both of them slower, and hardly change the ratio. The floor is the least that
could be called durable: graphlib in one thread, and two JSON lines a step.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Final

from benchmarks.peers.ours import prepare
from benchmarks.protocol import Task, step_name
from benchmarks.shapes import Edges, chain, fan_out, layered

__all__ = ["main"]

_ROUNDS: Final = 7


@dataclass(frozen=True, slots=True)
class Guarded:
    """A graph, and the ratio to the floor that it must stay below.

    Attributes:
        name: For the report.
        edges: The graph.
        usual: What the ratio was when the bound was set.
        bound: Well above what noise does, and below twice the usual.
    """

    name: str
    edges: Edges
    usual: float
    bound: float


_GUARDED: Final = (
    Guarded("fan-out of 3,000", fan_out(3_000), 3.0, 5.4),
    Guarded("60 layers of 50", layered(60, 50), 3.0, 5.4),
    Guarded("chain of 500", chain(500), 5.9, 10.5),
)


def main() -> int:
    """Compare, and return the exit code: 1 if a ratio is above its bound."""
    is_good = True
    for guarded in _GUARDED:
        measure_ratio(guarded.edges)
        ratio = statistics.median(measure_ratio(guarded.edges) for _ in range(_ROUNDS))
        is_good &= ratio <= guarded.bound
        verdict = "ok" if ratio <= guarded.bound else "TOO SLOW"
        sys.stdout.write(
            f"{guarded.name:<18} {ratio:5.2f} times the floor (usually {guarded.usual:.1f}, "
            f"at most {guarded.bound:.1f}): {verdict}\n"
        )
    return 0 if is_good else 1


def measure_ratio(edges: Edges) -> float:
    """Return the processor time of one run by that of the floor."""
    with tempfile.TemporaryDirectory(prefix="astro-guard-") as directory:
        prepared = prepare(Task(edges, directory, lambda *_: None, "nothing"))
        gc.collect()
        started = time.process_time()
        prepared.run()
        ours_s = time.process_time() - started
        prepared.check()
        gc.collect()
        started = time.process_time()
        run_floor(edges, os.path.join(directory, "floor.jsonl"))
        return ours_s / (time.process_time() - started)


def run_floor(edges: Edges, path: str) -> None:
    """Run a graph of no-ops in one thread, with two JSON lines a step."""
    sorter = TopologicalSorter(dict(enumerate(edges)))
    sorter.prepare()
    with open(path, "w", encoding="utf-8") as file:
        while sorter.is_active():
            for position in sorter.get_ready():
                for kind in ("step_started", "step_finished"):
                    line = {"seq": position, "kind": kind, "step_id": step_name(position), "status": "ok"}
                    file.write(json.dumps(line) + "\n")
                sorter.done(position)
            file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
