"""Policy of section 4 of the contract: timeouts, retries, limits, processes, stops; and what a run tells."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_process
import anyio.to_thread
import polars as pl
import pytest

from astro_async import (
    AstroFileSpec,
    EventStream,
    IngestFileSpec,
    Pipeline,
    Retry,
    RunResult,
    StepContext,
    StepFiles,
    StopSwitch,
    expect,
    load_pipeline,
    read_run,
    run,
    stream,
)
from astro_async._core.events import Event, StepFinished, StepProgress, StepRetrying, StepStarted
from astro_async._executor import broadcast
from astro_async._executor.attempt import Outcome
from astro_async._executor.coordinator import Coordinator
from astro_async._executor.invocation import Services
from astro_async._executor.turns import Turns
from astro_async.testing import Gate, ingest_frames, read_file
from cases.support import (
    Report,
    Scores,
    VolatileDisk,
    attempts,
    detail_of,
    files_below,
    id_of,
    ingest_and_run,
    journal_of,
    kinds,
    make_pipeline,
    manifest_of,
    quarantined,
    record_of,
    run_directory,
    statuses,
    step_of,
)

pytestmark = pytest.mark.anyio

SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [10, -20, 30]})
FRAMES = {"scores": SCORES, "report": SCORES}

# Time enough for a second attempt on a busy machine; the first one is held at a gate until it is over.
TIMEOUT_S = 0.5


class Watch:
    """Reads the events of a run beside the test, and waits for those that it is told of."""

    def __init__(self, events: EventStream) -> None:
        self.seen: list[Event] = []
        self.events = events

    async def until(self, kind: type[Event], step_id: str) -> Event:
        """Read on until an event of a kind comes for a step, and return it."""
        async for event in self.events:
            self.seen.append(event)
            if isinstance(event, kind) and event.step_id == step_id:
                return event
        raise AssertionError(f"no {kind.__name__} of {step_id} came")

    @property
    def result(self) -> RunResult:
        """How the run ended; after the block."""
        return self.events.result

    def started(self, step_id: str) -> int:
        """Return how many starts of a step have been told."""
        return kinds(self.seen, step_id).count("StepStarted")


@asynccontextmanager
async def watching(
    pipeline: Pipeline, pipeline_dir: Path, run_id: str, **options: Any
) -> AsyncIterator[Watch]:
    """Run, and watch; to the end, whenever the block ends."""
    with anyio.fail_after(60):
        async with stream(pipeline, pipeline_dir=pipeline_dir, run_id=run_id, **options) as events:
            watch = Watch(events)
            yield watch
            async for event in events:
                watch.seen.append(event)


def do_nothing(_ctx: StepContext, _files: StepFiles) -> None:
    """A step that runs and leaves everything as it is."""


def add_column(name: str) -> Callable[[StepContext, StepFiles], None]:
    """Return a step that adds a column to its first file."""

    def add(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().with_columns(pl.lit(1).alias(name)))

    return add


# -- timeouts --------------------------------------------------------------------------------------


async def test_a_timeout_on_a_thread_is_reported_while_the_thread_is_there(tmp_path: Path) -> None:
    """Its slot is held: of two slots one is left, and the third step waits for the thread to be gone."""
    with Gate() as hung, Gate() as other:

        def hang(_ctx: StepContext, files: StepFiles) -> None:
            files[0].save_in_place(SCORES.clear())
            hung.hold()
            files[0].save_in_place(SCORES.head(1))

        def hold(_ctx: StepContext, _files: StepFiles) -> None:
            other.hold()

        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("hang", hang, Scores, timeout=TIMEOUT_S)
        pipeline.add_step("hold", hold)
        pipeline.add_step("third", add_column("third"), Report)
        run_id = await ingest_frames(pipeline, FRAMES, tmp_path)
        async with watching(pipeline, tmp_path, run_id, jobs=2, keep_going=True) as watch:
            await watch.until(StepFinished, "hang")
            failed = watch.seen[-1]
            assert isinstance(failed, StepFinished)
            assert (failed.status, failed.files) == ("failed", ())
            assert "timed out after 0.5 s" in (failed.detail or "")
            await other.arrived()
            assert not hung.is_open
            assert watch.started("third") == 0
            # The thread goes, its slot is free, and the third step runs although `hold` still holds its own.
            hung.open()
            await watch.until(StepFinished, "third")
            other.open()
    result = watch.result
    assert statuses(result) == {"hang": "failed", "hold": "complete", "third": "complete"}
    assert (record_of(result).status, result.exit_code, result.hung) == ("failed", 1, ())
    # What it wrote is not published, not even what it wrote after its time.
    assert read_file(tmp_path, run_id, "scores").equals(SCORES)
    assert read_file(tmp_path, run_id, "report").columns == ["id", "score", "third"]
    assert files_below(run_directory(tmp_path, run_id), "versions") == ["versions/report/third.1.parquet"]


async def test_a_retry_waits_until_the_thread_that_timed_out_is_gone(tmp_path: Path) -> None:
    with Gate() as hung, Gate() as other, Gate() as end:
        seen: list[int] = []

        def hang(ctx: StepContext, files: StepFiles) -> None:
            seen.append(ctx.attempt)
            if ctx.attempt == 1:
                hung.hold()
            files[0].save_in_place(SCORES.with_columns(attempt=pl.lit(ctx.attempt)))

        def hold(_ctx: StepContext, _files: StepFiles) -> None:
            other.hold()

        def keep_alive(_ctx: StepContext, _files: StepFiles) -> None:
            end.hold()

        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("hang", hang, Scores, timeout=TIMEOUT_S, retries=Retry(1, delay_s=0.001))
        pipeline.add_step("hold", hold)
        pipeline.add_step("meanwhile", add_column("new"), Report, depends_on="hold")
        pipeline.add_step("keep alive", keep_alive)
        run_id = await ingest_frames(pipeline, FRAMES, tmp_path)
        async with watching(pipeline, tmp_path, run_id, jobs=3) as watch:
            retrying = await watch.until(StepRetrying, "hang")
            assert isinstance(retrying, StepRetrying)
            assert "timed out" in retrying.error
            assert "retry at" in retrying.detail
            other.open()
            await watch.until(StepFinished, "meanwhile")
            # A good while of scheduling later there is still no second attempt beside the first.
            assert seen == [1]
            assert read_run(tmp_path, run_id).steps["hang"].status == "running"
            hung.open()
            await watch.until(StepFinished, "hang")
            end.open()
    result = watch.result
    assert seen == [1, 2]
    assert set(statuses(result).values()) == {"complete"}
    assert attempts(result)["hang"] == 2
    assert read_file(tmp_path, run_id, "scores")["attempt"].to_list() == [2, 2, 2]


async def test_a_thread_that_outlived_its_timeout_is_in_nobodys_way(tmp_path: Path) -> None:
    """Few threads serve short steps; one that hangs is none of them."""
    with Gate() as hung, Gate() as other:

        def hang(_ctx: StepContext, _files: StepFiles) -> None:
            hung.hold()

        async def hold(_ctx: StepContext, _files: StepFiles) -> None:
            await other.ahold()

        pipeline = make_pipeline()
        pipeline.add_step("first", do_nothing)
        pipeline.add_step("hang", hang, timeout=0.05, depends_on="first")
        pipeline.add_step("hold", hold, depends_on="first")
        pipeline.add_step("behind", do_nothing, depends_on="hold")
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with watching(pipeline, tmp_path, run_id, jobs=2, keep_going=True) as watch:
            await watch.until(StepFinished, "hang")
            other.open()
            await watch.until(StepFinished, "behind")
            assert not hung.is_open
    assert statuses(watch.result) == {
        "first": "complete",
        "hang": "failed",
        "hold": "complete",
        "behind": "complete",
    }


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_run_ends_when_only_hung_threads_are_left(retries: int, tmp_path: Path) -> None:
    with Gate() as gate:

        def hang(_ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            files[0].save_in_place(SCORES.clear())

        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("before", add_column("before"), Report)
        pipeline.add_step("hang", hang, Scores, timeout=0.05, retries=Retry(retries, delay_s=0.0))
        pipeline.add_step("dependent", do_nothing, Scores, depends_on="hang")
        pipeline.add_step("independent", do_nothing, Report)
        run_id = await ingest_frames(pipeline, FRAMES, tmp_path)
        with anyio.fail_after(30):
            result = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=1, keep_going=True)
        assert not gate.is_open
        assert result.hung == ("hang",)
        assert statuses(result) == {
            "before": "complete",
            "hang": "failed",
            "dependent": "blocked",
            # No slot was ever free again.
            "independent": "pending",
        }
        assert (record_of(result).status, result.exit_code) == ("failed", 1)
        assert "hang" in (record_of(result).detail or "")
        assert "timed out" in detail_of(result, "hang")
        assert attempts(result)["hang"] == 1
        # The next invocation resumes, even while the old thread is there: its attempt is another.
        pipeline = make_pipeline(files=("scores", "report"))
        for name, file in (("before", Report), ("hang", Scores), ("independent", Report)):
            pipeline.add_step(name, add_column(f"new_{name}"), file)
        again = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert again.status == "completed"
    assert attempts(again) == {"before": 1, "hang": 2, "independent": 1}
    assert read_file(tmp_path, run_id, "scores").columns == ["id", "score", "new_hang"]
    assert read_file(tmp_path, run_id, "report").columns == ["id", "score", "before", "new_independent"]


@pytest.mark.parametrize("swallows", [False, True], ids=["holds the loop", "swallows its cancellation"])
async def test_an_async_step_that_returns_after_its_timeout_publishes_nothing(
    tmp_path: Path, *, swallows: bool
) -> None:
    async def overrun(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(SCORES.head(1))
        deadline = anyio.current_effective_deadline()
        if swallows:
            try:
                await anyio.sleep_forever()
            except BaseException:
                return
        while anyio.current_time() <= deadline:
            pass

    pipeline = make_pipeline()
    pipeline.add_step("overrun", overrun, Scores, timeout=0.05)
    result = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert statuses(result) == {"overrun": "failed"}
    assert detail_of(result, "overrun") == "timed out after 0.05 s"
    assert step_of(result, "overrun").files == ()
    assert files_below(run_directory(tmp_path, id_of(result)), "versions", "staging") == []
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES)


async def test_a_timeout_ends_an_async_step(tmp_path: Path) -> None:
    ended: list[str] = []

    async def sleep(_ctx: StepContext, files: StepFiles) -> None:
        await files[0].asave_in_place(SCORES.clear())
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    async def own_timeout(_ctx: StepContext, _files: StepFiles) -> None:
        raise TimeoutError("of its own")

    pipeline = make_pipeline(files=("scores", "report"))
    pipeline.add_step("sleep", sleep, Scores, timeout=0.05)
    pipeline.add_step("own timeout", own_timeout, Report, timeout=60)
    result = await ingest_and_run(pipeline, FRAMES, tmp_path, jobs=2)
    assert statuses(result) == {"sleep": "failed", "own-timeout": "failed"}
    assert detail_of(result, "sleep") == "timed out after 0.05 s"
    assert detail_of(result, "own-timeout") == "of its own"
    assert ended == ["cancelled"]
    assert result.hung == ()
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES)
    assert files_below(run_directory(tmp_path, id_of(result)), "versions", "staging") == []


# -- retries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_retries_with_back_off(is_async: bool, tmp_path: Path) -> None:
    """With one job: the wait holds no slot, so the second step runs between the attempts of the first."""
    order: list[str] = []

    def fail_twice(ctx: StepContext, files: StepFiles) -> None:
        order.append(f"flaky {ctx.attempt}")
        ctx.quarantine.quarantine_rows(files[0], SCORES.head(1), reason=f"attempt {ctx.attempt}")
        files[0].save_in_place(SCORES.with_columns(attempt=pl.lit(ctx.attempt)).slice(1))
        if ctx.attempt < 3:
            raise RuntimeError(f"failure {ctx.attempt}")

    async def fail_twice_async(ctx: StepContext, files: StepFiles) -> None:
        fail_twice(ctx, files)

    def other(_ctx: StepContext, _files: StepFiles) -> None:
        order.append("other")

    flaky = fail_twice_async if is_async else fail_twice
    pipeline = make_pipeline(files=("scores", "report"))
    pipeline.add_step("flaky", flaky, Scores, retries=Retry(3, delay_s=0.02, backoff=1.5))
    pipeline.add_step("other", other, Report)
    result = await ingest_and_run(pipeline, FRAMES, tmp_path, jobs=1)
    assert order == ["flaky 1", "other", "flaky 2", "flaky 3"]
    assert statuses(result) == {"flaky": "quarantined", "other": "complete"}
    assert attempts(result) == {"flaky": 3, "other": 1}
    events = journal_of(tmp_path, id_of(result))
    again = [event for event in events if isinstance(event, StepRetrying)]
    assert [event.attempt for event in again] == [1, 2]
    assert [event.error.partition(" (")[0] for event in again] == [
        "RuntimeError: failure 1",
        "RuntimeError: failure 2",
    ]
    assert all(event.detail.startswith("retry at 20") for event in again)
    # Of failed attempts nothing is left.
    assert read_file(tmp_path, id_of(result), "scores")["attempt"].to_list() == [3, 3]
    assert quarantined(tmp_path, id_of(result), "flaky", "id") == [(1, "attempt 3")]
    assert files_below(run_directory(tmp_path, id_of(result)), "versions", "quarantine", "staging") == [
        "quarantine/flaky/scores.part-00001.parquet",
        "versions/scores/flaky.3.parquet",
    ]


async def test_retries_are_counted_for_each_invocation(tmp_path: Path) -> None:
    def fail(_ctx: StepContext, _files: StepFiles) -> None:
        raise RuntimeError("always")

    pipeline = make_pipeline(lambda p: p.add_step("fail", fail, Scores, retries=Retry(2, delay_s=0.0)))
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert (statuses(first), attempts(first)) == ({"fail": "failed"}, {"fail": 3})
    again = await run(pipeline, pipeline_dir=tmp_path)
    assert (statuses(again), attempts(again)) == ({"fail": "failed"}, {"fail": 6})
    assert again.exit_code == 1
    assert detail_of(again, "fail").startswith("RuntimeError: always (test_policy.py, line ")


def test_back_off_grows_and_is_capped() -> None:
    retry = Retry(5, delay_s=1.0, backoff=3.0, max_delay_s=10.0)
    assert [retry.delay_before(number) for number in range(1, 6)] == [1.0, 3.0, 9.0, 10.0, 10.0]


# -- limits ----------------------------------------------------------------------------------------


async def test_named_limits(tmp_path: Path) -> None:
    """Two at a time are let in, and two at a time there are; steps without the limit pass them."""
    lock = threading.Lock()
    inside = most = 0
    pairs = threading.Barrier(2, timeout=30)

    def query(_ctx: StepContext, _files: StepFiles) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        pairs.wait()
        with lock:
            inside -= 1
        # Nobody is let in before both have counted themselves out.
        pairs.wait()

    order: list[str] = []

    def free(_ctx: StepContext, _files: StepFiles) -> None:
        order.append("free")

    pipeline = make_pipeline(limits={"database": 2, "api": 1})
    for number in range(6):
        pipeline.add_step(f"query {number}", query, limits="database")
    pipeline.add_step("free", free)
    pipeline.add_step("both", do_nothing, limits=["database", "api"])
    result = await ingest_and_run(pipeline, SCORES, tmp_path, jobs=8)
    assert set(statuses(result).values()) == {"complete"}
    assert (inside, most, order) == (0, 2, ["free"])


async def test_a_step_that_waits_for_a_limit_lets_others_pass(tmp_path: Path) -> None:
    with Gate() as gate:

        def hold(_ctx: StepContext, _files: StepFiles) -> None:
            gate.hold()

        pipeline = make_pipeline(limits={"one": 1})
        pipeline.add_step("holder", hold, limits="one")
        pipeline.add_step("waiter", do_nothing, limits="one")
        pipeline.add_step("passer", do_nothing)
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with watching(pipeline, tmp_path, run_id, jobs=2) as watch:
            await watch.until(StepFinished, "passer")
            assert watch.started("waiter") == 0
            gate.open()
    result = watch.result
    assert set(statuses(result).values()) == {"complete"}
    assert [event.step_id for event in watch.seen if isinstance(event, StepFinished)] == [
        "passer",
        "holder",
        "waiter",
    ]


# -- processes -------------------------------------------------------------------------------------

PROCESS_PIPELINE = dedent(
    """
    import os, signal, sys
    import polars as pl
    from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, expect

    names = ["scores", "report", "third", "fourth"]
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec(name, f"{name}.csv") for name in names])

    @pipeline.step(AstroFileSpec("scores"), engine="process")
    def work(ctx, files):
        file, rows = files[0], files[0].load()
        ctx.quarantine.quarantine_rows(file, rows.filter(pl.col("score") < 0), reason="negative")
        ctx.stats.record("answer", 42)
        ctx.logger.info("from the child")
        pid = pl.lit(os.getpid())
        file.save_to("processed", "s.parquet", rows.filter(pl.col("score") >= 0).with_columns(pid=pid))

    @pipeline.step(AstroFileSpec("report"), engine="process")
    def die(ctx, files):
        files[0].save_in_place(files[0].load().clear())
        if not ctx.params.get("live"):
            os.kill(os.getpid(), signal.SIGKILL)

    @pipeline.step(AstroFileSpec("third"), engine="process")
    def leave(ctx, files):
        if not ctx.params.get("live"):
            sys.exit(3)

    low = expect("low", pl.col("score") > 10)
    pipeline.add_check("check", low, AstroFileSpec("fourth"), engine="process")
    """
)


async def test_steps_in_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PROCESS_PIPELINE)
    pipeline = load_pipeline(tmp_path)
    names = ("scores", "report", "third", "fourth")
    result = await ingest_and_run(pipeline, dict.fromkeys(names, SCORES), tmp_path, jobs=5, keep_going=True)
    assert statuses(result) == {
        "work": "quarantined",
        "die": "failed",
        "leave": "failed",
        "check": "quarantined",
    }
    assert (record_of(result).status, result.exit_code, result.hung) == ("failed", 1, ())
    assert detail_of(result, "die").startswith("its process died")
    assert "SystemExit: 3" in detail_of(result, "leave")
    run_id = id_of(result)
    rows = read_file(tmp_path, run_id, "scores")
    assert rows["id"].to_list() == [1, 3]
    assert rows["pid"].n_unique() == 1
    assert rows["pid"][0] != os.getpid()
    assert quarantined(tmp_path, run_id, "work", "id") == [(2, "negative")]
    directory = run_directory(tmp_path, run_id)
    assert pl.read_parquet(directory / "processed/s.parquet").equals(rows)
    assert "[work] from the child" in (directory / "astro.log").read_text()
    finished = [event for event in journal_of(tmp_path, run_id) if isinstance(event, StepFinished)]
    (stats,) = [event.stats for event in finished if event.step_id == "work"]
    assert [(stat.scope, stat.subject, stat.action, stat.value) for stat in stats] == [
        ("step", "work", "answer", 42.0)
    ]
    for name in ("report", "third"):
        assert read_file(tmp_path, run_id, name).equals(SCORES)
    assert read_file(tmp_path, run_id, "fourth")["id"].to_list() == [3]
    assert files_below(directory, "staging") == []

    again = await run(pipeline, pipeline_dir=tmp_path, params={"live": True}, keep_going=True)
    assert statuses(again) == {
        "work": "quarantined",
        "die": "complete",
        "leave": "complete",
        "check": "quarantined",
    }
    assert read_file(tmp_path, run_id, "report").is_empty()


def pause_for_ever(_ctx: StepContext, files: StepFiles) -> None:
    """A step for a process of its own, which only a kill ends."""
    files[0].save_in_place(SCORES.clear())
    signal.pause()


async def test_a_timeout_kills_the_process_of_a_step(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    pipeline.add_step("pause", pause_for_ever, Scores, engine="process", timeout=1.5)
    with anyio.fail_after(30):
        result = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert (statuses(result), result.hung) == ({"pause": "failed"}, ())
    assert "timed out after 1.5 s" in detail_of(result, "pause")
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES)
    assert files_below(run_directory(tmp_path, id_of(result)), "versions", "staging") == []


MEETING_PIPELINE = dedent(
    """
    from astro_async import AstroFileSpec, IngestFileSpec, Pipeline

    specs = [IngestFileSpec("scores", "*.csv"), IngestFileSpec("report", "*.tsv")]
    pipeline = Pipeline("p", ingest_files=specs)

    @pipeline.step(AstroFileSpec("scores"), engine="process", timeout=20)
    def send(ctx, files):
        # Opening either end of a pipe waits for the other end.
        with open(ctx.pipeline_dir / "pipe", "w") as pipe:
            pipe.write("hello")

    @pipeline.step(AstroFileSpec("report"), engine="process", timeout=20)
    def receive(ctx, files):
        with open(ctx.pipeline_dir / "pipe") as pipe:
            assert pipe.read() == "hello"
    """
)


async def test_steps_in_processes_run_side_by_side_however_many_cores_there_are(tmp_path: Path) -> None:
    """Slots say how many run at once, not anyio's default limiter; waiting for it would eat the timeout."""
    (tmp_path / "pipeline.py").write_text(MEETING_PIPELINE)
    os.mkfifo(tmp_path / "pipe")
    limiter = anyio.to_process.current_default_process_limiter()
    room, limiter.total_tokens = limiter.total_tokens, 1
    try:
        result = await ingest_and_run(load_pipeline(tmp_path), FRAMES, tmp_path, jobs=2, keep_going=True)
    finally:
        limiter.total_tokens = room
    assert statuses(result) == {"send": "complete", "receive": "complete"}


