"""Every kind of fault is planted in a run that was sound, found by `verify`, and repaired or explained."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import polars as pl
import pytest

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunStatus,
    Verification,
    expect,
    ingest,
    run,
    verify,
)
from astro_async._core.events import parse_event
from astro_async._core.manifest import dump_manifest, parse_manifest
from astro_async._executor.invocation import Services
from astro_async.context import StepContext
from astro_async.exceptions import RunLockedError, RunNotFoundError
from astro_async.files import StepFiles
from astro_async.testing import read_file
from cases.support import VolatileDisk
from properties.real_run import Death, MortalDisk

ROWS = 6_000


def make_pipeline(
    *, lowest: int = 0, tag: Callable[[StepContext, StepFiles], None] | None = None
) -> Pipeline:
    pipeline = Pipeline(
        "verified",
        ingest_files=[
            IngestFileSpec("scores", "scores.csv", {"id": pl.Int64, "score": pl.Int64}),
            IngestFileSpec("teams", "teams.csv", {"id": pl.Int64, "team": pl.String}),
        ],
    )
    scores, teams = AstroFileSpec("scores"), AstroFileSpec("teams")
    pipeline.add_check(
        "check", expect("too low", pl.col("score") >= lowest), scores, on_quarantine="continue"
    )
    pipeline.add_check("fine", expect("no id", pl.col("id").is_not_null()), teams)
    pipeline.add_filter("drop", scores, remove=pl.col("id") == 4)
    pipeline.add_step("tag", tag or add_tag, scores, depends_on="drop")
    pipeline.add_step("free", halve, teams)
    return pipeline


def add_tag(ctx: StepContext, files: StepFiles) -> None:
    frame = files[0].load().with_columns(tag=pl.col("id").hash(1))
    files[0].save_in_place(frame)
    files[0].save_to("processed", "ids.parquet", frame.select("id"), activate=False)


def halve(ctx: StepContext, files: StepFiles) -> None:
    frame = files[0].load()
    ctx.quarantine.quarantine_rows(files[0], frame.head(1), reason="first")
    ctx.quarantine.quarantine_rows(files[0], frame.slice(1, 1), reason="second")
    files[0].save_in_place(frame.gather_every(2))


class Bench:
    """A run that has been through all kinds of steps, and what to plant in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        source = directory / "source"
        source.mkdir(parents=True)
        ids = pl.DataFrame({"id": range(ROWS)})
        ids.with_columns(score=pl.col("id") % 1000 - 1).write_csv(source / "scores.csv")
        ids.head(10).with_columns(team=pl.lit("a")).write_csv(source / "teams.csv")
        record = anyio.run(partial(ingest, make_pipeline(), source, pipeline_dir=directory))
        self.run_id: str = record.run_id
        self.folder = directory / ".working" / self.run_id

    def run(self, pipeline: Pipeline | None = None, disk: VolatileDisk | MortalDisk | None = None) -> None:
        anyio.run(
            partial(
                run,
                pipeline or make_pipeline(),
                pipeline_dir=self.directory,
                run_id=self.run_id,
                services=Services(disk=disk or VolatileDisk()),
            )
        )

    def verify(self, *, repair: bool = False) -> Verification:
        return verify(self.directory, self.run_id, repair=repair)

    def overwrite(self, path: str, content: bytes) -> None:
        """Write into a published file, as one for whom modes do not bind; every link to it sees that."""
        target = self.folder / path
        target.chmod(0o644)
        times = target.stat()
        with target.open("r+b") as file:
            file.truncate(0)
            file.write(content)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))

    def execute(self, statement: str) -> None:
        connection = sqlite3.connect(self.directory / ".astro" / "stats.db")
        with connection:
            assert connection.execute(statement).rowcount
        connection.close()

    def edit_journal(self, edit: Callable[[list[bytes]], list[bytes]]) -> None:
        journal = self.folder / "events.jsonl"
        journal.write_bytes(b"".join(edit(journal.read_bytes().splitlines(keepends=True))))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "base")
    bench.run()
    return bench


