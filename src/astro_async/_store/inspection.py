"""Looking at a run on disk without taking its lock: do journal, manifest, links and folders agree?

Changes nothing, and blocks nobody.
"""

from __future__ import annotations

import filecmp
import os
import stat
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from astro_async._core.events import parse_event
from astro_async._core.manifest import Manifest, restore_record, snapshot_record
from astro_async._core.names import INGEST_STEP
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._core.statistics import Statistic, derive_statistics
from astro_async._core.status import RunStatus
from astro_async._core.verification import ExpectedFile, Finding, FindingKind
from astro_async._store import layout
from astro_async._store.atomic import storage_errors
from astro_async._store.checksum import read_tail_crc32
from astro_async._store.journal import Reading, read_manifest, read_run
from astro_async._store.lock import is_locked
from astro_async._store.publish import derive_links
from astro_async._store.recovery import scan_litter
from astro_async._store.statistics import scan_deviations
from astro_async.exceptions import AstroError, JournalError, SchemaVersionError, StorageError

__all__ = [
    "Records",
    "derive_all_statistics",
    "has_moved_on",
    "inspect_file",
    "inspect_folders",
    "inspect_parts",
    "inspect_records",
    "inspect_statistics",
    "scan_links",
]


@dataclass(slots=True)
class Records:
    """What journal and manifest of a run say.

    Attributes:
        run: The state of the run; None where nothing can be made of them.
        findings: What is wrong with them.
        statistics: What the journal gives rise to, the last of each; empty where it cannot be read whole.
        is_live: Whether somebody holds the run's lock.
        is_at_rest: Whether the last invocation ended in good order, so that the next one has nothing to clear
            up.
        journal_bytes: Where the last good line ends.
        is_behind: Whether the manifest lacks lines of the journal, or cannot be read.
        true_manifest: What the manifest should say, where it says something else.
    """

    run: RunRecord | None = None
    findings: list[Finding] = field(default_factory=list)
    statistics: Collection[Statistic] = ()
    is_live: bool = False
    is_at_rest: bool = False
    journal_bytes: int = 0
    is_behind: bool = False
    true_manifest: Manifest | None = None

    @property
    def is_sound(self) -> bool:
        """Whether the journal can be read to its end, so that something can be made from it."""
        return self.run is not None and not any(
            each.is_fault and not each.is_repairable for each in self.findings
        )


def inspect_records(directory: str) -> Records:
    """Read the journal and the manifest of a run, and compare them. Never raises for what they hold.

    Of a run that goes on, this is how it stood a moment ago.
    """
    records = Records(is_live=is_locked(layout.lock_path(directory)))
    manifest: Manifest | None = None
    try:
        # First the manifest: the journal read after it holds all that it vouches for.
        manifest = read_manifest(directory)
    except SchemaVersionError as error:
        records.findings.append(Finding(FindingKind.MANIFEST, True, str(error), layout.MANIFEST))
        return records
    except AstroError as error:
        records.findings.append(_manifest_fault(f"{layout.MANIFEST} cannot be used: {error}"))
    try:
        reading = read_run(directory, checks_prefix=True)
        content = _read_journal(directory, reading.journal_bytes)
    except StorageError as error:
        records.run = None if manifest is None else restore_record(manifest)
        records.findings.append(_journal_fault(directory, error))
    else:
        _compare(records, manifest, content, reading, directory)
    records.is_live = records.is_live or is_locked(layout.lock_path(directory))
    return records


def _compare(
    records: Records, manifest: Manifest | None, content: bytes, reading: Reading, directory: str
) -> None:
    """Fold the journal from its first line, and compare with the manifest at its point."""
    true: Manifest | None = None
    try:
        for run, end, statistics in _fold_lines(content):
            records.run, records.journal_bytes, records.statistics = run, end, statistics
            if manifest is not None and end == manifest.journal_bytes:
                true = snapshot_record(run, journal_bytes=end, journal_crc32=manifest.journal_crc32)
    except AstroError as error:
        records.run = reading.record
        records.findings.append(_journal_fault(directory, error))
        return
    if manifest is None and records.run is not None:
        records.true_manifest = snapshot_record(
            records.run, journal_bytes=reading.journal_bytes, journal_crc32=reading.journal_crc32
        )
    elif manifest is not None and true != manifest:
        records.true_manifest = true
        records.findings.append(_manifest_fault(_describe_difference(manifest, true)))
    records.is_behind = reading.durable_bytes != reading.journal_bytes
    if reading.torn:
        records.findings.append(
            Finding(
                FindingKind.JOURNAL,
                False,
                f"{layout.JOURNAL} has a torn end behind byte {reading.journal_bytes:,}, or names files "
                "there that never reached the disk",
                layout.JOURNAL,
                advice="the next `astro run` drops it",
                is_repairable=True,
            )
        )
    records.is_at_rest = (
        records.run is not None
        and records.run.status is not RunStatus.RUNNING
        and not reading.torn
        and (manifest is None or not records.is_behind)
        and not os.path.isdir(f"{directory}/{layout.STAGING}")
    )


