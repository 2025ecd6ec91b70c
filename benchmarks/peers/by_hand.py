"""The file operations alone: the same files written, renamed, linked and synced by hand, in eight threads.

The floor of the steps that do something, in the same folders. It keeps no records, checks nothing and could
not resume. The suppliers' files are put as anybody would put them, into a folder for each stage.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import polars as pl

from benchmarks.flights import INTEGERS, TEXTS, write_days
from benchmarks.protocol import JOBS, Prepared, Task, serve
from benchmarks.shapes import FILES

_REASON = "_astro_quarantine_reason"


def prepare(task: Task) -> Prepared:
    """Make the folders and the frame, or the source files."""
    if task.kind == "suppliers":
        return prepare_suppliers(task)
    frame = pl.DataFrame({"id": ["1", "2", "3"], "score": ["10", "20", "30"]})
    if task.kind == "quarantine":
        frame = frame.head(1).with_columns(pl.lit("set aside").alias(_REASON))
    for name in ("staging", "ingested", "versions", "quarantine", "snapshots"):
        os.mkdir(os.path.join(task.directory, name))
    count = len(task.edges)
    given = [
        os.path.join(task.directory, "ingested", f"{number}.parquet") for number in range(min(FILES, count))
    ]
    for number, path in enumerate(given):
        frame.write_parquet(path)
        os.mkdir(os.path.join(task.directory, "versions", str(number)))

    def path_of(position: int) -> str:
        if task.kind == "quarantine":
            return os.path.join(task.directory, "quarantine", str(position), "part.parquet")
        return os.path.join(task.directory, "versions", str(position % len(given)), f"{position}.parquet")

    def step(position: int) -> None:
        task.work()
        staged = os.path.join(task.directory, "staging", f"{position}.parquet")
        frame.write_parquet(staged)
        if task.kind == "quarantine":
            os.mkdir(os.path.dirname(path_of(position)))
        publish(staged, path_of(position))
        snapshot = os.path.join(task.directory, "snapshots", str(position))
        os.mkdir(snapshot)
        os.link(given[position % len(given)], os.path.join(snapshot, "input.parquet"))

    def run() -> None:
        with ThreadPoolExecutor(JOBS) as pool:
            list(pool.map(step, range(count)))
        for position in range(count):
            sync(path_of(position))

    def check() -> None:
        assert all(os.path.exists(path_of(position)) for position in range(count))
        assert len(os.listdir(os.path.join(task.directory, "snapshots"))) == count

    return Prepared(run, check)


def prepare_suppliers(task: Task) -> Prepared:
    """Write the source files."""
    count = (len(task.edges) - 1) // 3
    source = os.path.join(task.directory, "source")
    os.mkdir(source)
    write_days(source, count)
    for name in ("staging", "ingested", "checked", "quarantine", "filtered", "removed", "written"):
        os.mkdir(os.path.join(task.directory, name))
    total = os.path.join(task.directory, "total.parquet")

    def path_of(folder: str, number: int) -> str:
        return os.path.join(task.directory, folder, f"{number}.parquet")

    def ingest(number: int) -> None:
        path = os.path.join(source, f"day_{number}.csv")
        types = {**dict.fromkeys(INTEGERS, pl.Int64), **dict.fromkeys(TEXTS, pl.String)}
        scanned = pl.scan_csv(
            path, schema=None, schema_overrides=types, null_values=["NA"], infer_schema=False
        )
        scanned.sink_parquet(path_of("ingested", number))
        sync(path_of("ingested", number))

    def save(frame: pl.DataFrame, folder: str, number: int) -> None:
        staged = path_of("staging", number)
        frame.write_parquet(staged)
        publish(staged, path_of(folder, number))

    def work(number: int) -> None:
        flights = pl.read_parquet(path_of("ingested", number))
        is_good = flights.select(pl.col("dep_time").is_not_null()).to_series()
        bad = flights.filter(~is_good)
        flights = flights.filter(is_good)
        if bad.height:
            save(flights, "checked", number)
            save(bad.with_columns(pl.lit("never left").alias(_REASON)), "quarantine", number)
        is_short = flights.select(pl.col("distance") < 200).to_series()
        removed = flights.filter(is_short)
        flights = flights.filter(~is_short)
        if removed.height:
            save(flights, "filtered", number)
            save(removed, "removed", number)
        task.work()
        save(flights.with_columns(pl.col("distance").mul(1.609).alias("km")), "written", number)

    def run() -> None:
        with ThreadPoolExecutor(JOBS) as pool:
            list(pool.map(ingest, range(count)))
            list(pool.map(work, range(count)))
        paths = [path_of("written", number) for number in range(count)]
        task.work()
        pl.scan_parquet(paths).group_by("carrier").agg(pl.col("km").sum()).sort("carrier").sink_parquet(total)
        for folder in ("checked", "quarantine", "filtered", "removed", "written"):
            for name in os.listdir(os.path.join(task.directory, folder)):
                sync(os.path.join(task.directory, folder, name))
        sync(total)

    def check() -> None:
        assert len(os.listdir(os.path.join(task.directory, "written"))) == count
        assert pl.read_parquet(total).height

    return Prepared(run, check)


def publish(staged: str, final: str) -> None:
    """Give a file its final, read-only name."""
    os.chmod(staged, 0o444)
    os.rename(staged, final)


def sync(path: str) -> None:
    """Make a file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    serve(version("polars"), prepare)
