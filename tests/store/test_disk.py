"""The seam: each change is whole or is not made, and errors name what and where."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from astro_async._store.atomic import Disk, storage_errors
from astro_async.exceptions import StorageError
from store.disks import RefusingDisk, WatchedDisk
from store.samples import tree

Operation = Callable[[Disk, Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "staged").write_bytes(b"new")
    (tmp_path / "full" / "deep").mkdir(parents=True)
    (tmp_path / "full" / "deep" / "file").write_bytes(b"deep")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_publish_gives_the_final_name_and_makes_the_file_read_only(folder: Path) -> None:
    Disk().publish(str(folder / "staged"), str(folder / "final"))
    assert (folder / "final").read_bytes() == b"new"
    assert stat.S_IMODE((folder / "final").stat().st_mode) == 0o444
    assert not (folder / "staged").exists()


@pytest.mark.parametrize("kind", ["file", "symlink", "dangling", "directory"])
def test_publish_never_replaces_anything(folder: Path, kind: str) -> None:
    target = folder / "target"
    match kind:
        case "file":
            target.write_bytes(b"old")
        case "symlink":
            target.symlink_to(folder / "file")
        case "dangling":
            target.symlink_to(folder / "nothing")
        case _:
            target.mkdir()
    before = os.lstat(target)
    with pytest.raises(StorageError, match="exists already") as caught:
        Disk().publish(str(folder / "staged"), str(target))
    assert str(target) in str(caught.value)
    assert os.lstat(target).st_ino == before.st_ino
    assert (folder / "staged").read_bytes() == b"new"
    assert (folder / "file").read_bytes() == b"old"


def test_make_directory_makes_parents_and_may_be_repeated(folder: Path) -> None:
    disk = WatchedDisk()
    path = str(folder / "a" / "b" / "c")
    for _ in range(3):
        disk.make_directory(path)
    assert os.path.isdir(path)
    assert disk.operations == [("create directory", path)]
    Disk().make_directory(path)


def test_a_directory_that_was_removed_can_be_made_again(folder: Path) -> None:
    disk = Disk()
    for remove in (disk.remove_directory, disk.remove_tree):
        disk.make_directory(str(folder / "a"))
        remove(str(folder / "a"))
        assert not (folder / "a").exists()
    # What goes with its parent is not remembered.
    disk.make_directory(str(folder / "a" / "b"), is_kept=False)
    disk.remove_tree(str(folder / "a"))
    disk.make_directory(str(folder / "a" / "b"), is_kept=False)
    assert (folder / "a" / "b").is_dir()


def test_remove_tree_of_a_name_that_is_the_start_of_another(folder: Path) -> None:
    disk = Disk()
    disk.make_directory(str(folder / "run"))
    disk.make_directory(str(folder / "run2"))
    disk.remove_tree(str(folder / "run"))
    assert (folder / "run2").is_dir()


def test_what_is_not_there_is_removed_without_complaint(folder: Path) -> None:
    before = tree(folder)
    Disk().remove(str(folder / "nothing"))
    Disk().remove_tree(str(folder / "nothing"))
    Disk().remove_directory(str(folder / "nothing"))
    assert tree(folder) == before


def test_a_directory_that_is_not_empty_stays(folder: Path) -> None:
    Disk().remove_directory(str(folder / "full"))
    assert (folder / "full" / "deep" / "file").read_bytes() == b"deep"
    Disk().remove_directory(str(folder / "empty"))
    assert not (folder / "empty").exists()


def test_write_file_replaces_at_once(folder: Path) -> None:
    disk = WatchedDisk()
    path = str(folder / "file")
    with open(path, "rb") as reader:
        disk.write_file(path, b"new content")
        assert reader.read() == b"old"
    assert (folder / "file").read_bytes() == b"new content"
    temporary = f"{path}.tmp"
    assert disk.operations == [
        ("write", path),
        ("sync", temporary),
        ("rename", path),
        ("sync", str(folder)),
    ]
    assert sorted(tree(folder)) == ["file", "full/deep/file", "staged"]


def test_write_file_that_stops_before_the_rename_leaves_the_old_one(folder: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "rename")
    with pytest.raises(StorageError):
        disk.write_file(str(folder / "file"), b"new content")
    assert (folder / "file").read_bytes() == b"old"
    Disk().write_file(str(folder / "file"), b"new content")
    assert (folder / "file").read_bytes() == b"new content"


def test_append_goes_to_the_end(folder: Path) -> None:
    disk = Disk()
    path = str(folder / "file")
    descriptor = disk.open_append(path)
    disk.append(descriptor, path, b"1")
    disk.truncate(path, 2)
    disk.append(descriptor, path, b"2")
    os.close(descriptor)
    assert (folder / "file").read_bytes() == b"ol2"


def test_rename_directory(folder: Path) -> None:
    disk = WatchedDisk()
    disk.rename_directory(str(folder / "full"), str(folder / "other"))
    assert (folder / "other" / "deep" / "file").read_bytes() == b"deep"
    assert disk.operations == [("rename", str(folder / "other")), ("sync", str(folder))]


def test_rename_directory_never_replaces_one_with_content(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "mine").write_bytes(b"mine")
    with pytest.raises(StorageError):
        Disk().rename_directory(str(folder / "full"), str(folder / "other"))
    assert (folder / "other" / "mine").read_bytes() == b"mine"
    assert (folder / "full" / "deep" / "file").read_bytes() == b"deep"


CHANGES: dict[str, Operation] = {
    "create directory": lambda disk, folder: disk.make_directory(f"{folder}/new"),
    "remove directory": lambda disk, folder: disk.remove_directory(f"{folder}/empty"),
    "remove tree": lambda disk, folder: disk.remove_tree(f"{folder}/full"),
    "remove": lambda disk, folder: disk.remove(f"{folder}/file"),
    "publish": lambda disk, folder: disk.publish(f"{folder}/staged", f"{folder}/final"),
    "link": lambda disk, folder: disk.link(f"{folder}/staged", f"{folder}/file"),
    "write": lambda disk, folder: disk.write_file(f"{folder}/file", b"new"),
    "open": lambda disk, folder: disk.open_append(f"{folder}/new"),
    "truncate": lambda disk, folder: disk.truncate(f"{folder}/file", 1),
    "rename": lambda disk, folder: disk.rename_directory(f"{folder}/full", f"{folder}/new"),
    "sync": lambda disk, folder: disk.sync(f"{folder}/file"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_seam_is_asked_before_each_change(folder: Path, name: str) -> None:
    disk = RefusingDisk(lambda _operation, _path: True)
    before = tree(folder)
    modes = {path: os.stat(folder / path).st_mode for path in before}
    with pytest.raises(StorageError, match="refused"):
        CHANGES[name](disk, folder)
    assert len(disk.operations) == 1
    assert tree(folder) == before
    assert {path: os.stat(folder / path).st_mode for path in before} == modes
    assert sorted(os.listdir(folder)) == ["empty", "file", "full", "staged"]


def test_the_seam_is_asked_before_an_append(folder: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "append to")
    path = str(folder / "file")
    descriptor = disk.open_append(path)
    with pytest.raises(StorageError, match="refused"):
        disk.append(descriptor, path, b"1")
    os.close(descriptor)
    assert (folder / "file").read_bytes() == b"old"


IMPOSSIBLE: dict[str, Operation] = {
    "create directory": lambda disk, folder: disk.make_directory(f"{folder}/file/x"),
    "remove": lambda disk, folder: disk.remove(f"{folder}/file/x"),
    "remove a directory": lambda disk, folder: disk.remove(f"{folder}/empty"),
    "remove tree": lambda disk, folder: disk.remove_tree(f"{folder}/file/x"),
    "publish": lambda disk, folder: disk.publish(f"{folder}/staged", f"{folder}/nowhere/x"),
    "publish nothing": lambda disk, folder: disk.publish(f"{folder}/nothing", f"{folder}/x"),
    "link": lambda disk, folder: disk.link(f"{folder}/staged", f"{folder}/nowhere/x"),
    "link nothing": lambda disk, folder: disk.link(f"{folder}/nothing", f"{folder}/x"),
    "link over a directory": lambda disk, folder: disk.link(f"{folder}/staged", f"{folder}/full"),
    "write": lambda disk, folder: disk.write_file(f"{folder}/nowhere/x", b""),
    "write over a directory": lambda disk, folder: disk.write_file(f"{folder}/full", b""),
    "open": lambda disk, folder: disk.open_append(f"{folder}/full"),
    "truncate": lambda disk, folder: disk.truncate(f"{folder}/nothing", 0),
    "rename": lambda disk, folder: disk.rename_directory(f"{folder}/nothing", f"{folder}/x"),
    "sync": lambda disk, folder: disk.sync(f"{folder}/nothing"),
    "too long": lambda disk, folder: disk.write_file(f"{folder}/{'x' * 300}", b""),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_errors_name_what_and_where(folder: Path, name: str) -> None:
    before = tree(folder)
    with pytest.raises(
        StorageError, match=rf"^cannot [a-z ]+ {folder}/.*: .+\. Nothing recorded is lost"
    ) as caught:
        IMPOSSIBLE[name](Disk(), folder)
    assert isinstance(caught.value.__cause__, OSError)
    after = tree(folder)
    assert {path: after[path] for path in before} == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_named() -> None:
    disk = Disk()
    descriptor = disk.open_append("/dev/full")
    with pytest.raises(StorageError, match="cannot append to /dev/full: No space left on device"):
        disk.append(descriptor, "/dev/full", b"x")
    os.close(descriptor)


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), storage_errors("divide", "x"):
        raise ZeroDivisionError


def test_what_was_removed_is_synced_where_a_folder_is_left(folder: Path) -> None:
    disk = WatchedDisk()
    disk.remove(str(folder / "full" / "deep" / "file"))
    disk.sync_removals([str(folder / "full" / "deep"), str(folder / "gone" / "long" / "ago")])
    assert sorted(disk.paths("sync")) == [str(folder), str(folder / "full")]
    assert not (folder / "full" / "deep").exists()


@pytest.mark.parametrize("refused", ["sync", "rename"])
def test_a_file_that_cannot_be_written_leaves_nothing_behind(folder: Path, refused: str) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == refused)
    before = tree(folder)
    with pytest.raises(StorageError, match="refused"):
        disk.write_file(str(folder / "file"), b"new")
    assert tree(folder) == before
    assert (folder / "file").read_bytes() == b"old"


def test_a_file_in_place_of_a_folder_leaves_nothing_behind(folder: Path) -> None:
    before = tree(folder)
    with pytest.raises(StorageError, match="directory"):
        Disk().write_file(str(folder / "full"), b"new")
    assert tree(folder) == before
