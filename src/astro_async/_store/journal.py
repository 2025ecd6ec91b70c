"""The journal of a run: appending to it, and reading it back after whatever happened.

Lines are appended at once, so they survive the death of the process, and synced in batches, so they
survive a power cut a little later. The manifest says how much of the journal is durable: damage before
that point is an error, after it a torn tail that was never promised to anybody.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from astro_async._core.events import AnyEvent, RowsPatched, StepFinished, dump_events, parse_event
from astro_async._core.manifest import Manifest, parse_manifest, restore_record
from astro_async._core.records import RunRecord, fold, start_record, written_paths
from astro_async._store.atomic import Disk, storage_errors
from astro_async._store.layout import events_path, manifest_path
from astro_async.exceptions import AstroError, JournalError, SchemaVersionError, StorageError

__all__ = ["Journal", "Reading", "read_manifest", "read_run"]

_PARQUET_END: Final = b"PAR1"
_BLOCK: Final = 4096


class Journal:
    """The open journal of a run whose lock this process holds.

    Attributes:
        size_bytes: How much is in it.
        crc32: Checksum of that.
    """

    def __init__(self, directory: str, disk: Disk, size_bytes: int = 0, crc32: int = 0) -> None:
        self.path = events_path(directory)
        self.size_bytes = size_bytes
        self.crc32 = crc32
        self._disk = disk
        self._is_torn = False
        self._descriptor = disk.open_append(self.path)

    def append(self, events: Sequence[AnyEvent]) -> None:
        """Write events, a line each, in one go: all of them or none.

        Raises:
            StorageError: The disk refuses; nothing was written.
        """
        if self._is_torn:
            raise StorageError(f"{self.path} ends in half a line that could not be removed")
        content = dump_events(events)
        try:
            self._disk.append(self._descriptor, self.path, content)
        except StorageError:
            # Half a line must not stay: the caller may try again.
            try:
                self._disk.cut_back(self._descriptor, self.path, self.size_bytes)
            except StorageError:
                self._is_torn = True
            raise
        self.size_bytes += len(content)
        self.crc32 = zlib.crc32(content, self.crc32)

    def close(self) -> None:
        """Close the file; it is not synced here."""
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the disk says of a run.

    Attributes:
        record: The state after the last good line.
        journal_bytes: Where that line ends.
        journal_crc32: Checksum of all up to there.
        durable_bytes: How much the manifest contains.
        torn: Whether there is something behind the last good line.
        tail: The events behind the durable part; none where the manifest could not be used.
        tail_paths: Relative paths of the files that the lines behind the durable part name.
        manifest_damage: Why the manifest could not be used, if it could not.
        lacks_statistics: Whether numbers of the durable part are missing in the statistics database.
    """

    record: RunRecord
    journal_bytes: int
    journal_crc32: int
    durable_bytes: int
    torn: bool
    tail: tuple[AnyEvent, ...]
    tail_paths: tuple[str, ...]
    manifest_damage: str | None
    lacks_statistics: bool


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
        raise type(error)(f"{path}: {error}") from None


