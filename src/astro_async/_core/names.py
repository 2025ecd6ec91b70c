"""Names that become paths: step ids, ingest names, run ids, the names given to `save_to`.

Every check that keeps a name inside the run directory is here. The file system is never asked: what a
planted symlink could do is the store's business.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, NewType

from astro_async.exceptions import InvalidNameError, JournalError

__all__ = [
    "INGEST_STEP",
    "RunId",
    "StepId",
    "check_distinct",
    "check_name",
    "check_recorded_link",
    "check_recorded_name",
    "check_recorded_path",
    "check_run_id",
    "check_save_path",
    "slugify",
]

StepId = NewType("StepId", str)
RunId = NewType("RunId", str)

RUN_ID_LENGTH: Final = 5
RUN_ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"

# With its attempt, part number and suffix a name stays under the 255 bytes of common file systems.
_MAX_NAME_BYTES: Final = 200
_NAME: Final = re.compile(r"\w[\w.-]*")
_SAVE_PART: Final = re.compile(r"\w(?:[^/\\]*[^/\\ ])?")
_OTHER_SUFFIXES: Final = (".csv", ".tsv", ".txt", ".json", ".ndjson", ".jsonl", ".xlsx")
_STEP_ID: Final = re.compile(r"\w[\w-]*")
_RUN_ID: Final = re.compile(rf"[a-z0-9]{{{RUN_ID_LENGTH}}}")
# The step under which the ingest itself parks rows.
INGEST_STEP: Final = "ingest"
_RESERVED_NAMES: Final = frozenset({INGEST_STEP})
_RESERVED_FOLDERS: Final = frozenset(
    {
        *("ingested", "versions", "current", "snapshots", "quarantine", "filtered", "patches", "staging"),
        *("manifest.json", "manifest.json.tmp", "events.jsonl", "astro.log"),
        *("run.lock", "run.holder.json", "run.holder.json.tmp", "untold.json", "untold.json.tmp"),
    }
)
_MAX_SAVE_PATH_BYTES: Final = 1000
_DATA_PATH: Final = re.compile(r"(?:ingested|versions|quarantine|filtered|patches)/[^\0]+")
# An empty part of a path, `.` or `..`.
_NO_PART: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")


def slugify(label: str) -> StepId:
    """Turn a step's label into its id: ASCII lower case, everything else a single hyphen.

    Raises:
        InvalidNameError: Nothing is left; the step needs an explicit `step_id`.
    """
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-")
    if not slug:
        raise InvalidNameError(f"the label {label!r} has no letter or digit to make an id of: give step_id=")
    # One text for both, where they are the same.
    return StepId(label if slug == label else slug)


def check_name(name: str, *, what: str) -> str:
    """Return a step id or ingest name unchanged if it is safe as a part of a path.

    Letters, digits, `_` and `-` (an ingest name also `.`), starting with a letter, a digit or `_`; at
    most 200 bytes; not reserved.

    Raises:
        InvalidNameError: The name is not safe; the message says what it names.
    """
    pattern = _STEP_ID if what == "step_id" else _NAME
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise InvalidNameError(
            f"{what} {name!r} is not usable as a file name: use letters, digits, '_' and '-', "
            "starting with a letter, a digit or '_'"
        )
    if name.lower() in _RESERVED_NAMES:
        raise InvalidNameError(f"{what} {name!r} is reserved: choose another")
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise InvalidNameError(f"{what} {name[:40]!r}… is longer than {_MAX_NAME_BYTES} bytes")
    return name


def check_run_id(run_id: str) -> RunId:
    """Return a run id unchanged if it is five characters of `a-z0-9`.

    Raises:
        InvalidNameError: It is anything else, a path for instance.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise InvalidNameError(
            f"{run_id!r} is not a run id: a run id is {RUN_ID_LENGTH} characters of a-z and 0-9 "
            "(`astro list` shows them)"
        )
    return RunId(run_id)


def _is_plain(part: str) -> bool:
    """Whether a part of a path given to `save_to` is a name, and one that a person can see."""
    return (
        part.isprintable()
        and _SAVE_PART.fullmatch(part) is not None
        and len(part.encode()) <= _MAX_NAME_BYTES
    )


def check_save_path(subfolder: str, filename: str) -> str:
    """Return the path, relative to the run directory, that `save_to(subfolder, filename)` names.

    Raises:
        InvalidNameError: It would leave the run directory, or lies in a folder of the run's own.
    """
    parts = [*subfolder.split("/"), filename]
    if not all(_is_plain(part) for part in parts):
        raise InvalidNameError(
            f"save_to({subfolder!r}, {filename!r}) does not stay inside the run directory, or has names that "
            "are none: a part starts with a letter, a digit or '_', and holds no slash and nothing invisible"
        )
    if filename.lower().endswith(_OTHER_SUFFIXES):
        raise InvalidNameError(f"save_to(…, {filename!r}): the file will be Parquet, so name it .parquet")
    if len("/".join(parts).encode()) > _MAX_SAVE_PATH_BYTES:
        raise InvalidNameError(
            f"save_to: a path of more than {_MAX_SAVE_PATH_BYTES} bytes: use shorter names"
        )
    if fold_case(parts[0]) in _RESERVED_FOLDERS:
        raise InvalidNameError(
            f"save_to({subfolder!r}, …): that folder belongs to the run; use another, such as 'processed'"
        )
    return "/".join(parts)


def check_recorded_path(path: str) -> None:
    """Refuse the path of a data file in a record if it leads anywhere but to the run's own data.

    Records are only ever written with such paths; one that is not was tampered with, and what it names could
    be removed as forgotten work.

    Raises:
        JournalError: It does.
    """
    if not _DATA_PATH.fullmatch(path) or _NO_PART.search(path):
        raise JournalError(f"{path[:200]!r} is no path of a data file of the run")


def check_recorded_link(name: str) -> None:
    """Refuse a name of `save_to` in a record if it leads out of the run, or to what is the run's own.

    Raises:
        JournalError: It does.
    """
    is_outside = "\0" in name or _NO_PART.search(name)
    if is_outside or fold_case(name.split("/", 1)[0]) in _RESERVED_FOLDERS:
        raise JournalError(f"{name[:200]!r} is no name of a saved file of the run")


def check_recorded_name(name: str) -> None:
    """Refuse a step id or ingest name in a record that could not be part of a path.

    Raises:
        JournalError: It could not.
    """
    if not _NAME.fullmatch(name):
        raise JournalError(f"{name[:200]!r} is no name of a step or file")


def fold_case(name: str) -> str:
    """Return what two names have in common that some file system cannot tell apart."""
    return unicodedata.normalize("NFC", name).casefold()


def check_distinct(names: Iterable[str], *, what: str) -> None:
    """Refuse names that are equal, or equal but for case or Unicode form.

    Raises:
        InvalidNameError: Two names collide; both are shown.
    """
    seen: dict[str, str] = {}
    for name in names:
        folded = fold_case(name)
        other = seen.get(folded)
        if other == name:
            raise InvalidNameError(f"{what} {name!r} is used twice: give each its own")
        if other is not None:
            raise InvalidNameError(
                f"{what} {other!r} and {name!r} differ only by case: some file systems cannot tell them apart"
            )
        seen[folded] = name
