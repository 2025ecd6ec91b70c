"""The journal: torn tails are dropped, damage is told, and half a line never stays."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from astro_async._core.events import AnyEvent, PartWritten, SavedFile
from astro_async._core.manifest import dump_manifest, parse_manifest
from astro_async._core.names import RunId
from astro_async._core.status import StepStatus
from astro_async._store.atomic import Disk
from astro_async._store.journal import Journal, read_manifest, read_run
from astro_async.exceptions import JournalError, StorageError
from core.samples import RUN, Story, flow, planned_story
from store.disks import FullDisk, RefusingDisk
from store.samples import dump_line, fold_all, lay_out


def some_events() -> list[AnyEvent]:
    story = planned_story("f", steps=["a", "b", "c"])
    story.run_step("a")
    story.run_step("b", status=StepStatus.QUARANTINED)
    story.start("c")
    story.finish("c", StepStatus.FAILED)
    return story.events


EVENTS = some_events()
LINES = [dump_line(event) for event in EVENTS]
LAST = len(LINES[-1])
WHOLE = b"".join(LINES)


@pytest.fixture(params=[6, None], ids=["manifest", "no manifest"])
def durable(request: pytest.FixtureRequest) -> int | None:
    count: int | None = request.param
    return count


def test_a_whole_journal(tmp_path: Path, durable: int | None) -> None:
    lay_out(tmp_path, EVENTS, durable=durable)
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS)
    assert (reading.journal_bytes, reading.torn) == (len(WHOLE), False)
    assert reading.durable_bytes == (0 if durable is None else sum(map(len, LINES[:durable])))
    assert (reading.manifest_damage is None) == (durable is not None)


@pytest.mark.parametrize("cut", range(1, LAST))
def test_a_tail_that_is_torn_at_any_byte_is_dropped(tmp_path: Path, durable: int | None, cut: int) -> None:
    lay_out(tmp_path, EVENTS, durable=durable)
    (tmp_path / "events.jsonl").write_bytes(WHOLE[:-cut])
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS[:-1])
    assert reading.journal_bytes == len(WHOLE) - LAST
    assert reading.torn


@pytest.mark.parametrize("keep", range(len(EVENTS) + 1))
def test_a_tail_of_any_number_of_lines(tmp_path: Path, keep: int) -> None:
    lay_out(tmp_path, EVENTS, durable=keep or None)
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS)
    assert not reading.torn


@pytest.mark.parametrize(
    "garbage", [b"\0" * 500, b"\n", b"\n\n", b"garbage\n", b"{}\n", b"\xff" * 9 + b"\n", LINES[0]]
)
def test_garbage_behind_the_last_line_is_dropped(tmp_path: Path, durable: int | None, garbage: bytes) -> None:
    lay_out(tmp_path, EVENTS, durable=durable)
    (tmp_path / "events.jsonl").write_bytes(WHOLE + garbage)
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS)
    assert (reading.journal_bytes, reading.torn) == (len(WHOLE), True)


def test_damage_behind_the_durable_point_drops_all_that_follows(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    damaged = [*LINES[:8], b'{"kind":"step_st\0\0\n', *LINES[9:]]
    (tmp_path / "events.jsonl").write_bytes(b"".join(damaged))
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS[:8])
    assert reading.torn


def test_a_line_that_cannot_follow_is_damage(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    (tmp_path / "events.jsonl").write_bytes(b"".join([*LINES[:7], LINES[8], *LINES[7:]]))
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS[:7])
    assert reading.torn


@pytest.mark.parametrize("line", range(len(LINES) - 1))
def test_without_a_manifest_damage_in_the_middle_is_an_error_that_says_where(
    tmp_path: Path, line: int
) -> None:
    lay_out(tmp_path, EVENTS, durable=None)
    damaged = [*LINES[:line], b"#" * (len(LINES[line]) - 1) + b"\n", *LINES[line + 1 :]]
    (tmp_path / "events.jsonl").write_bytes(b"".join(damaged))
    at = sum(map(len, LINES[:line]))
    with pytest.raises(JournalError, match=rf"events\.jsonl, byte {at}: ") as caught:
        read_run(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("line", [0, 5])
def test_damage_before_the_durable_point_is_an_error(tmp_path: Path, line: int) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    damaged = [*LINES[:line], b"#" * (len(LINES[line]) - 1) + b"\n", *LINES[line + 1 :]]
    (tmp_path / "events.jsonl").write_bytes(b"".join(damaged))
    with pytest.raises(JournalError, match=r"events\.jsonl is damaged in its first \d+ bytes"):
        read_run(str(tmp_path), checks_prefix=True)


def test_a_sound_journal_agrees_with_the_checksum_of_its_manifest(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    reading = read_run(str(tmp_path), checks_prefix=True)
    assert reading.journal_crc32 == zlib.crc32(WHOLE)


@pytest.mark.parametrize("missing", [1, 10, 400])
def test_a_journal_shorter_than_the_manifest_vouches_for_is_an_error(tmp_path: Path, missing: int) -> None:
    lay_out(tmp_path, EVENTS, durable=len(EVENTS))
    (tmp_path / "events.jsonl").write_bytes(WHOLE[:-missing])
    with pytest.raises(
        JournalError, match=f"shorter than the {len(WHOLE)} bytes that the manifest vouches for"
    ):
        read_run(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\n", b"\0" * 100, LINES[0][:-1], LINES[1]])
def test_a_folder_without_a_first_line_is_no_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "events.jsonl").write_bytes(content)
    with pytest.raises(JournalError, match=r"events\.jsonl"):
        read_run(str(tmp_path))


@pytest.mark.parametrize("durable", [6, None])
def test_a_journal_that_is_missing(tmp_path: Path, durable: int | None) -> None:
    lay_out(tmp_path, EVENTS, durable=durable)
    (tmp_path / "events.jsonl").unlink()
    with pytest.raises(StorageError, match=r"cannot read .*/events\.jsonl"):
        read_run(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 40, b"[]"])
def test_a_damaged_manifest_is_rebuilt_from_the_journal(tmp_path: Path, content: bytes) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    (tmp_path / "manifest.json").write_bytes(content)
    reading = read_run(str(tmp_path))
    assert reading.record == fold_all(EVENTS)
    assert "manifest.json" in str(reading.manifest_damage)
    with pytest.raises(JournalError, match=r"manifest\.json"):
        read_manifest(str(tmp_path))


def test_a_manifest_of_a_later_schema_is_not_taken_for_damage(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    document = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_bytes(document.replace(b'"schema_version":1', b'"schema_version":2'))
    # Its journal may say things that this program does not know: to rebuild is to lose them.
    with pytest.raises(JournalError, match="schema version 2"):
        read_run(str(tmp_path))


def test_reading_changes_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    (tmp_path / "events.jsonl").write_bytes(WHOLE + b"torn")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    read_run(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def lay_tail_with_files(folder: Path) -> list[str]:
    """Lay out a run whose last line, not in the manifest, names files; return their paths."""

    story = planned_story("f", steps=["a"])
    story.run_step(
        "a",
        flow(
            "f",
            "ingested/f.parquet",
            "versions/f/a.1.parquet",
            parts=[
                PartWritten("quarantine/a/f.part-00001.parquet", 1, 100, "quarantine/a/f.part-00001.rows")
            ],
            saved=[SavedFile("processed/x", "versions/f/a.1.1.parquet", 100)],
            filtered="filtered/a/f.parquet",
        ),
        status=StepStatus.QUARANTINED,
    )
    lay_out(folder, story.events, durable=len(story.events) - 1)
    paths = [
        "versions/f/a.1.parquet",
        "quarantine/a/f.part-00001.parquet",
        "quarantine/a/f.part-00001.rows",
        "versions/f/a.1.1.parquet",
        "filtered/a/f.parquet",
    ]
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x" * 96 + b"PAR1")
    return paths


def test_a_line_whose_files_are_whole_counts_and_they_are_to_be_synced(tmp_path: Path) -> None:
    paths = lay_tail_with_files(tmp_path)
    reading = read_run(str(tmp_path))
    assert reading.record.steps["a"].status is StepStatus.QUARANTINED
    assert not reading.torn
    assert sorted(set(reading.tail_paths)) == sorted(paths)


@pytest.mark.parametrize("which", range(5))
def test_a_line_that_names_a_file_which_a_power_cut_took_does_not_count(tmp_path: Path, which: int) -> None:
    paths = lay_tail_with_files(tmp_path)
    (tmp_path / paths[which]).unlink()
    reading = read_run(str(tmp_path))
    assert reading.record.steps["a"].status is StepStatus.RUNNING
    assert reading.torn


@pytest.mark.parametrize("which", [0, 1, 3])
def test_a_line_that_names_a_file_which_is_cut_off_does_not_count(tmp_path: Path, which: int) -> None:
    paths = lay_tail_with_files(tmp_path)
    (tmp_path / paths[which]).write_bytes(b"x" * 99)
    assert read_run(str(tmp_path)).torn


def test_appending_and_reading_back(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), Disk(), 0)
    journal.append(EVENTS[:3])
    journal.append([])
    journal.append(EVENTS[3:])
    journal.close()
    assert journal.size_bytes == len(WHOLE)
    assert (tmp_path / "events.jsonl").read_bytes() == WHOLE


def test_an_append_that_fails_half_way_leaves_no_half_line(tmp_path: Path) -> None:
    disk = FullDisk()
    disk.is_full = False
    journal = Journal(str(tmp_path), disk, 0)
    journal.append(EVENTS[:4])
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(StorageError, match=r"cannot append to .*/events\.jsonl: No space left"):
            journal.append(EVENTS[4:])
        assert (tmp_path / "events.jsonl").read_bytes() == b"".join(LINES[:4])
        assert journal.size_bytes == sum(map(len, LINES[:4]))
    disk.is_full = False
    journal.append(EVENTS[4:])
    journal.close()
    assert (tmp_path / "events.jsonl").read_bytes() == WHOLE


def test_an_append_that_is_refused_writes_nothing(tmp_path: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "append to")
    journal = Journal(str(tmp_path), disk, 0)
    with pytest.raises(StorageError):
        journal.append(EVENTS)
    journal.close()
    assert (journal.size_bytes, (tmp_path / "events.jsonl").read_bytes()) == (0, b"")


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    lay_out(tmp_path, EVENTS, durable=6)
    manifest = read_manifest(str(tmp_path))
    assert manifest.run_id == RUN == RunId("abc12")
    assert parse_manifest(dump_manifest(manifest)) == manifest
    assert Story().run.run_id == manifest.run_id


@pytest.mark.parametrize("which", range(5))
def test_a_line_that_names_a_file_with_a_hole_does_not_count(tmp_path: Path, which: int) -> None:
    paths = lay_tail_with_files(tmp_path)
    (tmp_path / paths[which]).write_bytes(bytes(100))
    assert read_run(str(tmp_path)).torn


def test_holes_are_looked_for_block_by_block(tmp_path: Path) -> None:
    story = planned_story("f", steps=["a"])
    path = "versions/f/a.1.parquet"
    size = 3 * 4096 + 10
    story.run_step("a", flow("f", "ingested/f.parquet", path, size_bytes=size))
    lay_out(tmp_path, story.events, durable=len(story.events) - 1)
    (tmp_path / path).parent.mkdir(parents=True)
    for start in range(0, size, 4096):
        content = bytearray(b"x" * size)
        content[start : start + 4096] = bytes(len(content[start : start + 4096]))
        (tmp_path / path).write_bytes(content)
        assert read_run(str(tmp_path)).torn
        # While its process lives, nothing was lost.
        assert not read_run(str(tmp_path), checks_content=False).torn
    # Zeros of less than a block are data.
    content = bytearray(b"x" * size)
    content[2000:6095] = bytes(4095)
    (tmp_path / path).write_bytes(content)
    assert not read_run(str(tmp_path)).torn
