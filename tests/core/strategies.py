"""Random facts, and lines of a journal that something has happened to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from astro_async._core.events import (
    AnyEvent,
    FileFlow,
    FileIngested,
    PartWritten,
    RowsPatched,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    SavedFile,
    StatRecorded,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepRetrying,
    StepSkipped,
    StepStarted,
    VersionsDropped,
    VersionWritten,
)
from astro_async._core.status import RunStatus, StepStatus

_TEXT = st.text(max_size=6)
# What becomes of paths is checked when a record is read.
_NAME = st.text("aZ0_ü", min_size=1, max_size=6)
_PATH = st.builds("versions/{}/{}.parquet".format, _NAME, _NAME)
_LINK = st.builds("processed/{}".format, _NAME)
_COUNT = st.integers(0, 2**63 - 1)
_FLOAT = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _FLOAT | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
PARAMS = st.dictionaries(
    st.sampled_from(["a", "ingested_files", "step_states", "ü\n"]) | _TEXT, _JSON, max_size=3
)
_VERSION = st.builds(VersionWritten, _PATH, _COUNT, _COUNT, _COUNT)
_FLOW = st.builds(
    FileFlow,
    name=_NAME,
    read=_PATH,
    rows_in=_COUNT,
    rows_out=_COUNT,
    rows_quarantined=_COUNT,
    published=st.none() | _VERSION,
    parts=st.lists(st.builds(PartWritten, _PATH, _COUNT, _COUNT, st.none() | _PATH), max_size=2).map(tuple),
    rows_discarded=_COUNT,
    rows_filtered=st.none() | _COUNT,
    filtered=st.none() | _PATH,
    saved=st.lists(st.builds(SavedFile, _LINK, _PATH, _COUNT), max_size=2).map(tuple),
    reasons=st.dictionaries(_TEXT, _COUNT, max_size=2),
)
_STAT = st.builds(StatRecorded, _TEXT, _TEXT, _TEXT, _FLOAT)

Build = Callable[..., AnyEvent]


def _events(kind: Build, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[AnyEvent]:
    return st.builds(
        kind,
        seq=_COUNT,
        time=_TEXT,
        run_id=_TEXT,
        step_id=st.none() | _NAME,
        attempt=st.none() | _COUNT,
        **fields,
    )


EVENTS: dict[str, st.SearchStrategy[AnyEvent]] = {
    "run_created": _events(
        RunCreated, pipeline_name=_TEXT, source_directory=_TEXT, run_date=_TEXT, params=PARAMS
    ),
    "file_ingested": _events(
        FileIngested, name=_NAME, source_path=_TEXT, source_size_bytes=_COUNT, version=_VERSION
    ),
    "run_ingested": _events(RunIngested),
    "run_planned": _events(
        RunPlanned,
        again=st.dictionaries(_TEXT, st.lists(_NAME, max_size=2), max_size=2),
        params=PARAMS,
        jobs=_COUNT,
        pid=_COUNT,
        host=_TEXT,
        removed=st.lists(_NAME, max_size=2),
        order=st.lists(_NAME, max_size=2),
    ),
    "step_started": _events(StepStarted),
    "step_retrying": _events(StepRetrying, detail=_TEXT, error=_TEXT),
    "step_finished": _events(
        StepFinished,
        status=st.sampled_from(StepStatus),
        duration_ms=_FLOAT,
        detail=st.none() | _TEXT,
        files=st.lists(_FLOW, max_size=2).map(tuple),
        stats=st.lists(_STAT, max_size=2).map(tuple),
    ),
    "step_blocked": _events(StepBlocked, detail=_TEXT),
    "step_skipped": _events(StepSkipped, detail=_TEXT),
    "step_interrupted": _events(StepInterrupted, detail=_TEXT),
    "rows_patched": _events(
        RowsPatched,
        file=_NAME,
        path=_PATH,
        rows=_COUNT,
        discarded=_COUNT,
        because=st.none() | _TEXT,
        withdrawn=_COUNT,
        withdrawn_waiting=_COUNT,
        standing=_COUNT,
    ),
    "versions_dropped": _events(VersionsDropped, paths=st.lists(_PATH, max_size=3), size_bytes=_COUNT),
    "run_finished": _events(
        RunFinished, status=st.sampled_from(RunStatus), duration_ms=_FLOAT, detail=st.none() | _TEXT
    ),
}


@st.composite
def damaged(draw: st.DrawFn, documents: list[bytes]) -> bytes:
    """Cut, flip, repeat or insert somewhere in a valid document."""
    document = draw(st.sampled_from(documents))
    start = draw(st.integers(0, len(document) - 1))
    end = draw(st.integers(start, min(len(document), start + 40)))
    change = draw(st.sampled_from(["cut", "delete", "repeat", "replace"]))
    match change:
        case "cut":
            return document[:start]
        case "delete":
            return document[:start] + document[end:]
        case "repeat":
            return document[:end] + document[start:]
        case _:
            pieces = st.sampled_from(
                [b"null", b"-1", b"1e999", b"{}", b"[]", b'"', b"\\", b"\0", b"\xff\xfe", b"true"]
            )
            return document[:start] + draw(st.binary(max_size=4) | pieces) + document[end:]
