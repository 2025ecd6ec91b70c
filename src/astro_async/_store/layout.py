"""What is on disk, and where: every path of a pipeline directory and of a run directory.

```text
pipeline_dir/
  pipeline.py
  .astro/stats.db                                            statistics (SQLite)
  .working/{run_id}/
    manifest.json                                            the run, readable; a checkpoint of the journal
    events.jsonl                                             the journal; append-only; the truth
    astro.log                                                log, one separator line per invocation
    run.lock, run.holder.json                                the run's lock, and who holds it
    untold.json                                              what `on_finish` and others have yet to be told
    ingested/{ingest_name}.parquet                           as ingested; never changed
    versions/{ingest_name}/{step_id}.{attempt}.parquet       what steps made of it; never changed
    versions/{ingest_name}/{step_id}.{attempt}.{n}.parquet   what `save_to` wrote and is not the version
    current/{ingest_name}.parquet                            links to the last versions, for people and tools
    processed/…                                              links that the author names with save_to
    snapshots/{step_id}/{ingest_name}.parquet                link to the version the step was given
    quarantine/{step_id}/{ingest_name}.part-00001.parquet    (beside it ….rows: positions in the snapshot)
    filtered/{step_id}/{ingest_name}.parquet                 rows that a filter removed
    patches/{step_id}/{ingest_name}.{n}.parquet              what operators decided about single rows
    staging/{step_id}.{attempt}.{n}.parquet                  what a running attempt has written so far
```

Paths are strings: a `Path` join costs more than a scheduling decision. Paths of a run's own files are
relative to the run directory in every record, so that a run can be moved or copied.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from astro_async._core.names import RunId, check_run_id
from astro_async.exceptions import InvalidNameError

if TYPE_CHECKING:
    from astro_async._core.records import Patch

__all__ = [
    "command_line",
    "current_link",
    "events_path",
    "filtered_path",
    "holder_path",
    "ingested_path",
    "list_run_ids",
    "lock_path",
    "log_path",
    "manifest_path",
    "part_path",
    "patch_path",
    "patch_paths",
    "positions_path",
    "run_directory",
    "saved_path",
    "snapshot_link",
    "staging_prefix",
    "statistics_path",
    "version_path",
    "working_directory",
]

MANIFEST: Final = "manifest.json"
JOURNAL: Final = "events.jsonl"

STAGING: Final = "staging"
# Folders whose files are all named by records, derived from them, or litter.
OWNED_FOLDERS: Final = ("versions", "quarantine", "filtered", "snapshots", "patches")


def working_directory(pipeline_dir: str) -> str:
    """Return the folder that holds the runs of a pipeline."""
    return f"{os.path.abspath(pipeline_dir)}/.working"


def list_run_ids(pipeline_dir: str) -> list[RunId]:
    """Return the ids of all runs in a pipeline directory; none if nothing was ever ingested."""
    found: list[RunId] = []
    working = working_directory(pipeline_dir)
    if os.path.isdir(working):
        for name in sorted(os.listdir(working)):
            try:
                found.append(check_run_id(name))
            except InvalidNameError:
                continue
    return found


def command_line(words: str, pipeline_dir: str) -> str:
    """Return a command as the user would type it, with `-C` where it is needed."""
    directory = os.path.abspath(pipeline_dir)
    if directory == os.getcwd():
        return f"astro {words}"
    return f"astro {words} -C {shlex.quote(min(directory, os.path.relpath(directory), key=len))}"


def run_directory(pipeline_dir: str, run_id: RunId) -> str:
    """Return the folder of one run."""
    return f"{working_directory(pipeline_dir)}/{run_id}"


def statistics_path(pipeline_dir: str) -> str:
    """Return the statistics database of a pipeline."""
    return f"{os.path.abspath(pipeline_dir)}/.astro/stats.db"


def manifest_path(directory: str) -> str:
    """Return the manifest of the run in a directory."""
    return f"{directory}/{MANIFEST}"


def events_path(directory: str) -> str:
    """Return the journal of the run in a directory."""
    return f"{directory}/{JOURNAL}"


def log_path(directory: str) -> str:
    """Return the log of the run in a directory."""
    return f"{directory}/astro.log"


def lock_path(directory: str) -> str:
    """Return the lock file of the run in a directory."""
    return f"{directory}/run.lock"


def holder_path(directory: str) -> str:
    """Return the file that tells who holds the lock of the run in a directory."""
    return f"{directory}/run.holder.json"


def ingested_path(name: str) -> str:
    """Return the relative path of the ingested version of a file."""
    return f"ingested/{name}.parquet"


def version_path(name: str, step_id: str, attempt: int) -> str:
    """Return the relative path of the version that an attempt makes of a file."""
    return f"versions/{name}/{step_id}.{attempt}.parquet"


def saved_path(name: str, step_id: str, attempt: int, number: int) -> str:
    """Return the relative path of what `save_to` wrote and is not the version."""
    return f"versions/{name}/{step_id}.{attempt}.{number}.parquet"


def current_link(name: str) -> str:
    """Return the relative path of the link to the last version of a file."""
    return f"current/{name}.parquet"


def snapshot_link(step_id: str, name: str) -> str:
    """Return the relative path of the link to the version that a step was given."""
    return f"snapshots/{step_id}/{name}.parquet"


def part_path(step_id: str, name: str, number: int) -> str:
    """Return the relative path of a quarantine part; numbers have five digits, then more."""
    return f"quarantine/{step_id}/{name}.part-{number:05d}.parquet"


def positions_path(part: str) -> str:
    """Return the relative path of the sidecar of a part."""
    return f"{part.removesuffix('.parquet')}.rows"


def filtered_path(step_id: str, name: str) -> str:
    """Return the relative path of the rows that a filter removed."""
    return f"filtered/{step_id}/{name}.parquet"


def patch_path(step_id: str, name: str, number: int) -> str:
    """Return the relative path of a patch."""
    return f"patches/{step_id}/{name}.{number}.parquet"


def patch_paths(directory: str, groups: Sequence[Sequence[Patch]]) -> list[list[str]]:
    """Return the paths of grouped patches, in a run directory."""
    return [[f"{directory}/{patch.path}" for patch in group] for group in groups]


def staging_prefix(step_id: str, attempt: int) -> str:
    """Return with what the relative path of every file begins that an attempt has staged."""
    return f"{STAGING}/{step_id}.{attempt}."
