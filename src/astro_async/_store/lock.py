"""Locks between processes: one invocation at a time on a run, and who it is.

The lock is the kernel's (through `filelock`), so it is free the moment its holder dies, kill -9 included.
Who holds it is a file beside it, good only while the lock is taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from typing import Final

import filelock
import msgspec

from astro_async._store import layout
from astro_async._store.atomic import Disk, storage_errors
from astro_async.exceptions import RunLockedError

__all__ = [
    "HeldLock",
    "Holder",
    "acquire_lock",
    "acquire_run_lock",
    "is_locked",
    "read_holder",
    "refuse_if_locked",
]

_WAIT_S: Final = 0.5
_POLL_S: Final = 0.02


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock: process, machine, since when (ISO 8601, UTC)."""

    pid: int
    host: str
    since: str


class HeldLock:
    """A lock that this process holds until `release`."""

    def __init__(self, lock: filelock.FileLock, holder_path: str) -> None:
        self._lock = lock
        self._holder_path = holder_path

    def release(self) -> None:
        """Give the lock back; harmless if it was given back before."""
        if not self._lock.is_locked:
            return
        # Who comes next has the lock a moment before its name is here: it must not be taken for us. Not
        # through the seam, for nothing depends on it: giving a lock back cannot fail.
        with contextlib.suppress(OSError):
            os.unlink(self._holder_path)
        self._lock.release(force=True)


def acquire_lock(
    path: str, holder_path: str, *, disk: Disk, since: str, what: str, wait_s: float = _WAIT_S
) -> HeldLock:
    """Take a lock, waiting at most half a second. Blocks that long.

    Args:
        path: The lock file; created if need be.
        holder_path: Where to note who holds it.
        disk: The seam.
        since: The time to note.
        what: What is locked, for the message.
        wait_s: How long to wait.

    Raises:
        RunLockedError: Another process, or another invocation in this one, holds it.
        StorageError: The lock file cannot be created.
    """
    lock = filelock.FileLock(path, thread_local=False, poll_interval=_POLL_S)
    with storage_errors("lock", path):
        disk.before("lock", path)
        try:
            lock.acquire(timeout=wait_s)
        except filelock.Timeout:
            raise _locked(holder_path, what) from None
    try:
        holder = Holder(os.getpid(), socket.gethostname(), since)
        # Good only while this process lives, so no power cut matters to it.
        disk.write_file(holder_path, msgspec.json.encode(holder) + b"\n", is_durable=False)
    except BaseException:
        lock.release(force=True)
        raise
    return HeldLock(lock, holder_path)


def read_holder(holder_path: str) -> Holder | None:
    """Return who last took the lock, or None where that is not known."""
    try:
        with open(holder_path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def acquire_run_lock(directory: str, run_id: str, *, disk: Disk, since: str) -> HeldLock:
    """Take the lock of the run in a directory.

    Raises:
        As `acquire_lock`.
    """
    return acquire_lock(
        layout.lock_path(directory),
        layout.holder_path(directory),
        disk=disk,
        since=since,
        what=f"run {run_id}",
    )


def _wait_for_holder(holder_path: str) -> Holder | None:
    """Return who holds a lock that is taken, giving it time to say so; None if it does not."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        holder = read_holder(holder_path)
        if holder is not None and not _is_dead(holder):
            return holder
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)


def _is_dead(holder: Holder) -> bool:
    """Whether a holder is known to have died: it was killed, and another has the lock now."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def is_locked(path: str) -> bool:
    """Tell whether somebody holds the lock, without ever keeping anybody from taking it for long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that readers do not meet each other; a run that asks at this very moment asks again.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return False


def refuse_if_locked(path: str, holder_path: str, *, what: str) -> None:
    """Do nothing if nobody holds the lock at this moment.

    Raises:
        RunLockedError: Somebody does; the message names the process.
    """
    if is_locked(path):
        raise _locked(holder_path, what)


def _locked(holder_path: str, what: str) -> RunLockedError:
    holder = _wait_for_holder(holder_path)
    who = "another process"
    if holder is not None:
        who = f"process {holder.pid} on {holder.host} since {holder.since}"
    return RunLockedError(f"{what} is locked by {who}: wait for it to end, or stop it")
