"""Links: they replace at once, and where there can be none a copy is as good."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from astro_async._store.atomic import Disk
from astro_async.exceptions import StorageError

_link = os.link


@pytest.fixture
def version(tmp_path: Path) -> Path:
    path = tmp_path / "v1"
    path.write_bytes(b"one")
    path.chmod(0o444)
    return path


@pytest.fixture
def few_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an inode have three names, as file systems let it have some ten thousand."""

    def link(path: str, name: str) -> None:
        if os.stat(path).st_nlink >= 3:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        _link(path, name)

    monkeypatch.setattr(os, "link", link)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_link_is_the_same_file(version: Path, tmp_path: Path) -> None:
    Disk().link(str(version), str(tmp_path / "name"))
    assert inode(tmp_path / "name") == inode(version)
    assert sorted(os.listdir(tmp_path)) == ["name", "v1"]


def test_a_link_replaces_what_had_the_name_and_readers_keep_what_they_opened(
    version: Path, tmp_path: Path
) -> None:
    name = tmp_path / "name"
    name.write_bytes(b"old")
    with open(name, "rb") as reader:
        Disk().link(str(version), str(name))
        assert reader.read() == b"old"
    assert name.read_bytes() == b"one"
    assert sorted(os.listdir(tmp_path)) == ["name", "v1"]


def test_linking_twice_is_harmless_and_leaves_nothing(version: Path, tmp_path: Path) -> None:
    disk = Disk()
    for _ in range(3):
        disk.link(str(version), str(tmp_path / "name"))
    assert sorted(os.listdir(tmp_path)) == ["name", "v1"]
    assert version.stat().st_nlink == 2


def test_a_symlink_is_replaced_and_not_followed(version: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "name").symlink_to(precious)
    Disk().link(str(version), str(tmp_path / "name"))
    assert not (tmp_path / "name").is_symlink()
    assert (precious.read_bytes(), (tmp_path / "name").read_bytes()) == (b"precious", b"one")


def test_what_a_dead_process_left_is_no_obstacle(version: Path, tmp_path: Path) -> None:

    (tmp_path / "name.tmp").write_bytes(b"half")
    Disk().link(str(version), str(tmp_path / "name"))
    assert (tmp_path / "name").read_bytes() == b"one"
    assert sorted(os.listdir(tmp_path)) == ["name", "v1"]


@pytest.mark.usefixtures("few_links")
def test_an_inode_out_of_links_is_copied_once_and_the_copy_is_linked(version: Path, tmp_path: Path) -> None:
    disk = Disk()
    names = [tmp_path / f"n{i}" for i in range(8)]
    for name in names:
        disk.link(str(version), str(name))
    assert [name.read_bytes() for name in names] == [b"one"] * 8
    inodes = [inode(version), *map(inode, names)]
    assert [inodes.count(each) for each in dict.fromkeys(inodes)] == [3, 3, 3]
    assert {stat.S_IMODE(name.stat().st_mode) for name in names} == {0o444}
    assert len(os.listdir(tmp_path)) == 9


@pytest.mark.usefixtures("few_links")
def test_a_copy_whose_name_was_given_to_another_version_is_not_taken_for_the_first(
    version: Path, tmp_path: Path
) -> None:
    disk = Disk()
    second = tmp_path / "v2"
    second.write_bytes(b"two")
    for name in ("n0", "n1", "current"):
        disk.link(str(version), str(tmp_path / name))
    assert inode(tmp_path / "current") != inode(version)
    disk.link(str(second), str(tmp_path / "current"))
    disk.link(str(version), str(tmp_path / "snapshot"))
    assert (tmp_path / "current").read_bytes() == b"two"
    assert (tmp_path / "snapshot").read_bytes() == b"one"


@pytest.mark.usefixtures("few_links")
def test_a_copy_that_is_gone_is_made_again(version: Path, tmp_path: Path) -> None:
    disk = Disk()
    for name in ("n0", "n1", "copy"):
        disk.link(str(version), str(tmp_path / name))
    disk.remove(str(tmp_path / "copy"))
    disk.link(str(version), str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == b"one"
    assert inode(tmp_path / "again") != inode(version)


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_where_there_are_no_links_there_are_copies(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(_path: str, _name: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    disk = Disk()
    (tmp_path / "name").write_bytes(b"old")
    for _ in range(2):
        disk.link(str(version), str(tmp_path / "name"))
        assert (tmp_path / "name").read_bytes() == b"one"
        assert inode(tmp_path / "name") != inode(version)
        assert stat.S_IMODE((tmp_path / "name").stat().st_mode) == 0o444
    assert sorted(os.listdir(tmp_path)) == ["name", "v1"]


def test_any_other_error_is_told(version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(_path: str, _name: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "name").write_bytes(b"old")
    with pytest.raises(StorageError, match=r"cannot link .*/name: Input/output error"):
        Disk().link(str(version), str(tmp_path / "name"))
    assert (tmp_path / "name").read_bytes() == b"old"


def test_a_name_that_stands_for_another_file_now_is_no_copy_any_more(
    version: Path, tmp_path: Path, few_links: None
) -> None:
    other = tmp_path / "v2"
    other.write_bytes(b"two")
    disk = Disk()
    for name in ("a", "b", "copy"):
        disk.link(str(version), str(tmp_path / name))
    os.unlink(tmp_path / "copy")
    assert disk.link_anew(str(other), str(tmp_path / "copy"))
    disk.link(str(version), str(tmp_path / "c"))
    assert (tmp_path / "c").read_bytes() == b"one"