# -- quarantine policy, optional files -------------------------------------------------------------


async def test_on_quarantine_continue(tmp_path: Path) -> None:
    def validate(ctx: StepContext, files: StepFiles) -> None:
        file, rows = files[0], files[0].load()
        bad = rows.filter(pl.col("score") < 0) if not ctx.params.get("accept") else rows.clear()
        if bad.height:
            ctx.quarantine.quarantine_rows(file, bad, reason="negative")
            rows = rows.filter(pl.col("score") >= 0)
        file.save_in_place(rows)

    calls: list[int] = []

    def count(_ctx: StepContext, files: StepFiles) -> None:
        calls.append(files["scores"].row_count())
        files["report"].save_in_place(pl.DataFrame({"rows": [files["scores"].row_count()]}))

    def look(_ctx: StepContext, files: StepFiles) -> None:
        calls.append(-files["scores"].row_count())

    pipeline = make_pipeline(files=("scores", "report"))
    pipeline.add_step("validate", validate, Scores, on_quarantine="continue")
    pipeline.add_step("count", count, [Scores(readonly=True), Report], depends_on="validate")
    pipeline.add_step("look", look, Scores(readonly=True), depends_on="validate")
    first = await ingest_and_run(pipeline, FRAMES, tmp_path, jobs=1)
    assert statuses(first) == {"validate": "quarantined", "count": "complete", "look": "complete"}
    assert (record_of(first).status, first.exit_code) == ("quarantined", 3)
    assert read_file(tmp_path, id_of(first), "report")["rows"].to_list() == [2]
    # A retry runs those dependents again, what published nothing included.
    again = await run(pipeline, pipeline_dir=tmp_path, params={"accept": True}, jobs=1)
    assert again.plan.by_reason() == {"quarantined": ["validate"], "dependency": ["count", "look"]}
    assert (again.status, again.exit_code) == ("completed", 0)
    assert read_file(tmp_path, id_of(first), "report")["rows"].to_list() == [3]
    assert calls == [2, -2, 3, -3]


