"""Random decisions about parked rows, and deaths: every row ends as it was last decided."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import polars as pl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunStatus,
    amend,
    discard,
    expect,
    read_run,
    run,
)
from astro_async._executor.invocation import Services
from astro_async._executor.parked import load_parked
from astro_async._frames.columns import ROW_COLUMN
from astro_async.exceptions import RunRefusedError
from astro_async.testing import ingest_frames, read_file
from properties.real_run import Death, MortalDisk

SCHEMA = {"id": pl.Int64, "score": pl.Int64}
SCORES = st.none() | st.integers(-3, 5)
STEPS = ("low", "high")


def make_pipeline() -> Pipeline:
    """Two steps that park, one behind the other on one file: what the second is given moves."""
    pipeline = Pipeline("desk", ingest_files=[IngestFileSpec("scores", "scores.csv", SCHEMA)])
    pipeline.add_check("low", expect("too low", pl.col("score") >= 0), AstroFileSpec("scores"))
    pipeline.add_check("high", expect("too high", pl.col("score") <= 2), AstroFileSpec("scores"))
    return pipeline


class DeskRun:
    """A run, and what a person believes of its rows."""

    def __init__(self, directory: Path, scores: list[int | None]) -> None:
        self.directory = directory
        frame = pl.DataFrame({"id": range(len(scores)), "score": scores}, schema=SCHEMA)
        self.run_id = anyio.run(ingest_frames, make_pipeline(), {"scores": frame}, directory)
        self.believed: dict[int, int | None] = dict(enumerate(scores))
        self.gone: set[int] = set()

    def parked(self, step_id: str) -> dict[int, tuple[int, int | None]]:
        """Return id and score of each parked row by position."""
        record = read_run(self.directory, self.run_id)
        if not any(flow.parts for flow in record.steps[step_id].files):
            return {}
        rows = load_parked(str(self.directory), record, step_id, None).rows
        return {row[ROW_COLUMN]: (row["id"], row["score"]) for row in rows.to_dicts()}

    def decide(self, step_id: str, changes: dict[int, int | None], *, leaves_out: bool, dies_at: int) -> None:
        """Amend rows, or leave them out; it may die meanwhile."""
        parked = self.parked(step_id)
        ids = {position: parked[position][0] for position in changes}
        where = {"pipeline_dir": self.directory, "run_id": self.run_id, "step_id": step_id}
        services = Services(disk=MortalDisk(dies_at))
        call: Callable[[], Awaitable[object]]
        if leaves_out:
            call = partial(discard, list(changes), because="no", services=services, **where)  # type: ignore[arg-type]
        else:
            path = self.directory / "rows.csv"
            lines = [f"{row},{ids[row]},{'' if new is None else new}" for row, new in changes.items()]
            path.write_text("\n".join([f"{ROW_COLUMN},id,score", *lines]))
            call = partial(amend, path, services=services, **where)  # type: ignore[arg-type]
        before = len(read_run(self.directory, self.run_id).patches)
        with contextlib.suppress(Death):
            anyio.run(call)
        if len(read_run(self.directory, self.run_id).patches) == before:
            return
        for position, new in changes.items():
            if leaves_out:
                self.gone.add(ids[position])
            elif new != parked[position][1]:
                # As it was parked it is no decision, whatever was decided before.
                self.believed[ids[position]] = new
                self.gone.discard(ids[position])

    def go_on(self, dies_at: int | None = None) -> RunStatus:
        """Run, dying once perhaps, and count the rows."""
        for disk in (MortalDisk(dies_at), MortalDisk()) if dies_at else (MortalDisk(),):
            try:
                anyio.run(
                    partial(
                        run,
                        make_pipeline(),
                        pipeline_dir=self.directory,
                        run_id=self.run_id,
                        services=Services(disk=disk),
                    )
                )
            except RunRefusedError:
                # It was completed before it died.
                assert read_run(self.directory, self.run_id).status is RunStatus.COMPLETED
            except BaseException as error:
                if not _is_death(error):
                    raise
        record = read_run(self.directory, self.run_id)
        for step in record.steps.values():
            for flow in step.files:
                assert flow.rows_in == (flow.rows_out or 0) + flow.rows_quarantined + flow.rows_discarded
        return record.status


def _is_death(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Death) is not None
    return isinstance(error, Death)


@settings(max_examples=10, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(data=st.data(), scores=st.lists(SCORES, min_size=1, max_size=6))
def test_every_row_ends_as_it_was_last_decided(data: st.DataObject, scores: list[int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = DeskRun(Path(folder), scores)
        status = desk.go_on()
        for _ in range(2):
            if status is RunStatus.COMPLETED:
                break
            for step_id in data.draw(st.lists(st.sampled_from(STEPS), max_size=3)):
                parked = desk.parked(step_id)
                if parked:
                    chosen = data.draw(st.dictionaries(st.sampled_from(sorted(parked)), SCORES, min_size=1))
                    leaves_out = data.draw(st.booleans())
                    dies_at = data.draw(st.integers(1, 60))
                    desk.decide(step_id, chosen, leaves_out=leaves_out, dies_at=dies_at)
            status = desk.go_on(data.draw(st.none() | st.integers(1, 80)))
        for _ in range(3):
            for step_id in STEPS if status is not RunStatus.COMPLETED else ():
                if parked := desk.parked(step_id):
                    desk.decide(step_id, dict.fromkeys(parked, 1), leaves_out=False, dies_at=10**6)
            status = desk.go_on() if status is not RunStatus.COMPLETED else status
        assert status is RunStatus.COMPLETED
        expected = [(number, score) for number, score in desk.believed.items() if number not in desk.gone]
        assert read_file(desk.directory, desk.run_id, "scores").rows() == expected
