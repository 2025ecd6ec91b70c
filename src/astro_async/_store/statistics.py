"""The statistics database of a pipeline: SQLite, written in batches, never the truth.

Everything in it can be rebuilt from the journals, so a database that is locked or broken costs a warning
and no run.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Final
from urllib.parse import quote

import msgspec

from astro_async._core.records import IngestedFile, RunRecord
from astro_async._core.statistics import Statistic
from astro_async._store.atomic import Disk
from astro_async.exceptions import StorageError

__all__ = ["load_statistics", "record_run"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, pipeline_name TEXT, status TEXT, source_directory TEXT, run_date TEXT,
    created_at TEXT, ingested_at TEXT, finished_at TEXT
);
CREATE TABLE IF NOT EXISTS ingest_files (
    run_id TEXT, name TEXT, source_path TEXT, row_count INTEGER, column_count INTEGER,
    source_size_bytes INTEGER, PRIMARY KEY (run_id, name)
);
CREATE TABLE IF NOT EXISTS statistics (
    run_id TEXT, scope TEXT, subject TEXT, action TEXT, value REAL, recorded_at TEXT,
    PRIMARY KEY (run_id, scope, subject, action)
) WITHOUT ROWID;
"""
_WAIT_S: Final = 5.0
_ROWS_A_STATEMENT: Final = 50


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        # The journals are the truth: after a power cut the last numbers may be missing here.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def record_run(path: str, run: RunRecord, statistics: Sequence[Statistic], *, disk: Disk) -> None:
    """Write how a run stands, its files, and a batch of statistics, in one transaction.

    Raises:
        StorageError: The database cannot be written.
    """
    files: Sequence[IngestedFile] = list(run.files.values())
    disk.make_directory(os.path.dirname(path))
    disk.announce("write", path)
    try:
        with closing(_connect(path)) as connection, connection:
            connection.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run.run_id,
                    run.pipeline_name,
                    run.status.value,
                    run.source_directory,
                    run.run_date,
                    run.created_at,
                    run.ingested_at,
                    run.finished_at,
                ),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO ingest_files VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (run.run_id, f.name, f.source_path, f.row_count, f.column_count, f.source_size_bytes)
                    for f in files
                ],
            )
            # Many to a statement: for each statement SQLite and the interpreter wait for each other.
            for start in range(0, len(statistics), _ROWS_A_STATEMENT):
                chunk = statistics[start : start + _ROWS_A_STATEMENT]
                values: list[str | float] = []
                for each in chunk:
                    values += (run.run_id, *msgspec.structs.astuple(each))
                places = ",".join(["(?, ?, ?, ?, ?, ?)"] * len(chunk))
                connection.execute(f"INSERT OR REPLACE INTO statistics VALUES {places}", values)
    except sqlite3.Error as error:
        raise StorageError(f"cannot write statistics to {path}: {error}") from error


def load_statistics(path: str, run_id: str) -> list[Statistic]:
    """Return the statistics of a run, by scope, subject and action; none if there is no database.

    Raises:
        StorageError: The database cannot be read.
    """
    if not os.path.exists(path):
        return []
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_WAIT_S)) as connection:
            rows = connection.execute(
                "SELECT scope, subject, action, value, recorded_at FROM statistics WHERE run_id = ? "
                "ORDER BY scope, subject, action",
                (run_id,),
            )
            return [Statistic(*row) for row in rows]
    except sqlite3.Error as error:
        raise StorageError(f"cannot read statistics from {path}: {error}") from error
