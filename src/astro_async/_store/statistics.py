"""The statistics database of a pipeline: SQLite, written in batches, never the truth.

Everything in it can be rebuilt from the journals, so a database that is locked or broken costs a warning
and no run.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final
from urllib.parse import quote

import msgspec

from astro_async._core.records import RunRecord
from astro_async._core.statistics import Statistic
from astro_async._store.atomic import Disk
from astro_async.exceptions import StorageError

__all__ = [
    "ROWS_A_STATEMENT",
    "StatisticsDatabase",
    "load_statistics",
    "load_trend",
    "rebuild_run",
    "record_run",
    "scan_deviations",
]

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
_TABLES: Final = ("runs", "ingest_files", "statistics")
_WAIT_S: Final = 5.0
# How long a run waits for others while it goes on: what it could not write is written the next time.
_BRIEFLY_S: Final = 0.1
# Many to a statement: for each statement SQLite and the interpreter wait for each other.
ROWS_A_STATEMENT: Final = 1000


def _connect(path: str, wait_s: float) -> sqlite3.Connection:
    # Whoever writes a checkpoint may do so in another thread than the one before; never in two at once.
    connection = sqlite3.connect(path, timeout=wait_s, check_same_thread=False)
    try:
        # A write-ahead log is written twice, and costs three times as much. Readers wait for a commit, or it
        # for them: milliseconds.
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        # The journals are the truth: after a power cut the last numbers may be missing here.
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


class StatisticsDatabase:
    """The database of a pipeline as one writer has it: opened when it is first needed, and kept open."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._connection: sqlite3.Connection | None = None
        # Whose files are entered.
        self._run_id: str | None = None

    def record(
        self,
        run: RunRecord,
        statistics: Sequence[Statistic],
        *,
        only_known: bool = False,
        anew: bool = False,
        waits: bool = True,
    ) -> bool:
        """Write how a run stands, its files, and a batch of statistics, in one transaction. Blocks.

        Cheapest in multiples of `ROWS_A_STATEMENT`: a statement of another length is compiled anew.

        Args:
            run: The run.
            statistics: Its numbers.
            only_known: Write nothing where the run is not entered yet.
            anew: In place of all that is entered of the run.
            waits: Whether to wait for others for seconds, or for an instant.

        Returns:
            Whether anything was written.

        Raises:
            StorageError: The database cannot be written, or others are at it for too long.
        """
        try:
            with self._open(_WAIT_S if waits else _BRIEFLY_S) as connection:
                if anew:
                    for table in _TABLES:
                        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run.run_id,))
                    self._run_id = None
                if self._run_id != run.run_id:
                    if only_known and not _knows_run(connection, run.run_id):
                        return False
                    _write_files(connection, run)
                _write_run(connection, run, statistics)
            self._run_id = run.run_id
        except sqlite3.Error as error:
            self.close()
            raise _make_error(self._path, error) from error
        return True

    def _open(self, wait_s: float) -> sqlite3.Connection:
        self._disk.announce("write", self._path)
        if not os.path.exists(self._path):
            # Moved away, perhaps, while it was open.
            self.close()
        if self._connection is None:
            self._disk.make_directory(os.path.dirname(self._path))
            self._connection = _connect(self._path, wait_s)
        else:
            self._connection.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
        return self._connection

    def close(self) -> None:
        """Let go of the database; harmless twice, and the next record opens it again."""
        connection, self._connection = self._connection, None
        self._run_id = None
        if connection is not None:
            connection.close()


def record_run(path: str, run: RunRecord, statistics: Sequence[Statistic], *, disk: Disk) -> None:
    """Write how a run stands, its files, and a batch of statistics, in one transaction. Blocks.

    Raises:
        StorageError: The database cannot be written.
    """
    with closing(StatisticsDatabase(path, disk)) as database:
        database.record(run, statistics)


def rebuild_run(path: str, run: RunRecord, statistics: Sequence[Statistic], *, disk: Disk) -> None:
    """Write what is to be known of a run in place of all that is, in one transaction. Blocks.

    Raises:
        StorageError: The database cannot be written.
    """
    with closing(StatisticsDatabase(path, disk)) as database:
        database.record(run, statistics, anew=True)


def _make_error(path: str, error: sqlite3.Error) -> StorageError:
    return StorageError(
        f"cannot write statistics to {path}: {error}. Nothing else is lost: if the file is damaged or of "
        "another program, move it away; `astro verify --all --repair` makes it anew"
    )


