"""Names of the columns that astro_async adds to rows it sets aside.

A source with a column that begins with the reserved prefix is refused, so these never meet a user's own.
"""

from __future__ import annotations

from astro_async.exceptions import StepError

__all__ = ["REASON_COLUMN", "RESERVED_PREFIX", "ROW_COLUMN", "refuse_reserved"]

RESERVED_PREFIX = "_astro_"
REASON_COLUMN = f"{RESERVED_PREFIX}quarantine_reason"
ROW_COLUMN = f"{RESERVED_PREFIX}row"


def refuse_reserved(names: list[str]) -> None:
    """Refuse a frame whose columns would collide with ours.

    Raises:
        StepError: Names the columns.
    """
    taken = [name for name in names if name.startswith(RESERVED_PREFIX)]
    if taken:
        raise StepError(
            f"column names that begin with {RESERVED_PREFIX!r} are reserved, and the frame has "
            f"{', '.join(map(repr, taken))}; rename them first"
        )
