"""Summaries as text: a table for the terminal, and the page `docs/benchmarks.md`. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from benchmarks.machine import Machine
from benchmarks.protocol import JOBS
from benchmarks.registry import BASELINE, PEERS
from benchmarks.session import Summary

__all__ = ["render_page", "render_table"]

_HEAD = (
    "system",
    "survives process death",
    "runs",
    "median s",
    "min s",
    "max s",
    "us a step",
    f"ratio to {BASELINE}",
    "start-up s",
    "prepare s",
    "peak RSS MB",
)


def render_table(summaries: Sequence[Summary]) -> str:
    """Return one Markdown table for each shape, aligned so that it reads well in a terminal too."""
    blocks = []
    for shape, group in itertools.groupby(summaries, key=lambda summary: summary.shape):
        rows = [_HEAD, *map(_row, group)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = [_line(row, widths) for row in rows]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        blocks.append(f"### {shape.name}: {shape.text}\n\n" + "\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def render_page(summaries: Sequence[Summary], machine: Machine, *, runs: int) -> str:
    """Return the page with the tables, how they came to be, and how to make them again."""
    versions = {summary.peer.name: summary.version for summary in summaries}
    facts = [
        ("cores", str(machine.cores)),
        ("processor", machine.cpu or "unknown"),
        ("system", machine.system),
        ("Python", machine.python),
        ("file system of the run directories", machine.file_system),
        ("load average before the session", f"{machine.load:.1f}"),
        ("commit", machine.commit or "unknown"),
        ("digest of `src/`", machine.source_digest),
        *((f"version of {PEERS[name].text}", version) for name, version in versions.items()),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in facts)
    return f"""# Benchmarks

<!-- Written by `python -m benchmarks --write`: edit benchmarks/report.py instead. -->

What scheduling costs: graphs of steps that do nothing, so that all the time is overhead. Each system runs the
same graph with {JOBS} workers. `astro_async` runs through its public `run()` in a real run directory with one
ingested file that all steps share read-only, and keeps its promises while the clock runs: two journal lines
for each step, checkpoints, statistics, the last sync. Systems marked "no" keep everything in memory.

Each measurement is a process of its own. Systems take turns, {runs} rounds in one session (fewer where a
system is slow); a ratio is the median over the rounds of this system's time by that of `dask.threaded.get`
in the same round. Start-up (interpreter and imports) and preparation (building the graph; ingesting the file)
are told beside the time of the run and are not part of it. After each run the process asserts that every step
was called once; for `astro_async` also that the result and the manifest call every step `complete`, and that
the journal names each of them as started and as finished.

{_caveat(machine)}

## Results

{render_table(summaries)}
## Taken on

| | |
|---|---|
{table}

## Run it again

```shell
python -m benchmarks --write            # everything; environments are made on first use
python -m benchmarks --shape chain-1000 --peer astro-async --peer dask --runs 9
python -m benchmarks --quick            # seconds; checks that the suite works, says nothing about speed
```

Environments are kept in `~/.cache/astro-async-benchmarks`, one for each system.
"""


def _caveat(machine: Machine) -> str:
    text = (
        "Differences below a factor of two between sessions mean little; ratios within a session mean more."
    )
    if machine.load > machine.cores / 2:
        text += (
            f"\n\n**The machine was not ours alone** (load average {machine.load:.1f} on {machine.cores} "
            "cores before\nthe session began): read the ratios, not the times."
        )
    return text


def _row(summary: Summary) -> tuple[str, ...]:
    return (
        summary.peer.text,
        "yes" if summary.peer.is_durable else "no",
        str(summary.runs),
        f"{summary.median_s:.3f}",
        f"{summary.min_s:.3f}",
        f"{summary.max_s:.3f}",
        f"{summary.us_per_step:,.0f}",
        "" if summary.ratio is None else f"{summary.ratio:.2f}",
        f"{summary.startup_s:.2f}",
        f"{summary.prepare_s:.2f}",
        f"{summary.peak_rss_mb:.0f}",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [row[0].ljust(widths[0])] + [
        cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
    ]
    return f"| {' | '.join(cells)} |"
