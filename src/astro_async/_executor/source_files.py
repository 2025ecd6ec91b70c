"""The files of a source directory: which is which, and turning one of them into Parquet."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from astro_async._frames.bad_rows import ParkedPart
from astro_async._frames.column_match import compare_columns, refuse_differences
from astro_async._frames.columns import refuse_reserved
from astro_async._frames.convert import ConvertedSource, SourceReading, convert_source
from astro_async._frames.parquet import WrittenFrame, iter_frame, load_frame, remove_files, write_frame
from astro_async._frames.schema_columns import SchemaColumns
from astro_async._frames.source_content import SourceFacts, hash_source
from astro_async.exceptions import IngestError, StepError
from astro_async.ingest_spec import IngestFileSpec

__all__ = ["ConvertedFile", "FileMatch", "convert_file", "match_files", "plan_matches"]


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """A source file that was taken in.

    Attributes:
        frame: What the Parquet file holds.
        size_bytes: Size of the source.
        sha256: SHA-256 of the source as delivered.
        ignored: Columns of the source that were left out.
        inserted: Columns that the source lacks and that are null.
        parked: What was parked of it, if anything.
    """

    frame: WrittenFrame
    size_bytes: int
    sha256: str
    ignored: tuple[str, ...]
    inserted: tuple[str, ...]
    parked: ParkedPart | None = None


@dataclass(frozen=True, slots=True)
class FileMatch:
    """Which source file is which.

    Attributes:
        paths: The source file of each spec, by ingest name; those that have none are left out.
        problems: What does not fit, in words.
    """

    paths: dict[str, str]
    problems: list[str]


def match_files(specs: list[IngestFileSpec], source: str) -> dict[str, str]:
    """Return the source file of each spec, by ingest name; absent optional ones are left out.

    Raises:
        IngestError: The source is no directory, or does not fit. All problems are named.
    """
    match = plan_matches(specs, source)
    if match.problems:
        raise IngestError(f"source {source} does not fit the pipeline: {'; '.join(match.problems)}")
    return match.paths


def plan_matches(specs: list[IngestFileSpec], source: str) -> FileMatch:
    """Find the source file of each spec, and what does not fit.

    What does not fit is a required file that is missing, a pattern that matches several files, a file that
    matches several patterns, and an unexpected file or folder.

    Raises:
        IngestError: The source is no directory.
    """
    if not os.path.isdir(source):
        kind = "is a file, not a directory" if os.path.exists(source) else "does not exist"
        raise IngestError(f"source {source} {kind}: give the directory that holds the files")
    entries = sorted(entry for entry in os.listdir(source) if not entry.startswith("."))
    folders = [entry for entry in entries if os.path.isdir(os.path.join(source, entry))]
    files = [entry for entry in entries if entry not in folders]
    problems = [f"there is a subdirectory {folder!r}: put the files side by side" for folder in folders]
    matched: dict[str, str] = {}
    taken: dict[str, list[str]] = {entry: [] for entry in files}
    for spec in specs:
        found = [entry for entry in files if fnmatch.fnmatchcase(entry, spec.source_pattern)]
        for entry in found:
            taken[entry].append(spec.name)
        if len(found) == 1:
            matched[spec.name] = os.path.join(os.path.abspath(source), found[0])
        elif found:
            problems.append(f"{spec.name!r} ({spec.source_pattern}) matches {', '.join(found)}: leave one")
        elif not spec.optional:
            problems.append(f"{spec.name!r} ({spec.source_pattern}) is missing")
    for entry, names in taken.items():
        if not names:
            problems.append(f"{entry} is not expected: remove it, or add an IngestFileSpec for it")
        elif len(names) > 1:
            problems.append(f"{entry} matches {' and '.join(map(repr, names))}: make the patterns differ")
    if not matched and not problems:
        problems.append("it is empty")
    return FileMatch(matched, problems)


def convert_file(
    spec: IngestFileSpec,
    path: str,
    target: str,
    facts: SourceFacts | None = None,
    claim_part: Callable[[], str] | None = None,
) -> ConvertedFile:
    """Turn a source file into a Parquet file, which is not there after any error.

    Args:
        spec: How to read it.
        path: The source file.
        target: The Parquet file, which must not exist yet.
        facts: Is given what is learnt of the source, also where an error comes of it.
        claim_part: Returns the path of a file for rows that are parked; called only if there are any. None
            puts it beside the target.

    Raises:
        IngestError: The file, or what `preprocess` makes of it, is not what the spec says.
        PipelineError: The spec makes no sense.
        StorageError: The disk refuses.
    """
    how, columns = spec.reading(), spec.columns()
    facts = SourceFacts() if facts is None else facts
    if spec.preprocess is None:
        types = None if columns is None else columns.types
        converted = convert_source(
            path,
            target,
            how=how,
            schema=types,
            facts=facts,
            claim_part=claim_part or (lambda: f"{target}.parked"),
        )
    else:
        converted = ConvertedSource(_write_preprocessed(spec, path, target, how, columns, facts))
    try:
        if columns is not None:
            _refuse_failures(columns, path, target)
        hash_source(path, facts)
        size_bytes = os.stat(path).st_size
    except BaseException:
        remove_files(target, *([converted.parked.path] if converted.parked else []))
        raise
    return ConvertedFile(
        converted.frame,
        size_bytes,
        facts.digest.hexdigest(),
        facts.ignored,
        facts.inserted,
        converted.parked,
    )


def _write_preprocessed(
    spec: IngestFileSpec,
    path: str,
    target: str,
    how: SourceReading,
    columns: SchemaColumns | None,
    facts: SourceFacts,
) -> WrittenFrame:
    assert spec.preprocess is not None
    try:
        frame = spec.preprocess(Path(path))
    except Exception as error:
        raise IngestError(f"{path}: preprocess raised {type(error).__name__}: {error}") from error
    if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
        raise IngestError(f"{path}: preprocess returned {type(frame).__name__}, not a Polars DataFrame")
    names = frame.collect_schema().names()
    try:
        refuse_reserved(names)
        if columns is not None:
            difference = compare_columns(names, columns.types)
            refuse_differences(difference, names, f"{path}: what preprocess returned", how.rules)
            facts.ignored, facts.inserted = difference.extra, difference.missing
            frame = frame.select(
                (pl.lit(None) if name in difference.missing else pl.col(name)).cast(dtype).alias(name)
                for name, dtype in columns.types.items()
            )
        return write_frame(frame, target)
    except pl.exceptions.PolarsError as error:
        raise IngestError(f"{path}: what preprocess returned does not fit the schema: {error}") from error
    except StepError as error:
        raise IngestError(f"{path}: {error}") from error


def _refuse_failures(columns: SchemaColumns, path: str, target: str) -> None:
    """Refuse a file with rows that fail the checks of a Pandera or dataframely schema."""
    if columns.find_failures is None:
        return
    failures: Counter[str] = Counter()
    batches = iter_frame(target, columns.batch_rows) if columns.batch_rows else iter([load_frame(target)])
    for batch in batches:
        failures.update(columns.find_failures(batch))
    if failures:
        told = "; ".join(f"{check} ({count})" for check, count in failures.items())
        raise IngestError(
            f"{path} fails checks of the schema: {told}. Mend the file or the schema, or give the types "
            f"alone as schema and set rows aside in a step."
        )
