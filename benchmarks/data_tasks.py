"""One task of the data path in a process of its own: ours, or the same by hand in bare Polars.

Run as `python -m benchmarks.data_tasks TASK FOLDER`; prints one JSON line. The folder holds
`source/flights.csv`, and once `prepare` has run, `flights.parquet` and the folder `ingested`, a pipeline
directory that tasks clone.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, StepContext, StepFiles, expect, ingest, run
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from benchmarks.flights import INTEGERS, TEXTS
from benchmarks.protocol import read_memory_mb

__all__ = ["JOBS_ROWS", "TASKS"]

TYPES: Final = {**dict.fromkeys(INTEGERS, pl.Int64()), **dict.fromkeys(TEXTS, pl.String())}
# A hundredth part of the flights breaks the first one.
ONE: Final = (("late by more than three hours", pl.col("dep_delay") <= 190),)
FIVE: Final = (
    *ONE,
    ("the distance is not plausible", pl.col("distance") > 0),
    ("the hour is not plausible", pl.col("hour").is_between(0, 24)),
    ("there is no carrier", pl.col("carrier").str.len_chars() == 2),
    ("it comes back at once", pl.col("origin") != pl.col("dest")),
)
JOBS_ROWS: Final = 500_000
Rules = tuple[tuple[str, pl.Expr], ...]
_REASON: Final = "_astro_quarantine_reason"


class TimedDisk(Disk):
    """A disk that adds up how long it waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.sync_s = 0.0

    def sync(self, path: str) -> None:
        started = time.perf_counter()
        super().sync(path)
        self.sync_s += time.perf_counter() - started


@contextmanager
def clone(folder: str) -> Iterator[str]:
    """Yield a copy of the ingested run: its files linked, its records copied."""

    def copy(source: str, target: str) -> None:
        if source.endswith(".parquet"):
            os.link(source, target)
        else:
            shutil.copy(source, target)

    directory = tempfile.mkdtemp(dir=folder)
    try:
        shutil.copytree(os.path.join(folder, "ingested"), directory, copy_function=copy, dirs_exist_ok=True)
        yield directory
    finally:
        shutil.rmtree(directory)


def declare(count: int = 1) -> Pipeline:
    files = [IngestFileSpec(f"flights_{i}", "flights.csv", TYPES, null_values="NA") for i in range(count)]
    return Pipeline("flights", ingest_files=files)


def prepare(folder: str) -> dict[str, float]:
    """Ingest once, for the tasks that come after it."""
    source, directory = os.path.join(folder, "source"), os.path.join(folder, "ingested")
    anyio.run(functools.partial(ingest, declare(), source, pipeline_dir=directory))
    (run_id,) = os.listdir(os.path.join(directory, ".working"))
    ingested = os.path.join(directory, ".working", run_id, "ingested", "flights_0.parquet")
    os.link(ingested, os.path.join(folder, "flights.parquet"))
    return {"rows": pl.scan_parquet(ingested).select(pl.len()).collect().item()}


# -- ingest ------------------------------------------------------------------------------------


def ingest_ours(folder: str) -> dict[str, float]:
    disk, directory = TimedDisk(), tempfile.mkdtemp(dir=folder)
    source, services = os.path.join(folder, "source"), Services(disk=disk)
    try:
        started = time.perf_counter()
        anyio.run(functools.partial(ingest, declare(), source, pipeline_dir=directory, services=services))
        return {"seconds": time.perf_counter() - started, "sync_s": disk.sync_s}
    finally:
        shutil.rmtree(directory)


def ingest_by_hand(folder: str) -> dict[str, float]:
    target = os.path.join(folder, "by_hand.parquet")
    started = time.perf_counter()
    source = os.path.join(folder, "source", "flights.csv")
    pl.scan_csv(source, schema_overrides=TYPES, null_values=["NA"]).sink_parquet(target)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "sync_s": _sync_and_remove(target)}


# -- checks ------------------------------------------------------------------------------------


def check_ours(rules: Rules, folder: str) -> dict[str, float]:
    pipeline, disk = declare(), TimedDisk()
    expectations = [expect(reason, valid, null="pass") for reason, valid in rules]
    pipeline.add_check("check", expectations, AstroFileSpec("flights_0"))
    with clone(folder) as directory:
        started = time.perf_counter()
        call = functools.partial(run, pipeline, pipeline_dir=directory, services=Services(disk=disk))
        result = anyio.run(call)
        seconds = time.perf_counter() - started
    assert result.record is not None
    (flow,) = result.record.steps["check"].files
    assert flow.rows_out is not None
    assert flow.rows_out + flow.rows_quarantined == flow.rows_in
    return {"seconds": seconds, "sync_s": disk.sync_s, "bad_rows": flow.rows_quarantined}