def faults(found: Verification) -> list[tuple[str, str | None]]:
    return [(each.kind.value, each.path) for each in found.faults]


def notes(found: Verification) -> list[tuple[str, str | None]]:
    return [(each.kind.value, each.path) for each in found.notes]


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_sound_run_is_sound_and_is_not_touched(bench: Bench) -> None:
    before = state_of(bench.folder)
    found = bench.verify()
    assert (found.findings, found.status, found.is_live) == ((), RunStatus.QUARANTINED, False)
    assert state_of(bench.folder) == before
    # Two ingested, three versions of scores and a saved one, one of teams; four parts and positions of each.
    named = {
        path for path in before if path.split("/")[0] in ("ingested", "versions", "quarantine", "filtered")
    }
    assert found.files == len(named)
    assert found.size_bytes == sum(len(before[path][0]) for path in named)
    # Free-form steps may leave rows out: that is shown, to the row.
    (free,) = found.differences
    assert (free.step_id, free.file, free.rows_in, free.rows_out) == ("free", "teams", 10, 5)
    assert (free.rows_quarantined, free.unexplained) == (2, 3)


def test_a_run_that_was_only_ingested_is_sound(tmp_path: Path) -> None:
    found = Bench(tmp_path / "base").verify()
    assert (found.findings, found.status, found.rows) == ((), RunStatus.INGESTED, ROWS + 10)


def test_a_changed_time_is_no_fault(bench: Bench) -> None:
    for path in bench.folder.rglob("*.parquet"):
        os.utime(path, (1, 1))
    assert bench.verify().findings == ()


def test_a_moved_run_is_sound(bench: Bench, tmp_path: Path) -> None:
    moved = shutil.move(bench.directory, tmp_path / "elsewhere")
    assert verify(moved, bench.run_id).findings == ()
    alone = tmp_path / "alone" / ".working" / bench.run_id
    # As a plain copy does: links become files of their own.
    shutil.copytree(Path(moved) / ".working" / bench.run_id, alone)
    found = verify(tmp_path / "alone", bench.run_id)
    assert (faults(found), notes(found)) == ([], [("statistics", None)])


# -- files ----------------------------------------------------------------------------------------

FILES = [
    ("ingested/scores.parquet", None),
    ("versions/scores/check.1.parquet", "check"),
    ("versions/scores/tag.1.parquet", "tag"),
    ("versions/scores/tag.1.1.parquet", "tag"),
    ("versions/teams/free.1.parquet", "free"),
    ("quarantine/check/scores.part-00001.parquet", "check"),
    ("quarantine/check/scores.part-00001.rows", "check"),
    ("quarantine/free/teams.part-00002.parquet", "free"),
    ("filtered/drop/scores.parquet", "drop"),
]


@pytest.mark.parametrize(("path", "step_id"), FILES)
def test_a_file_that_is_missing(path: str, step_id: str | None, bench: Bench) -> None:
    (bench.folder / path).unlink()
    found = bench.verify()
    assert faults(found) == [("missing", path)]
    (fault,) = found.faults
    assert fault.step_id == step_id
    assert fault.advice is not None
    expected = "ingest" if step_id is None else f"`astro run {bench.run_id} --rerun {step_id}`"
    assert expected in fault.advice
    # There is nothing to make it from but its step.
    again = bench.verify(repair=True)
    assert (faults(again), again.repairs) == ([("missing", path)], ())


