"""What the figures were taken on: the machine, its state, and the code.

Says nothing that tells one machine from another of its kind: no host name, no paths.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from dataclasses import dataclass

from benchmarks.registry import ROOT

__all__ = ["Machine", "describe_machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and on what a session ran.

    Attributes:
        cores: How many this process may use.
        cpu: What the processor calls itself; empty if it does not.
        system: Operating system and machine type.
        python: Of the interpreter that made the environments.
        file_system: Type of the file system that holds the run directories.
        load: Tasks that wanted a core in the minute before; above 0 the machine was not ours alone.
        commit: What was checked out; empty if that cannot be told.
        source_digest: First digits of a digest over all files of the package, committed or not.
    """

    cores: int
    cpu: str
    system: str
    python: str
    file_system: str
    load: float
    commit: str
    source_digest: str


def describe_machine() -> Machine:
    """Look at the machine and at the code, as they are now."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpu=_read_cpu(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        file_system=_read_file_system(tempfile.gettempdir()),
        load=os.getloadavg()[0],
        commit=_read_commit(os.path.join(ROOT, ".git")),
        source_digest=_digest_source(os.path.join(ROOT, "src")),
    )


def _read_cpu() -> str:
    for line in _read_lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _read_file_system(path: str) -> str:
    """Return the type of the file system that a path is on: that of its longest mount point."""
    found, kind = "", "unknown"
    for line in _read_lines("/proc/mounts"):
        _, mounted, name, *_ = line.split()
        is_above = path == mounted or path.startswith(mounted.rstrip("/") + "/")
        if is_above and len(mounted) >= len(found):
            found, kind = mounted, name
    return kind


def _read_commit(git_directory: str, head: str = "") -> str:
    # Read rather than asked of git, which may not be installed where benchmarks run.
    if os.path.isfile(git_directory):
        # A worktree: its own HEAD, and the references of the repository that it belongs to.
        own = "".join(_read_lines(git_directory)).removeprefix("gitdir: ").strip()
        shared = "".join(_read_lines(os.path.join(own, "commondir"))).strip()
        return _read_commit(os.path.join(own, shared), "".join(_read_lines(os.path.join(own, "HEAD"))))
    head = (head or "".join(_read_lines(os.path.join(git_directory, "HEAD")))).strip()
    if not head.startswith("ref: "):
        return head[:12]
    name = head.removeprefix("ref: ")
    commit = "".join(_read_lines(os.path.join(git_directory, name))).strip()
    if not commit:
        for line in _read_lines(os.path.join(git_directory, "packed-refs")):
            if line.rstrip().endswith(f" {name}"):
                commit = line.split()[0]
    return commit[:12]


def _digest_source(directory: str) -> str:
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    digest.update(os.path.relpath(path, directory).encode() + b"\0" + file.read())
    return digest.hexdigest()[:12]


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []
