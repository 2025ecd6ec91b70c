"""Cases 32 to 36: damage, moved directories, names that lead outside, more links than an inode has."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import polars as pl
import pytest

from astro_async import IngestFileSpec, Pipeline, StepContext, StepFiles, list_runs, read_run, run
from astro_async._executor.invocation import Services
from astro_async.exceptions import (
    InvalidNameError,
    JournalError,
    PipelineError,
    RunLockedError,
    RunNotFoundError,
    StorageError,
)
from astro_async.testing import Gate, ingest_frames, read_file, read_quarantine
from cases.support import (
    Report,
    Scores,
    VolatileDisk,
    attempts,
    detail_of,
    files_below,
    id_of,
    ingest_and_run,
    journal_of,
    make_pipeline,
    manifest_of,
    quarantined,
    record_of,
    run_directory,
    statuses,
)

pytestmark = pytest.mark.anyio

SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [10, -20, 30]})


@pytest.fixture
def anyio_backend() -> str:
    """Return one event loop: the disk knows of none."""
    return "asyncio"


def validate(ctx: StepContext, files: StepFiles) -> None:
    """Set negative scores aside, unless they are accepted."""
    rows = files[0].load()
    if not ctx.params.get("accept"):
        ctx.quarantine.quarantine_rows(files[0], rows.filter(pl.col("score") < 0), reason="negative")
        rows = rows.filter(pl.col("score") >= 0)
    files[0].save_to("processed", "scores.parquet", rows)


def tag(_ctx: StepContext, files: StepFiles) -> None:
    """Mark each row."""
    files[0].save_in_place(files[0].load().with_columns(tag=pl.lit("t")))


def make_three_steps() -> Pipeline:
    """Make a pipeline that quarantines, goes on, and has a blocked step."""
    pipeline = make_pipeline()
    pipeline.add_step("before", tag, Scores)
    pipeline.add_step("validate", validate, Scores)
    pipeline.add_step("after", tag, Scores, depends_on="validate")
    return pipeline


async def assert_repaired(pipeline_dir: Path, run_id: str, *words: str) -> None:
    """A plain run takes the run up where it was, and says what was repaired."""
    before = read_run(pipeline_dir, run_id)
    assert statuses(before) == {"before": "complete", "validate": "quarantined", "after": "blocked"}
    result = await run(make_three_steps(), pipeline_dir=pipeline_dir, params={"accept": True})
    assert (id_of(result), result.status) == (run_id, "completed")
    for word in words:
        assert any(word in notice for notice in result.notices), (word, result.notices)
    # No fresh run: what was complete is not run again.
    assert attempts(result) == {"before": 1, "validate": 2, "after": 1}
    assert read_file(pipeline_dir, run_id, "scores").equals(SCORES.with_columns(tag=pl.lit("t")))
    assert [summary.run_id for summary in list_runs(pipeline_dir)[0]] == [run_id]
    manifest = manifest_of(pipeline_dir, run_id)
    assert (manifest["status"], manifest["rows_quarantined"]) == ("completed", 0)


def empty(document: bytes) -> bytes:
    return document[:0]


def truncated(document: bytes) -> bytes:
    return document[: len(document) // 2]


def nul_filled(document: bytes) -> bytes:
    return b"\0" * len(document)


def another_document(_document: bytes) -> bytes:
    return b'{"run_id": 7}'


def half_a_line(journal: bytes) -> bytes:
    return journal + b'{"kind":"run_planned","seq":99,"ti'


def nul_tail(journal: bytes) -> bytes:
    return journal + b"\0" * 512


def nonsense_line(journal: bytes) -> bytes:
    return journal + b'{"kind":"step_vanished"}\n'


@pytest.mark.parametrize("damage", [empty, truncated, nul_filled, another_document, None])
async def test_32_damaged_manifest(damage: Callable[[bytes], bytes] | None, tmp_path: Path) -> None:
    result = await ingest_and_run(make_three_steps(), SCORES, tmp_path)
    path = run_directory(tmp_path, id_of(result)) / "manifest.json"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    (summary,) = list_runs(tmp_path)[0]
    assert (summary.run_id, summary.status, summary.rows_quarantined) == (id_of(result), "failed", 1)
    await assert_repaired(tmp_path, id_of(result), "manifest was rebuilt")


@pytest.mark.parametrize("damage", [half_a_line, nul_tail, nonsense_line])
async def test_32_torn_journal(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    result = await ingest_and_run(make_three_steps(), SCORES, tmp_path)
    path = run_directory(tmp_path, id_of(result)) / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    await assert_repaired(tmp_path, id_of(result), "torn")
    assert path.read_bytes().startswith(whole)
    events = journal_of(tmp_path, id_of(result))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_32_half_a_line_and_no_manifest(tmp_path: Path) -> None:
    result = await ingest_and_run(make_three_steps(), SCORES, tmp_path)
    directory = run_directory(tmp_path, id_of(result))
    (directory / "manifest.json").write_bytes(b"")
    journal = directory / "events.jsonl"
    journal.write_bytes(half_a_line(journal.read_bytes()))
    await assert_repaired(tmp_path, id_of(result), "torn", "manifest was rebuilt")


@pytest.mark.parametrize("has_manifest", [True, False])
async def test_32_a_journal_damaged_before_its_durable_point_is_an_error(
    has_manifest: bool, tmp_path: Path
) -> None:
    result = await ingest_and_run(make_three_steps(), SCORES, tmp_path)
    directory = run_directory(tmp_path, id_of(result))
    journal = directory / "events.jsonl"
    if has_manifest:
        journal.write_bytes(journal.read_bytes()[:-20])
    else:
        (directory / "manifest.json").unlink()
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join([*lines[:4], b"\0" * len(lines[4]), *lines[5:]]))
    damaged = journal.read_bytes()
    with pytest.raises(JournalError, match=r"events\.jsonl"):
        await run(make_three_steps(), pipeline_dir=tmp_path, run_id=id_of(result))
    # Nothing was made of it, least of all a fresh run.
    assert journal.read_bytes() == damaged
    assert len(files_below(tmp_path / ".working", "")) > 0
    assert [path.name for path in (tmp_path / ".working").iterdir()] == [id_of(result)]


async def test_33_a_moved_run_works(tmp_path: Path) -> None:
    pipeline = make_three_steps()
    result = await ingest_and_run(pipeline, SCORES, tmp_path / "here")
    run_id = id_of(result)
    there = tmp_path / "there" / "deeper"
    there.parent.mkdir()
    (tmp_path / "here").rename(there)
    assert statuses(read_run(there, run_id)) == statuses(result)
    assert quarantined(there, run_id, "validate", "id") == [(2, "negative")]
    done = await run(pipeline, pipeline_dir=there, params={"accept": True})
    assert (id_of(done), done.status) == (run_id, "completed")
    assert attempts(done) == {"before": 1, "validate": 2, "after": 1}
    expected = SCORES.with_columns(tag=pl.lit("t"))
    assert read_file(there, run_id, "scores").equals(expected)
    assert not (tmp_path / "here").exists()
    directory = run_directory(there, run_id)
    assert pl.read_parquet(directory / "current/scores.parquet").equals(expected)
    assert pl.read_parquet(directory / "processed/scores.parquet").equals(expected)
    assert str(tmp_path / "here") not in (directory / "manifest.json").read_text()


async def test_33_a_copied_run_works_without_its_links(tmp_path: Path) -> None:
    """A copy has no hard links, and perhaps no modes: versions are found by their names."""
    pipeline = make_three_steps()
    result = await ingest_and_run(pipeline, SCORES, tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    done = await run(pipeline, pipeline_dir=tmp_path / "there", params={"accept": True})
    assert (id_of(done), done.status) == (id_of(result), "completed")
    expected = SCORES.with_columns(tag=pl.lit("t"))
    assert read_file(tmp_path / "there", id_of(result), "scores").equals(expected)
    assert quarantined(tmp_path / "here", id_of(result), "validate", "id") == [(2, "negative")]


# -- 34: names that lead outside -------------------------------------------------------------------


@pytest.mark.parametrize(
    "run_id", ["../../x", "/etc/x", "a/b", "..", "", "ABCDE", "abcdef", "a\0bcd", "abcd\n"]
)
async def test_34_run_ids(run_id: str, tmp_path: Path) -> None:
    pipeline = make_three_steps()
    await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    with pytest.raises(InvalidNameError, match="not a run id"):
        await run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    with pytest.raises(InvalidNameError):
        read_run(tmp_path, run_id)


async def test_34_a_run_that_is_not_there(tmp_path: Path) -> None:
    pipeline = make_three_steps()
    for run_id in ("zzzzz", "latest"):
        with pytest.raises(RunNotFoundError):
            await run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("subfolder", "filename"),
    [
        ("../x", "a.parquet"),
        ("processed/../..", "a.parquet"),
        ("/tmp", "a.parquet"),
        ("processed", "../a.parquet"),
        ("processed", "/a.parquet"),
        ("processed", ""),
        ("", "a.parquet"),
        ("processed", "a\0.parquet"),
        ("processed", ".hidden"),
        ("ingested", "scores.parquet"),
        ("Versions/scores", "a.parquet"),
        ("quarantine/validate", "scores.part-00001.parquet"),
        (".", "manifest.json"),
    ],
)
async def test_34_save_to(subfolder: str, filename: str, tmp_path: Path) -> None:
    def save(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(SCORES.clear())
        files[0].save_to(subfolder, filename, SCORES)

    base = tmp_path / "pipeline"
    pipeline = make_pipeline(lambda p: p.add_step("save", save, Scores))
    result = await ingest_and_run(pipeline, SCORES, base)
    assert statuses(result) == {"save": "failed"}
    assert "save_to" in detail_of(result, "save")
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline"]
    assert files_below(run_directory(base, id_of(result)), "versions", "processed", "staging") == []
    assert read_file(base, id_of(result), "scores").equals(SCORES)


@pytest.mark.parametrize("name", ["a/b", "../x", "..", "", "a\0", "ingest", "Ingest", "x" * 300])
def test_34_ingest_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError):
        Pipeline("p", ingest_files=[IngestFileSpec(name, "*.csv")]).graph()


@pytest.mark.parametrize("planted", ["folder", "file", "snapshots", "versions", "quarantine"])
async def test_34_a_planted_symlink(planted: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "scores.parquet"
    victim.write_text("precious")
    base = tmp_path / "pipeline"
    pipeline = make_pipeline(lambda p: p.add_step("validate", validate, Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, base)
    directory = run_directory(base, run_id)
    match planted:
        case "folder":
            (directory / "processed").symlink_to(outside)
        case "file":
            (directory / "processed").mkdir()
            (directory / "processed/scores.parquet").symlink_to(victim)
        case _:
            (directory / planted).symlink_to(outside)
    result = await run(pipeline, pipeline_dir=base, run_id=run_id)
    assert statuses(result) == {"validate": "failed"}
    assert "symbolic link" in detail_of(result, "validate")
    # Nothing went out: neither through the link nor over what it leads to.
    assert [path.name for path in outside.iterdir()] == ["scores.parquet"]
    assert victim.read_text() == "precious"
    assert read_file(base, run_id, "scores").equals(SCORES)


async def test_34_a_name_belongs_to_one_file(tmp_path: Path) -> None:
    def save(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_to("processed", "out.parquet", files[0].load())

    pipeline = make_pipeline(files=("scores", "report"))
    pipeline.add_step("first", save, Scores)
    pipeline.add_step("second", save, Report)
    frames = {"scores": SCORES, "report": SCORES.reverse()}
    result = await ingest_and_run(pipeline, frames, tmp_path, jobs=1)
    assert statuses(result) == {"first": "complete", "second": "failed"}
    assert "'scores'" in detail_of(result, "second")
    assert "'report'" in detail_of(result, "second")
    directory = run_directory(tmp_path, id_of(result))
    assert pl.read_parquet(directory / "processed/out.parquet").equals(SCORES)
    assert files_below(directory, "versions/report", "staging") == []


# -- 35 and 36 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [errno.EMLINK, errno.EXDEV, errno.EPERM])
async def test_35_more_links_than_an_inode_has(
    refusal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaled down: eight links instead of ext4's 65,000; and file systems that link nothing at all."""
    link, refused = os.link, 0

    def limited(source: str, target: str) -> None:
        nonlocal refused
        if refusal != errno.EMLINK or os.stat(source).st_nlink >= 8:
            refused += 1
            raise OSError(refusal, os.strerror(refusal), source)
        link(source, target)

    monkeypatch.setattr(os, "link", limited)

    def park(ctx: StepContext, files: StepFiles) -> None:
        number = int(ctx.step_id.removeprefix("park-"))
        ctx.quarantine.quarantine_row(files[0], {"id": number}, reason="parked")

    pipeline = make_pipeline()
    for number in range(60):
        pipeline.add_step(f"park {number}", park, Scores, on_quarantine="continue")
    frame = pl.DataFrame({"id": [0]})
    services = Services(disk=VolatileDisk())
    result = await ingest_and_run(pipeline, frame, tmp_path, jobs=4, services=services)
    assert set(statuses(result).values()) == {"quarantined"}
    directory = run_directory(tmp_path, id_of(result))
    snapshots = [directory / f"snapshots/park-{number}/scores.parquet" for number in range(60)]
    assert all(pl.read_parquet(snapshot).equals(frame) for snapshot in snapshots)
    for number in range(60):
        assert quarantined(tmp_path, id_of(result), f"park-{number}", "id") == [(number, "parked")]
    assert refused
    if refusal == errno.EMLINK:
        # One copy serves the next links, so copies are few: 60 names, 8 to an inode, and some races.
        assert len({snapshot.stat().st_ino for snapshot in snapshots}) < 20