def check_streamed(rules: Rules, folder: str) -> dict[str, float]:
    """Read once and write both sides, as one plan with two sinks: what the streaming engine has for it."""
    good, bad = os.path.join(folder, "good.parquet"), os.path.join(folder, "bad.parquet")
    started = time.perf_counter()
    is_good = pl.all_horizontal(*[valid.fill_null(True) for _, valid in rules])
    frame = pl.scan_parquet(os.path.join(folder, "flights.parquet"))
    reason = pl.lit(rules[0][0]).alias(_REASON)
    sinks = [
        frame.filter(is_good).sink_parquet(good, lazy=True),
        frame.filter(~is_good).with_columns(reason).sink_parquet(bad, lazy=True),
    ]
    pl.collect_all(sinks, engine="streaming")
    seconds = time.perf_counter() - started
    rows = pl.scan_parquet(bad).select(pl.len()).collect().item()
    return {"seconds": seconds, "sync_s": _sync_and_remove(good, bad), "bad_rows": rows}


def check_eager(rules: Rules, folder: str) -> dict[str, float]:
    """Load everything, and write both sides."""
    good, bad = os.path.join(folder, "good.parquet"), os.path.join(folder, "bad.parquet")
    started = time.perf_counter()
    frame = pl.read_parquet(os.path.join(folder, "flights.parquet"))
    is_good = frame.select(pl.all_horizontal(*[valid.fill_null(True) for _, valid in rules])).to_series()
    frame.filter(is_good).write_parquet(good)
    set_aside = frame.filter(~is_good)
    set_aside.with_columns(pl.lit(rules[0][0]).alias(_REASON)).write_parquet(bad)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "sync_s": _sync_and_remove(good, bad), "bad_rows": set_aside.height}


# -- what must not depend on the size --------------------------------------------------------------


def retry_ours(folder: str) -> dict[str, float]:
    """Quarantine one row, then run again: the time before the step is called, and after it has returned."""
    pipeline, called, returned = declare(), [0.0], [0.0]

    @pipeline.step(AstroFileSpec("flights_0"))
    def park_one(ctx: StepContext, files: StepFiles) -> None:
        called[0] = time.perf_counter()
        ctx.quarantine.quarantine_rows(files[0], files[0].scan().head(1), reason="set aside")
        returned[0] = time.perf_counter()

    with clone(folder) as directory:
        anyio.run(functools.partial(run, pipeline, pipeline_dir=directory))
        started = time.perf_counter()
        anyio.run(functools.partial(run, pipeline, pipeline_dir=directory))
        ended = time.perf_counter()
    return {"seconds": called[0] - started, "after_s": ended - returned[0]}


# -- threads -----------------------------------------------------------------------------------


def jobs_ours(jobs: int, folder: str) -> dict[str, float]:
    """Check eight files with so many jobs; Polars takes the number of its threads from the environment."""
    directory = tempfile.mkdtemp(dir=folder)
    try:
        source = os.path.join(directory, "source")
        os.mkdir(source)
        path = os.path.join(folder, "flights.parquet")
        for i in range(8):
            os.link(os.path.join(folder, "source", "flights.csv"), os.path.join(source, f"flights_{i}.csv"))

        def read(_: object) -> pl.DataFrame:
            # Parquet stands in for the CSV, which is not what is measured.
            return pl.read_parquet(path, n_rows=JOBS_ROWS)

        files = [IngestFileSpec(f"flights_{i}", f"flights_{i}.csv", preprocess=read) for i in range(8)]
        pipeline = Pipeline("flights", ingest_files=files)
        rules = [expect(reason, valid, null="pass") for reason, valid in FIVE]
        for i in range(8):
            pipeline.add_check(f"check {i}", rules, AstroFileSpec(f"flights_{i}"))
        anyio.run(functools.partial(ingest, pipeline, source, pipeline_dir=directory))
        started = time.perf_counter()
        anyio.run(functools.partial(run, pipeline, pipeline_dir=directory, jobs=jobs))
        return {"seconds": time.perf_counter() - started}
    finally:
        shutil.rmtree(directory)


def _sync_and_remove(*paths: str) -> float:
    started = time.perf_counter()
    for path in paths:
        Disk().sync(path)
    seconds = time.perf_counter() - started
    for path in paths:
        os.remove(path)
    return seconds


TASKS: Final[dict[str, Callable[[str], dict[str, float]]]] = {
    "prepare": prepare,
    "ingest-ours": ingest_ours,
    "ingest-by-hand": ingest_by_hand,
    "check-ours": functools.partial(check_ours, ONE),
    "check-streamed": functools.partial(check_streamed, ONE),
    "check-eager": functools.partial(check_eager, ONE),
    "rules-ours": functools.partial(check_ours, FIVE),
    "rules-streamed": functools.partial(check_streamed, FIVE),
    "rules-eager": functools.partial(check_eager, FIVE),
    "retry-ours": retry_ours,
    **{f"jobs-{jobs}": functools.partial(jobs_ours, jobs) for jobs in (1, 4, 8)},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_tasks")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder")
    options = parser.parse_args()
    anyio.run(anyio.sleep, 0)
    answer = TASKS[options.task](options.folder)
    sys.stdout.write(json.dumps({**answer, "peak_mb": read_memory_mb("VmHWM")}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