async def test_optional_files_and_skipped_steps(tmp_path: Path) -> None:
    seen: list[bool] = []

    def both(_ctx: StepContext, files: StepFiles) -> None:
        seen.append(files["extra"] is None)
        seen.append(files[0] is None)
        files["scores"].save_in_place(SCORES.reverse())

    extra = AstroFileSpec("extra")
    pipeline = Pipeline(
        "optional",
        ingest_files=[
            IngestFileSpec("scores", "scores.csv"),
            IngestFileSpec("extra", "extra.csv", optional=True),
        ],
    )
    pipeline.add_step("only extra", do_nothing, extra)
    pipeline.add_check("check extra", expect("bad", pl.col("score") > 0), [extra, Scores], max_quarantined=9)
    pipeline.add_step("both", both, [extra, Scores], depends_on="only-extra")
    first = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert statuses(first) == {"only-extra": "skipped", "check-extra": "quarantined", "both": "complete"}
    assert "extra" in detail_of(first, "only-extra")
    assert seen == [True, True]
    assert attempts(first)["only-extra"] == 0
    assert [file["name"] for file in manifest_of(tmp_path, id_of(first))["ingested_files"]] == ["scores"]
    assert quarantined(tmp_path, id_of(first), "check-extra", "id") == [(2, "bad")]

    second = await ingest_and_run(pipeline, {"scores": SCORES, "extra": SCORES}, tmp_path)
    assert statuses(second)["only-extra"] == "complete"
    assert seen[2:] == [False, False]