async def test_36_a_lazy_save_may_scan_the_file_itself(tmp_path: Path) -> None:
    rows = 400_000

    def double(_ctx: StepContext, files: StepFiles) -> None:
        file = files[0]
        plan = file.scan()
        file.save_in_place_lazy(plan.with_columns(pl.col("x") * 2))
        # Again, over its own save; the plan made before still gives what was read.
        file.sink(file.scan().with_columns(before=pl.col("x") // 2, twice=pl.col("x")))
        assert plan.select(pl.col("x").sum()).collect().item() == rows * (rows - 1) // 2
        assert file.row_count() == rows

    async def filter_out(_ctx: StepContext, files: StepFiles) -> None:
        await files[0].asave_in_place_lazy(files[0].scan().filter(pl.col("x") % 4 == 0))

    pipeline = make_pipeline()
    pipeline.add_step("double", double, Scores)
    pipeline.add_step("filter", filter_out, Scores)
    frame = pl.DataFrame({"x": pl.int_range(rows, eager=True)})
    result = await ingest_and_run(pipeline, frame, tmp_path)
    assert result.status == "completed"
    saved = read_file(tmp_path, id_of(result), "scores")
    assert saved["before"].equals(pl.int_range(0, rows, 2, eager=True).alias("before"))
    assert saved["x"].equals((saved["before"] * 2).alias("x"))
    assert saved["twice"].equals(saved["x"].alias("twice"))
    ingested = run_directory(tmp_path, id_of(result)) / "ingested/scores.parquet"
    assert pl.read_parquet(ingested).equals(frame)


@pytest.mark.parametrize("rows", [0, 1])
async def test_36_small_files_too(rows: int, tmp_path: Path) -> None:
    def mark(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place_lazy(files[0].scan().with_columns(mark=pl.lit(True)))

    pipeline = make_pipeline(lambda p: p.add_step("mark", mark, Scores))
    result = await ingest_and_run(pipeline, SCORES.head(rows), tmp_path)
    assert read_file(tmp_path, id_of(result), "scores").equals(
        SCORES.head(rows).with_columns(mark=pl.lit(True))
    )


# -- a disk that refuses, and a lock that is held --------------------------------------------------


class FullDisk(VolatileDisk):
    """Has no space left from the k-th operation on, except for what a test lets pass."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.left = k

    def before(self, operation: str, path: str) -> None:
        """Count, and refuse."""
        self.left -= 1
        if self.left < 0 and not operation.startswith("remove"):
            raise StorageError(f"cannot {operation} {path}: {os.strerror(errno.ENOSPC)}")


async def run_on_a_full_disk(pipeline: Pipeline, pipeline_dir: Path, k: int) -> StorageError | None:
    """Run with space for k operations, and return what the run said of it, if anything."""
    try:
        await run(pipeline, pipeline_dir=pipeline_dir, services=Services(disk=FullDisk(k)))
    except StorageError as error:
        return error
    return None


async def test_a_full_disk_at_every_operation(tmp_path: Path) -> None:
    """The last good records stay; with space again, a plain run ends as if nothing had been."""
    pipeline = make_three_steps()
    services = Services(disk=VolatileDisk())
    prepared, directory = tmp_path / "prepared", tmp_path / "full"
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, prepared, services=services)
    expected = SCORES.filter(pl.col("score") >= 0).with_columns(tag=pl.lit("t"))
    k = passed = 0
    # What comes last, such as statistics, may fail without harm to the run.
    while passed < 8:
        k += 1
        shutil.copytree(prepared, directory)
        error = await run_on_a_full_disk(pipeline, directory, k)
        if error is None:
            passed += 1
        else:
            assert "No space left on device" in str(error)
            assert error.exit_code == 1
        read_run(directory, run_id)
        result = await run(pipeline, pipeline_dir=directory, services=Services(disk=VolatileDisk()))
        assert id_of(result) == run_id
        assert statuses(result) == {"before": "complete", "validate": "quarantined", "after": "blocked"}
        assert read_file(directory, run_id, "scores").equals(expected)
        assert quarantined(directory, run_id, "validate", "id") == [(2, "negative")]
        named = set(record_of(result).named_paths())
        assert (
            set(files_below(run_directory(directory, run_id), "versions", "quarantine", "staging")) <= named
        )
        shutil.rmtree(directory)
    assert k > 40


async def test_two_at_once(tmp_path: Path) -> None:
    with Gate() as gate:

        def hold(_ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            files[0].save_in_place(SCORES.reverse())

        pipeline = make_pipeline(lambda p: p.add_step("hold", hold, Scores))
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: run(pipeline, pipeline_dir=tmp_path, run_id=run_id))
            await gate.arrived()
            for chosen in (run_id, None):
                with pytest.raises(RunLockedError, match=f"process {os.getpid()} on .* since 20") as caught:
                    await run(pipeline, pipeline_dir=tmp_path, run_id=chosen)
                assert caught.value.exit_code == 4
            # Reading never locks anybody out, and sees what goes on.
            assert statuses(read_run(tmp_path, run_id)) == {"hold": "running"}
            assert [summary.status for summary in list_runs(tmp_path)[0]] == ["running"]
            gate.open()
    assert read_file(tmp_path, run_id, "scores").equals(SCORES.reverse())
    assert read_quarantine(tmp_path, run_id, "hold", "scores").is_empty()


async def test_a_lost_version_of_an_interrupted_run_is_made_anew(tmp_path: Path) -> None:
    def double(ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().with_columns(pl.col("score") * 2))

    def add_one(ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().with_columns(pl.col("score") + 1))

    pipeline = make_pipeline()
    pipeline.add_step("double", double, Scores)
    pipeline.add_step("add one", add_one, Scores)
    run_id = id_of(await ingest_and_run(pipeline, SCORES, tmp_path))
    directory = run_directory(tmp_path, run_id)
    # As a kill leaves it, and somebody has tidied up too much.
    (directory / "staging").mkdir()
    (directory / "versions/scores/double.1.parquet").unlink()
    (directory / "snapshots/add-one/scores.parquet").unlink()
    result = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, rerun=["double"])
    assert (result.status, attempts(result)) == ("completed", {"double": 2, "add-one": 2})
    assert read_file(tmp_path, run_id, "scores")["score"].to_list() == [21, -39, 61]