def _fold_lines(content: bytes) -> Iterator[tuple[RunRecord, int, Collection[Statistic]]]:
    """Yield, where a checkpoint may stand, the run so far; always the same objects, which grow."""
    run: RunRecord | None = None
    latest: dict[tuple[str, str, str], Statistic] = {}
    end = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            event = parse_event(line)
            if run is None:
                run = start_record(event)
            else:
                fold(run, event)
        except AstroError as error:
            raise JournalError(f"line {number}: {error}") from None
        latest.update(
            ((each.scope, each.subject, each.action), each) for each in derive_statistics([event], run)
        )
        end += len(line)
        yield run, end, latest.values()


def derive_all_statistics(directory: str, journal_bytes: int) -> list[Statistic]:
    """Return the latest value of each statistic that a journal gives rise to, up to a byte.

    Raises:
        JournalError: A line is damaged.
        StorageError: It cannot be read.
    """
    last = deque(_fold_lines(_read_journal(directory, journal_bytes)), maxlen=1)
    return [statistic for _, _, statistics in last for statistic in statistics]


def _read_journal(directory: str, size_bytes: int) -> bytes:
    path = layout.events_path(directory)
    with storage_errors("read", path), open(path, "rb") as file:
        return file.read(size_bytes)


def _manifest_fault(message: str) -> Finding:
    return Finding(
        FindingKind.MANIFEST,
        True,
        message,
        layout.MANIFEST,
        advice="`--repair` writes it anew from the journal",
        is_repairable=True,
    )


def _journal_fault(directory: str, error: AstroError) -> Finding:
    advice = "restore it from a copy; nothing else is touched until then"
    message = str(error)
    try:
        for _ in _fold_lines(_read_journal(directory, -1)):
            pass
        # All lines are good: then it may be the manifest's word that is wrong.
        advice += f". If it is {layout.MANIFEST} that was edited, remove that: it is made anew"
    except JournalError as where:
        message = f"{message} ({where})" if str(where) not in message else message
    except StorageError:
        pass
    return Finding(FindingKind.JOURNAL, True, message, layout.JOURNAL, advice=advice)


def _describe_difference(manifest: Manifest, true: Manifest | None) -> str:
    if true is None:
        return f"{layout.MANIFEST} ends within a line of the journal"
    names = [name for name in true.__struct_fields__ if getattr(manifest, name) != getattr(true, name)]
    return f"{layout.MANIFEST} says otherwise than the journal: {', '.join(names)}"


# -- files --------------------------------------------------------------------------------------


def inspect_file(directory: str, expected: ExpectedFile) -> tuple[FindingKind, str] | None:
    """Compare what the file system and the end of a file say with the records; None if all is well.

    A changed time is no reason for anything.
    """
    path = f"{directory}/{expected.path}"
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            return FindingKind.CHANGED, "is no regular file"
        if expected.size_bytes is not None and found.st_size != expected.size_bytes:
            how = "was overwritten" if _is_parquet(path) else "is cut off or damaged"
            sizes = f"{found.st_size:,} bytes instead of {expected.size_bytes:,}"
            return FindingKind.CHANGED, f"{how}: it has {sizes}"
        if expected.tail_crc32 is not None and read_tail_crc32(path) != expected.tail_crc32:
            how = "was overwritten, or has decayed" if _is_parquet(path) else "is damaged"
            return FindingKind.CHANGED, f"{how}: its content is not what was published"
    except FileNotFoundError:
        return FindingKind.MISSING, "is missing"
    except (OSError, StorageError) as error:
        return FindingKind.UNREADABLE, f"cannot be read: {error}"
    return None


