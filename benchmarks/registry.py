"""The systems that are compared: how each is installed, and which shapes it is put through.

A new peer is a module in `benchmarks/peers/` and an entry here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["BASELINE", "OURS", "PEERS", "QUICK_PEERS", "ROOT", "Peer"]

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Peer:
    """One system.

    Attributes:
        name: What `--peer` takes.
        text: For readers of the report.
        module: Run with `python -m`.
        is_durable: Whether a run survives the death of its process.
        requirements: What pip installs in its environment; a leading `-e` may name the repository.
        max_runs: By shape, how many runs are bearable; shapes not named here are left out. None: all
            shapes, as often as asked.
    """

    name: str
    text: str
    module: str
    is_durable: bool
    requirements: tuple[str, ...] = ()
    max_runs: Mapping[str, int] | None = None

    def runs_of(self, shape: str, runs: int) -> int:
        """Return how often the system runs a shape if `runs` are asked for."""
        return runs if self.max_runs is None else min(runs, self.max_runs.get(shape, 0))


def _by_name(*peers: Peer) -> dict[str, Peer]:
    return {peer.name: peer for peer in peers}


OURS: Final = "astro-async"
BASELINE: Final = "dask"

PEERS: Final = _by_name(
    Peer(OURS, "astro_async", "benchmarks.peers.ours", True, ("-e", ROOT)),
    Peer(BASELINE, "dask.threaded", "benchmarks.peers.dask_threaded", False, ("dask==2026.8.0",)),
    Peer("floor", "graphlib + thread pool", "benchmarks.peers.floor", False),
    Peer(
        "astro-pipeline",
        "astro-pipeline",
        "benchmarks.peers.astro_pipeline",
        True,
        ("astro-pipeline==1.1.0", "polars==2.1.0"),
        # Its time per step grows with the number of steps: a thousand take minutes.
        {"fan-out-300": 3, "fan-out-1000": 1},
    ),
)

QUICK_PEERS: Final = (OURS, "floor")
