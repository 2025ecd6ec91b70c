"""How far an ingest is, for whoever shows it: to be read at any time, from any thread.

What is known is the truth and no estimate: how much of a source has been read where its bytes pass through
here, and how large the Parquet file has become. How much of the source Polars has read nobody tells.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from astro_async._frames.source_content import SourceFacts

__all__ = ["FileProgress", "IngestProgress"]


@dataclass(slots=True)
class FileProgress:
    """How far one file is.

    Attributes:
        name: Its ingest name.
        source_bytes: Size of the source as delivered.
        target: The Parquet file that is written.
        facts: What has been learnt of the source so far.
        has_begun: Whether it is being ingested, or was.
        is_done: Whether it was.
    """

    name: str
    source_bytes: int
    target: str
    facts: SourceFacts = field(default_factory=SourceFacts)
    has_begun: bool = False
    is_done: bool = False

    @property
    def read_bytes(self) -> int:
        """How much of the source has been read, the pass over it that goes on now."""
        return self.facts.read_bytes

    @property
    def written_bytes(self) -> int:
        """How large the Parquet file is now."""
        try:
            return os.stat(self.target).st_size
        except OSError:
            return 0


@dataclass(slots=True)
class IngestProgress:
    """How far an ingest is. Give an empty one to `ingest`, and look at it meanwhile.

    Attributes:
        files: The files, by ingest name, in the order of the pipeline; empty until they are found.
    """

    files: Mapping[str, FileProgress] = field(default_factory=dict)
