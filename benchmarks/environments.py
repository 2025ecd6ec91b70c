"""A virtual environment for each system, made once and kept outside the repository.

An environment belongs to one interpreter and one list of requirements (for ourselves, also to what
`pyproject.toml` says); if any of them changes, another one is made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from typing import Final

from benchmarks.registry import ROOT

__all__ = ["EnvironmentFailedError", "cache_directory", "make_environment"]

_READY: Final = ".ready"


class EnvironmentFailedError(Exception):
    """A virtual environment could not be made."""


def cache_directory() -> str:
    """Return the directory that holds the environments."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "astro-async-benchmarks")


def make_environment(name: str, requirements: tuple[str, ...]) -> str:
    """Return the interpreter of an environment, making the environment if there is none yet.

    One that was left half-made is made anew.

    Raises:
        EnvironmentFailedError: Something could not be installed; the message is what pip says.
    """
    directory = os.path.join(cache_directory(), f"{name}-{_fingerprint(requirements)}")
    interpreter = os.path.join(directory, "bin", "python")
    if os.path.exists(os.path.join(directory, _READY)):
        return interpreter
    shutil.rmtree(directory, ignore_errors=True)
    # Without a pip of its own: to put that in takes longer than most of the installations.
    _call(sys.executable, "-m", "venv", "--without-pip", directory)
    if requirements:
        _call(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", *requirements)
    with open(os.path.join(directory, _READY), "w", encoding="utf-8") as file:
        file.write("\n".join(requirements) + "\n")
    return interpreter


def _fingerprint(requirements: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    digest.update(repr((sys.version, sys.base_prefix, requirements)).encode())
    if ROOT in requirements:
        with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentFailedError(f"{' '.join(command)} failed:\n{done.stderr or done.stdout}")