@pytest.mark.parametrize("path", [path for path, _ in FILES])
def test_a_file_that_is_cut_off(path: str, bench: Bench) -> None:
    content = (bench.folder / path).read_bytes()
    bench.overwrite(path, content[: len(content) // 2])
    kind = "unreadable" if path.endswith(".rows") or path.startswith("filtered") else "changed"
    assert faults(bench.verify()) == [(kind, path)]
    bench.overwrite(path, b"")
    assert faults(bench.verify()) == [(kind, path)]


@pytest.mark.parametrize(
    "path", ["quarantine/check/scores.part-00001.parquet", "versions/scores/tag.1.parquet"]
)
def test_one_byte_is_flipped(path: str, bench: Bench) -> None:
    content = (bench.folder / path).read_bytes()
    for place in range(4, len(content) - 4, len(content) // 9):
        bench.overwrite(path, content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        assert faults(bench.verify()) == [("changed", path)], f"byte {place}"


@pytest.mark.parametrize("step_id", ["check", "drop", "tag", "free"])
def test_the_advice_puts_it_right(step_id: str, bench: Bench) -> None:
    name = "teams" if step_id == "free" else "scores"
    path = f"versions/{name}/{step_id}.1.parquet"
    whole = read_all(bench)
    (bench.folder / path).unlink()
    (fault,) = bench.verify().faults
    assert f"--rerun {step_id}`" in (fault.advice or "")
    anyio.run(
        partial(run, make_pipeline(), pipeline_dir=bench.directory, run_id=bench.run_id, rerun=[step_id])
    )
    assert bench.verify().findings == ()
    assert read_all(bench) == whole


def test_a_step_writes_over_the_version_that_it_was_given(tmp_path: Path) -> None:
    def tamper(ctx: StepContext, files: StepFiles) -> None:
        frame = files[0].load()
        target = Path(files[0].active_path)
        assert target.stat().st_mode & 0o777 == 0o444
        # Modes do not bind root; others may give themselves the right.
        target.chmod(0o644)
        frame.with_columns(pl.col("score").reverse()).write_parquet(target)
        files[0].save_in_place(frame)

    bench = Bench(tmp_path / "base")
    bench.run(make_pipeline(tag=tamper))
    found = bench.verify()
    assert faults(found) == [("changed", "versions/scores/drop.1.parquet")]
    (fault,) = found.faults
    assert "was overwritten" in fault.message
    assert "it was given to 'tag'" in fault.message
    assert fault.advice is not None
    assert "--rerun drop" in fault.advice
    # As it says: the filter makes it anew, and what stood on it runs again.
    anyio.run(
        partial(
            run, make_pipeline(), pipeline_dir=bench.directory, run_id=bench.run_id, rerun=["drop", "tag"]
        )
    )
    assert bench.verify().findings == ()


def test_the_same_size_and_other_content(bench: Bench) -> None:
    path = "versions/teams/free.1.parquet"
    frame = pl.read_parquet(bench.folder / path)
    sink = bench.directory / "other.parquet"
    frame.with_columns(team=pl.lit("b")).write_parquet(sink)
    assert sink.stat().st_size == (bench.folder / path).stat().st_size
    bench.overwrite(path, sink.read_bytes())
    found = bench.verify()
    assert faults(found) == [("changed", path)]
    assert "content is not what was published" in found.faults[0].message


@pytest.mark.parametrize("path", ["filtered/drop/scores.parquet", "quarantine/check/scores.part-00001.rows"])
def test_rows_that_are_not_as_many_as_recorded(path: str, bench: Bench) -> None:
    # Of these neither size nor checksum is recorded: the rows are counted.
    frame = pl.read_parquet(bench.folder / path)
    pl.concat([frame, frame]).write_parquet(bench.directory / "other.parquet")
    bench.overwrite(path, (bench.directory / "other.parquet").read_bytes())
    found = bench.verify()
    assert faults(found) == [("rows", path)]
    assert f"has {2 * frame.height:,} rows, the records say {frame.height:,}" in found.faults[0].message


def test_columns_that_are_not_those_of_the_source(bench: Bench) -> None:
    path = "filtered/drop/scores.parquet"
    frame = pl.read_parquet(bench.folder / path).with_columns(pl.col("score").cast(pl.String))
    frame.write_parquet(bench.directory / "other.parquet")
    bench.overwrite(path, (bench.directory / "other.parquet").read_bytes())
    found = bench.verify()
    assert faults(found) == [("schema", path)]
    assert "differs from versions/scores/check.1.parquet in 'score'" in found.faults[0].message


def test_a_symbolic_link_in_place_of_a_version(bench: Bench) -> None:
    path = bench.folder / "versions/scores/tag.1.parquet"
    shutil.move(path, bench.directory / "kept.parquet")
    path.symlink_to(bench.directory / "kept.parquet")
    found = bench.verify()
    assert faults(found) == [("changed", "versions/scores/tag.1.parquet")]
    assert "is no regular file" in found.faults[0].message


def read_all(bench: Bench) -> dict[str, list[dict[str, object]]]:
    return {name: read_file(bench.directory, bench.run_id, name).to_dicts() for name in ("scores", "teams")}


# -- records --------------------------------------------------------------------------------------


def rewrite_records(bench: Bench, edit: Callable[[bytes], bytes]) -> None:
    """Edit the journal, and have a manifest made of what it says now: records that agree and are wrong."""
    bench.edit_journal(lambda lines: [edit(line) for line in lines])
    (bench.folder / "manifest.json").unlink()
    assert bench.verify(repair=True).repairs


@pytest.mark.parametrize(
    ("step_id", "before", "after", "complaint"),
    [
        ("check", b'"rows_out":5994', b'"rows_out":5993', "5,993 rows went out, but versions/"),
        ("check", b'"rows_quarantined":6', b'"rows_quarantined":5', "its parts have 6"),
        ("drop", b'"rows_filtered":1', b'"rows_filtered":3', "1 rows"),
        ("drop", b'"rows_in":5994', b'"rows_in":5995', "versions/scores/check.1.parquet has 5,994"),
    ],
)
def test_rows_that_do_not_add_up(
    step_id: str, before: bytes, after: bytes, complaint: str, bench: Bench
) -> None:
    def edit(line: bytes) -> bytes:
        return line.replace(before, after) if b'"step_id":"%s"' % step_id.encode() in line else line

    rewrite_records(bench, edit)
    found = bench.verify()
    messages = [each.message for each in found.faults if each.kind.value == "conservation"]
    assert any(complaint in message for message in messages) or step_id == "drop"
    assert messages
    assert all(f"step {step_id!r}" in message for message in messages)


def test_rows_that_a_check_lost(bench: Bench) -> None:
    # All counts of the record agree with the files; only the sum does not.
    rewrite_records(
        bench,
        lambda line: line.replace(
            b'"rows_in":10,"rows_out":5', b'"rows_in":10,"conserves_rows":true,"rows_out":5'
        ),
    )
    found = bench.verify()
    assert faults(found) == [("conservation", None)]
    assert "10 rows in, but 5 out, 2 quarantined, 0 discarded: 3 rows are lost" in found.faults[0].message
    assert found.differences == ()


def test_a_part_that_the_records_skip(bench: Bench) -> None:
    rewrite_records(bench, lambda line: line.replace(b"teams.part-00002", b"teams.part-00003"))
    kinds = dict(faults(bench.verify()))
    assert kinds["missing"] == "quarantine/free/teams.part-00003.parquet"
    assert "parts" in kinds


def test_a_record_that_leads_out_of_the_run(bench: Bench) -> None:
    secret = bench.directory / "secret.parquet"
    pl.DataFrame({"id": [1]}).write_parquet(secret)
    named, outside = b"versions/teams/free.1.parquet", b"../../secret.parquet"
    bench.edit_journal(lambda lines: [line.replace(named, outside) for line in lines])
    (bench.folder / "manifest.json").unlink()
    found = bench.verify(repair=True)
    assert ("journal", "events.jsonl") in faults(found)
    assert (found.repairs, found.files) == ((), 0)
    assert any("../../secret.parquet" in finding.message for finding in found.findings)
    assert secret.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: b"",
        lambda document: document[: len(document) // 2],
        lambda document: b"\0" * len(document),
        lambda document: document.replace(b'"status":"quarantined"', b'"status":"completed"', 1),
        lambda document: document.replace(b'"rows_quarantined":8', b'"rows_quarantined":2', 1),
        lambda document: document.replace(b'"attempt":1', b'"attempt":2', 1),
    ],
    ids=["empty", "cut off", "zeros", "status", "count", "attempt"],
)
def test_a_damaged_manifest(damage: Callable[[bytes], bytes], bench: Bench) -> None:
    path = bench.folder / "manifest.json"
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)
    assert faults(bench.verify()) == [("manifest", "manifest.json")]
    found = bench.verify(repair=True)
    assert any("manifest" in each for each in found.repairs)
    assert found.findings == ()
    assert path.read_bytes() == whole


def test_a_deleted_manifest(bench: Bench) -> None:
    path = bench.folder / "manifest.json"
    whole = path.read_bytes()
    path.unlink()
    assert faults(verify(bench.directory)) == [("manifest", "manifest.json")]
    assert bench.verify(repair=True).findings == ()
    assert path.read_bytes() == whole


def test_a_manifest_of_a_later_version(bench: Bench) -> None:
    path = bench.folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":99', 1))
    before = state_of(bench.folder)
    found = bench.verify(repair=True)
    assert faults(found) == [("manifest", "manifest.json")]
    assert "schema version 99" in found.faults[0].message
    assert (found.repairs, found.status) == ((), None)
    after = state_of(bench.folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"run.holder.json"}


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_journal_that_is_damaged_in_the_middle(has_manifest: bool, bench: Bench) -> None:
    bench.edit_journal(lambda lines: [*lines[:4], lines[4].replace(b'"kind"', b'"kin'), *lines[5:]])
    if not has_manifest:
        (bench.folder / "manifest.json").unlink()
    before = state_of(bench.folder)
    found = bench.verify(repair=True)
    kinds = [("journal", "events.jsonl")]
    assert faults(found) == (kinds if has_manifest else [("manifest", "manifest.json"), *kinds])
    (fault,) = [each for each in found.faults if each.kind.value == "journal"]
    assert "line 5" in fault.message or not has_manifest
    assert "restore it from a copy" in (fault.advice or "")
    # Nothing is touched on the word of a journal that is not whole.
    assert found.repairs == ()
    after = state_of(bench.folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"run.holder.json"}


def test_a_journal_that_was_edited_and_can_still_be_read(bench: Bench) -> None:
    bench.edit_journal(lambda lines: [line.replace(b"verified", b"veritied") for line in lines])
    found = bench.verify(repair=True)
    assert faults(found) == [("journal", "events.jsonl")]
    assert "If it is manifest.json that was edited, remove that" in (found.faults[0].advice or "")


def test_a_journal_that_is_cut_off_or_gone(bench: Bench) -> None:
    journal = bench.folder / "events.jsonl"
    journal.write_bytes(journal.read_bytes()[:-100])
    assert faults(bench.verify()) == [("journal", "events.jsonl")]
    journal.unlink()
    assert faults(bench.verify()) == [("journal", "events.jsonl")]
    (bench.folder / "manifest.json").unlink()
    # Nothing of the run can be read, and still it is found and told.
    found = verify(bench.directory)
    assert faults(found) == [("manifest", "manifest.json"), ("journal", "events.jsonl")]
    assert found.status is None


def test_a_torn_end_of_the_journal_is_a_note(bench: Bench) -> None:
    journal = bench.folder / "events.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"kind":"run_pla')
    found = bench.verify()
    assert (faults(found), notes(found)) == ([], [("journal", "events.jsonl")])
    found = bench.verify(repair=True)
    assert found.repairs == ("the end of the journal was torn and has been dropped",)
    assert found.findings == ()
    assert journal.read_bytes() == whole


# -- links, litter, statistics --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("current/scores.parquet", "versions/scores/tag.1.parquet"),
        ("processed/ids.parquet", "versions/scores/tag.1.1.parquet"),
        ("snapshots/drop/scores.parquet", "versions/scores/check.1.parquet"),
    ],
)
def test_a_link_that_is_gone_or_another_file(link: str, path: str, bench: Bench) -> None:
    target = bench.folder / link
    target.unlink()
    assert faults(bench.verify()) == [("link", link)]
    shutil.copy(bench.folder / "ingested/scores.parquet", target)
    assert faults(bench.verify()) == [("link", link)]
    found = bench.verify(repair=True)
    assert found.repairs == (f"{link} was linked to {path}",)
    assert found.findings == ()
    assert target.samefile(bench.folder / path)
    # A copy serves where there can be no link.
    target.unlink()
    shutil.copy(bench.folder / path, target)
    assert bench.verify().findings == ()


