"""Locks between processes: who holds it is named, and a dead holder holds nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from astro_async._store.atomic import Disk
from astro_async._store.lock import HeldLock, acquire_lock, is_locked, read_holder
from astro_async.exceptions import RunLockedError, StorageError
from store.disks import RefusingDisk

HOLD = """
import sys
from astro_async._store.atomic import Disk
from astro_async._store.lock import acquire_lock
lock = acquire_lock(sys.argv[1], sys.argv[2], disk=Disk(), since="2026-01-02", what="run abc12")
print("held", flush=True)
sys.stdin.readline()
lock.release()
"""


@contextmanager
def another_process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until it says something; it is killed at the end."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "held"
            yield process
        finally:
            process.kill()


def take(folder: Path, *, disk: Disk | None = None, wait_s: float = 0.05) -> HeldLock:
    return acquire_lock(
        f"{folder}/lock",
        f"{folder}/holder",
        disk=disk or Disk(),
        since="now",
        what="run abc12",
        wait_s=wait_s,
    )


def test_a_lock_is_taken_and_given_back(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    assert not is_locked(path)
    lock = take(tmp_path)
    assert is_locked(path)
    holder = read_holder(f"{tmp_path}/holder")
    assert holder is not None
    assert (holder.pid, holder.host, holder.since) == (os.getpid(), socket.gethostname(), "now")
    lock.release()
    lock.release()
    assert not is_locked(path)
    take(tmp_path).release()


def test_a_second_invocation_in_this_process_is_refused_too(tmp_path: Path) -> None:
    lock = take(tmp_path)
    with pytest.raises(RunLockedError, match=f"locked by process {os.getpid()} on "):
        take(tmp_path)
    assert is_locked(f"{tmp_path}/lock")
    lock.release()
    take(tmp_path).release()


def test_another_process_is_named(tmp_path: Path) -> None:
    with another_process(HOLD, f"{tmp_path}/lock", f"{tmp_path}/holder") as process:
        assert is_locked(f"{tmp_path}/lock")
        with pytest.raises(RunLockedError) as caught:
            take(tmp_path)
        host = re.escape(socket.gethostname())
        expected = rf"run abc12 is locked by process {process.pid} on {host} since 2026-01-02: "
        assert re.match(expected, str(caught.value))
        assert caught.value.exit_code == 4


def test_a_holder_that_is_not_known_is_another_process(tmp_path: Path) -> None:
    with another_process(HOLD, f"{tmp_path}/lock", f"{tmp_path}/holder"):
        for content in (b"", b"{", b"[]", b"\xff"):
            (tmp_path / "holder").write_bytes(content)
            with pytest.raises(RunLockedError, match="locked by another process"):
                take(tmp_path)


def test_a_holder_that_died_is_not_named_for_the_next(tmp_path: Path) -> None:
    """The next one has the lock a moment before it says so."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with another_process(HOLD, f"{tmp_path}/lock", f"{tmp_path}/holder") as process:
        noted = (tmp_path / "holder").read_bytes()
        stale = noted.replace(str(process.pid).encode(), str(dead.pid).encode())
        (tmp_path / "holder").write_bytes(stale)
        with pytest.raises(RunLockedError, match="locked by another process"):
            take(tmp_path)
        # On another machine nobody can tell.
        elsewhere = stale.replace(socket.gethostname().encode(), b"elsewhere")
        (tmp_path / "holder").write_bytes(elsewhere)
        with pytest.raises(RunLockedError, match=f"process {dead.pid} on elsewhere"):
            take(tmp_path)


def test_who_gives_a_lock_back_is_not_named_any_more(tmp_path: Path) -> None:
    lock = take(tmp_path)
    assert (tmp_path / "holder").exists()
    lock.release()
    assert not (tmp_path / "holder").exists()


def test_a_lock_is_free_at_once_after_kill_9(tmp_path: Path) -> None:
    with another_process(HOLD, f"{tmp_path}/lock", f"{tmp_path}/holder") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not is_locked(f"{tmp_path}/lock")
        take(tmp_path, wait_s=0).release()


def test_a_lock_that_is_given_back_while_somebody_waits(tmp_path: Path) -> None:
    with another_process(HOLD, f"{tmp_path}/lock", f"{tmp_path}/holder") as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        take(tmp_path, wait_s=30).release()


def test_who_looks_keeps_nobody_out(tmp_path: Path) -> None:
    take(tmp_path).release()
    for _ in range(20):
        assert not is_locked(f"{tmp_path}/lock")
    take(tmp_path, wait_s=0).release()
    assert not is_locked(f"{tmp_path}/nothing")


def test_a_lock_file_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot lock .*file/lock"):
        take(tmp_path / "file")


def test_a_lock_whose_holder_cannot_be_noted_is_given_back(tmp_path: Path) -> None:
    disk = RefusingDisk(lambda operation, _path: operation == "write")
    with pytest.raises(StorageError):
        take(tmp_path, disk=disk)
    assert not is_locked(f"{tmp_path}/lock")
    take(tmp_path, wait_s=0).release()