def read_run(directory: str, *, checks_prefix: bool = False, checks_content: bool = True) -> Reading:
    """Read a run: its manifest, and what the journal has beyond it. Changes nothing.

    Args:
        directory: The run directory.
        checks_prefix: Whether the part of the journal that the manifest contains is read too, and compared
            with its checksum. Who is about to write to the run wants to know.
        checks_content: Whether the files that the lines behind the durable part name are read for holes, and
            not only looked at. While a process holds the run's lock, no power cut can have made any.

    Raises:
        JournalError: The journal is damaged before its durable point, or nothing can be made of it.
        StorageError: It cannot be read.
    """
    path = events_path(directory)
    damage: str | None = None
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(directory)
    except SchemaVersionError:
        raise
    except AstroError as error:
        damage = str(error)
    durable, crc = (0, 0) if manifest is None else (manifest.journal_bytes, manifest.journal_crc32)
    with storage_errors("read", path), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < durable:
            raise JournalError(
                f"{path} is shorter than the {durable} bytes that the manifest vouches for: "
                "restore it from a copy; the data files are untouched"
            )
        if checks_prefix and zlib.crc32(file.read(durable)) != crc:
            raise JournalError(
                f"{path} is damaged in its first {durable} bytes, which the manifest vouches for: "
                "restore it from a copy; the data files are untouched"
            )
        file.seek(durable)
        tail = file.read()
    record = restore_record(manifest) if manifest is not None else None
    record, good, events = _fold_tail(record, tail, path, directory, checks_content=checks_content)
    return Reading(
        record=record,
        journal_bytes=durable + good,
        journal_crc32=zlib.crc32(tail[:good], crc),
        durable_bytes=durable,
        torn=good < len(tail),
        tail=tuple(events) if damage is None else (),
        tail_paths=tuple(name for event in events for name, _ in _named_files(event)),
        manifest_damage=damage,
        lacks_statistics=manifest is None or manifest.lacks_statistics,
    )


def _fold_tail(
    record: RunRecord | None, tail: bytes, path: str, directory: str, *, checks_content: bool
) -> tuple[RunRecord, int, list[AnyEvent]]:
    # Without a manifest nobody knows how much is durable, and old lines name files that later plans
    # removed: then every line must be good but for a last one that was cut off.
    has_manifest = record is not None
    events: list[AnyEvent] = []
    good = 0
    while (end := tail.find(b"\n", good)) >= 0:
        try:
            event = parse_event(tail[good:end])
            if has_manifest and not all(
                _is_whole(f"{directory}/{name}", size, checks_content=checks_content)
                for name, size in _named_files(event)
            ):
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
        events.append(event)
    if record is None:
        raise JournalError(f"{path} holds no event: this is not a run, or its journal is lost")
    return record, good, events


def _has_event(rest: bytes) -> bool:
    """Whether whole lines follow: then it is no torn tail but damage in the middle."""
    for line in rest.split(b"\n")[:-1]:
        if not line.startswith(b"{"):
            continue
        try:
            parse_event(line)
        except JournalError:
            continue
        return True
    return False


def _named_files(event: AnyEvent) -> Iterator[tuple[str, int | None]]:
    """Yield the files that a line made true, with their sizes where it tells them."""
    if isinstance(event, RowsPatched):
        yield event.path, None
    if isinstance(event, StepFinished):
        for flow in event.files:
            sizes: dict[str, int] = {part.path: part.size_bytes for part in flow.parts}
            sizes.update({saved.path: saved.size_bytes for saved in flow.saved})
            if flow.published is not None:
                if flow.published.path == flow.read:
                    # Published again: not this line's doing.
                    sizes.pop(flow.read, None)
                else:
                    sizes[flow.published.path] = flow.published.size_bytes
            yield from ((path, sizes.get(path)) for path in written_paths(flow) if path != flow.read)


def _is_whole(path: str, size_bytes: int | None, *, checks_content: bool) -> bool:
    """Whether a file is there in full; if not, the power went before it was synced."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if size_bytes is None:
                # Whoever writes Parquet ends with this.
                file.seek(max(0, found - len(_PARQUET_END)))
                is_long_enough = found > 2 * len(_PARQUET_END) and file.read() == _PARQUET_END
            else:
                is_long_enough = found == size_bytes
            file.seek(0)
            return is_long_enough and not (checks_content and _has_hole(file))
    except OSError:
        return False


def _has_hole(file: BinaryIO) -> bool:
    """Whether a block of a file is all zeros: then it was never written out. No Parquet file has one.

    File systems hand out space block by block, and what was not written reads as zeros.
    """
    while chunk := file.read(1 << 20):
        for start in range(0, len(chunk), _BLOCK):
            if not chunk[start : start + _BLOCK].strip(b"\0"):
                return True
    return False