# -- readers of events -----------------------------------------------------------------------------


async def test_a_subscriber_that_raises_harms_nobody(tmp_path: Path) -> None:
    told: list[Event] = []
    calls: list[Event] = []

    def complain(event: Event) -> None:
        calls.append(event)
        raise LookupError("no such reader")

    def listen(event: Event) -> None:
        told.append(event)

    pipeline = make_pipeline()
    for name in ("a", "b", "c"):
        pipeline.add_step(name, add_column(name), Scores)
    result = await ingest_and_run(pipeline, SCORES, tmp_path, subscribers=[complain, listen])
    assert result.status == "completed"
    assert read_file(tmp_path, id_of(result), "scores").columns == ["id", "score", "a", "b", "c"]
    journal = journal_of(tmp_path, id_of(result))
    assert told == [event for event in journal if event.seq >= told[0].seq]
    assert kinds(told) == ["RunPlanned", *["StepStarted", "StepFinished"] * 3, "RunFinished"]
    assert [event.seq for event in journal] == list(range(1, len(journal) + 1))
    # It is told no more, and the log says so.
    assert len(calls) == 1
    assert "no such reader" in (run_directory(tmp_path, id_of(result)) / "astro.log").read_text()


async def test_a_subscriber_that_never_returns_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "_GRACE_S", 0.05)
    with Gate() as gate:

        def dawdle(_event: Event) -> None:
            gate.hold()

        pipeline = make_pipeline(lambda p: p.add_step("a", add_column("a"), Scores))
        with anyio.fail_after(20):
            result = await ingest_and_run(pipeline, SCORES, tmp_path, subscribers=[dawdle])
        assert not gate.is_open
    assert result.status == "completed"
    assert manifest_of(tmp_path, id_of(result))["status"] == "completed"


