"""What somebody has yet to be told of a run: noted before they are told, removed when they have been.

A small file of the run directory. So a notice outlives a receiver that is away and a process that dies; it
may then come twice, never not at all. Of a run, a channel keeps the newest notice only.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from astro_async._core.names import RunId
from astro_async._store.atomic import Disk
from astro_async._store.layout import list_run_ids, run_directory

__all__ = ["forget_notice", "note_notice", "scan_untold"]

UNTOLD: Final = "untold.json"


class Untold(msgspec.Struct):
    """The file: the notice that each channel has yet to deliver."""

    schema_version: int = 1
    untold: dict[str, dict[str, Any]] = {}


def note_notice(directory: str, channel: str, notice: dict[str, Any], disk: Disk) -> None:
    """Make it durable that a channel has a notice to deliver. Blocks.

    Raises:
        StorageError: The disk refuses.
    """
    found = _load(directory)
    found.untold[channel] = notice
    disk.write_file(f"{directory}/{UNTOLD}", msgspec.json.encode(found) + b"\n")


def forget_notice(directory: str, channel: str, disk: Disk) -> None:
    """Note that a channel has delivered. Blocks.

    Raises:
        StorageError: The disk refuses.
    """
    found = _load(directory)
    if found.untold.pop(channel, None) is None:
        return
    if found.untold:
        disk.write_file(f"{directory}/{UNTOLD}", msgspec.json.encode(found) + b"\n")
    else:
        disk.remove(f"{directory}/{UNTOLD}")


def scan_untold(pipeline_dir: str, channel: str) -> list[tuple[RunId, dict[str, Any]]]:
    """Return the notices that a channel has yet to deliver, of all runs."""
    found = []
    for run_id in list_run_ids(pipeline_dir):
        notice = _load(run_directory(pipeline_dir, run_id)).untold.get(channel)
        if notice is not None:
            found.append((run_id, notice))
    return found


def _load(directory: str) -> Untold:
    try:
        with open(f"{directory}/{UNTOLD}", "rb") as file:
            return msgspec.json.decode(file.read(), type=Untold)
    except (OSError, msgspec.MsgspecError):
        # Not there, which is the rule; or not readable, and then nothing is known to be untold.
        return Untold()