def _is_parquet(path: str) -> bool:
    """Whether a file begins and ends as a Parquet file does."""
    with open(path, "rb") as file:
        content = file.read(4), os.pread(file.fileno(), 4, max(0, os.fstat(file.fileno()).st_size - 4))
    return content == (b"PAR1", b"PAR1")


def has_moved_on(directory: str, records: Records) -> bool:
    """Whether the run may have changed since its records were read."""
    try:
        size_bytes = os.path.getsize(layout.events_path(directory))
    except OSError:
        return False
    is_locked_now = is_locked(layout.lock_path(directory))
    return records.is_live or is_locked_now or size_bytes != records.journal_bytes


def inspect_parts(run: RunRecord) -> Iterator[Finding]:
    """Yield where the quarantine parts of a step and file are not numbered 1, 2, … without gaps."""
    for file in run.files.values():
        for number, part in enumerate(file.parts, start=1):
            path = layout.part_path(INGEST_STEP, file.name, number)
            if part.path != path:
                message = f"part {number:,} of the ingest of {file.name!r} is {part.path}, and not {path}"
                advice = f"ingest {run.source_directory} again"
                yield Finding(FindingKind.PARTS, True, message, part.path, advice=advice)
                break
    for step_id, record in run.steps.items():
        for flow in record.files:
            for number, part in enumerate(flow.parts, start=1):
                path = layout.part_path(step_id, flow.name, number)
                if part.path != path:
                    message = f"part {number:,} of step {step_id!r} is {part.path}, and not {path}"
                    advice = f"`astro run {run.run_id} --rerun {step_id}` makes them anew"
                    yield Finding(FindingKind.PARTS, True, message, part.path, step_id, advice)
                    break


# -- links, litter, statistics --------------------------------------------------------------------


def scan_links(directory: str, run: RunRecord) -> dict[str, str]:
    """Return the links that are missing or stand for something else, each with the file that is meant.

    A link may be a copy, where a file system has no links: then its content counts. One whose file is gone
    is not told: its file is.
    """
    return {
        link: path
        for link, path in derive_links(run).items()
        if os.path.isfile(f"{directory}/{path}")
        and not _is_same(f"{directory}/{link}", f"{directory}/{path}")
    }


def _is_same(link: str, path: str) -> bool:
    try:
        return os.path.samefile(link, path) or filecmp.cmp(link, path, shallow=False)
    except OSError:
        return False


def inspect_folders(directory: str, run: RunRecord, *, is_fault: bool) -> Iterator[Finding]:
    """Yield links that are wrong, and files that no record names."""
    advice = "`--repair` puts it right" if is_fault else "the next `astro run` puts it right"
    for link, path in scan_links(directory, run).items():
        message = f"{link} is missing, or is not {path}"
        yield Finding(FindingKind.LINK, is_fault, message, link, advice=advice, is_repairable=True)
    for path in scan_litter(directory, run):
        message = f"{path} is named by no record"
        yield Finding(FindingKind.LITTER, is_fault, message, path, advice=advice, is_repairable=True)
    if os.path.isdir(f"{directory}/{layout.STAGING}"):
        message = "staging is what an attempt left that did not end"
        yield Finding(FindingKind.LITTER, False, message, layout.STAGING, advice=advice, is_repairable=True)


def inspect_statistics(pipeline_dir: str, records: Records) -> Iterator[Finding]:
    """Yield what the statistics say otherwise than the journal."""
    if records.run is None:
        return
    path = layout.statistics_path(pipeline_dir)
    # Nothing at all is what a run has that was moved here; some of it is not.
    is_fault = False
    try:
        deviations, is_known = scan_deviations(path, records.run, list(records.statistics))
        is_fault = records.is_at_rest and is_known
        if not deviations:
            return
        message = f"the statistics do not say what the journal says: {deviations[0]}"
        if len(deviations) > 1:
            message += f", and {len(deviations) - 1:,} more"
        if not is_known:
            message = "the statistics know nothing of this run"
    except StorageError as error:
        is_fault, message = True, str(error)
    yield Finding(
        FindingKind.STATISTICS,
        is_fault,
        message,
        advice="`--repair` rebuilds them from the journal",
        is_repairable=True,
    )
