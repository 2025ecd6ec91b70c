"""The journal of a run: appending to it, and reading it back after whatever happened.

Lines are appended at once, so they survive the death of the process, and synced in batches, so they
survive a power cut a little later. The manifest says how much of the journal is durable: damage before
that point is an error, after it a torn tail that was never promised to anybody.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from astro_async._core.events import AnyEvent, StepFinished, dump_event, parse_event
from astro_async._core.manifest import Manifest, parse_manifest, restore_record
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._store.atomic import Disk, storage_errors
from astro_async._store.layout import events_path, manifest_path
from astro_async.exceptions import AstroError, JournalError, StorageError

__all__ = ["Journal", "Reading", "read_manifest", "read_run"]


class Journal:
    """The open journal of a run whose lock this process holds.

    Attributes:
        size_bytes: How much is in it.
    """

    def __init__(self, directory: str, disk: Disk, size_bytes: int) -> None:
        self.path = events_path(directory)
        self.size_bytes = size_bytes
        self._disk = disk
        self._descriptor = disk.open_append(self.path)

    def append(self, events: Iterable[AnyEvent]) -> None:
        """Write events, a line each, in one go: all of them or none.

        Raises:
            StorageError: The disk refuses; nothing was written.
        """
        content = b"".join(dump_event(event) + b"\n" for event in events)
        try:
            self._disk.append(self._descriptor, self.path, content)
        except StorageError:
            # Half a line must not stay: the caller may try again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size_bytes)
            raise
        self.size_bytes += len(content)

    def close(self) -> None:
        """Close the file; it is not synced here."""
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the disk says of a run.

    Attributes:
        record: The state after the last good line.
        journal_bytes: Where that line ends.
        durable_bytes: How much the manifest contains.
        torn: Whether there is something behind the last good line.
        tail_paths: Relative paths of the files that the lines behind the durable part name.
        manifest_damage: Why the manifest could not be used, if it could not.
    """

    record: RunRecord
    journal_bytes: int
    durable_bytes: int
    torn: bool
    tail_paths: tuple[str, ...]
    manifest_damage: str | None


def read_manifest(directory: str) -> Manifest:
    """Read the manifest of the run in a directory.

    Raises:
        JournalError: It is damaged, or missing.
        StorageError: It cannot be read.
    """
    path = manifest_path(directory)
    try:
        with storage_errors("read", path), open(path, "rb") as file:
            document = file.read()
        return parse_manifest(document)
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from None


def read_run(directory: str) -> Reading:
    """Read a run: its manifest, and what the journal has beyond it. Changes nothing.

    Raises:
        JournalError: The journal is damaged before its durable point, or nothing can be made of it.
        StorageError: It cannot be read.
    """
    path = events_path(directory)
    damage: str | None = None
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(directory)
    except AstroError as error:
        damage = str(error)
    durable = manifest.journal_bytes if manifest is not None else 0
    with storage_errors("read", path), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < durable:
            raise JournalError(
                f"{path} is shorter than the {durable} bytes that the manifest vouches for: "
                "restore it from a copy; the data files are untouched"
            )
        file.seek(durable)
        tail = file.read()
    record = restore_record(manifest) if manifest is not None else None
    record, good, named = _fold_tail(record, tail, path, directory)
    return Reading(record, durable + good, durable, good < len(tail), tuple(named), damage)


def _fold_tail(
    record: RunRecord | None, tail: bytes, path: str, directory: str
) -> tuple[RunRecord, int, list[str]]:
    # Without a manifest nobody knows how much is durable, and old lines name files that later plans
    # removed: then every line must be good but for a last one that was cut off.
    has_manifest = record is not None
    named: list[str] = []
    good = 0
    while (end := tail.find(b"\n", good)) >= 0:
        try:
            event = parse_event(tail[good:end])
            paths = list(_sizes_of_named_files(event))
            if has_manifest and not all(_has_size(f"{directory}/{name}", size) for name, size in paths):
                break
            if record is None:
                record = start_record(event)
            else:
                fold(record, event)
        except AstroError as error:
            if record is None or (not has_manifest and _has_event(tail[end + 1 :])):
                raise JournalError(f"{path}, byte {good}: {error}") from None
            break
        good = end + 1
        if has_manifest:
            named.extend(name for name, _ in paths)
    if record is None:
        raise JournalError(f"{path} holds no event: this is not a run, or its journal is lost")
    return record, good, named


def _has_event(rest: bytes) -> bool:
    """Whether whole lines follow: then it is no torn tail but damage in the middle."""
    for line in rest.split(b"\n")[:-1]:
        try:
            parse_event(line)
        except JournalError:
            continue
        return True
    return False


def _sizes_of_named_files(event: AnyEvent) -> Iterator[tuple[str, int]]:
    """Yield the files that a line made true, with their sizes."""
    if isinstance(event, StepFinished):
        for flow in event.files:
            if flow.published is not None and flow.published.path != flow.read:
                yield flow.published.path, flow.published.size_bytes
            yield from ((part.path, part.size_bytes) for part in flow.parts)
            yield from ((saved.path, saved.size_bytes) for saved in flow.saved)


def _has_size(path: str, size_bytes: int) -> bool:
    """Whether a file is there in full; if not, the power went before it was synced."""
    try:
        return os.stat(path).st_size == size_bytes
    except OSError:
        return False
