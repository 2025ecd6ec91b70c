"""Publication: a settled step's files get their final names.

Files first, each by one rename that never replaces anything; the journal line that names them all comes
after, and makes them true. Files whose line never came are litter.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from astro_async._core.events import FileFlow, PartWritten, RuleCount, SavedFile, VersionWritten
from astro_async._core.lineage import active_versions
from astro_async._core.names import fold_case
from astro_async._core.records import RunRecord
from astro_async._store import layout
from astro_async._store.atomic import PRIVATE_MODE, PUBLISHED_MODE, Disk, refuse_symlinks
from astro_async._store.checksum import read_tail_crc32
from astro_async._store.staging import FileOutput, StagedFile
from astro_async.exceptions import StepError, StorageError, SymlinkError

__all__ = ["Publisher", "derive_links"]


class Publisher:
    """Publishes into one run directory. Safe to use from many threads, for different steps.

    Attributes:
        disk: The seam.
        unsynced: Absolute paths of files published since they were last taken for syncing.
        unsynced_links: Relative paths of links for people made since then; snapshots are not among them.
    """

    def __init__(self, directory: str, disk: Disk, run: RunRecord) -> None:
        self._directory = directory
        self.disk = disk
        self._lock = threading.Lock()
        self._owner_of_name = {
            fold_case(saved.name): flow.name
            for record in run.steps.values()
            for flow in record.files
            for saved in flow.saved
        }
        self._private = {name for name, file in run.files.items() if file.private}
        self.unsynced: deque[str] = deque()
        self.unsynced_links: deque[str] = deque()

    def publish(self, step_id: str, attempt: int, outputs: Sequence[FileOutput]) -> tuple[FileFlow, ...]:
        """Move what an attempt wrote to its final names, and link them. Blocks on the disk.

        Raises:
            StepError: A name given with `save_to` belongs to another file, or leads out of the run.
            StorageError: The disk refuses.
        """
        claimed: list[str] = []
        placed: list[str] = []
        try:
            for output in outputs:
                if output.saved:
                    self._claim_names(step_id, output, claimed)
            flows = tuple([self._publish_file(step_id, attempt, output, placed) for output in outputs])
            for flow in flows:
                self.link_step(step_id, flow)
        except BaseException as error:
            # Nothing is half published: part names carry no attempt, and would be in the way of the next.
            for name in claimed:
                with self._lock:
                    del self._owner_of_name[fold_case(name)]
                with contextlib.suppress(StorageError):
                    self.unlink(name)
            for path in placed:
                self.disk.remove(path)
            for directory in {os.path.dirname(path) for path in placed}:
                self.disk.sync(directory)
            if isinstance(error, SymlinkError):
                # Planted behind the step's back, but of its names: the step fails, the run goes on.
                raise StepError(str(error)) from error
            raise
        self.unsynced.extend(placed)
        return flows

    def _claim_names(self, step_id: str, output: FileOutput, claimed: list[str]) -> None:
        with self._lock:
            for name in output.saved:
                folded = fold_case(name)
                if folded not in self._owner_of_name:
                    self._refuse_nested(step_id, name)
                    self._owner_of_name[folded] = output.name
                    claimed.append(name)
                owner = self._owner_of_name[folded]
                if owner != output.name:
                    raise StepError(
                        f"step {step_id!r} saves {output.name!r} as {name!r}, a name that belongs to "
                        f"{owner!r}: give each file its own name"
                    )

    def _refuse_nested(self, step_id: str, name: str) -> None:
        """Refuse a name that is a folder of another, or has another for a folder."""
        folded = fold_case(name)
        for other in self._owner_of_name:
            if other.startswith(f"{folded}/") or folded.startswith(f"{other}/"):
                raise StepError(
                    f"step {step_id!r} saves {name!r}, but {other!r} is saved too: one name cannot be a file "
                    "and a folder; give it another"
                )

    def _publish_file(self, step_id: str, attempt: int, output: FileOutput, targets: list[str]) -> FileFlow:
        published = self._kept_version(output)
        if output.is_empty:
            return _flow(output, published)
        # From staged path to final relative path.
        placed: dict[str, str] = {}
        if output.version is not None:
            path = layout.version_path(output.name, step_id, attempt)
            crc = self._place(output.version, path, placed, targets)
            staged = output.version
            published = VersionWritten(path, staged.rows, staged.columns, staged.size_bytes, crc)
        saved: list[SavedFile] = []
        for number, (name, staged) in enumerate(output.saved.items(), start=1):
            saved_crc = None
            if staged.path not in placed:
                path = layout.saved_path(output.name, step_id, attempt, number)
                saved_crc = self._place(staged, path, placed, targets)
            saved.append(SavedFile(name, placed[staged.path], staged.size_bytes, saved_crc))
        parts: list[PartWritten] = []
        for number, part in enumerate(output.parts, start=1):
            path = layout.part_path(step_id, output.name, number)
            mode = self.parked_mode(output.name)
            crc = self._place(part.rows, path, placed, targets, mode=mode)
            positions = None
            if part.positions is not None:
                positions = layout.positions_path(path)
                self._place(part.positions, positions, placed, targets, mode=mode)
            parts.append(PartWritten(path, part.rows.rows, part.rows.size_bytes, positions, crc))
        filtered = None
        if output.filtered is not None:
            filtered = layout.filtered_path(step_id, output.name)
            self._place(output.filtered, filtered, placed, targets)
        return _flow(output, published, tuple(parts), filtered, tuple(saved))

    def _kept_version(self, output: FileOutput) -> VersionWritten | None:
        if not output.keeps_version:
            return None
        # Of a version that is published again only the path and the rows matter: the step that made it
        # vouches for the rest.
        return VersionWritten(output.read, output.rows_in, 0, 0)

    def parked_mode(self, name: str) -> int:
        """Return the mode of files that hold rows of a file which are parked or decided."""
        return PRIVATE_MODE if name in self._private else PUBLISHED_MODE

    def _place(
        self,
        staged: StagedFile,
        path: str,
        placed: dict[str, str],
        targets: list[str],
        *,
        mode: int = PUBLISHED_MODE,
    ) -> int:
        """Publish a file and return the checksum of its tail."""
        target = f"{self._directory}/{path}"
        refuse_symlinks(self._directory, path)
        crc = read_tail_crc32(staged.path)
        self.disk.make_directory(os.path.dirname(target))
        self.disk.publish(staged.path, target, mode=mode)
        targets.append(target)
        placed[staged.path] = path
        return crc

    def link_step(self, step_id: str, flow: FileFlow, *, has_snapshot: bool = True) -> None:
        """Make the links that a step's record implies: its snapshot, and the names given with `save_to`.

        Raises:
            SymlinkError: A name leads out of the run directory.
            StorageError: The disk refuses.
        """
        if has_snapshot and _has_snapshot(flow):
            self._link(flow.read, layout.snapshot_link(step_id, flow.name))
        for saved in flow.saved:
            self._link(saved.path, saved.name)
            self.unsynced_links.append(saved.name)

    def unlink(self, name: str) -> None:
        """Remove a name given with `save_to`."""
        refuse_symlinks(self._directory, name)
        self.disk.remove(f"{self._directory}/{name}")

    def link_saved(self, run: RunRecord) -> None:
        """Make the names given with `save_to` link to what their last step in serial order gave them."""
        self.link_where_other(_saved_links(run))

    def link_last(self, run: RunRecord) -> None:
        """Make `current/`, and the names given with `save_to`, link to what is last in serial order."""
        self.link_where_other({**_current_links(run), **_saved_links(run)})

    def link_where_other(self, links: Mapping[str, str]) -> None:
        """Make links, each from its name to a file, where the name stands for another or none."""
        for link, path in links.items():
            if not _same_file(f"{self._directory}/{path}", f"{self._directory}/{link}"):
                self._link(path, link)
                self.unsynced_links.append(link)

    def _link(self, path: str, name: str) -> None:
        target = f"{self._directory}/{name}"
        refuse_symlinks(self._directory, name)
        self.disk.make_directory(os.path.dirname(target))
        if self.disk.link_anew(f"{self._directory}/{path}", target):
            return
        refuse_symlinks(self._directory, layout.STAGING)
        temporary = f"{self._directory}/{layout.STAGING}/{threading.get_ident()}.link"
        self.disk.make_directory(f"{self._directory}/{layout.STAGING}")
        self.disk.link(f"{self._directory}/{path}", target, temporary=temporary)


def _flow(
    output: FileOutput,
    published: VersionWritten | None,
    parts: tuple[PartWritten, ...] = (),
    filtered: str | None = None,
    saved: tuple[SavedFile, ...] = (),
) -> FileFlow:
    return FileFlow(
        name=output.name,
        read=output.read,
        rows_in=output.rows_in,
        rows_out=None if output.readonly else output.rows_in if published is None else published.rows,
        rows_quarantined=sum(part.rows for part in parts),
        published=published,
        parts=parts,
        rows_discarded=output.rows_in - output.rows_given,
        rows_filtered=output.rows_filtered,
        filtered=filtered,
        saved=saved,
        reasons=output.reasons,
        conserves_rows=output.conserves_rows,
        rules=tuple(
            [RuleCount(reason, tally.rows, severity) for (reason, severity), tally in output.rules.items()]
        ),
    )


def derive_links(run: RunRecord) -> dict[str, str]:
    """Return all links of a run whose invocation has ended, each with the file that it stands for."""
    snapshots = {
        layout.snapshot_link(step_id, flow.name): flow.read
        for step_id, record in run.steps.items()
        for flow in record.files
        if _has_snapshot(flow) and flow.read not in run.dropped
    }
    # A run that was only ingested has none yet.
    current = _current_links(run) if run.steps else {}
    return {**snapshots, **current, **_saved_links(run)}


def _has_snapshot(flow: FileFlow) -> bool:
    return bool(flow.parts) or (flow.published is not None and flow.published.path != flow.read)


def _current_links(run: RunRecord) -> dict[str, str]:
    return {layout.current_link(name): path for name, path in active_versions(run).items()}


def _saved_links(run: RunRecord) -> dict[str, str]:
    return {
        saved.name: saved.path
        for record in run.steps.values()
        for flow in record.files
        for saved in flow.saved
    }


def _same_file(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False
