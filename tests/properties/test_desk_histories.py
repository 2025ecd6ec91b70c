"""Random decisions about parked rows, withdrawals and deaths: every row ends as it was last decided."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import polars as pl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    RunStatus,
    StepStatus,
    amend,
    discard,
    expect,
    read_run,
    run,
    verify,
    withdraw,
)
from astro_async._executor.desk import parse_ranges
from astro_async._executor.invocation import Services
from astro_async._executor.parked import load_parked
from astro_async._frames.columns import ROW_COLUMN
from astro_async.exceptions import RunRefusedError
from astro_async.testing import ingest_frames, read_file
from properties.real_run import Death, MortalDisk

SCHEMA = pl.Schema(
    {
        "id": pl.Int64(),
        "score": pl.Int64(),
        "rate": pl.Float64(),
        "price": pl.Decimal(10, 2),
        "tags": pl.List(pl.String()),
        "place": pl.Struct({"town": pl.String(), "zip": pl.Int32()}),
    }
)
# What rows carry besides, twins among them; no decision changes it.
CARRIED = (
    {"rate": float("nan"), "price": Decimal("0.10"), "tags": ["a", None], "place": {"town": "x", "zip": 1}},
    {"rate": None, "price": None, "tags": None, "place": None},
    {"rate": -0.5, "price": Decimal("-7.00"), "tags": [], "place": {"town": None, "zip": None}},
)
SCORES = st.none() | st.integers(-3, 5)
STEPS = ("low", "high")
ACTS = ("amend", "discard", "withdraw")
GONE = "gone"
NEVER = 10**6

# For more of them: ASTRO_ASYNC_DESK_HISTORIES=1000.
HISTORIES = int(os.environ.get("ASTRO_ASYNC_DESK_HISTORIES", "40"))


def make_pipeline() -> Pipeline:
    """Two steps that park, one behind the other on one file: what the second is given moves."""
    pipeline = Pipeline("desk", ingest_files=[IngestFileSpec("scores", "scores.csv", SCHEMA)])
    pipeline.add_check("low", expect("too low", pl.col("score") >= 0), AstroFileSpec("scores"))
    pipeline.add_check("high", expect("too high", pl.col("score") <= 2), AstroFileSpec("scores"))
    return pipeline


def rows_frame(rows: Sequence[tuple[int, object]]) -> pl.DataFrame:
    """Return rows of these ids and scores, with all that they carry."""
    return pl.DataFrame(
        [{"id": number, "score": score, **CARRIED[number % len(CARRIED)]} for number, score in rows],
        schema=SCHEMA,
    )


class Decided(NamedTuple):
    """A decision, as a person remembers it: the place that was named, the row meant, and its new score."""

    position: int
    id: int
    score: int | str | None


class DeskRun:
    """A run, and what a person believes of its rows."""

    def __init__(self, directory: Path, scores: list[int | None]) -> None:
        self.directory = directory
        self.scores = scores
        frame = rows_frame(list(enumerate(scores)))
        self.run_id = anyio.run(ingest_frames, make_pipeline(), {"scores": frame}, directory)
        self.decided: dict[str, list[Decided]] = {step_id: [] for step_id in STEPS}

    def believed(self) -> list[tuple[int, int | str | None]]:
        """Return the rows as they were last decided, step by step, without those that are left out."""
        rows = dict(enumerate(self.scores))
        found: dict[int, int | str | None] = dict(rows)
        for decisions in self.decided.values():
            found.update({each.id: each.score for each in decisions if found[each.id] != GONE})
        return [(number, score) for number, score in found.items() if score != GONE]

    def shared(self) -> list[int]:
        """Return the positions of rows that were decided about for the first step and for the second."""
        ids = {each.id for each in self.decided["high"]}
        return sorted({each.position for each in self.decided["low"] if each.id in ids})

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
        call: Callable[..., Awaitable[object]]
        if leaves_out:
            call = partial(discard, list(changes), because="no")
        else:
            path = self.directory / "rows.parquet"
            given = rows_frame([(ids[row], new) for row, new in changes.items()])
            given.with_columns(pl.Series(ROW_COLUMN, list(changes), pl.UInt64)).write_parquet(path)
            call = partial(amend, path)
        if not self._give(call, step_id, dies_at):
            return
        for position, new in changes.items():
            if leaves_out:
                self.decided[step_id].append(Decided(position, ids[position], GONE))
            elif new != parked[position][1]:
                # As it was parked it is no decision, whatever was decided before.
                self.decided[step_id].append(Decided(position, ids[position], new))

    def withdraw(self, step_id: str, positions: set[int], *, dies_at: int) -> None:
        """Take back what was decided about rows; it may die meanwhile."""
        if self._give(partial(withdraw, sorted(positions)), step_id, dies_at):
            self.decided[step_id] = [each for each in self.decided[step_id] if each.position not in positions]

    def _give(self, call: Callable[..., Awaitable[object]], step_id: str, dies_at: int) -> bool:
        """Give a command of the desk; return whether something is on record since."""
        before = len(read_run(self.directory, self.run_id).patches)
        disk = MortalDisk(dies_at, fsync=False)
        where = {"pipeline_dir": self.directory, "run_id": self.run_id, "services": Services(disk=disk)}
        try:
            anyio.run(partial(call, step_id=step_id, **where))
        except Death:
            pass
        except RunRefusedError as error:
            # The rows are parked as a decision had made them that has been taken back.
            if "has been withdrawn" not in str(error):
                raise
        return len(read_run(self.directory, self.run_id).patches) > before

    def go_on(self, dies_at: int | None = None) -> RunStatus:
        """Run, dying once perhaps, and count the rows; take back what is decided about rows that are gone."""
        self._run(dies_at)
        # A decision of the second step may be about a row as the first one had it amended.
        for _ in self.scores:
            record = read_run(self.directory, self.run_id)
            failed = [step for step in record.steps.values() if step.status is StepStatus.FAILED]
            if not failed:
                break
            rows = re.search(
                r"decided rows are not in the file .* --rows ([0-9,-]+)`", failed[0].detail or ""
            )
            assert rows is not None
            lost = {row for each in parse_ranges(rows[1]) for row in each}
            self.withdraw(failed[0].step_id, lost, dies_at=NEVER)
            self._run(None)
        record = read_run(self.directory, self.run_id)
        for step in record.steps.values():
            for flow in step.files:
                assert flow.rows_in == (flow.rows_out or 0) + flow.rows_quarantined + flow.rows_discarded
        return record.status

    def _run(self, dies_at: int | None) -> None:
        deaths = (dies_at, None) if dies_at else (None,)
        for each in deaths:
            try:
                anyio.run(
                    partial(
                        run,
                        make_pipeline(),
                        pipeline_dir=self.directory,
                        run_id=self.run_id,
                        services=Services(disk=MortalDisk(each, fsync=False)),
                    )
                )
            except RunRefusedError:
                # It was completed before it died.
                assert read_run(self.directory, self.run_id).status is RunStatus.COMPLETED
            except BaseException as error:
                if not _is_death(error):
                    raise


def _is_death(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Death) is not None
    return isinstance(error, Death)


def act(desk: DeskRun, data: st.DataObject) -> None:
    """Do something at the desk, if there is something to do."""
    step_id, what = data.draw(st.sampled_from(STEPS)), data.draw(st.sampled_from(ACTS))
    dies_at = data.draw(st.just(NEVER) | st.integers(1, 60))
    if what == "withdraw":
        # Best what another decision stands on: then that one is about a row that is there no more.
        decided = desk.shared() or sorted({each.position for each in desk.decided[step_id]})
        if decided:
            chosen = data.draw(st.sets(st.sampled_from(decided), min_size=1))
            desk.withdraw("low" if desk.shared() else step_id, chosen, dies_at=dies_at)
    elif parked := desk.parked(step_id):
        scores = st.integers(3, 5) if step_id == "low" else SCORES
        changes = data.draw(st.dictionaries(st.sampled_from(sorted(parked)), scores, min_size=1))
        desk.decide(step_id, changes, leaves_out=what == "discard", dies_at=dies_at)


@settings(max_examples=HISTORIES, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(data=st.data(), scores=st.lists(SCORES, min_size=1, max_size=6))
def test_every_row_ends_as_it_was_last_decided(data: st.DataObject, scores: list[int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = DeskRun(Path(folder), scores)
        status = desk.go_on()
        for _ in range(4):
            for _ in range(data.draw(st.integers(1, 4))):
                act(desk, data)
            status = desk.go_on(data.draw(st.none() | st.integers(1, 80)))
        for _ in range(4):
            for step_id in STEPS if status is not RunStatus.COMPLETED else ():
                if parked := desk.parked(step_id):
                    desk.decide(step_id, dict.fromkeys(parked, 1), leaves_out=False, dies_at=NEVER)
            status = desk.go_on() if status is not RunStatus.COMPLETED else status
        assert status is RunStatus.COMPLETED
        assert_frame_equal(read_file(desk.directory, desk.run_id, "scores"), rows_frame(desk.believed()))
        assert verify(desk.directory, desk.run_id).findings == ()
