"""Publication: final names, links, who owns a name, and nothing outside the run."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import pytest

from astro_async._core.events import FileFlow, PartWritten, SavedFile, VersionWritten
from astro_async._store.atomic import PUBLISHED_MODE, Disk
from astro_async._store.layout import part_path, positions_path
from astro_async._store.publish import Publisher
from astro_async._store.staging import FileOutput, StagedFile, StagedPart, Staging
from astro_async.exceptions import StepError, StorageError
from core.samples import flow, planned_story
from store.disks import RefusingDisk
from store.samples import tree

F = "ingested/f.parquet"


class Bench:
    """A run directory with two ingested files, and what publishes into it."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.disk = disk or Disk()
        (folder / "ingested").mkdir()
        for name in "fg":
            (folder / f"ingested/{name}.parquet").write_bytes(b"ingested " + name.encode())
        self.story = planned_story("f", "g", steps=["a", "b"])
        self.publisher = Publisher(str(folder), self.disk, self.story.run)

    def staged(self, content: bytes, step_id: str = "a", *, rows: int = 5) -> StagedFile:
        path = Path(f"{self.folder}/staging/{step_id}/{len(list(self.folder.rglob('staging/*/*')))}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return StagedFile(str(path), rows, 2, len(content))

    def output(self, name: str = "f", *, rows_in: int = 10) -> FileOutput:
        return FileOutput(name, f"ingested/{name}.parquet", rows_in)

    def saving(self, path: str, name: str = "f", content: bytes = b"saved") -> FileOutput:
        output = self.output(name)
        output.saved[path] = self.staged(content)
        return output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def bench(folder: Path) -> Bench:
    return Bench(folder)


def test_a_version_gets_its_final_name_and_its_input_a_snapshot(bench: Bench, folder: Path) -> None:
    output = bench.output()
    output.version = bench.staged(b"version")
    (published,) = bench.publisher.publish("a", 3, [output])
    version = VersionWritten("versions/f/a.3.parquet", 5, 2, 7, zlib.crc32(b"version"))
    assert published == FileFlow("f", F, 10, 5, 0, version)
    assert tree(folder) == {
        "ingested/f.parquet": b"ingested f",
        "ingested/g.parquet": b"ingested g",
        "versions/f/a.3.parquet": b"version",
        "snapshots/a/f.parquet": b"ingested f",
    }
    assert os.path.samefile(folder / "snapshots/a/f.parquet", folder / F)
    assert stat.S_IMODE((folder / "versions/f/a.3.parquet").stat().st_mode) == 0o444
    assert list(bench.publisher.unsynced) == [str(folder / "versions/f/a.3.parquet")]


def test_a_step_that_wrote_nothing_costs_no_directory(bench: Bench, folder: Path) -> None:
    before = sorted(os.listdir(folder))
    (published,) = bench.publisher.publish("a", 1, [bench.output()])
    assert (published.rows_in, published.rows_out, published.published) == (10, 10, None)
    assert sorted(os.listdir(folder)) == before


def test_a_check_that_found_nothing_vouches_for_its_version_at_no_cost(bench: Bench, folder: Path) -> None:
    before = sorted(os.listdir(folder))
    output = bench.output()
    output.keeps_version = True
    (published,) = bench.publisher.publish("a", 1, [output])
    assert published.published is not None
    assert (published.published.path, published.published.rows) == (F, 10)
    assert sorted(os.listdir(folder)) == before


def test_parts_are_numbered_and_have_their_positions_beside_them(bench: Bench, folder: Path) -> None:
    output = bench.output()
    output.parts = [
        StagedPart(bench.staged(b"part one", rows=2), bench.staged(b"rows one")),
        StagedPart(bench.staged(b"part two!", rows=1), None),
    ]
    (published,) = bench.publisher.publish("a", 1, [output])
    assert published.parts == (
        PartWritten(
            "quarantine/a/f.part-00001.parquet",
            2,
            8,
            "quarantine/a/f.part-00001.rows",
            zlib.crc32(b"part one"),
        ),
        PartWritten("quarantine/a/f.part-00002.parquet", 1, 9, None, zlib.crc32(b"part two!")),
    )
    assert published.rows_quarantined == 3
    assert tree(folder / "quarantine") == {
        "a/f.part-00001.parquet": b"part one",
        "a/f.part-00001.rows": b"rows one",
        "a/f.part-00002.parquet": b"part two!",
    }
    assert tree(folder / "snapshots") == {"a/f.parquet": b"ingested f"}
    # All of it, positions included, is to be synced before a durable record may name it.
    assert len(bench.publisher.unsynced) == 3


class HollowDisk(Disk):
    """Keeps nothing."""

    def make_directory(self, path: str, *, is_kept: bool = True) -> None:
        pass

    def publish(self, staged: str, path: str, *, mode: int = PUBLISHED_MODE) -> None:
        pass

    def link(self, path: str, name: str, *, temporary: str | None = None) -> None:
        pass


def test_numbers_have_five_digits_and_then_more(folder: Path) -> None:
    bench = Bench(folder, HollowDisk())
    output = bench.output()
    output.parts = [StagedPart(bench.staged(b"one of many"), None)] * 100_001
    (published,) = bench.publisher.publish("a", 1, [output])
    paths = [part.path for part in published.parts]
    assert paths[0] == "quarantine/a/f.part-00001.parquet"
    assert paths[99_998:] == [f"quarantine/a/f.part-{n}.parquet" for n in ("99999", "100000", "100001")]
    assert len(set(paths)) == 100_001
    assert positions_path(part_path("a", "f", 100_000)) == "quarantine/a/f.part-100000.rows"


def test_what_a_filter_removed(bench: Bench, folder: Path) -> None:
    output = bench.output()
    output.version, output.filtered, output.rows_filtered = bench.staged(b"kept"), bench.staged(b"gone"), 5
    (published,) = bench.publisher.publish("a", 1, [output])
    assert (published.filtered, published.rows_filtered) == ("filtered/a/f.parquet", 5)
    assert (folder / "filtered/a/f.parquet").read_bytes() == b"gone"
    assert str(folder / "filtered/a/f.parquet") in bench.publisher.unsynced


def test_a_saved_name_links_to_the_version_or_to_a_file_of_its_own(bench: Bench, folder: Path) -> None:
    output = bench.output()
    output.version = bench.staged(b"version")
    output.saved = {"processed/last.parquet": output.version, "processed/q1/copy": bench.staged(b"copy")}
    (published,) = bench.publisher.publish("a", 2, [output])
    assert published.saved == (
        SavedFile("processed/last.parquet", "versions/f/a.2.parquet", 7),
        SavedFile("processed/q1/copy", "versions/f/a.2.2.parquet", 4, zlib.crc32(b"copy")),
    )
    assert tree(folder / "processed") == {"last.parquet": b"version", "q1/copy": b"copy"}
    assert os.path.samefile(folder / "processed/last.parquet", folder / "versions/f/a.2.parquet")


def test_the_owner_of_a_name_may_use_it_again(bench: Bench, folder: Path) -> None:
    bench.publisher.publish("a", 1, [bench.saving("processed/x", content=b"one")])
    bench.publisher.publish("b", 1, [bench.saving("processed/x", content=b"two")])
    assert (folder / "processed/x").read_bytes() == b"two"
    assert (folder / "versions/f/a.1.1.parquet").read_bytes() == b"one"


@pytest.mark.parametrize("twin", ["processed/scores", "processed/Scores", "PROCESSED/scores"])
def test_a_name_belongs_to_one_file_and_both_are_named(bench: Bench, folder: Path, twin: str) -> None:
    bench.publisher.publish("a", 1, [bench.saving("processed/scores", "f", b"mine")])
    with pytest.raises(StepError) as caught:
        bench.publisher.publish("b", 1, [bench.saving(twin, "g", b"yours")])
    assert "'f'" in str(caught.value)
    assert "'g'" in str(caught.value)
    assert (folder / "processed/scores").read_bytes() == b"mine"
    assert not (folder / "versions/g").exists()


def test_a_name_that_is_on_record_belongs_to_its_file(folder: Path) -> None:
    bench = Bench(folder)
    saved = [SavedFile("processed/x", "versions/f/a.1.1.parquet", 5)]
    bench.story.run_step("a", flow("f", F, saved=saved))
    publisher = Publisher(str(folder), Disk(), bench.story.run)
    with pytest.raises(StepError, match="a name that belongs to 'f'"):
        publisher.publish("b", 1, [bench.saving("processed/x", "g")])


def test_two_files_of_one_step_cannot_share_a_name(bench: Bench, folder: Path) -> None:
    outputs = [bench.saving("processed/x", "f"), bench.saving("processed/x", "g")]
    with pytest.raises(StepError, match="belongs to 'f'"):
        bench.publisher.publish("a", 1, outputs)
    assert not (folder / "versions").exists()
    assert not (folder / "processed").exists()


def test_a_step_that_failed_owns_no_name(bench: Bench, folder: Path) -> None:
    bench.publisher.publish("a", 1, [bench.saving("processed/taken", "f")])
    failing = [bench.saving("processed/free", "f"), bench.saving("processed/taken", "g")]
    with pytest.raises(StepError):
        bench.publisher.publish("b", 1, failing)
    bench.publisher.publish("c", 1, [bench.saving("processed/free", "g", b"at last")])
    assert (folder / "processed/free").read_bytes() == b"at last"


@pytest.mark.parametrize("planted", ["processed", "processed/deep", "processed/deep/x"])
def test_a_planted_symlink_leads_nowhere(bench: Bench, folder: Path, tmp_path: Path, planted: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"precious")
    (folder / planted).parent.mkdir(parents=True, exist_ok=True)
    (folder / planted).symlink_to(outside / "x" if planted.endswith("x") else outside)
    with pytest.raises(StepError, match="is a symbolic link") as caught:
        bench.publisher.publish("a", 1, [bench.saving("processed/deep/x")])
    assert str(folder / planted) in str(caught.value)
    assert tree(outside) == {"x": b"precious"}
    # Once it is gone, the next attempt goes through.
    (folder / planted).unlink()
    bench.publisher.publish("a", 2, [bench.saving("processed/deep/x")])
    assert (folder / "processed/deep/x").read_bytes() == b"saved"


def quarantining(bench: Bench) -> FileOutput:
    output = bench.saving("processed/x")
    output.parts = [StagedPart(bench.staged(b"bad rows"), bench.staged(b"rows"))]
    return output


def test_a_step_that_fails_to_publish_leaves_no_part_in_the_way_of_its_next_attempt(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    (folder / "processed").symlink_to(tmp_path)
    with pytest.raises(StepError):
        bench.publisher.publish("a", 1, [quarantining(bench)])
    (folder / "processed").unlink()
    (published,) = bench.publisher.publish("a", 2, [quarantining(bench)])
    assert [part.path for part in published.parts] == ["quarantine/a/f.part-00001.parquet"]


def test_a_disk_that_refuses_half_way_leaves_no_part_in_the_way_of_the_next_attempt(folder: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "link")
    bench = Bench(folder, disk)
    with pytest.raises(StorageError):
        bench.publisher.publish("a", 1, [quarantining(bench)])
    disk.choose = lambda _operation, _path: False
    (published,) = bench.publisher.publish("a", 2, [quarantining(bench)])
    assert [part.path for part in published.parts] == ["quarantine/a/f.part-00001.parquet"]


def test_a_published_name_is_never_written_over(bench: Bench, folder: Path) -> None:
    (folder / "versions/f").mkdir(parents=True)
    (folder / "versions/f/a.1.parquet").write_bytes(b"there already")
    output = bench.output()
    output.version = bench.staged(b"version")
    with pytest.raises(StorageError, match="exists already"):
        bench.publisher.publish("a", 1, [output])
    assert (folder / "versions/f/a.1.parquet").read_bytes() == b"there already"


def test_current_names_the_last_versions_and_is_left_alone_where_it_does(bench: Bench, folder: Path) -> None:
    output = bench.output()
    output.version = bench.staged(b"version")
    bench.publisher.publish("a", 1, [output])
    links = {"current/f.parquet": "versions/f/a.1.parquet", "current/g.parquet": "ingested/g.parquet"}
    bench.publisher.link_where_other(links)
    assert tree(folder / "current") == {"f.parquet": b"version", "g.parquet": b"ingested g"}
    disk = RefusingDisk(lambda _operation, _path: True)
    Publisher(str(folder), disk, bench.story.run).link_where_other(links)
    bench.publisher.link_where_other({**links, "current/f.parquet": F})
    assert (folder / "current/f.parquet").read_bytes() == b"ingested f"


def test_staged_files_are_private_to_an_attempt(tmp_path: Path) -> None:
    first, second = (Staging(str(tmp_path), "a", attempt, Disk()) for attempt in (1, 11))
    assert not first.is_used
    assert list(tmp_path.iterdir()) == []
    paths = [first.next_path(), first.next_path(), second.next_path()]
    assert [os.path.relpath(path, tmp_path) for path in paths] == [
        "staging/a.1.1.parquet",
        "staging/a.1.2.parquet",
        "staging/a.11.1.parquet",
    ]
    for path in paths:
        Path(path).write_bytes(b"x")
    os.rename(paths[1], tmp_path / "published")
    first.discard()
    first.discard()
    assert not first.is_used
    assert os.listdir(tmp_path / "staging") == ["a.11.1.parquet"]


def test_what_another_process_has_staged_is_found(tmp_path: Path) -> None:
    child, parent = (Staging(str(tmp_path), "a", 1, Disk()) for _ in range(2))
    parent.adopt()
    assert not parent.is_used
    for staging in (child, Staging(str(tmp_path), "a", 2, Disk()), Staging(str(tmp_path), "ba", 1, Disk())):
        Path(staging.next_path()).write_bytes(b"x")
    (tmp_path / "staging" / "a.1.1.parquet.aside").write_bytes(b"x")
    parent.adopt()
    assert parent.is_used
    parent.discard()
    assert sorted(os.listdir(tmp_path / "staging")) == ["a.2.1.parquet", "ba.1.1.parquet"]