def test_a_link_behind_a_symbolic_link_is_left_alone(bench: Bench) -> None:
    shutil.move(bench.folder / "processed", bench.directory / "outside")
    (bench.directory / "outside" / "ids.parquet").unlink()
    (bench.folder / "processed").symlink_to(bench.directory / "outside")
    found = bench.verify(repair=True)
    assert faults(found) == [("link", "processed/ids.parquet")]
    assert "symbolic link" in found.repairs[0]
    assert list((bench.directory / "outside").iterdir()) == []


def test_litter_in_a_run_at_rest_is_a_fault(bench: Bench) -> None:
    litter = ["versions/scores/ghost.1.parquet", "quarantine/check/scores.part-00009.parquet"]
    for path in litter:
        shutil.copy(bench.folder / "ingested/scores.parquet", bench.folder / path)
    found = bench.verify()
    assert sorted(faults(found)) == sorted(("litter", path) for path in litter)
    found = bench.verify(repair=True)
    assert found.findings == ()
    assert sorted(found.repairs) == sorted(f"{path} was removed: no record names it" for path in litter)


@pytest.mark.parametrize("operation", [12, 25, 40, 55])
def test_what_a_killed_process_left_is_a_note(operation: int, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "base")
    with pytest.raises((Death, BaseExceptionGroup)) as raised:
        bench.run(disk=MortalDisk(operation))
    error = raised.value
    assert isinstance(error, Death) or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(Death) is not None
    )
    found = bench.verify()
    assert found.faults == ()
    assert found.status is RunStatus.INTERRUPTED
    assert bench.verify(repair=True).findings == ()
    bench.run()
    assert bench.verify().findings == ()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE statistics SET value = 5 WHERE subject = 'check' AND action = 'rows_quarantined'",
        "DELETE FROM statistics WHERE action = 'duration_ms' AND scope = 'run'",
        "INSERT INTO statistics SELECT run_id, 'step', 'ghost', 'rows_in', 1, '' FROM runs",
        "UPDATE runs SET status = 'completed'",
        "DELETE FROM ingest_files WHERE name = 'teams'",
    ],
)
def test_statistics_that_say_otherwise(statement: str, bench: Bench) -> None:
    bench.execute(statement)
    assert faults(bench.verify()) == [("statistics", None)]
    found = bench.verify(repair=True)
    assert found.repairs == ("the statistics of the run were rebuilt from the journal",)
    assert found.findings == ()


