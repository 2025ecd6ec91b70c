"""After a crash: what no record names is litter, and links are made anew from the records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from astro_async._core.lineage import named_by
from astro_async._core.records import RunRecord
from astro_async._store.atomic import Disk, refuse_symlinks
from astro_async._store.layout import OWNED_FOLDERS, STAGING, snapshot_link
from astro_async._store.publish import Publisher
from astro_async.exceptions import StorageError

__all__ = [
    "has_patch_litter",
    "refuse_foreign_folders",
    "remove_litter",
    "restore_links",
    "scan_litter",
]


def refuse_foreign_folders(directory: str) -> None:
    """Refuse a run with a folder that leads elsewhere, where nothing is litter.

    Raises:
        SymlinkError: There is one.
    """
    for folder in (STAGING, *OWNED_FOLDERS):
        refuse_symlinks(directory, folder)


def remove_litter(directory: str, run: RunRecord, disk: Disk) -> None:
    """Remove the staging folder, and every version, part and snapshot that no record names.

    Raises:
        StorageError: The disk refuses.
    """
    disk.remove_tree(f"{directory}/{STAGING}")
    parents = set()
    for path in list(scan_litter(directory, run)):
        disk.remove(f"{directory}/{path}")
        parents.add(os.path.dirname(f"{directory}/{path}"))
    disk.sync_removals(parents)


def has_patch_litter(directory: str, run: RunRecord) -> bool:
    """Whether a patch is there that no record names.

    A power cut may leave one and nothing else: no plan says that something is being decided.
    """
    if not os.path.isdir(f"{directory}/patches"):
        return False
    named = {patch.path for patch in run.patches} - run.dropped
    return any(path not in named for path in _files_below(directory, ("patches",)))


def scan_litter(directory: str, run: RunRecord) -> Iterator[str]:
    """Yield the relative path of every version, part, patch and snapshot that no record names."""
    named = named_by(run)
    for step_id, record in run.steps.items():
        named.update(
            snapshot_link(step_id, flow.name) for flow in record.files if flow.read not in run.dropped
        )
    return (path for path in _files_below(directory) if path not in named)


def restore_links(run: RunRecord, publisher: Publisher) -> None:
    """Make the links that the records imply; a dead process may have left them out or half done."""
    for name in run.unlinked:
        publisher.unlink(name)
    for step_id, record in run.steps.items():
        for flow in record.files:
            try:
                publisher.link_step(step_id, flow, has_snapshot=flow.read not in run.dropped)
            except StorageError as error:
                # A file that somebody removed: who needs it says so, and a re-run of its step makes it anew.
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise


def _files_below(directory: str, folders: Sequence[str] = OWNED_FOLDERS) -> Iterator[str]:
    for folder in folders:
        for parent, _, names in os.walk(f"{directory}/{folder}"):
            for name in names:
                yield os.path.relpath(f"{parent}/{name}", directory)
