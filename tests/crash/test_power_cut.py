"""Cut the power wherever something is about to be synced, or just was; what is left is whole and goes on.

What a power cut leaves is what `power.Model` says, sampled by a seed. From each such state the run is read as
any command reads it, resumed by one plain run, and taken one act further: what is litter after a power cut
must not be in the way later. An act at the desk whose decision did not get on record is given again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import polars as pl
import pytest

from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, ingest, run
from astro_async._core.names import RunId
from astro_async._store.journal import read_manifest
from astro_async._store.layout import list_run_ids
from crash.power import Chooser, Model, RecordingDisk
from crash.reference import (
    ACTS,
    DESK_ACTS,
    IS_FULL,
    Author,
    Stage,
    assert_no_litter,
    ingest_reference,
    lay_out,
    load,
    prepare,
    read_state,
)

SEED = 20_260_101
# At each boundary this many states are built; where time is short, at one boundary in so many.
SAMPLES, ONE_IN = (2, 1) if IS_FULL else (1, 9)
PROBE = "parked again"
# The desk's acts come while the check has rows parked.
HISTORY = (*ACTS[:2], *DESK_ACTS, *ACTS[2:])


@dataclass
class Cut:
    """One state that a power cut left.

    Attributes:
        directory: Where it was built.
        moment: When the power went, and how the state was chosen.
        act: Index of the act under way; -1 is the ingest.
        promised_seq: The last event that the manifest vouched for; None if the run was not promised yet.
        contents: What the files of the run held then, by relative path.
    """

    directory: Path
    moment: str
    act: int
    promised_seq: int | None
    contents: dict[str, bytes]


class Recording:
    """The whole history on one recorded disk, and the cuts taken in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cuts: list[Cut] = []
        self._random = random.Random(SEED)
        self._act = -1
        self._promised_seq: int | None = None
        self._boundaries = 0
        directory = folder / "live" / "pipeline"
        author = lay_out(directory)
        (folder / "live" / "refuge").mkdir()
        self._model = Model(directory, folder / "live" / "refuge")
        self._directory = directory
        self._run_directory = Path("/nonexistent")
        try:
            self.run_id = self._record(author)
        finally:
            self._model.close()

    def _record(self, author: Author) -> str:
        disk = RecordingDisk(self._model, self._at_sync)
        run_id = ingest_reference(self._directory, author, disk)
        stage = Stage(self._directory, author, run_id)
        self._run_directory = stage.root
        self._end_act(disk)
        for self._act, act in enumerate(HISTORY):
            stage.perform(act, disk)
            self._end_act(disk)
        return run_id

    def _end_act(self, disk: RecordingDisk) -> None:
        disk.before("end", "")
        self._promise()
        self._take("end", Chooser.KINDS)

    def _promise(self) -> None:
        self._promised_seq = read_manifest(str(self._run_directory)).journal_seq

    def _at_sync(self, moment: str) -> None:
        if moment == f"after sync {self._run_directory}":
            self._promise()
        self._boundaries += 1
        if self._random.randrange(ONE_IN) == 0:
            self._take(moment, self._random.sample(Chooser.KINDS, SAMPLES))

    def _take(self, moment: str, kinds: Sequence[str]) -> None:
        contents = {
            str(path.relative_to(self._run_directory)): path.read_bytes()
            for folder in ("ingested", "versions", "quarantine", "filtered", "patches")
            for path in (self._run_directory / folder).rglob("*.*")
        }
        for kind in kinds:
            choose = Chooser(self._random.randrange(1 << 32), kind)
            directory = self.folder / "cuts" / str(len(self.cuts)) / "pipeline"
            directory.parent.mkdir(parents=True)
            self._model.materialise(directory, choose)
            act = "ingest" if self._act < 0 else HISTORY[self._act]
            told = f"boundary {self._boundaries}, {act}, {moment}, {choose.kind}"
            self.cuts.append(Cut(directory, told, self._act, self._promised_seq, contents))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The state after each act, and after the one that probes."""
    stage = prepare(tmp_path_factory.mktemp("undisturbed") / "pipeline")
    states = []
    for act in (*HISTORY, PROBE):
        stage.perform(act)
        states.append(read_state(stage))
    return states


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    # A checkpoint whenever there is something to make durable: as many boundaries as there can be.
    monkeypatch.setattr("astro_async._executor.checkpoints._INTERVAL_S", 0.0)
    yield Recording(tmp_path)
    shutil.rmtree(tmp_path)


def test_what_a_power_cut_leaves_is_whole_and_goes_on(
    recording: Recording, undisturbed: list[dict[str, object]]
) -> None:
    assert len(recording.cuts) > 40
    acts_cut = {cut.act for cut in recording.cuts}
    assert acts_cut == set(range(-1, len(HISTORY)))
    failures: list[Exception] = []
    for cut in recording.cuts:
        try:
            go_on(cut, recording.run_id, undisturbed)
        except Exception as error:
            error.add_note(cut.moment)
            failures.append(error)
        shutil.rmtree(cut.directory)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(recording.cuts)} power cuts", failures)


def go_on(cut: Cut, run_id: str, undisturbed: list[dict[str, object]]) -> None:
    acts = HISTORY[: cut.act + 1]
    author = Author(cut.directory.parent / "ledger.txt", acts)
    visible = list_run_ids(str(cut.directory))
    if cut.promised_seq is not None:
        assert visible == [run_id]
    if RunId(run_id) not in visible:
        assert visible == []
        run_id = ingest_reference(cut.directory, author)
    stage = Stage(cut.directory, author, run_id)
    assert_whole(stage, cut)
    if " end," in cut.moment and cut.act >= 0:
        assert read_state(stage) == undisturbed[cut.act], "what the command has said is so"
    act = max(cut.act, 0)
    decided = sum(each in DESK_ACTS for each in acts)
    if len(stage.record().patches) < decided:
        stage.perform(HISTORY[act])
    stage.run()
    assert read_state(stage) == undisturbed[act]
    assert_no_litter(stage)
    stage.perform([*HISTORY, PROBE][act + 1])
    assert read_state(stage) == undisturbed[act + 1]
    assert_no_litter(stage)


def assert_whole(stage: Stage, cut: Cut) -> None:
    """The record is no older than what was promised, and every file that it names is there in full."""
    record = stage.record()
    if cut.promised_seq is not None:
        assert record.seq >= cut.promised_seq
    for path in record.named_paths():
        found = (stage.root / path).read_bytes()
        if cut.act >= 0 or cut.promised_seq is not None:
            assert found == cut.contents[path], path
        load(stage.root / path)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_pipeline_may_do_without_syncing(
    fsync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    pipeline = Pipeline("scratch", ingest_files=[IngestFileSpec("scores", "scores.csv")], fsync=fsync)
    pipeline.add_filter("drop", AstroFileSpec("scores"), remove=pl.col("id") == "1")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "scores.csv").write_text("id\n1\n2\n")
    anyio.run(partial(ingest, pipeline, tmp_path / "source", pipeline_dir=tmp_path))
    result = anyio.run(partial(run, pipeline, pipeline_dir=tmp_path))
    assert result.exit_code == 0
    assert bool(synced) is fsync
