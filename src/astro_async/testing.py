"""A harness for the tests of pipeline authors: frames in, frames out, and steps held in mid-flight.

Everything goes through the real ingest and the real store, in a directory of the test's own. Nothing here
replaces a part of the engine, and nothing here decides what a run does.

```python
async def test_negative_scores_are_set_aside(tmp_path):
    run_id = await ingest_frames(pipeline, {"scores": pl.DataFrame({"score": [5, -1]})}, tmp_path)
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert read_file(tmp_path, run_id, "scores")["score"].to_list() == [5]
    assert read_quarantine(tmp_path, run_id, "validate", "scores")["score"].to_list() == [-1]
```
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.to_thread
import polars as pl

from astro_async._core.events import FileFlow
from astro_async._core.lineage import active_versions
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord
from astro_async._executor.ingest import ingest_source
from astro_async._executor.ingest_progress import IngestProgress
from astro_async._executor.invocation import Services
from astro_async._frames.parquet import load_frame, load_parts, read_schema, write_frame
from astro_async._store.layout import run_directory
from astro_async.exceptions import IngestError, RunNotFoundError
from astro_async.ingest_spec import IngestFileSpec
from astro_async.pipeline import Pipeline
from astro_async.reading import read_run

__all__ = ["Gate", "ingest_frames", "read_file", "read_filtered", "read_quarantine"]

PathLike = str | os.PathLike[str]

_SAFETY_S: Final = 30.0


async def ingest_frames(
    pipeline: Pipeline,
    frames: Mapping[str, pl.DataFrame],
    pipeline_dir: PathLike,
    *,
    params: Mapping[str, Any] | None = None,
    services: Services | None = None,
) -> str:
    """Ingest frames as if they were source files, and return the id of the new run.

    The frames are handed over as Parquet, so nothing is lost on the way: nulls, empty text, nested values
    and dtypes stay as they are. Where the pipeline declares a schema the columns are cast to it; where it
    declares none the frame's own dtypes are kept (a CSV file would give text). How the pipeline reads its
    CSV files is left out: test that with `astro_async.ingest` and real files.

    Args:
        pipeline: Says which files to expect.
        frames: Rows by ingest name; optional files may be left out.
        pipeline_dir: Where runs are kept, under `.working/`.
        params: Recorded with the run, for its steps.
        services: A disk or a clock of the test's own.

    Raises:
        IngestError: A frame is missing, is of no file of the pipeline, or does not fit its schema.
        RunRefusedError: The pipeline is serial and an earlier run is incomplete.
    """
    specs = pipeline.file_specs()
    unknown = [name for name in frames if name not in specs]
    if unknown:
        raise IngestError(
            f"the pipeline ingests no file {', '.join(map(repr, unknown))}; "
            f"it ingests {', '.join(map(repr, specs))}"
        )
    stand_in = Pipeline(
        pipeline.name,
        ingest_files=[_as_parquet(spec) for spec in specs.values()],
        execution_mode=pipeline.execution_mode,
    )
    with tempfile.TemporaryDirectory(prefix="astro_async-source-") as source:
        for name, frame in frames.items():
            await anyio.to_thread.run_sync(write_frame, frame, f"{source}/{name}.parquet")
        run = await ingest_source(
            stand_in,
            source,
            pipeline_dir=os.path.abspath(os.fspath(pipeline_dir)),
            params=params or {},
            services=services or Services(),
            logger=logging.getLogger("astro_async.testing"),
            progress=IngestProgress(),
        )
    return run.run_id


def read_file(pipeline_dir: PathLike, run_id: str, name: str) -> pl.DataFrame:
    """Return the rows of a file as the last step that published it left them, else as ingested.

    Raises:
        RunNotFoundError: There is no such run, or it has no such file.
        StorageError: It cannot be read.
    """
    record = read_run(pipeline_dir, run_id)
    versions = active_versions(record)
    if name not in versions:
        raise RunNotFoundError(
            f"run {record.run_id} has no file {name!r}; it has {', '.join(map(repr, versions))}"
        )
    return load_frame(_in_run(pipeline_dir, record.run_id, versions[name]))


def read_quarantine(pipeline_dir: PathLike, run_id: str, step_id: str, name: str) -> pl.DataFrame:
    """Return the rows of a file that wait in a step's quarantine, in the order of their parts.

    The columns are those of the version that the step was given, then `_astro_quarantine_reason`. Parts are
    found by the names that the run's record gives them; if there are none the frame has no rows.

    Raises:
        RunNotFoundError: There is no such run, or its step was not given such a file.
        StorageError: It cannot be read.
    """
    record = read_run(pipeline_dir, run_id)
    flow = _flow_of(record, step_id, name)
    paths = [_in_run(pipeline_dir, record.run_id, part.path) for part in flow.parts]
    return load_parts(paths, read_schema(_in_run(pipeline_dir, record.run_id, flow.read)))


def read_filtered(pipeline_dir: PathLike, run_id: str, step_id: str, name: str) -> pl.DataFrame:
    """Return the rows of a file that a filter removed; none of them if it removed none.

    Raises:
        RunNotFoundError: There is no such run, or its step was not given such a file.
        StorageError: It cannot be read.
    """
    record = read_run(pipeline_dir, run_id)
    flow = _flow_of(record, step_id, name)
    if flow.filtered is None:
        return pl.DataFrame(schema=read_schema(_in_run(pipeline_dir, record.run_id, flow.read)))
    return load_frame(_in_run(pipeline_dir, record.run_id, flow.filtered))


class Gate:
    """A gate at which steps wait until the test lets them pass.

    Steps call `hold`, or in `async def` steps `ahold`; the test waits with `arrived` until they are there,
    looks at what it came to see, and opens the gate. An open gate holds nobody. Used as a context manager
    it opens at the end of the block, so that no thread is left behind by a test that fails.

    ```python
    with Gate() as gate:
        async with anyio.create_task_group() as group:
            group.start_soon(run_it)      # its step calls gate.hold()
            await gate.arrived()
            ...                           # the step is in mid-flight
            gate.open()
    ```

    Nothing waits for ever: after `timeout_s` a `TimeoutError` ends the step or the test. That is a safety
    net for tests that would hang, and no clock to measure by.
    """

    def __init__(self, *, timeout_s: float = _SAFETY_S) -> None:
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._arrivals = 0
        self._is_open = False

    def __enter__(self) -> Self:
        """Return the gate, closed."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Open the gate."""
        self.open()

    @property
    def arrivals(self) -> int:
        """How many have come to the gate so far, those that have passed it included."""
        with self._changed:
            return self._arrivals

    @property
    def is_open(self) -> bool:
        """Whether the gate lets everybody pass."""
        with self._changed:
            return self._is_open

    def open(self) -> None:
        """Let everybody pass, now and later. From any thread."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def hold(self) -> None:
        """Wait, in a thread, until the gate is open.

        Raises:
            TimeoutError: Nobody opened it in time.
        """
        self._arrive()
        self._wait_for(lambda: self._is_open, "nobody opened the gate")

    async def ahold(self) -> None:
        """Wait, in a task, until the gate is open; the event loop goes on meanwhile.

        Raises:
            TimeoutError: Nobody opened it in time.
        """
        self._arrive()
        await self._await(lambda: self._is_open, "nobody opened the gate")

    async def arrived(self, count: int = 1) -> None:
        """Wait, in the test, until `count` steps have come to the gate.

        Raises:
            TimeoutError: They did not come in time.
        """
        await self._await(lambda: self._arrivals >= count, f"fewer than {count} came to the gate")

    def _arrive(self) -> None:
        with self._changed:
            self._arrivals += 1
            self._changed.notify_all()

    def _wait_for(self, predicate: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            while not predicate():
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{complaint} within {self._timeout_s:g} s")

    async def _await(self, predicate: Callable[[], bool], complaint: str) -> None:
        # With a limiter of its own: steps and engine may use anyio's default one as they like.
        await anyio.to_thread.run_sync(
            self._wait_for, predicate, complaint, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )


def _as_parquet(spec: IngestFileSpec) -> IngestFileSpec:
    """Return a spec that takes a Parquet file of the ingest name, whatever the source file would be."""
    return IngestFileSpec(
        spec.name,
        f"{spec.name}.parquet",
        spec.schema,
        preprocess=_read_parquet,
        optional=spec.optional,
        private=spec.private,
    )


def _read_parquet(path: Path) -> pl.DataFrame:
    return load_frame(str(path))


def _in_run(pipeline_dir: PathLike, run_id: RunId, path: str) -> str:
    return f"{run_directory(os.fspath(pipeline_dir), run_id)}/{path}"


def _flow_of(record: RunRecord, step_id: str, name: str) -> FileFlow:
    step = record.steps.get(step_id)
    for flow in () if step is None else step.files:
        if flow.name == name:
            return flow
    status = "unknown" if step is None else step.status.value
    raise RunNotFoundError(
        f"run {record.run_id} has no record of step {step_id!r} with file {name!r}: the step is {status}"
    )
