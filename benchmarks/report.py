"""A session as text: tables for the terminal, and the page `docs/benchmarks.md`. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from benchmarks.machine import Machine
from benchmarks.protocol import JOBS
from benchmarks.registry import BASELINES, OURS, PEERS
from benchmarks.session import Absence, Session, Summary
from benchmarks.shapes import Work

__all__ = ["describe_machine_as_rows", "render_caveat", "render_page", "render_rows", "render_table"]

_HEAD = (
    "system",
    "survives process death",
    "runs",
    "median s",
    "min s",
    "max s",
    "us a step",
    "ratio",
    "start-up s",
    "prepare s",
    "peak RSS MB",
)


def render_table(session: Session) -> str:
    """Return one Markdown table for each shape, aligned so that it reads well in a terminal too."""
    blocks = []
    for shape, group in itertools.groupby(session.summaries, key=lambda summary: summary.shape):
        table = render_rows(_head(shape.work), [_row(summary) for summary in group])
        absences = [absence for absence in session.absences if absence.shape == shape]
        blocks.append(f"### {shape.name}: {shape.text}\n\n{table}{_tell_absent(absences)}")
    linear = _render_linear(session.summaries)
    if linear:
        blocks.append(linear)
    return "\n\n".join(blocks) + "\n"


def _head(work: Work) -> tuple[str, ...]:
    return tuple(f"ratio to {BASELINES[work]}" if name == "ratio" else name for name in _HEAD)


def _tell_absent(absences: Sequence[Absence]) -> str:
    if not absences:
        return ""
    told = "; ".join(f"{absence.peer.text} ({absence.reason})" for absence in absences)
    return f"\n\nNot measured here: {told}."


def _render_linear(summaries: Sequence[Summary]) -> str:
    rows = []
    for summary in summaries:
        if summary.peer.name == OURS and summary.shape.name.startswith("fan-out-"):
            steps = summary.shape.steps
            rows.append(
                (
                    f"{steps:,}",
                    f"{summary.us_per_step:,.0f}",
                    f"{summary.peak_rss_mb:.0f}",
                    f"{summary.run_kb_per_step:.2f}",
                    f"{summary.kb_per_step:.2f}",
                )
            )
    if len(rows) < 2:
        return ""
    head = ("steps", "us a step", "peak RSS MB", "KB a step, run", "KB a step, with the graph")
    table = render_rows(head, rows)
    return f"""### Is it linear?

The same of `astro_async` alone, by the number of independent steps. "Run" is how far memory rises from the
start of the run; "with the graph" counts from before the pipeline was declared. Of few steps it is mostly the
price of starting at all.

{table}"""


def render_rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, aligned."""
    rows = [head, *body]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def render_page(session: Session, machine: Machine, *, runs: int) -> str:
    """Return the page with the tables, how they came to be, and how to make them again."""
    versions = {summary.peer.name: summary.version for summary in session.summaries}
    notes = "\n".join(
        f"- **{PEERS[name].text}**: {PEERS[name].note}." for name in versions if PEERS[name].note
    )
    return f"""# Benchmarks

<!-- Written by `python -m benchmarks --write`: edit benchmarks/report.py instead. -->

What scheduling costs. Most graphs here are of steps that do nothing, so that all the time is overhead; the
others publish, quarantine, or do a night's work. Each system runs the same graph with {JOBS} workers.
`astro_async` runs through its public `run()` in a real run directory with ingested files, and keeps its
promises while the clock runs: two journal lines for each step, checkpoints, statistics, the last sync.

![Microseconds a step of each system on each graph, on a logarithmic scale](benchmarks.svg)

Each measurement is a process of its own. Systems take turns, {runs} rounds in one session (fewer where a
system is slow); a ratio is the median over the rounds of this system's time by that of the system named in
the head of the column, in the same round. Start-up (interpreter and imports) and preparation (building the
graph; ingesting the file) are told beside the time of the run and are not part of it. After each run the
process asserts that every step was called once; for `astro_async` also that the result and the manifest call
every step what it has to be, and that the journal names each of them as started and as settled.

{notes}

The page on [performance](performance.md) says where the time goes, and what large files cost.

{render_caveat(machine)}

## Results

{render_table(session)}
## Taken on

{describe_machine_as_rows(machine, {PEERS[name].text: version for name, version in versions.items()})}

## Run it again

```shell
python -m benchmarks --write            # everything; environments are made on first use
python -m benchmarks --shape chain-1000 --peer astro-async --peer dask --runs 9
python -m benchmarks --peer astro-async --peer ray --shape fan-out-1000
python -m benchmarks --quick            # seconds; checks that the suite works, says nothing about speed
```

Environments are kept in `~/.cache/astro-async-benchmarks`, one for each system.
"""


def describe_machine_as_rows(machine: Machine, versions: Mapping[str, str] | None = None) -> str:
    """Return a table of what the figures were taken on, and of the versions of the systems by name."""
    facts = [
        ("cores", str(machine.cores)),
        ("processor", machine.cpu or "unknown"),
        ("system", machine.system),
        ("Python", machine.python),
        ("file system of the run directories", machine.file_system),
        ("load average before the session", f"{machine.load:.1f}"),
        ("commit", machine.commit or "unknown"),
        ("digest of `src/`", machine.source_digest),
        *((f"version of {text}", version) for text, version in (versions or {}).items()),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts)])


def render_caveat(machine: Machine) -> str:
    """Return what a reader has to keep in mind of the machine."""
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
        summary.peer.is_durable,
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
