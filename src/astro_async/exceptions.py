"""Every error that astro_async raises on purpose.

The tree is flat: catch `AstroError` to catch all of them. A message says what is wrong, where, and what
to do next; `exit_code` is what the command line returns for it. Nothing here imports anything.
"""

from __future__ import annotations

__all__ = [
    "AstroError",
    "ConservationError",
    "DeskError",
    "FileAccessError",
    "IllegalTransitionError",
    "IngestError",
    "InvalidNameError",
    "JournalError",
    "PipelineError",
    "QuarantineError",
    "RuleError",
    "RunLockedError",
    "RunNotFoundError",
    "RunRefusedError",
    "SchemaVersionError",
    "StepError",
    "StorageError",
    "SymlinkError",
    "UnknownNameError",
]


class AstroError(Exception):
    """Base of all errors of astro_async."""

    exit_code = 1


class PipelineError(AstroError):
    """The pipeline is missing, cannot be loaded, or is declared wrongly."""

    exit_code = 2


class InvalidNameError(PipelineError):
    """A name that becomes a path is empty, reserved, or would leave the run directory."""


class IngestError(AstroError):
    """The source directory or one of its files is not what the pipeline declares."""


class RunNotFoundError(AstroError):
    """No run of that id exists."""


class RunRefusedError(AstroError):
    """The run exists, but what was asked of it makes no sense for it now."""


class UnknownNameError(RunRefusedError):
    """What was asked names a step, a file or a reason that there is none of: a slip of whoever asked."""

    exit_code = 2


class RunLockedError(AstroError):
    """Another process holds the lock."""

    exit_code = 4


class StorageError(AstroError):
    """The disk refused a read or a write: full, read-only, failing, or files that were tampered with."""


class SymlinkError(StorageError):
    """A symbolic link stands where the run has a folder or a link of its own; it could lead anywhere."""


class JournalError(StorageError):
    """The journal or the manifest is damaged before the point that is known to be durable."""


class SchemaVersionError(JournalError):
    """The run was written by a later version of astro_async. It is whole, and nothing may change it."""


class StepError(AstroError):
    """A step did something that makes it `failed`. The run goes on as the stop rules say."""


class FileAccessError(StepError):
    """A step wrote to a read-only file, or used a file after the step had ended."""


class QuarantineError(StepError):
    """Rows that cannot be set aside: missing columns, values that do not cast, or over the limit."""


class DeskError(AstroError):
    """What was given to the repair desk does not fit the parked rows; nothing of it is stored."""


class RuleError(StepError):
    """A rule is broken: missing column, not Boolean, aggregating, or raising. No row is to blame."""


class ConservationError(StepError):
    """Rows in are not rows out plus rows quarantined or removed."""


class IllegalTransitionError(AstroError):
    """An event that cannot follow the present status. A defect of astro_async, never of a pipeline."""
