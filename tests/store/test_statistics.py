"""The statistics database: three tables, a later value replaces the earlier, and it is never the truth."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from astro_async._core.names import RunId
from astro_async._core.statistics import Statistic
from astro_async._core.status import RunStatus
from astro_async._store.atomic import Disk
from astro_async._store.statistics import StatisticsDatabase, load_statistics, record_run
from astro_async.exceptions import StorageError
from core.samples import RUN, TIME, Story, planned_story
from store.disks import RefusingDisk


def stat(
    action: str, value: float, *, scope: str = "step", subject: str = "validate", at: str = TIME
) -> Statistic:
    return Statistic(scope, subject, action, value, at)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".astro" / "stats.db"


def record(path: Path, story: Story, *statistics: Statistic) -> None:
    record_run(str(path), story.run, statistics, disk=Disk())


def test_three_tables_hold_the_run_its_files_and_its_numbers(path: Path) -> None:
    story = planned_story("f", "größe")
    story.end(RunStatus.INTERRUPTED)
    record(path, story, stat("rows_in", 10), stat("rate", 0.25, scope="file", subject="f"))
    tables = rows(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("ingest_files",), ("runs",), ("statistics",)]
    assert rows(path, "SELECT * FROM runs") == [
        (RUN, "p", "interrupted", "/in", "2026-01-02", TIME, TIME, TIME)
    ]
    assert rows(path, "SELECT * FROM ingest_files ORDER BY name") == [
        (RUN, "f", "/in/f.csv", 10, 2, 50),
        (RUN, "größe", "/in/größe.csv", 10, 2, 50),
    ]
    columns = "SELECT run_id, scope, subject, action, value, recorded_at FROM statistics ORDER BY scope"
    assert rows(path, columns) == [
        (RUN, "file", "f", "rate", 0.25, TIME),
        (RUN, "step", "validate", "rows_in", 10.0, TIME),
    ]


def test_a_later_value_replaces_the_earlier_one(path: Path) -> None:
    story = planned_story("f")
    record(path, story, stat("rows_in", 1, at="t1"), stat("rows_in", 2, at="t2"))
    assert load_statistics(str(path), RUN) == [stat("rows_in", 2, at="t2")]
    record(path, story, stat("rows_in", 3, at="t3"), stat("rows_out", 4, at="t3"))
    assert load_statistics(str(path), RUN) == [stat("rows_in", 3, at="t3"), stat("rows_out", 4, at="t3")]
    assert rows(path, "SELECT count(*) FROM statistics") == [(2,)]


def test_the_status_of_a_run_is_replaced_too(path: Path) -> None:
    story = planned_story("f")
    record(path, story)
    assert rows(path, "SELECT status, finished_at FROM runs") == [("running", None)]
    story.end(RunStatus.COMPLETED)
    record(path, story)
    assert rows(path, "SELECT status, finished_at FROM runs") == [("completed", TIME)]
    assert rows(path, "SELECT count(*) FROM ingest_files") == [(1,)]


def test_scope_subject_and_action_are_told_apart(path: Path) -> None:
    story = planned_story("f")
    numbers = [
        stat("rows_in", 1),
        stat("rows_out", 2),
        stat("rows_in", 3, subject="other"),
        stat("rows_in", 4, scope="file"),
    ]
    record(path, story, *numbers)
    assert sorted(each.value for each in load_statistics(str(path), RUN)) == [1, 2, 3, 4]


def test_runs_are_told_apart(path: Path) -> None:
    first, second = planned_story("f"), planned_story("f")
    second.run.run_id = RunId("other")
    record(path, first, stat("rows_in", 1))
    record(path, second, stat("rows_in", 2))
    assert [each.value for each in load_statistics(str(path), RUN)] == [1]
    assert [each.value for each in load_statistics(str(path), "other")] == [2]
    assert load_statistics(str(path), "nobody") == []


def test_an_open_database_is_no_lock_and_is_let_go_of(path: Path) -> None:
    story = planned_story("f")
    with closing(StatisticsDatabase(str(path), Disk())) as database:
        database.record(story.run, [stat("rows_in", 1)])
        # Another process may write as long as nobody is in the middle of it.
        record(path, story, stat("rows_out", 2))
        database.record(story.run, [stat("rows_in", 3)])
        assert [each.value for each in load_statistics(str(path), RUN)] == [3, 2]
        database.close()
        path.rename(path.with_name("away.db"))
        database.record(story.run, [stat("rows_in", 4)])
    assert [each.value for each in load_statistics(str(path), RUN)] == [4]


def test_a_database_that_failed_is_opened_again(path: Path) -> None:
    story = planned_story("f")
    with closing(StatisticsDatabase(str(path), Disk())) as database:
        database.record(story.run, [stat("rows_in", 1)])
        with closing(sqlite3.connect(path)) as other:
            other.executescript("ALTER TABLE statistics RENAME TO another")
        with pytest.raises(StorageError, match="astro verify --all --repair"):
            database.record(story.run, [stat("rows_in", 2)])
        # It makes the table that it misses.
        database.record(story.run, [stat("rows_in", 3)])
    assert [each.value for each in load_statistics(str(path), RUN)] == [3]


def test_hostile_text_is_a_value_and_no_statement(path: Path) -> None:
    text = "'; DROP TABLE runs; --\n\0"
    record(path, planned_story("f"), stat(text, 1, subject=text))
    assert [(each.subject, each.action) for each in load_statistics(str(path), RUN)] == [(text, text)]
    assert rows(path, "SELECT count(*) FROM runs") == [(1,)]


def test_no_database_has_no_numbers(path: Path) -> None:
    assert load_statistics(str(path), RUN) == []
    assert not path.exists()


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "stats.db", tmp_path / "folder"):
        with pytest.raises(StorageError) as caught:
            record(path, planned_story("f"))
        assert str(tmp_path) in str(caught.value)


def test_what_is_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 20)
    with pytest.raises(StorageError, match=str(path)):
        record(path, planned_story("f"))
    with pytest.raises(StorageError, match=str(path)):
        load_statistics(str(path), RUN)


def test_a_database_of_another_program(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE runs (run_id TEXT, status TEXT)")
        database.execute("INSERT INTO runs VALUES ('older', 'failed')")
    with pytest.raises(StorageError, match=r"another program, move it away; `astro verify --all --repair`"):
        record(path, planned_story("f"))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM runs").fetchall() == [("older", "failed")]


def test_a_path_with_characters_that_mean_something_in_an_address(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1?" / "stats.db"
    record(path, planned_story("f"), stat("rows_in", 1))
    assert [each.value for each in load_statistics(str(path), RUN)] == [1]


def test_reading_writes_nothing(path: Path) -> None:
    record(path, planned_story("f"), stat("rows_in", 1))
    before = path.read_bytes()
    load_statistics(str(path), RUN)
    assert path.read_bytes() == before


def test_the_seam_is_asked(path: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "write")
    with pytest.raises(StorageError, match="refused"):
        record_run(str(path), planned_story("f").run, [], disk=disk)
    assert not path.exists()
