"""The same random pipelines, on the real engine: Polars frames, real files, deaths at any disk operation."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import polars as pl

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, RunResult, ingest, read_run, run
from astro_async._core.lineage import active_versions
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from astro_async._store.layout import run_directory
from astro_async.context import StepContext
from astro_async.files import StepFiles
from properties.histories import Mood, RandomStep

ROWS = 4


class Death(BaseException):
    """The process is gone: from now on the disk takes nothing more."""


class MortalDisk(Disk):
    """Dies at the k-th operation, and stays dead."""

    def __init__(self, dies_at: int | None = None, *, fsync: bool = True) -> None:
        super().__init__(fsync=fsync)
        self.count = 0
        self._dies_at = dies_at
        self._counting = threading.Lock()

    def before(self, operation: str, path: str) -> None:
        with self._counting:
            self.count += 1
            if self._dies_at is not None and self.count >= self._dies_at:
                raise Death(f"{operation} {path}")


def make_pipeline(steps: Sequence[RandomStep], files: Sequence[str], mood: Mood) -> Pipeline:
    """Steps that append their mark, and a digest of all they read, to each row of what they save."""
    pipeline = Pipeline("random", ingest_files=[IngestFileSpec(name, f"{name}.csv") for name in files])
    for step in steps:
        specs = [AstroFileSpec(name, readonly=True) for name in step.reads]
        specs += [AstroFileSpec(name) for name in step.writes]
        pipeline.add_step(
            step.step_id,
            _step_function(step, mood),
            specs,
            step_id=step.step_id,
            depends_on=[f"step-{number}" for number in step.depends_on],
            on_quarantine="continue" if step.continues else "block",
        )
    return pipeline


def _step_function(step: RandomStep, mood: Mood):  # type: ignore[no-untyped-def]
    def work(ctx: StepContext, files: StepFiles) -> None:
        if step.number in mood.fails:
            raise RuntimeError("boom")
        frames = {file.name: file.load() for file in files}
        digest = digest_of(frames)
        parks = step.number in mood.quarantines and bool(step.writes)
        for name in step.writes:
            frame = frames[name]
            if parks and not frame.is_empty():
                ctx.quarantine.quarantine_rows(files[name], frame.tail(1), reason="last row")
                frame = frame.head(frame.height - 1)
            if name in step.saves:
                files[name].save_in_place(marked(frame, step, digest))

    return work


def digest_of(frames: dict[str, pl.DataFrame]) -> str:
    text = "|".join(f"{name}:{frames[name].rows()!r}" for name in sorted(frames))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def marked(frame: pl.DataFrame, step: RandomStep, digest: str) -> pl.DataFrame:
    return frame.with_columns(pl.col("trace") + f"/{step.number}:{digest}")


def first_frame(name: str) -> pl.DataFrame:
    return pl.DataFrame({"id": [str(i) for i in range(ROWS)], "trace": [name] * ROWS})


def undisturbed_frames(steps: Sequence[RandomStep], files: Sequence[str]) -> dict[str, pl.DataFrame]:
    """What a run in which nothing ever stumbles leaves, computed without the engine."""
    frames = {name: first_frame(name) for name in files}
    for step in steps:
        given = {name: frames[name] for name in step.reads + step.writes}
        digest = digest_of(given)
        for name in step.saves:
            frames[name] = marked(frames[name], step, digest)
    return frames


class RealRun:
    """One run in a directory."""

    def __init__(self, directory: Path, files: Sequence[str], backend: str) -> None:
        self.directory = directory
        self.files = files
        self.backend = backend
        source = directory / "source"
        source.mkdir(parents=True)
        for name in files:
            first_frame(name).write_csv(source / f"{name}.csv")
        pipeline = make_pipeline([], files, Mood())

        async def start() -> str:
            return (await ingest(pipeline, source, pipeline_dir=directory)).run_id

        self.run_id = anyio.run(start, backend=backend)

    def invoke(
        self,
        steps: Sequence[RandomStep],
        mood: Mood,
        *,
        jobs: int,
        keep_going: bool = False,
        rerun: Sequence[str] = (),
        dies_at: int | None = None,
    ) -> RunResult | None:
        """Invoke once; None if the process died."""
        pipeline = make_pipeline(steps, self.files, mood)
        self.disk = MortalDisk(dies_at)

        async def go() -> RunResult:
            return await run(
                pipeline,
                pipeline_dir=self.directory,
                run_id=self.run_id,
                jobs=jobs,
                keep_going=keep_going,
                rerun=rerun,
                services=Services(disk=self.disk),
            )

        try:
            return anyio.run(go, backend=self.backend)
        except BaseException as error:
            if _is_death(error):
                return None
            raise

    def final(self) -> dict[str, pl.DataFrame]:
        record = read_run(self.directory, self.run_id)
        root = run_directory(str(self.directory), record.run_id)
        return {
            name: pl.read_parquet(f"{root}/{path}", glob=False)
            for name, path in active_versions(record).items()
        }


def _is_death(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Death) is not None
    return isinstance(error, Death)
