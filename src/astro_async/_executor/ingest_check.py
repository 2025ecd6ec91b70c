"""Try an ingest without making a run: say of each file, and of each of its columns, what does not fit."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from astro_async._executor.source_files import convert_file, plan_matches
from astro_async._frames.column_match import ColumnDifferenceError
from astro_async._frames.csv_diagnosis import BadColumn, BadValuesError
from astro_async._frames.parquet import read_schema
from astro_async._frames.source_content import SourceFacts
from astro_async.exceptions import IngestError
from astro_async.ingest_spec import IngestFileSpec

__all__ = ["CheckedColumn", "CheckedFile", "SourceCheck", "check_files"]

ColumnVerdict = Literal["ok", "missing", "null", "extra", "left out", "bad"]


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """One column of a file or its schema.

    Attributes:
        name: Its name in the schema, or in the file where the schema does not name it.
        type: Its declared type; None for one that is not in the schema.
        verdict: `ok`; `missing` or `extra`, and the file is refused; `null`: missing, and filled with nulls;
            `left out`: extra, and ignored; `bad`: it has values that do not parse.
        detail: More about that, in words.
    """

    name: str
    type: str | None
    verdict: ColumnVerdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """One source file.

    Attributes:
        name: The ingest name.
        path: The file.
        rows: How many rows it would give; None if it would be refused.
        columns: Its columns; empty if it could not be read so far.
        problems: Why it would be refused, in words.
        rows_quarantined: How many rows would be parked.
    """

    name: str
    path: str
    rows: int | None
    columns: tuple[CheckedColumn, ...]
    problems: tuple[str, ...]
    rows_quarantined: int = 0


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What an ingest of a directory would come to.

    Attributes:
        problems: What does not fit the pipeline about the directory, in words.
        files: Its files, in the order of the pipeline.
    """

    problems: tuple[str, ...]
    files: tuple[CheckedFile, ...]

    @property
    def is_good(self) -> bool:
        """Say whether the directory can be ingested."""
        return not self.problems and not any(file.problems for file in self.files)


def check_files(specs: Mapping[str, IngestFileSpec], source: str) -> SourceCheck:
    """Read every file of a directory as an ingest would. Blocks.

    What is read goes to the system's folder for temporary files and is removed again.

    Raises:
        IngestError: The source is no directory.
        PipelineError: A spec makes no sense.
        StorageError: The temporary folder refuses.
    """
    match = plan_matches(list(specs.values()), source)
    files = []
    for name, path in match.paths.items():
        with tempfile.TemporaryDirectory(prefix="astro-check-") as folder:
            files.append(_check_file(specs[name], path, f"{folder}/checked.parquet"))
    return SourceCheck(tuple(match.problems), tuple(files))


def _check_file(spec: IngestFileSpec, path: str, target: str) -> CheckedFile:
    facts = SourceFacts()
    problems: list[str] = []
    verdicts: dict[str, CheckedColumn] = {}
    bad: Mapping[str, BadColumn] = {}
    columns = spec.columns()
    types = {} if columns is None else {name: str(dtype) for name, dtype in columns.types.items()}
    rows = None
    parked = 0
    try:
        try:
            converted = convert_file(spec, path, target, facts)
            rows = converted.frame.rows
            parked = converted.parked.rows if converted.parked else 0
        except ColumnDifferenceError as error:
            problems.append(str(error))
            verdicts = _judge_difference(spec, error, types)
            # What the columns hold that are there can be told all the same.
            lenient = dataclasses.replace(spec, missing_columns="insert", extra_columns="ignore")
            convert_file(lenient, path, target, facts)
    except ColumnDifferenceError:
        # It has no column of the schema.
        facts.ignored = facts.inserted = ()
    except BadValuesError as error:
        problems.append(str(error))
        bad = error.columns
    except IngestError as error:
        problems.append(str(error))
        if not verdicts:
            return CheckedFile(spec.name, path, None, (), tuple(problems))
    if columns is None and rows is not None:
        types = {name: str(dtype) for name, dtype in read_schema(target).items()}
    for name in facts.inserted:
        verdicts.setdefault(name, CheckedColumn(name, types[name], "null"))
    for name in facts.ignored:
        verdicts.setdefault(name, CheckedColumn(name, None, "left out"))
    for name, column in bad.items():
        count = "1 value" if column.count == 1 else f"{column.count} values"
        detail = f"{column.place}: {count} not {column.expected}"
        verdicts[name] = CheckedColumn(name, types.get(name), "bad", detail)
    listed = [verdicts.pop(name, CheckedColumn(name, dtype, "ok")) for name, dtype in types.items()]
    return CheckedFile(spec.name, path, rows, (*listed, *verdicts.values()), tuple(problems), parked)


def _judge_difference(
    spec: IngestFileSpec, error: ColumnDifferenceError, types: Mapping[str, str]
) -> dict[str, CheckedColumn]:
    rules, difference = spec.reading().rules, error.difference
    verdicts: dict[str, CheckedColumn] = {}
    for name in difference.missing:
        is_null = rules.missing == "insert" or name in rules.optional
        near = f"{difference.near[name]!r} looks like it" if name in difference.near else ""
        verdicts[name] = CheckedColumn(name, types[name], "null" if is_null else "missing", near)
    for name in difference.extra:
        verdicts[name] = CheckedColumn(name, None, "extra" if rules.extra == "raise" else "left out")
    return verdicts