def _write_files(connection: sqlite3.Connection, run: RunRecord) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO ingest_files VALUES (?, ?, ?, ?, ?, ?)", list(_file_rows(run))
    )


def _write_run(connection: sqlite3.Connection, run: RunRecord, statistics: Sequence[Statistic]) -> None:
    connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _run_row(run))
    for start in range(0, len(statistics), ROWS_A_STATEMENT):
        chunk = statistics[start : start + ROWS_A_STATEMENT]
        values = [run.run_id, *itertools.chain.from_iterable(map(msgspec.structs.astuple, chunk))]
        places = ",".join(["(?, ?, ?, ?, ?)"] * len(chunk))
        connection.execute(f"INSERT OR REPLACE INTO statistics SELECT ?, * FROM (VALUES {places})", values)


def _run_row(run: RunRecord) -> tuple[str | None, ...]:
    return (
        run.run_id,
        run.pipeline_name,
        run.status.value,
        run.source_directory,
        run.run_date,
        run.created_at,
        run.ingested_at,
        run.finished_at,
    )


def _file_rows(run: RunRecord) -> Iterator[tuple[str | int, ...]]:
    for file in run.files.values():
        yield (
            run.run_id,
            file.name,
            file.source_path,
            file.row_count,
            file.column_count,
            file.source_size_bytes,
        )


def _knows_run(connection: sqlite3.Connection, run_id: str) -> bool:
    return connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is not None


def scan_deviations(path: str, run: RunRecord, statistics: Sequence[Statistic]) -> tuple[list[str], bool]:
    """Compare what is recorded of a run with what should be.

    Returns:
        What is missing, other or too much, in words; and whether anything at all is recorded of the run.

    Raises:
        StorageError: The database cannot be read.
    """
    if not os.path.exists(path):
        return ["there is no database"], False
    try:
        with closing(_connect_readonly(path)) as connection:
            found = {
                table: set(connection.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run.run_id,)))
                for table in _TABLES
            }
    except sqlite3.Error as error:
        raise StorageError(f"cannot read statistics from {path}: {error}") from error
    numbers = {(scope, subject, action): value for _, scope, subject, action, value, _ in found["statistics"]}
    expected = {(each.scope, each.subject, each.action): each.value for each in statistics}
    deviations = []
    if found["runs"] != {_run_row(run)}:
        deviations.append("the run is entered otherwise, or not at all")
    if found["ingest_files"] != set(_file_rows(run)):
        deviations.append("its files are entered otherwise, or not at all")
    for key in sorted(expected.keys() | numbers.keys()):
        if numbers.get(key) != expected.get(key):
            told, meant = (_describe(each.get(key)) for each in (numbers, expected))
            deviations.append(f"{' '.join(key)} is {told}, by the journal {meant}")
    return deviations, any(found.values())


def _describe(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"


def _connect_readonly(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_WAIT_S)


def load_statistics(path: str, run_id: str) -> list[Statistic]:
    """Return the statistics of a run, by scope, subject and action; none if there is no database.

    Raises:
        StorageError: The database cannot be read.
    """
    if not os.path.exists(path):
        return []
    try:
        with closing(_connect_readonly(path)) as connection:
            rows = connection.execute(
                "SELECT scope, subject, action, value, recorded_at FROM statistics WHERE run_id = ? "
                "ORDER BY scope, subject, action",
                (run_id,),
            )
            return [Statistic(*row) for row in rows]
    except sqlite3.Error as error:
        raise StorageError(f"cannot read statistics from {path}: {error}") from error


def load_trend(path: str, *, scope: str, action: str, since: str) -> list[tuple[str, str, str, float]]:
    """Return subject, run, when it was ingested, and value, of all runs since a time; oldest run first.

    Of the scope `run` the subject is the name of the pipeline: run ids never meet again.

    Raises:
        StorageError: The database cannot be read.
    """
    if not os.path.exists(path):
        return []
    subject = "runs.pipeline_name" if scope == "run" else "subject"
    try:
        with closing(_connect_readonly(path)) as connection:
            rows = connection.execute(
                f"SELECT {subject}, run_id, coalesce(ingested_at, created_at) AS ingested, value "
                "FROM statistics JOIN runs USING (run_id) "
                "WHERE scope = ? AND action = ? AND ingested >= ? ORDER BY ingested, run_id, subject",
                (scope, action, since),
            )
            return [tuple(row) for row in rows]
    except sqlite3.Error as error:
        raise StorageError(f"cannot read statistics from {path}: {error}") from error