def test_statistics_that_cannot_be_read(bench: Bench) -> None:
    path = bench.directory / ".astro" / "stats.db"
    for name in ("stats.db-wal", "stats.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    path.write_bytes(b"this was a database" * 1000)
    assert faults(bench.verify()) == [("statistics", None)]
    found = bench.verify(repair=True)
    assert "the statistics of all runs were rebuilt" in found.repairs[0]
    assert found.findings == ()
    assert path.with_name("stats.db.damaged").read_bytes().startswith(b"this was")


@pytest.mark.parametrize("tables", ["CREATE TABLE statistics (a)", "CREATE TABLE runs (run_id, b)"])
def test_statistics_of_another_program_are_set_aside(tables: str, bench: Bench) -> None:
    path = bench.directory / ".astro" / "stats.db"
    path.unlink()
    bench.execute(tables)
    assert faults(bench.verify()) == [("statistics", None)]
    found = bench.verify(repair=True)
    assert "the statistics of all runs were rebuilt" in found.repairs[0]
    assert found.findings == ()
    with closing(sqlite3.connect(path.with_name("stats.db.damaged"))) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master").fetchone() == (tables,)


# -- runs that go on ------------------------------------------------------------------------------


def test_a_run_that_goes_on_is_not_disturbed(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "base")
    seen: list[Verification] = []

    def look(ctx: StepContext, files: StepFiles) -> None:
        # Something is staged, nothing of it is named; earlier steps have published.
        files[0].save_in_place(files[0].load())
        seen.append(bench.verify())
        with pytest.raises(RunLockedError, match="is locked by process"):
            bench.verify(repair=True)

    bench.run(make_pipeline(tag=look))
    (found,) = seen
    assert (found.findings, found.is_live, found.status) == ((), True, RunStatus.RUNNING)
    assert bench.verify().findings == ()


def test_a_fault_is_found_while_the_run_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "base")
    seen: list[Verification] = []

    def look(ctx: StepContext, files: StepFiles) -> None:
        # No other step needs it any more.
        (bench.folder / "ingested/scores.parquet").unlink()
        seen.append(bench.verify())

    bench.run(make_pipeline(tag=look))
    assert ("missing", "ingested/scores.parquet") in faults(seen[0])


