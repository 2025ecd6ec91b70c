"""Disks that watch, refuse, run full, or die at a chosen moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from astro_async._store.atomic import Disk, storage_errors
from astro_async.exceptions import StorageError

Choice = Callable[[str, str], bool]


class WatchedDisk(Disk):
    """Writes down every operation, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, str]] = []

    def before(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))

    def paths(self, operation: str) -> list[str]:
        return [path for name, path in self.operations if name == operation]

    def first(self, operation: str, path: str) -> int:
        return self.operations.index((operation, path))


class RefusingDisk(WatchedDisk):
    """Refuses the operations that are chosen, before anything is changed."""

    def __init__(self, choose: Choice) -> None:
        super().__init__()
        self.choose = choose

    def before(self, operation: str, path: str) -> None:
        super().before(operation, path)
        if self.choose(operation, path):
            raise StorageError(f"cannot {operation} {path}: refused")


def refuse_from(number: int) -> RefusingDisk:
    """Make a disk that refuses the operation of this number, counted from 0, and all that follow."""
    disk = RefusingDisk(lambda _operation, _path: len(disk.operations) > number)
    return disk


def refuse_only(number: int) -> RefusingDisk:
    """Make a disk that refuses the operation of this number, counted from 0."""
    disk = RefusingDisk(lambda _operation, _path: len(disk.operations) == number + 1)
    return disk


class FullDisk(Disk):
    """Writes half of what is appended while it is full."""

    is_full = True

    def append(self, descriptor: int, path: str, content: bytes) -> None:
        if not self.is_full:
            super().append(descriptor, path, content)
            return
        with storage_errors("append to", path):
            os.write(descriptor, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Killed(BaseException):
    """The process dies here."""


class MortalDisk(Disk):
    """Dies at an operation, and does nothing ever after."""

    def __init__(self, choose: Choice) -> None:
        super().__init__()
        self.choose = choose
        self.is_dead = False

    def before(self, operation: str, path: str) -> None:
        self.is_dead = self.is_dead or self.choose(operation, path)
        if self.is_dead:
            raise Killed(operation, path)
