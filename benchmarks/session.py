"""One session: every system runs every shape several times, in turns, each time in a new process.

Systems alternate, so that a machine that slows down slows all of them down. Ratios compare runs of the same
round, and the median of those is told: it moves much less than the times do.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.protocol import Measurement, parse_measurement
from benchmarks.registry import ROOT, Peer
from benchmarks.shapes import Shape

__all__ = ["MeasurementFailedError", "Summary", "measure", "run_session", "summarise"]


class MeasurementFailedError(Exception):
    """A system's process ended badly, or a check of its work failed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one system on one shape.

    Attributes:
        peer: The system.
        shape: The graph.
        version: Of the system.
        runs: How many there were.
        median_s: Median time of a run, in seconds.
        min_s: The fastest.
        max_s: The slowest.
        ratio: Median, over rounds, of this system's time by the baseline's; None without a baseline.
        startup_s: Median start-up, not part of the times above.
        prepare_s: Median preparation, not part of the times above.
        peak_rss_mb: Median peak memory.
    """

    peer: Peer
    shape: Shape
    version: str
    runs: int
    median_s: float
    min_s: float
    max_s: float
    ratio: float | None
    startup_s: float
    prepare_s: float
    peak_rss_mb: float

    @property
    def us_per_step(self) -> float:
        """Median time of a run, in microseconds for each step."""
        return self.median_s / self.shape.steps * 1e6


def measure(peer: Peer, shape: Shape, interpreter: str) -> Measurement:
    """Run one shape through one system in a new process. Blocks.

    Raises:
        MeasurementFailedError: The process failed, or a step was not done.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [interpreter, "-m", peer.module, shape.name, repr(time.monotonic())],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MeasurementFailedError(f"{peer.name} on {shape.name} failed:\n{done.stderr[-4000:]}")
    return parse_measurement(done.stdout.splitlines()[-1])


def run_session(
    peers: Sequence[Peer],
    shapes: Sequence[Shape],
    *,
    runs: int,
    baseline: str,
    interpreters: Mapping[str, str],
    tell: Callable[[str], None],
) -> list[Summary]:
    """Measure all peers on all shapes, and return the summaries, by shape, then in the order of `peers`.

    Args:
        peers: The systems.
        shapes: The graphs.
        runs: Rounds; a system may take part in the first few only.
        baseline: Name of the system that ratios refer to.
        interpreters: By name of the system, the interpreter of its environment.
        tell: Called with a line about each measurement.

    Raises:
        MeasurementFailedError: One measurement failed; the session is void.
    """
    summaries: list[Summary] = []
    for shape in shapes:
        taking_part = [peer for peer in peers if peer.runs_of(shape.name, runs)]
        measured: dict[str, list[Measurement]] = {peer.name: [] for peer in taking_part}
        for number in range(runs):
            # Whoever comes first finds other caches than whoever comes last: turn the order round.
            for peer in taking_part if number % 2 == 0 else reversed(taking_part):
                if number < peer.runs_of(shape.name, runs):
                    measurement = measure(peer, shape, interpreters[peer.name])
                    measured[peer.name].append(measurement)
                    tell(f"{shape.name:<16} {peer.name:<15} run {number + 1}: {measurement.run_s:.3f} s")
        base = [measurement.run_s for measurement in measured.get(baseline, ())]
        summaries.extend(summarise(peer, shape, measured[peer.name], base) for peer in taking_part)
    return summaries


def summarise(
    peer: Peer, shape: Shape, measured: Sequence[Measurement], baseline_s: Sequence[float]
) -> Summary:
    """Summarise the runs of one system on one shape; the k-th baseline time belongs to the k-th run."""
    times = [measurement.run_s for measurement in measured]
    # A system that takes part in a few rounds only is compared in those.
    ratios = [time_s / base_s for time_s, base_s in zip(times, baseline_s, strict=False)]
    return Summary(
        peer=peer,
        shape=shape,
        version=measured[0].version,
        runs=len(times),
        median_s=statistics.median(times),
        min_s=min(times),
        max_s=max(times),
        ratio=statistics.median(ratios) if ratios else None,
        startup_s=statistics.median(measurement.startup_s for measurement in measured),
        prepare_s=statistics.median(measurement.prepare_s for measurement in measured),
        peak_rss_mb=statistics.median(measurement.peak_rss_mb for measurement in measured),
    )
