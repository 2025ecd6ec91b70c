"""Disks that fail or die at a chosen operation, and which operations are chosen."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from astro_async.exceptions import StorageError
from crash.reference import IS_FULL, UnhurriedDisk

SEED = 20_260_102

# What a full disk refuses; it still removes, syncs and cuts back.
GROWING = frozenset({"create directory", "write", "open", "append to", "link", "publish", "lock"})


def choose_operations(total: int, name: str, at_most: int) -> Sequence[int]:
    """Return which of `total` operations are tried: all, or a spread of them where time is short."""
    if IS_FULL or total <= at_most:
        return range(1, total + 1)
    source = random.Random(f"{SEED} {name}")
    # One from each stretch, so that no part of an invocation is left out.
    bounds = [1 + total * each // at_most for each in range(at_most + 1)]
    return [source.randrange(start, end) for start, end in itertools.pairwise(bounds)]


class Death(BaseException):
    """The process is gone: from now on the disk takes nothing more."""


def is_death(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Death) is not None
    return isinstance(error, Death)


class CountedDisk(UnhurriedDisk):
    """Numbers the operations from 1, and acts before the k-th and perhaps those after it."""

    def __init__(self, only: str | None = None) -> None:
        """Count operations of one kind only, if a kind is given."""
        super().__init__()
        self.count = 0
        self._only = only
        self._counting = threading.Lock()

    def before(self, operation: str, path: str) -> None:
        if self._only not in (None, operation):
            return
        with self._counting:
            self.count += 1
            self.act(self.count, operation, path)

    def act(self, number: int, operation: str, path: str) -> None:
        """Do nothing."""


class MortalDisk(CountedDisk):
    """Dies at the k-th operation, and stays dead."""

    def __init__(self, dies_at: int) -> None:
        super().__init__()
        self._dies_at = dies_at

    def act(self, number: int, operation: str, path: str) -> None:
        if number >= self._dies_at:
            raise Death(f"{operation} {path}")


@dataclass(frozen=True)
class Fault:
    """What the operating system says, and whether it says it once or from then on.

    Attributes:
        code: The `errno`.
        lasts: From the k-th operation until somebody makes space, or mounts the disk anew.
    """

    code: int
    lasts: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.code]}, {'lasting' if self.lasts else 'once'}"


FAULTS = [Fault(code, lasts) for code in (errno.EIO, errno.ENOSPC, errno.EROFS) for lasts in (False, True)]


class FaultyDisk(CountedDisk):
    """Fails at the k-th operation, and from then on if the fault lasts."""

    def __init__(self, fault: Fault, fails_at: int, only: str | None = None) -> None:
        super().__init__(only)
        self._fault = fault
        self._fails_at = fails_at
        self.failed_paths: list[str] = []

    def is_told_by(self, error: StorageError) -> bool:
        """Whether an error says what failed, and what to do."""
        names_path = any(path in str(error) for path in self.failed_paths)
        return names_path and "give the command again" in str(error)

    def act(self, number: int, operation: str, path: str) -> None:
        is_due = number >= self._fails_at and (self._fault.lasts or not self.failed_paths)
        is_full = self._fault.code == errno.ENOSPC
        if not is_due or (is_full and operation not in GROWING):
            return
        if is_full and operation == "append to":
            # There was room for the beginning.
            with open(path, "ab") as file:
                file.write(b'{"kind":"st')
        self.failed_paths.append(path)
        raise OSError(self._fault.code, os.strerror(self._fault.code), path)
