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

from benchmarks.protocol import Measurement, Refusal, parse_answer
from benchmarks.registry import BASELINES, ROOT, Peer
from benchmarks.shapes import Shape

__all__ = ["Absence", "MeasurementFailedError", "Session", "Summary", "measure", "run_session", "summarise"]


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
        run_kb_per_step: How far memory rose during the run, by the number of steps.
        kb_per_step: The same from before the graph was built.
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
    run_kb_per_step: float
    kb_per_step: float

    @property
    def us_per_step(self) -> float:
        """Median time of a run, in microseconds for each step."""
        return self.median_s / self.shape.steps * 1e6


@dataclass(frozen=True, slots=True)
class Absence:
    """A system that was not measured on a shape, and why."""

    peer: Peer
    shape: Shape
    reason: str


@dataclass(frozen=True, slots=True)
class Session:
    """What a session came to, by shape, then in the order of the systems."""

    summaries: tuple[Summary, ...]
    absences: tuple[Absence, ...]


def measure(peer: Peer, shape: Shape, interpreter: str) -> Measurement | Refusal:
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
    return parse_answer(done.stdout.splitlines()[-1])


def run_session(
    peers: Sequence[Peer],
    shapes: Sequence[Shape],
    *,
    runs: int,
    interpreters: Mapping[str, str],
    tell: Callable[[str], None],
) -> Session:
    """Measure all peers on all shapes.

    Args:
        peers: The systems.
        shapes: The graphs.
        runs: Rounds; a system may take part in the first few only.
        interpreters: By name of the system, the interpreter of its environment.
        tell: Called with a line about each measurement.

    Raises:
        MeasurementFailedError: One measurement failed; the session is void.
    """
    summaries: list[Summary] = []
    absences: list[Absence] = []
    for shape in shapes:
        meant = [peer for peer in peers if peer.takes(shape)]
        taking_part = [peer for peer in meant if peer.runs_of(shape, runs)]
        reasons = {peer.name: "too slow" for peer in meant if peer not in taking_part}
        measured: dict[str, list[Measurement]] = {peer.name: [] for peer in taking_part}
        for number in range(runs):
            # Whoever comes first finds other caches than whoever comes last: turn the order round.
            for peer in taking_part if number % 2 == 0 else reversed(taking_part):
                if number >= peer.runs_of(shape, runs) or peer.name in reasons:
                    continue
                answer = measure(peer, shape, interpreters[peer.name])
                if isinstance(answer, Refusal):
                    reasons[peer.name] = answer.reason
                    tell(f"{shape.name:<16} {peer.name:<15} cannot: {answer.reason}")
                else:
                    measured[peer.name].append(answer)
                    tell(f"{shape.name:<16} {peer.name:<15} run {number + 1}: {answer.run_s:.3f} s")
        base = [measurement.run_s for measurement in measured.get(BASELINES[shape.work], ())]
        summaries.extend(
            summarise(peer, shape, measured[peer.name], base) for peer in taking_part if measured[peer.name]
        )
        absences.extend(Absence(peer, shape, reasons[peer.name]) for peer in meant if peer.name in reasons)
    return Session(tuple(summaries), tuple(absences))


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
        run_kb_per_step=_kb_per_step(shape, [each.peak_rss_mb - each.prepared_rss_mb for each in measured]),
        kb_per_step=_kb_per_step(shape, [each.peak_rss_mb - each.imported_rss_mb for each in measured]),
    )


def _kb_per_step(shape: Shape, rises_mb: Sequence[float]) -> float:
    return statistics.median(rises_mb) * 1024 / shape.steps