async def test_progress_is_told_and_not_kept(tmp_path: Path) -> None:
    def report(ctx: StepContext, _files: StepFiles) -> None:
        for fraction in (0.25, 7.0):
            ctx.report_progress(fraction)

    pipeline = make_pipeline(lambda p: p.add_step("report", report, Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    async with watching(pipeline, tmp_path, run_id) as watch:
        pass
    result = watch.result
    assert result.status == "completed"
    fractions = [event.fraction for event in watch.seen if isinstance(event, StepProgress)]
    assert fractions == [0.25, 1.0]
    lines = (run_directory(tmp_path, run_id) / "events.jsonl").read_text()
    assert "progress" not in lines


async def test_a_stream_that_has_ended_has_its_result(tmp_path: Path) -> None:
    pipeline = make_pipeline(lambda p: p.add_step("a", add_column("a"), Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    async with stream(pipeline, pipeline_dir=tmp_path, run_id=run_id) as events:
        with pytest.raises(RuntimeError, match="goes on"):
            events.result  # noqa: B018
        seen = [event async for event in events]
        assert events.result.status == "completed"
    assert kinds(seen) == ["RunPlanned", "StepStarted", "StepFinished", "RunFinished"]
    assert (events.result.run_id, events.result.exit_code) == (run_id, 0)


async def test_a_stream_hands_on_the_error_of_the_run(tmp_path: Path) -> None:
    pipeline = make_pipeline(lambda p: p.add_step("a", do_nothing, Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    from astro_async.exceptions import PipelineError, RunNotFoundError

    with pytest.raises(PipelineError, match="jobs is 0"):
        async with stream(pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=0) as events:
            assert [event async for event in events] == []
    with pytest.raises(RunNotFoundError, match="'zzzzz'"):
        async with stream(pipeline, pipeline_dir=tmp_path, run_id="zzzzz") as events:
            assert [event async for event in events] == []


async def test_an_exception_of_the_block_ends_the_run_and_comes_out_as_it_is(tmp_path: Path) -> None:
    with Gate() as gate:
        held = Held(gate)
        run_id = await ingest_frames(held.pipeline, FRAMES, tmp_path)

        async def stumble() -> None:
            async with stream(held.pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=4):
                await gate.arrived(2)
                raise KeyError("mine")

        with anyio.fail_after(30), pytest.raises(KeyError, match="mine"):
            await stumble()
        assert read_run(tmp_path, run_id).status == "interrupted"
        assert held.cancelled == ["async"]
        await held.assert_resumes(tmp_path, run_id, "threaded", "async", "behind")


# -- stopping --------------------------------------------------------------------------------------


class Held:
    """Two steps that wait at a gate, one in a thread and one on the loop, and one behind them."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.cancelled: list[str] = []
        self.pipeline = make_pipeline(files=("scores", "report"))
        self.pipeline.add_step("first", add_column("first"), Scores)
        self.pipeline.add_step("threaded", self.threaded, Scores)
        self.pipeline.add_step("async", self.asynchronous, Report)
        self.pipeline.add_step("behind", add_column("behind"), Scores)

    def threaded(self, ctx: StepContext, files: StepFiles) -> None:
        """Wait in a thread."""
        if not ctx.params.get("hurry"):
            self.gate.hold()
        files[0].save_in_place(files[0].load().with_columns(threaded=ctx.attempt))

    async def asynchronous(self, ctx: StepContext, files: StepFiles) -> None:
        """Wait on the loop."""
        try:
            if not ctx.params.get("hurry"):
                await self.gate.ahold()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append("async")
            raise
        rows = pl.lit(ctx.attempt).alias("asynchronous")
        await files[0].asave_in_place((await files[0].aload()).with_columns(rows))

    async def assert_resumes(self, pipeline_dir: Path, run_id: str, *ran_again: str) -> None:
        """The next plain run does what is left, and only that."""
        again = await run(self.pipeline, pipeline_dir=pipeline_dir, params={"hurry": True})
        assert (id_of(again), again.status) == (run_id, "completed")
        assert list(again.plan.again) == list(ran_again)
        rows = read_file(pipeline_dir, run_id, "scores")
        assert rows.columns == ["id", "score", "first", "threaded", "behind"]
        assert rows.select("id", "score").equals(SCORES)
        assert read_file(pipeline_dir, run_id, "report").columns == ["id", "score", "asynchronous"]


async def test_drain_lets_running_steps_finish(tmp_path: Path) -> None:
    with Gate() as gate:
        held, switch = Held(gate), StopSwitch()
        run_id = await ingest_frames(held.pipeline, FRAMES, tmp_path)
        async with watching(held.pipeline, tmp_path, run_id, jobs=4, stop=switch) as watch:
            await gate.arrived(2)
            switch.drain()
            gate.open()
    result = watch.result
    assert statuses(result) == {
        "first": "complete",
        "threaded": "complete",
        "async": "complete",
        "behind": "pending",
    }
    assert (record_of(result).status, result.exit_code) == ("interrupted", 130)
    assert held.cancelled == []
    assert manifest_of(tmp_path, run_id)["status"] == "interrupted"
    await held.assert_resumes(tmp_path, run_id, "behind")


async def test_cancel_leaves_threads_behind_that_do_not_listen(tmp_path: Path) -> None:
    with Gate() as gate:
        held, switch = Held(gate), StopSwitch()
        run_id = await ingest_frames(held.pipeline, FRAMES, tmp_path)
        async with watching(held.pipeline, tmp_path, run_id, jobs=4, stop=switch) as watch:
            await gate.arrived(2)
            switch.drain()
            switch.cancel()
        result = watch.result
        assert not gate.is_open
        assert statuses(result) == {
            "first": "complete",
            "threaded": "pending",
            "async": "pending",
            "behind": "pending",
        }
        assert (record_of(result).status, result.exit_code) == ("interrupted", 130)
        assert kinds(watch.seen, "threaded") == ["StepStarted", "StepInterrupted"]
        assert held.cancelled == ["async"]
        assert result.hung == ("threaded",)
        await held.assert_resumes(tmp_path, run_id, "threaded", "async", "behind")
    assert read_file(tmp_path, run_id, "scores")["threaded"].to_list() == [2, 2, 2]


async def test_cancel_ends_threads_that_listen(tmp_path: Path) -> None:
    ended = threading.Event()
    with Gate() as gate:
        polled = threading.Event()

        def listen(_ctx: StepContext, _files: StepFiles) -> None:
            gate.hold()
            try:
                while not polled.wait(0.001):
                    anyio.from_thread.check_cancelled()
            finally:
                ended.set()

        switch = StopSwitch()
        pipeline = make_pipeline(lambda p: p.add_step("listen", listen, Scores))
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with watching(pipeline, tmp_path, run_id, stop=switch) as watch:
            await gate.arrived()
            gate.open()
            switch.cancel()
        result = watch.result
        assert await anyio.to_thread.run_sync(ended.wait, 30)
        polled.set()
    assert statuses(result) == {"listen": "pending"}
    assert result.status == "interrupted"


async def test_cancelling_the_callers_scope_saves_the_state(tmp_path: Path) -> None:
    with Gate() as gate:
        held = Held(gate)
        run_id = await ingest_frames(held.pipeline, FRAMES, tmp_path)
        with anyio.fail_after(30), anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: run(held.pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=4))
                await gate.arrived(2)
                scope.cancel()
        assert scope.cancelled_caught
        assert not gate.is_open
        assert held.cancelled == ["async"]
        # Its state is saved, in the manifest too, and its lock is free.
        record = read_run(tmp_path, run_id)
        assert record.status == "interrupted"
        assert statuses(record) == {
            "first": "complete",
            "threaded": "pending",
            "async": "pending",
            "behind": "pending",
        }
        manifest = manifest_of(tmp_path, run_id)
        assert manifest["status"] == "interrupted"
        assert [state["status"] for state in manifest["step_states"]] == list(statuses(record).values())
        await held.assert_resumes(tmp_path, run_id, "threaded", "async", "behind")
    assert read_file(tmp_path, run_id, "scores")["threaded"].to_list() == [2, 2, 2]


async def test_a_stop_ends_the_wait_for_a_retry(tmp_path: Path) -> None:
    switch = StopSwitch()

    def fail(ctx: StepContext, files: StepFiles) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("once")
        files[0].save_in_place(SCORES.reverse())

    pipeline = make_pipeline(lambda p: p.add_step("fail", fail, Scores, retries=Retry(1, delay_s=3600)))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    async with watching(pipeline, tmp_path, run_id, stop=switch) as watch:
        await watch.until(StepRetrying, "fail")
        switch.drain()
    result = watch.result
    assert (statuses(result), result.status) == ({"fail": "pending"}, "interrupted")
    again = await run(pipeline, pipeline_dir=tmp_path)
    assert (again.status, attempts(again)) == ("completed", {"fail": 2})
    assert read_file(tmp_path, run_id, "scores").equals(SCORES.reverse())


async def test_a_switch_that_was_turned_before_the_run_starts_nothing(tmp_path: Path) -> None:
    switch = StopSwitch()
    switch.drain()
    calls: list[str] = []
    pipeline = make_pipeline(lambda p: p.add_step("a", lambda _ctx, _files: calls.append("a"), Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
    with anyio.fail_after(30):
        result = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, stop=switch)
    assert (result.status, statuses(result), calls) == ("interrupted", {"a": "pending"}, [])


async def test_what_is_being_published_when_the_caller_is_cancelled_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both steps: the second comes to its end when the run has gone to sleep after the first."""
    with Gate() as first, Gate() as second:
        gates = {"versions/scores": first, "versions/report": second}

        class SlowDisk(VolatileDisk):
            def before(self, operation: str, path: str) -> None:
                for folder, gate in gates.items():
                    if operation == "publish" and folder in path:
                        gate.hold()

        take_outcome = Coordinator._take_outcome

        def take(self: Coordinator, outcome: Outcome) -> None:
            take_outcome(self, outcome)
            second.open()

        monkeypatch.setattr(Coordinator, "_take_outcome", take)
        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("one", add_column("new"), Scores)
        pipeline.add_step("two", add_column("new"), Report)
        pipeline.add_step("behind", do_nothing, depends_on="one")
        run_id = await ingest_frames(pipeline, FRAMES, tmp_path)
        services = Services(disk=SlowDisk())
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(
                    partial(run, pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=2, services=services)
                )
                await first.arrived()
                await second.arrived()
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    # Until the run has heard of it, the end of a step starts what is behind.
                    await anyio.sleep(0.1)
                first.open()
    record = read_run(tmp_path, run_id)
    assert record.status == "interrupted"
    assert statuses(record) == {"one": "complete", "two": "complete", "behind": "pending"}
    for name in FRAMES:
        assert read_file(tmp_path, run_id, name).columns == ["id", "score", "new"]


async def test_nothing_starts_while_a_cancelled_run_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gate() as gate, Gate() as left:
        ran: list[str] = []
        take_here = Turns.take_here

        def take(self: Turns, **options: bool) -> None:
            take_here(self, **options)
            if gate.is_open:
                left.open()

        monkeypatch.setattr(Turns, "take_here", take)

        async def clear_up(_ctx: StepContext, _files: StepFiles) -> None:
            try:
                await gate.ahold()
            finally:
                with anyio.CancelScope(shield=True):
                    gate.open()
                    await left.ahold()

        pipeline = make_pipeline()
        pipeline.add_step("clear up", clear_up)
        pipeline.add_step("hold", lambda _ctx, _files: gate.hold())
        pipeline.add_step("behind", lambda _ctx, _files: ran.append("behind"), depends_on="hold")
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(run, pipeline, pipeline_dir=tmp_path, run_id=run_id, jobs=2))
                await gate.arrived(2)
                group.cancel_scope.cancel()
    record = read_run(tmp_path, run_id)
    assert record.status == "interrupted"
    assert statuses(record) == {"clear-up": "pending", "hold": "complete", "behind": "pending"}
    assert ran == []


# -- params, several runs, keep going --------------------------------------------------------------


async def test_params_are_recorded_and_used_again(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    def look(ctx: StepContext, files: StepFiles) -> None:
        seen.append(dict(ctx.params))
        if ctx.params["limit"] < 3:
            raise RuntimeError("too low")
        files[0].save_in_place(files[0].load().with_columns(date=pl.lit(str(ctx.run_date))))

    pipeline = make_pipeline(lambda p: p.add_step("look", look, Scores))
    run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path, params={"limit": 1, "tags": ["x"]})
    for params in (None, {"limit": 2}, None, {"limit": 3}):
        result = await run(pipeline, pipeline_dir=tmp_path, run_id=run_id, params=params)
    assert seen == [{"limit": limit, "tags": ["x"]} for limit in (1, 2, 2, 3)]
    assert result.status == "completed"
    assert manifest_of(tmp_path, run_id)["params"] == {"limit": 3, "tags": ["x"]}
    dates = read_file(tmp_path, run_id, "scores")["date"].unique().to_list()
    assert dates == [manifest_of(tmp_path, run_id)["run_date"]]


async def test_several_runs_in_one_loop(tmp_path: Path) -> None:
    """Six runs, two in each of three directories, all in mid-flight at once."""
    with Gate() as gate:

        def hold(ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            files[0].save_in_place(files[0].load().with_columns(run=pl.lit(ctx.run_id)))

        async def hold_async(ctx: StepContext, files: StepFiles) -> None:
            await gate.ahold()
            await files[0].asave_in_place((await files[0].aload()).with_columns(run=pl.lit(ctx.run_id)))

        # One pipeline object serves all of them.
        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("hold", hold, Scores)
        pipeline.add_step("hold async", hold_async, Report)
        where = [tmp_path / name for name in ("a", "b", "c") for _ in range(2)]
        ids = [await ingest_frames(pipeline, FRAMES, directory) for directory in where]
        results: dict[str, RunResult] = {}

        async def go(directory: Path, run_id: str) -> None:
            results[run_id] = await run(pipeline, pipeline_dir=directory, run_id=run_id, jobs=2)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for directory, run_id in zip(where, ids, strict=True):
                    group.start_soon(go, directory, run_id)
                await gate.arrived(12)
                gate.open()
    for directory, run_id in zip(where, ids, strict=True):
        assert results[run_id].status == "completed"
        for name in ("scores", "report"):
            assert read_file(directory, run_id, name)["run"].to_list() == [run_id] * 3
        assert {event.run_id for event in journal_of(directory, run_id)} == {run_id}
        log = (run_directory(directory, run_id) / "astro.log").read_text()
        assert not any(other in log for other in ids if other != run_id)


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("keep_going", [False, True])
async def test_the_stop_point(keep_going: bool, jobs: int, tmp_path: Path) -> None:
    """What lies before the failure runs, nothing after it starts, unless told to keep going."""
    with Gate() as gate:

        def fail(_ctx: StepContext, _files: StepFiles) -> None:
            raise RuntimeError("no")

        def release(_ctx: StepContext, _files: StepFiles) -> None:
            gate.open()

        def before(_ctx: StepContext, files: StepFiles) -> None:
            if jobs > 1:
                gate.hold()
            files[0].save_in_place(files[0].load().with_columns(before=1))

        def tell(event: Event) -> None:
            if isinstance(event, StepFinished) and event.step_id == "fail":
                gate.open()

        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("before", before, Scores)
        # Ready only after the failure has been told, and before it in serial order: it still runs.
        pipeline.add_step("still before", add_column("still"), Scores)
        pipeline.add_step("fail", fail)
        pipeline.add_step("after", add_column("after"), Scores)
        pipeline.add_step("dependent", do_nothing, depends_on="fail")
        result = await ingest_and_run(
            pipeline, FRAMES, tmp_path, jobs=jobs, keep_going=keep_going, subscribers=[tell]
        )
    assert statuses(result) == {
        "before": "complete",
        "still-before": "complete",
        "fail": "failed",
        "after": "complete" if keep_going else "pending",
        "dependent": "blocked",
    }
    assert (record_of(result).status, result.exit_code) == ("failed", 1)
    columns = ["id", "score", "before", "still", *(["after"] if keep_going else [])]
    assert read_file(tmp_path, id_of(result), "scores").columns == columns
    assert step_of(result, "after").attempt == (1 if keep_going else 0)


async def test_no_signal_handler_is_installed(tmp_path: Path) -> None:
    seen: list[object] = []
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def look(_ctx: StepContext, _files: StepFiles) -> None:
        seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    pipeline = make_pipeline(lambda p: p.add_step("look", look, Scores))
    result = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert result.status == "completed"
    assert seen == before


async def test_events_of_a_run_are_numbered_without_gaps(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    for number in range(20):
        pipeline.add_step(f"s{number}", do_nothing, Scores(readonly=True))
    result = await ingest_and_run(pipeline, SCORES, tmp_path, jobs=8)
    events = journal_of(tmp_path, id_of(result))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert kinds(events).count("StepStarted") == kinds(events).count("StepFinished") == 20
    starts = [event.step_id for event in events if isinstance(event, StepStarted)]
    assert starts == [f"s{number}" for number in range(20)]
