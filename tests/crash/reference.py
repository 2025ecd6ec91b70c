"""The reference pipeline of the crash tests: what its author and its operator do, and what is left of it.

It has a check, a filter, steps that read and steps that write, `save_to`, quarantine and failure; the acts
are a first run, a retry, a retry of the retry that mends the rule, one that mends a step, `--rerun`, a run of
the edited pipeline, and one that mends the last step, after which the run is completed. The acts of the desk
decide about rows that the check has parked, or take that back, and run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import polars as pl

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunResult,
    amend,
    discard,
    expect,
    ingest,
    read_run,
    run,
    verify,
    withdraw,
)
from astro_async._core.events import StepFinished, parse_event
from astro_async._core.lineage import active_versions
from astro_async._core.records import RunRecord
from astro_async._executor.invocation import Services
from astro_async._store.atomic import Disk
from astro_async._store.layout import run_directory
from astro_async.context import StepContext
from astro_async.exceptions import RunRefusedError
from astro_async.files import StepFiles

FILES = {
    "scores": pl.DataFrame({"id": [1, 2, 3, 4], "score": [5, -1, 7, -2]}),
    "teams": pl.DataFrame({"id": [1, 2, 3, 4], "team": ["a", "b", "a", "b"]}),
}
TYPES = {"scores": {"id": pl.Int64, "score": pl.Int64}, "teams": {"id": pl.Int64, "team": pl.String}}

JOBS = 2

# The operator's acts, in order.
ACTS = ("first", "retry", "fixed rule", "fixed report", "rerun", "edited", "fixed step")

# Acts at the desk, each with the run that follows: they take the rows that the check parks after `first`.
DESK_ACTS = ("amend", "discard", "withdraw")

# All operations in `nox -s crash`; some of them, the same every time, where time is short.
IS_FULL = bool(os.environ.get("ASTRO_ASYNC_FULL_SWEEP"))


class Author:
    """A pipeline of all kinds of steps, whose rule, code and shape change from one invocation to the next.

    Each call of a step function is noted in a file, which outlives the process.
    """

    def __init__(self, ledger: Path, acts: tuple[str, ...] = ()) -> None:
        self.ledger = ledger
        self.lowest = 0
        self.report_fails = True
        self.has_rank = False
        self.parks_first = True
        for act in acts:
            self.change(act)

    def change(self, act: str) -> None:
        """Change what the act changes in the pipeline."""
        match act:
            case "fixed rule":
                self.lowest = -2
            case "fixed report":
                self.report_fails = False
            case "edited":
                self.has_rank = True
            case "fixed step":
                self.parks_first = False
            case "parked again":
                self.parks_first = True

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

    def _note(self, ctx: StepContext) -> None:
        descriptor = os.open(self.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, f"{ctx.step_id}\n".encode())
        os.close(descriptor)

    def calls(self) -> Counter[str]:
        """Return how often each step function was called."""
        return Counter(self.ledger.read_text().split() if self.ledger.exists() else ())

    def _rank(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        file = files["scores"]
        file.save_in_place(file.load().with_columns(rank=pl.col("score").rank("ordinal").cast(pl.Int64)))

    def _tag(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        file = files["scores"]
        file.save_in_place_lazy(file.scan().with_columns(tag=pl.lit("t")))

    def _count(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        ctx.stats.record("seen", files[0].row_count())

    def _join(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        joined = (
            files["teams"].load().join(files["scores"].load(), on="id", how="left", maintain_order="left")
        )
        files["teams"].save_to("processed", "teams.parquet", joined)

    def _report(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        if self.report_fails:
            raise RuntimeError("the mail server is down")
        totals = files[0].load().group_by("team", maintain_order=True).agg(pl.col("score").sum())
        files[0].save_to("processed", "totals.parquet", totals, activate=False)

    def _after(self, ctx: StepContext, files: StepFiles) -> None:
        self._note(ctx)
        frame = files[0].load()
        if self.parks_first:
            ctx.quarantine.quarantine_rows(files[0], frame.head(1), reason="first")
            frame = frame.tail(frame.height - 1)
        files[0].save_in_place(frame)


@dataclass
class Stage:
    """A pipeline directory, its author, and the one run that matters in it."""

    directory: Path
    author: Author
    run_id: str

    @property
    def root(self) -> Path:
        """The run directory."""
        return Path(run_directory(str(self.directory), self.record().run_id))

    @property
    def journal(self) -> Path:
        return self.directory / ".working" / self.run_id / "events.jsonl"

    def record(self) -> RunRecord:
        return read_run(self.directory, self.run_id)

    def run(self, *, rerun: tuple[str, ...] = (), disk: Disk | None = None) -> RunResult | None:
        """Give the command `astro run` once; None if there is nothing to do."""
        call = partial(
            run,
            self.author.pipeline(),
            pipeline_dir=self.directory,
            run_id=self.run_id,
            rerun=rerun,
            jobs=JOBS,
            # Without it, what runs beyond the stop point at two jobs is a matter of time.
            keep_going=True,
            services=Services(disk=disk or UnhurriedDisk()),
        )
        try:
            return anyio.run(call)
        except RunRefusedError:
            return None

    def perform(self, act: str, disk: Disk | None = None) -> RunResult | None:
        """Perform one act of the operator."""
        self.author.change(act)
        rerun = {"rerun": ("tag",), "parked again": ("after-check",)}.get(act, ())
        if act in DESK_ACTS:
            self._decide(act, disk or UnhurriedDisk())
        return self.run(rerun=rerun, disk=disk)

    def _decide(self, act: str, disk: Disk) -> None:
        where = {"pipeline_dir": self.directory, "run_id": self.run_id, "step_id": "check"}
        services = Services(disk=disk)
        call: Callable[[], Awaitable[object]]
        if act == "amend":
            # Beside the pipeline: it is the operator's, and no disk of ours.
            path = self.directory.parent / f"{self.directory.name}.rows.csv"
            path.write_text("_astro_row,id,score\n1,2,9\n")
            call = partial(amend, path, services=services, **where)  # type: ignore[arg-type]
        elif act == "discard":
            call = partial(discard, [3], because="twice", services=services, **where)  # type: ignore[arg-type]
        else:
            call = partial(withdraw, [3], services=services, **where)  # type: ignore[arg-type]
        anyio.run(call)


class UnhurriedDisk(Disk):
    """Does not wait for the device: what a process wrote survives its death."""

    def __init__(self) -> None:
        super().__init__(fsync=False)


def lay_out(directory: Path) -> Author:
    """Put the source files into a new pipeline directory."""
    source = directory / "source"
    source.mkdir(parents=True, exist_ok=True)
    for name, frame in FILES.items():
        frame.write_csv(source / f"{name}.csv")
    return Author(directory / "ledger.txt")


def ingest_reference(directory: Path, author: Author, disk: Disk | None = None) -> str:
    """Ingest the source files; return the id of the run."""
    services = Services(disk=disk or UnhurriedDisk())
    call = partial(ingest, author.pipeline(), directory / "source", pipeline_dir=directory, services=services)
    return anyio.run(call).run_id


def prepare(directory: Path, acts: tuple[str, ...] = ()) -> Stage:
    """Make a stage on which these acts have been performed."""
    author = lay_out(directory)
    stage = Stage(directory, author, ingest_reference(directory, author))
    for act in acts:
        stage.perform(act)
    return stage


def read_state(stage: Stage) -> dict[str, object]:
    """All that a user can see of a run: data, quarantine, statuses, named files, links."""
    record = stage.record()
    root = stage.root
    state: dict[str, object] = {"status": record.status}
    state["decisions"] = [
        (patch.step_id, patch.file, patch.rows, patch.discarded, patch.withdrawn, load(root / patch.path))
        for patch in record.patches
    ]
    for name, path in active_versions(record).items():
        state[name] = load(root / path)
        assert (root / f"current/{name}.parquet").read_bytes() == (root / path).read_bytes()
    for step in record.steps.values():
        state[step.step_id] = step.status
        for flow in step.files:
            for part in flow.parts:
                rows = load(root / part.path)
                state[part.path] = rows
                if part.positions is not None:
                    state[part.positions] = load(root / part.positions)
            for saved in flow.saved:
                state[saved.name] = load(root / saved.name)
                assert (root / saved.name).read_bytes() == (root / saved.path).read_bytes()
    return state


def assert_verified(stage: Stage) -> None:
    """Records, files, rows, links and statistics agree."""
    assert verify(stage.directory, stage.run_id).findings == ()


def load(path: Path) -> dict[str, list[object]]:
    return pl.read_parquet(path, glob=False).to_dict(as_series=False)


def assert_no_litter(stage: Stage) -> None:
    """Nothing is on disk that no record names."""
    root = stage.root
    named = set(stage.record().named_paths())
    owned = ("versions", "quarantine", "filtered", "patches")
    on_disk = {str(path.relative_to(root)) for each in owned for path in Path(root, each).rglob("*.*")}
    assert on_disk <= named, "nothing is left that no record names"
    assert not (root / "staging").exists()
    assert not list(root.rglob("*.tmp"))


def settled_since(journal: bytes, size_bytes: int) -> Counter[str]:
    """Return how often each step settled by running, behind the first `size_bytes` of the journal."""
    lines = journal[size_bytes:].split(b"\n")[:-1]
    return Counter(str(event.step_id) for event in map(parse_event, lines) if isinstance(event, StepFinished))