def test_retries_leave_a_sound_run(bench: Bench) -> None:
    bench.run(make_pipeline(lowest=-5))
    found = bench.verify()
    assert found.findings == ()
    # The check has let all rows pass, and vouches for the version that it was given.
    assert "versions/scores/check.2.parquet" not in {
        str(path.relative_to(bench.folder)) for path in bench.folder.rglob("*")
    }


def test_records_of_earlier_versions_are_sound(bench: Bench) -> None:
    """Without checksums and marks, as journals were before there were any."""

    def age(line: bytes) -> bytes:
        document = json.loads(line)
        for version in _dictionaries(document):
            version.pop("tail_crc32", None)
            version.pop("conserves_rows", None)
        aged = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        parse_event(aged)
        return aged

    rewrite_records(bench, age)
    assert bench.verify().findings == ()
    manifest = bench.folder / "manifest.json"
    assert b"crc32" not in manifest.read_bytes().replace(b"journal_crc32", b"")
    assert dump_manifest(parse_manifest(manifest.read_bytes())) == manifest.read_bytes()


def _dictionaries(value: object) -> list[dict[str, object]]:
    if isinstance(value, dict):
        return [value, *(found for each in value.values() for found in _dictionaries(each))]
    if isinstance(value, list):
        return [found for each in value for found in _dictionaries(each)]
    return []


