"""Die at every operation on the disk, then run again: the end is that of a run that never died."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import anyio
import polars as pl
import pytest

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, expect, ingest, read_run, run, verify
from astro_async._core.lineage import active_versions
from astro_async._core.records import RunRecord
from astro_async._executor.invocation import Services
from astro_async._store.layout import run_directory
from astro_async.context import StepContext
from astro_async.exceptions import RunRefusedError
from astro_async.files import StepFiles
from properties.real_run import Death, MortalDisk

FILES = {
    "scores": pl.DataFrame({"id": [1, 2, 3, 4], "score": [5, -1, 7, -2]}),
    "teams": pl.DataFrame({"id": [1, 2, 3, 4], "team": ["a", "b", "a", "b"]}),
}
TYPES = {"scores": {"id": pl.Int64, "score": pl.Int64}, "teams": {"id": pl.Int64, "team": pl.String}}


class Author:
    """A pipeline of all kinds of steps, whose rule, code and shape change from one invocation to the next."""

    def __init__(self) -> None:
        self.lowest = 0
        self.report_fails = True
        self.has_rank = False
        self.runs: Counter[str] = Counter()

    def pipeline(self) -> Pipeline:
        pipeline = Pipeline(
            "reference", ingest_files=[IngestFileSpec(name, f"{name}.csv", TYPES[name]) for name in FILES]
        )
        scores, teams = AstroFileSpec("scores"), AstroFileSpec("teams")
        readonly = AstroFileSpec("scores", readonly=True)
        pipeline.add_check("check", expect("too low", pl.col("score") >= self.lowest), scores)
        pipeline.add_filter("drop fours", scores, remove=pl.col("id") == 4)
        if self.has_rank:
            pipeline.add_step("rank", self._rank, scores)
        pipeline.add_step("tag", self._tag, scores)
        pipeline.add_step("count", self._count, readonly)
        pipeline.add_step("join", self._join, [readonly, teams], depends_on="tag")
        pipeline.add_step("report", self._report, teams, depends_on="join")
        pipeline.add_step("after check", self._after, scores, depends_on="check")
        return pipeline

    def _rank(self, ctx: StepContext, files: StepFiles) -> None:
        file = files["scores"]
        file.save_in_place(file.load().with_columns(rank=pl.col("score").rank("ordinal").cast(pl.Int64)))

    def _tag(self, ctx: StepContext, files: StepFiles) -> None:
        self.runs["tag"] += 1
        file = files["scores"]
        file.save_in_place_lazy(file.scan().with_columns(tag=pl.lit("t")))

    def _count(self, ctx: StepContext, files: StepFiles) -> None:
        self.runs["count"] += 1
        ctx.stats.record("seen", files[0].row_count())

    def _join(self, ctx: StepContext, files: StepFiles) -> None:
        joined = (
            files["teams"].load().join(files["scores"].load(), on="id", how="left", maintain_order="left")
        )
        files["teams"].save_to("processed", "teams.parquet", joined)

    def _report(self, ctx: StepContext, files: StepFiles) -> None:
        if self.report_fails:
            raise RuntimeError("the mail server is down")
        totals = files[0].load().group_by("team", maintain_order=True).agg(pl.col("score").sum())
        files[0].save_to("processed", "totals.parquet", totals, activate=False)

    def _after(self, ctx: StepContext, files: StepFiles) -> None:
        frame = files[0].load()
        ctx.quarantine.quarantine_rows(files[0], frame.head(1), reason="first")
        files[0].save_in_place(frame.tail(frame.height - 1))


# All operations in `nox -s crash`; every fourth where time is short.
STRIDE = 1 if os.environ.get("ASTRO_ASYNC_FULL_SWEEP") else 4

# The operator's acts, in order: what changes, and what is named for a re-run.
ACTS = ("first", "retry", "fixed rule", "fixed report", "rerun", "edited")


def perform(author: Author, act: str) -> list[str]:
    if act == "fixed rule":
        author.lowest = -2
    elif act == "fixed report":
        author.report_fails = False
    elif act == "edited":
        author.has_rank = True
    return ["tag"] if act == "rerun" else []


async def invoke(author: Author, directory: Path, run_id: str, rerun: list[str], disk: MortalDisk) -> bool:
    """Return whether the invocation lived."""
    try:
        await run(
            author.pipeline(),
            pipeline_dir=directory,
            run_id=run_id,
            rerun=rerun,
            jobs=2,
            # Without it, what runs beyond the stop point at two jobs is a matter of time.
            keep_going=True,
            services=Services(disk=disk),
        )
    except RunRefusedError:
        return True
    except BaseException as error:
        if isinstance(error, Death) or (
            isinstance(error, BaseExceptionGroup) and error.subgroup(Death) is not None
        ):
            return False
        raise
    return True


def start(directory: Path) -> tuple[Author, str]:
    source = directory / "source"
    source.mkdir(parents=True)
    for name, frame in FILES.items():
        frame.write_csv(source / f"{name}.csv")
    author = Author()
    run = anyio.run(partial(ingest, author.pipeline(), source, pipeline_dir=directory))
    return author, run.run_id


def read_state(directory: Path, run_id: str) -> dict[str, object]:
    """All that a user can see of a run: data, quarantine, statuses, named files."""
    record: RunRecord = read_run(directory, run_id)
    root = run_directory(str(directory), record.run_id)
    state: dict[str, object] = {"status": record.status}
    for name, path in active_versions(record).items():
        state[name] = pl.read_parquet(f"{root}/{path}", glob=False).to_dict(as_series=False)
        assert Path(f"{root}/current/{name}.parquet").samefile(f"{root}/{path}")
    for step in record.steps.values():
        state[step.step_id] = step.status
        for flow in step.files:
            for part in flow.parts:
                rows = pl.read_parquet(f"{root}/{part.path}", glob=False)
                assert rows.height == part.rows
                state[part.path] = rows.to_dict(as_series=False)
            for saved in flow.saved:
                state[saved.name] = pl.read_parquet(f"{root}/{saved.name}", glob=False).to_dict(
                    as_series=False
                )
    named = set(record.named_paths())
    owned = ("versions", "quarantine", "filtered")
    on_disk = {str(path.relative_to(root)) for each in owned for path in Path(root, each).rglob("*.*")}
    assert on_disk <= named, "nothing is left that no record names"
    assert not Path(root, "staging").exists()
    assert verify(directory, run_id).findings == ()
    return state


def test_the_undisturbed_run(tmp_path: Path) -> None:
    author, run_id = start(tmp_path)
    for act in ACTS:
        assert anyio.run(invoke, author, tmp_path, run_id, perform(author, act), MortalDisk())
    state = read_state(tmp_path, run_id)
    # All pass the relaxed check; 4 is dropped by the filter, and 1 is parked by "after check".
    assert state["scores"] == {"id": [2, 3], "score": [-1, 7], "rank": [1, 3], "tag": ["t", "t"]}
    assert state["processed/totals.parquet"] == {"team": ["a", "b"], "score": [12, -1]}


@pytest.mark.parametrize("act", ACTS)
def test_death_at_every_operation(act: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    author, run_id = start(base)
    for earlier in ACTS[: ACTS.index(act)]:
        assert anyio.run(invoke, author, base, run_id, perform(author, earlier), MortalDisk())
    rerun = perform(author, act)
    untouched = shutil.copytree(base, tmp_path / "undisturbed", symlinks=True)
    assert anyio.run(invoke, author, untouched, run_id, rerun, MortalDisk())
    undisturbed = read_state(untouched, run_id)
    ran_before = author.runs.copy()
    for operation in itertools.count(1, STRIDE):
        directory = shutil.copytree(base, tmp_path / f"dies-at-{operation}", symlinks=True)
        author.runs.clear()
        disk = MortalDisk(operation)
        if anyio.run(invoke, author, directory, run_id, rerun, disk):
            break
        assert anyio.run(invoke, author, directory, run_id, [], MortalDisk())
        assert read_state(directory, run_id) == undisturbed, f"died at operation {operation} of {act}"
        # Once more at most than the plan asks for: the attempt that was in flight.
        assert author.runs["tag"] <= 2
        assert author.runs["count"] <= (2 if act == "first" else 0)
        shutil.rmtree(directory)
    assert operation > 20
    assert ran_before["tag"] >= 1