def test_there_is_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="there is no run in"):
        verify(tmp_path)
    with pytest.raises(RunNotFoundError, match="there is no run 'abc12'"):
        verify(tmp_path, "abc12")


@pytest.mark.parametrize("interrupts", [False, True], ids=["next run", "next run dies first"])
def test_statistics_that_could_not_be_written_are_put_right_by_the_next_run(
    tmp_path: Path, *, interrupts: bool
) -> None:
    in_the_way = tmp_path / "base" / ".astro"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    bench = Bench(tmp_path / "base")
    bench.run(make_pipeline(tag=fail))
    in_the_way.unlink()
    (note,) = bench.verify().notes
    assert note.kind == "statistics"
    if interrupts:
        with pytest.raises(Death):
            bench.run(disk=MortalDisk(3))
    bench.run()
    assert bench.verify().findings == ()
    with closing(sqlite3.connect(in_the_way / "stats.db")) as connection:
        numbers = connection.execute(
            "SELECT scope, subject, value FROM statistics WHERE action IN ('row_count', 'rows_in')"
        )
        rows = {(scope, subject): value for scope, subject, value in numbers}
    # Of the first run and of the ingest; the second one ran only `tag` again.
    assert rows[("file", "scores")] == rows[("step", "check")] == ROWS
    assert rows[("step", "fine")] == 10


def fail(_ctx: StepContext, _files: StepFiles) -> None:
    raise ValueError("not tonight")
