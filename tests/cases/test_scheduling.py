"""Cases 23 to 30: who runs beside whom, who waits, and what a misbehaving step may not do to the others."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from textwrap import dedent
from types import FrameType
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import polars as pl
import pytest

from astro_async import (
    AstroFileSpec,
    Pipeline,
    RunResult,
    StepContext,
    StepFiles,
    expect,
    load_pipeline,
    run,
)
from astro_async._core.commands import StartStep
from astro_async._core.events import RunPlanned, StepFinished, StepStarted
from astro_async._core.graph import Graph, StepNode
from astro_async._core.names import RunId, StepId
from astro_async._core.records import RunRecord, fold
from astro_async._core.reducer import Scheduler
from astro_async._core.status import RunStatus, StepStatus
from astro_async._executor.coordinator import Coordinator
from astro_async._executor.invocation import Services
from astro_async.exceptions import PipelineError
from astro_async.testing import Gate, ingest_frames, read_file
from cases.support import (
    Report,
    Scores,
    VolatileDisk,
    attempts,
    detail_of,
    flow_of,
    id_of,
    ingest_and_run,
    journal_of,
    kinds,
    make_pipeline,
    quarantined,
    record_of,
    run_directory,
    statuses,
)

pytestmark = pytest.mark.anyio

SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [10, -20, 30]})

NOT_NEGATIVE = expect("negative", pl.col("score") >= 0)


def add_column(name: str) -> Callable[[StepContext, StepFiles], None]:
    """Return a step that adds a column to its first file."""

    def add(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(files[0].load().with_columns(pl.lit(1).alias(name)))

    return add


@asynccontextmanager
async def running(
    pipeline: Pipeline, pipeline_dir: Path, run_id: str, **options: Any
) -> AsyncIterator[list[RunResult]]:
    """Run beside the test; the list holds the result once the block has ended."""
    results: list[RunResult] = []

    async def go() -> None:
        results.append(await run(pipeline, pipeline_dir=pipeline_dir, run_id=run_id, **options))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(go)
            yield results


@pytest.mark.parametrize("jobs", [1, 8])
async def test_23_diamond(jobs: int, tmp_path: Path) -> None:
    def join(_ctx: StepContext, files: StepFiles) -> None:
        raise AssertionError("the join of the diamond ran")

    names = ("scores", "report")
    pipeline = make_pipeline(files=names)
    pipeline.add_step("top", add_column("top"), Scores)
    pipeline.add_check("left", NOT_NEGATIVE, Scores, depends_on="top")
    pipeline.add_step("right", add_column("right"), Report, depends_on="top")
    pipeline.add_step("join", join, [Scores, Report], depends_on=["left", "right"])
    pipeline.add_step("behind", join, [Scores])
    result = await ingest_and_run(pipeline, {"scores": SCORES, "report": SCORES}, tmp_path, jobs=jobs)
    assert statuses(result) == {
        "top": "complete",
        "left": "quarantined",
        "right": "complete",
        "join": "blocked",
        "behind": "pending",
    }
    assert (record_of(result).status, result.exit_code) == ("failed", 3)
    assert "left" in detail_of(result, "join")
    assert attempts(result)["join"] == attempts(result)["behind"] == 0
    assert read_file(tmp_path, id_of(result), "report").columns == ["id", "score", "right"]
    assert read_file(tmp_path, id_of(result), "scores").rows() == [(1, 10, 1), (3, 30, 1)]
    assert quarantined(tmp_path, id_of(result), "left", "id") == [(2, "negative")]


@pytest.mark.parametrize("jobs", [1, 8])
async def test_24_one_file_keeps_serial_order(jobs: int, tmp_path: Path) -> None:
    def append(number: int, _ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place_lazy(files[0].scan().with_columns(pl.col("order") + str(number)))

    async def append_async(number: int, _ctx: StepContext, files: StepFiles) -> None:
        rows = await files[0].aload()
        await files[0].asave_in_place(rows.with_columns(pl.col("order") + str(number)))

    pipeline = make_pipeline()
    for number in range(10):
        if number % 3 == 1:
            step: Callable[..., Any] = functools.partial(append_async, number)
        else:
            step = functools.partial(append, number)
        pipeline.add_step(f"append {number}", step, Scores)
    frame = pl.DataFrame({"order": ["", "x"]})
    result = await ingest_and_run(pipeline, frame, tmp_path, jobs=jobs)
    assert result.status == "completed"
    assert read_file(tmp_path, id_of(result), "scores")["order"].to_list() == ["0123456789", "x0123456789"]
    read = [flow_of(result, f"append-{number}").read for number in range(1, 10)]
    assert read == [f"versions/scores/append-{number}.1.parquet" for number in range(9)]


async def test_25_readers_overlap(tmp_path: Path) -> None:
    with Gate() as gate:

        def look(_ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            assert files[0].load().equals(SCORES)

        async def look_async(_ctx: StepContext, files: StepFiles) -> None:
            await gate.ahold()
            assert (await files[0].aload()).equals(SCORES)

        pipeline = make_pipeline()
        for number in range(10):
            pipeline.add_step(f"look {number}", look_async if number % 2 else look, Scores(readonly=True))
        # Versions never change, so a writer need not wait for the readers before it.
        pipeline.add_step("write", add_column("new"), Scores)
        pipeline.add_step("after", add_column("newer"), Scores)
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with running(pipeline, tmp_path, run_id, jobs=12) as results:
            await gate.arrived(10)
            gate.open()
    assert set(statuses(results[0]).values()) == {"complete"}
    assert read_file(tmp_path, run_id, "scores").columns == ["id", "score", "new", "newer"]


async def test_25_writers_go_on_while_readers_read(tmp_path: Path) -> None:
    with Gate() as reading, Gate() as written:
        seen: list[pl.DataFrame] = []

        def look(_ctx: StepContext, files: StepFiles) -> None:
            plan = files[0].scan()
            reading.hold()
            seen.append(plan.collect())

        def tell(_ctx: StepContext, _files: StepFiles) -> None:
            written.hold()

        pipeline = make_pipeline()
        pipeline.add_step("look", look, Scores(readonly=True))
        pipeline.add_step("write", add_column("new"), Scores)
        pipeline.add_step("tell", tell, Scores)
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path)
        async with running(pipeline, tmp_path, run_id, jobs=2) as results:
            await written.arrived()
            # The file has been written twice over; the plan made before still gives what was read.
            reading.open()
            written.open()
    assert results[0].status == "completed"
    assert len(seen) == 1
    assert seen[0].equals(SCORES)


# -- 26: whatever step code raises -----------------------------------------------------------------


def exit_plainly(_ctx: StepContext, _files: StepFiles) -> None:
    sys.exit(3)


async def exit_async(_ctx: StepContext, _files: StepFiles) -> None:
    await anyio.lowlevel.checkpoint()
    sys.exit(3)


def interrupt(_ctx: StepContext, _files: StepFiles) -> None:
    raise KeyboardInterrupt


async def interrupt_async(_ctx: StepContext, _files: StepFiles) -> None:
    await anyio.lowlevel.checkpoint()
    raise KeyboardInterrupt


def cancelled(_ctx: StepContext, _files: StepFiles) -> None:
    raise asyncio.CancelledError("foreign")


async def cancelled_async(_ctx: StepContext, _files: StepFiles) -> None:
    raise asyncio.CancelledError("foreign")


async def cancelled_future(_ctx: StepContext, _files: StepFiles) -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    future.cancel()
    future.result()


async def generator_exit(_ctx: StepContext, _files: StepFiles) -> None:
    raise GeneratorExit


class Own(BaseException):
    """No exception that anybody expects."""


def own(_ctx: StepContext, _files: StepFiles) -> None:
    raise Own("of its own")


def stop_iteration(_ctx: StepContext, _files: StepFiles) -> None:
    raise StopIteration


async def group_of_errors(_ctx: StepContext, _files: StepFiles) -> None:
    async def fail() -> None:
        raise Own("of a task")

    async with anyio.create_task_group() as group:
        group.start_soon(fail)
        group.start_soon(fail)


MISBEHAVIOURS: list[tuple[Callable[..., Any], str]] = [
    (exit_plainly, "SystemExit: 3"),
    (exit_async, "SystemExit: 3"),
    (interrupt, "KeyboardInterrupt"),
    (interrupt_async, "KeyboardInterrupt"),
    (cancelled, "CancelledError: foreign"),
    (cancelled_async, "CancelledError: foreign"),
    (cancelled_future, "CancelledError"),
    (generator_exit, "GeneratorExit"),
    (own, "Own: of its own"),
    (stop_iteration, "StopIteration"),
]


async def assert_only_it_failed(
    misbehave: Callable[..., Any], words: str, pipeline_dir: Path, *, keep_going: bool
) -> None:
    with Gate() as gate:

        def slow(_ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            files[0].save_in_place(files[0].load().with_columns(slow=1))

        async def slow_async(_ctx: StepContext, files: StepFiles) -> None:
            await gate.ahold()
            await files[0].asave_in_place((await files[0].aload()).with_columns(slow=2))

        async def fail(ctx: StepContext, files: StepFiles) -> None:
            await gate.arrived(2)
            await misbehave(ctx, files)

        def fail_in_thread(ctx: StepContext, files: StepFiles) -> None:
            anyio.from_thread.run(gate.arrived, 2)
            misbehave(ctx, files)

        def open_gate(event: object) -> None:
            if isinstance(event, StepFinished) and event.step_id == "fail":
                gate.open()

        pipeline = make_pipeline(files=("scores", "report", "third"))
        pipeline.add_step("slow", slow, Scores)
        pipeline.add_step("slow async", slow_async, Report)
        pipeline.add_step("fail", fail if asyncio.iscoroutinefunction(misbehave) else fail_in_thread)
        pipeline.add_step("dependent", add_column("no"), Scores, depends_on="fail")
        pipeline.add_step("independent", add_column("new"), Scores)
        names = ("scores", "report", "third")
        result = await ingest_and_run(
            pipeline,
            dict.fromkeys(names, SCORES),
            pipeline_dir,
            jobs=4,
            keep_going=keep_going,
            subscribers=[open_gate],
        )
    assert statuses(result) == {
        "slow": "complete",
        "slow-async": "complete",
        "fail": "failed",
        "dependent": "blocked",
        "independent": "complete" if keep_going else "pending",
    }
    assert (record_of(result).status, result.exit_code) == ("failed", 1)
    assert words in detail_of(result, "fail")
    assert read_file(pipeline_dir, id_of(result), "scores")["slow"].to_list() == [1, 1, 1]
    assert read_file(pipeline_dir, id_of(result), "report")["slow"].to_list() == [2, 2, 2]
    assert ("new" in read_file(pipeline_dir, id_of(result), "scores")) is keep_going
    log = (run_directory(pipeline_dir, id_of(result)) / "astro.log").read_text()
    assert "[fail] attempt 1" in log


@pytest.mark.parametrize(
    ("misbehave", "words"), MISBEHAVIOURS, ids=lambda value: getattr(value, "__name__", "")
)
async def test_26_whatever_a_step_raises(misbehave: Callable[..., Any], words: str, tmp_path: Path) -> None:
    await assert_only_it_failed(misbehave, words, tmp_path, keep_going=False)


@pytest.mark.parametrize("misbehave", [exit_plainly, interrupt_async, cancelled_async])
async def test_26_with_keep_going(misbehave: Callable[..., Any], tmp_path: Path) -> None:
    await assert_only_it_failed(misbehave, "", tmp_path, keep_going=True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("way", ["task", "itself"])
async def test_26_foreign_cancellation_of_asyncio(way: str, tmp_path: Path) -> None:
    async def cancel(_ctx: StepContext, _files: StepFiles) -> None:
        if way == "task":
            task = asyncio.ensure_future(asyncio.Event().wait())
            task.cancel()
            await task
        else:
            this = asyncio.current_task()
            assert this is not None
            this.cancel()
            await asyncio.Event().wait()

    await assert_only_it_failed(cancel, "CancelledError", tmp_path, keep_going=False)


async def test_26_a_group_of_errors_is_told_in_one_line(tmp_path: Path) -> None:
    await assert_only_it_failed(group_of_errors, "Group", tmp_path, keep_going=False)


async def test_26_a_step_may_cancel_scopes_of_its_own(tmp_path: Path) -> None:
    async def cancel(_ctx: StepContext, files: StepFiles) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        await files[0].asave_in_place(SCORES.reverse())

    pipeline = make_pipeline(lambda p: p.add_step("cancel", cancel, Scores))
    result = await ingest_and_run(pipeline, SCORES, tmp_path)
    assert statuses(result) == {"cancel": "complete"}
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES.reverse())


# -- 27: many edges --------------------------------------------------------------------------------


def fan_in(parents: int) -> tuple[Scheduler, RunRecord]:
    """Make a scheduler of many parents and one child that depends on all of them."""
    ids = [StepId(f"p{number}") for number in range(parents)]
    child = StepNode(StepId("child"), depends_on=tuple(ids))
    graph = Graph([*(StepNode(step_id) for step_id in ids), child])
    record = RunRecord(RunId("abcde"), "p", RunStatus.INGESTED, "/", "2026-01-01", {}, "t", "t")
    again = {"new": [str(node.step_id) for node in graph.nodes]}
    fold(record, RunPlanned(seq=1, time="t", run_id="abcde", again=again, params={}, jobs=1, pid=1, host="h"))
    return Scheduler(graph, record, jobs=1), record


def settle_all(scheduler: Scheduler, record: RunRecord, order: list[str]) -> None:
    """Run the steps one after the other, and note their ids in the order of their starts."""
    while starts := scheduler.take_starts():
        for start in starts:
            assert isinstance(start, StartStep)
            step_id = scheduler.record(start.position).step_id
            order.append(step_id)
            seq = record.seq + 1
            scheduler.reduce(StepStarted(seq=seq, time="t", run_id="abcde", step_id=step_id))
            done = StepFinished(
                seq=seq + 1,
                time="t",
                run_id="abcde",
                step_id=step_id,
                status=StepStatus.COMPLETE,
                duration_ms=0.0,
            )
            scheduler.reduce(done)


def count_calls(call: Callable[[], object]) -> int:
    """Return how many Python functions a call enters: work, without a clock."""
    entered = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_27_work_is_linear_in_edges() -> None:
    calls: list[int] = []
    for parents in (500, 1_000, 10_000):
        scheduler, record = fan_in(parents)
        order: list[str] = []
        calls.append(count_calls(functools.partial(settle_all, scheduler, record, order)))
        assert order == [*(f"p{number}" for number in range(parents)), "child"]
    # One decrement per edge: twice and twenty times the edges, twice and twenty times the work.
    assert calls[1] <= calls[0] * 2 * 1.01
    assert calls[2] <= calls[0] * 20 * 1.01


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_27_ten_thousand_parents_and_one_child(tmp_path: Path) -> None:
    ran: list[int] = []

    def parent(number: int, _ctx: StepContext, _files: StepFiles) -> None:
        ran.append(number)

    def child(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(pl.DataFrame({"parents": [len(ran)]}))

    pipeline = make_pipeline()
    for number in range(10_000):
        pipeline.add_step(f"p{number}", functools.partial(parent, number))
    pipeline.add_step("child", child, Scores, depends_on=[f"p{number}" for number in range(10_000)])
    services = Services(disk=VolatileDisk())
    result = await ingest_and_run(pipeline, SCORES, tmp_path, jobs=8, services=services)
    assert result.status == "completed"
    assert sorted(ran) == list(range(10_000))
    assert read_file(tmp_path, id_of(result), "scores")["parents"].to_list() == [10_000]


# -- 28: pipelines that make no sense --------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("add('a', depends_on='b'); add('b')", ("'a'", "'b'", "registered after")),
        ("add('a'); add('b', depends_on='nope')", ("'b'", "'nope'")),
        ("add('a', depends_on='a')", ("'a'", "itself")),
        ("add('a'); add('a')", ("'a'", "twice")),
        ("add('A', step_id='x'); add('B', step_id='x')", ("'x'", "twice")),
        ("add('Load', step_id='load'); add('x', step_id='LOAD')", ("'load'", "'LOAD'", "case")),
        ("add('a', depends_on=fn)", ("'a'", "fn", "not an earlier step")),
        ("add('a'); add('b'); add('c', depends_on=fn)", ("'c'", "'a'", "'b'")),
        ("add('ingest')", ("'ingest'", "reserved")),
        ("add('---')", ("'---'",)),
        ("add('x', step_id='../x')", ("'../x'",)),
        ("add('a', files=[AstroFileSpec('nope')])", ("'a'", "'nope'", "'scores'")),
        ("add('a', files=[AstroFileSpec('scores')] * 2)", ("'a'", "twice")),
        ("add('a', limits='db')", ("'a'", "'db'")),
        ("add('a', timeout=0)", ("'a'", "timeout")),
        ("add('a', engine='cluster')", ("'a'", "engine")),
        ("pipeline.add_step('a', 'not callable')", ("'a'", "function")),
        ("raise LookupError('broken')", ("LookupError", "broken")),
        ("del pipeline", ("pipeline",)),
        ("syntax error", ("SyntaxError",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_28_errors_at_load(steps: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(
        dedent(
            f"""
            from astro_async import AstroFileSpec, IngestFileSpec, Pipeline
            pipeline = Pipeline("p", ingest_files=[IngestFileSpec("scores", "*.csv")])

            def fn(ctx, files): ...

            def add(label, files=(), **options):
                pipeline.add_step(label, fn, files, **options)

            {steps}
            """
        )
    )
    with pytest.raises(PipelineError) as caught:
        load_pipeline(tmp_path)
    assert caught.value.exit_code == 2
    for word in (*words, str(tmp_path / "pipeline.py")):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("scores", "Scores"), "differ only by case"),
        (("scores", "scores"), "twice"),
        (("a/b",), "not usable"),
        (("..",), "not usable"),
        ((), "no ingest_files"),
    ],
    ids=str,
)
def test_28_ingest_names_that_make_no_sense(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        make_pipeline(files=names).graph()


def test_28_there_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no pipeline\.py"):
        load_pipeline(tmp_path)


# -- 29: limiters ----------------------------------------------------------------------------------


async def test_29_a_step_that_uses_threads_of_its_own_and_the_default_limiter(tmp_path: Path) -> None:
    limiter = anyio.to_thread.current_default_thread_limiter()
    room, limiter.total_tokens = limiter.total_tokens, 1
    try:

        def threads(ctx: StepContext, files: StepFiles) -> None:
            def set_aside(number: int) -> None:
                ctx.quarantine.quarantine_row(files[0], {"id": number, "score": 0}, reason="mine")

            own = [threading.Thread(target=set_aside, args=(number,)) for number in range(4)]
            for thread in own:
                thread.start()
            # A worker thread that asks for another worker thread: a deadlock if it held the only token.
            loaded = anyio.from_thread.run(anyio.to_thread.run_sync, files[0].load)
            for thread in own:
                thread.join()
            files[0].save_in_place(loaded)

        async def tasks(_ctx: StepContext, files: StepFiles) -> None:
            seen: list[int] = []

            async def look() -> None:
                seen.append(await anyio.to_thread.run_sync(files[0].row_count))
                seen.append((await files[0].aload()).height)

            async with anyio.create_task_group() as group:
                for _ in range(60):
                    group.start_soon(look)
            await files[0].asave_in_place(pl.DataFrame({"seen": [sum(seen)]}))

        pipeline = make_pipeline()
        pipeline.add_step("threads", threads, Scores, on_quarantine="continue")
        pipeline.add_step("tasks", tasks, Scores, depends_on="threads")
        with anyio.fail_after(30):
            result = await ingest_and_run(pipeline, SCORES, tmp_path, jobs=1)
    finally:
        limiter.total_tokens = room
    assert statuses(result) == {"threads": "quarantined", "tasks": "complete"}
    assert sorted(quarantined(tmp_path, id_of(result), "threads", "id")) == [(n, "mine") for n in range(4)]
    assert read_file(tmp_path, id_of(result), "scores")["seen"].to_list() == [2 * 60 * 3]


async def test_29_a_dawdling_subscriber_holds_nobody_up(tmp_path: Path) -> None:
    """Whoever takes anyio's default limiter for himself has steps and run go on without it."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    room, limiter.total_tokens = limiter.total_tokens, 1
    try:
        with Gate(timeout_s=10) as gate:
            told: list[object] = []

            def dawdle(event: object) -> None:
                gate.hold()
                told.append(event)

            async def work(_ctx: StepContext, files: StepFiles) -> None:
                await gate.arrived()
                await files[0].asave_in_place((await files[0].aload()).reverse())

            def release(_ctx: StepContext, files: StepFiles) -> None:
                gate.open()

            pipeline = make_pipeline()
            pipeline.add_step("work", work, Scores)
            pipeline.add_step("release", release, Scores)
            with anyio.fail_after(10):
                result = await ingest_and_run(pipeline, SCORES, tmp_path, jobs=1, subscribers=[dawdle])
    finally:
        limiter.total_tokens = room
    assert statuses(result) == {"work": "complete", "release": "complete"}
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES.reverse())
    # It was slow, and yet was told everything.
    assert kinds(told) == kinds(journal_of(tmp_path, id_of(result)))[3:]  # type: ignore[arg-type]


# -- 30: blocking the loop -------------------------------------------------------------------------


class Alarm(logging.Handler):
    """Rings when a warning comes that contains certain words."""

    def __init__(self, words: str) -> None:
        super().__init__(logging.WARNING)
        self.rung = threading.Event()
        self._words = words

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record."""
        if self._words in record.getMessage():
            self.rung.set()


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    """Listen to the package's logger for a warning that names the step `block`."""
    handler = Alarm("[block]")
    logger = logging.getLogger("astro_async")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_30_an_async_step_that_blocks_the_loop_is_named(tmp_path: Path, alarm: Alarm) -> None:
    with Gate() as gate:

        async def block(_ctx: StepContext, _files: StepFiles) -> None:
            await gate.arrived(2)
            # Holds the loop, as time.sleep would, until somebody complains.
            assert alarm.rung.wait(30)
            gate.open()

        async def work(_ctx: StepContext, files: StepFiles) -> None:
            await gate.ahold()
            await files[0].asave_in_place(SCORES.reverse())

        def work_in_thread(_ctx: StepContext, files: StepFiles) -> None:
            gate.hold()
            files[0].save_in_place(SCORES.head(1))

        pipeline = make_pipeline(files=("scores", "report"))
        pipeline.add_step("work", work, Scores)
        pipeline.add_step("work in thread", work_in_thread, Report)
        pipeline.add_step("block", block)
        result = await ingest_and_run(pipeline, {"scores": SCORES, "report": SCORES}, tmp_path, jobs=3)
    assert result.status == "completed"
    assert read_file(tmp_path, id_of(result), "scores").equals(SCORES.reverse())
    assert read_file(tmp_path, id_of(result), "report").equals(SCORES.head(1))
    log = (run_directory(tmp_path, id_of(result)) / "astro.log").read_text()
    assert "WARNING [block] blocks the event loop" in log


async def test_25_a_result_of_many_steps_is_told_in_a_line(tmp_path: Path) -> None:
    # asyncio.run asks for the repr of what it returns, twice.
    pipeline = make_pipeline()
    for number in range(200):
        pipeline.add_step(f"step {number}", lambda ctx, files: None)
    result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path)
    assert repr(result) == (
        f"RunResult(run_id={result.run_id!r}, status={result.status!r}, notices=(), hung=(), waiting=())"
    )


# -- who settles a step ----------------------------------------------------------------------------


async def test_a_chain_of_plain_steps_hardly_wakes_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: Counter[bool] = Counter()
    move = Coordinator._move

    def count(self: Coordinator) -> None:
        turns[threading.current_thread() is threading.main_thread()] += 1
        move(self)

    monkeypatch.setattr(Coordinator, "_move", count)
    ran: list[int] = []
    pipeline = make_pipeline()
    for number in range(300):
        pipeline.add_step(
            f"step {number}",
            lambda ctx, files, number=number: ran.append(number),
            depends_on=[f"step-{number - 1}"] if number else [],
        )
    result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path)
    assert result.status == "completed"
    assert ran == list(range(300))
    # The thread that ends a step settles it and takes the next; the loop begins and ends the run.
    assert turns[False] >= 250
    assert turns[False] + turns[True] >= 300


async def test_an_error_of_ours_in_the_turn_of_a_thread_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_messages = Coordinator._take_messages

    def fail(self: Coordinator) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise LookupError("broken")
        take_messages(self)

    monkeypatch.setattr(Coordinator, "_take_messages", fail)
    pipeline = make_pipeline()
    pipeline.add_step("work", lambda ctx, files: None)
    with pytest.raises(BaseExceptionGroup) as caught:
        await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path)
    assert caught.group_contains(LookupError, match="broken")


async def test_async_steps_that_never_wait_leave_the_loop_to_others(tmp_path: Path) -> None:
    ran: list[int] = []
    seen: list[int] = []

    async def work(_ctx: StepContext, _files: StepFiles) -> None:
        ran.append(len(ran))

    async def look() -> None:
        while True:
            seen.append(len(ran))
            await anyio.lowlevel.checkpoint()

    pipeline = make_pipeline()
    for number in range(6000):
        pipeline.add_step(f"step {number}", work)
    async with anyio.create_task_group() as group:
        group.start_soon(look)
        result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path, jobs=4)
        group.cancel_scope.cancel()
    assert result.status == "completed"
    assert ran == list(range(6000))
    # Another task of the loop came to its turn while they ran, more than once.
    assert len({count for count in seen if 0 < count < 6000}) >= 3


async def test_steps_of_all_kinds_together_are_no_more_than_jobs(tmp_path: Path) -> None:
    running: set[int] = set()
    most: list[int] = []
    ran: list[int] = []
    lock = threading.Lock()

    def enter(number: int) -> None:
        with lock:
            running.add(number)
            most.append(len(running))

    def leave(number: int) -> None:
        with lock:
            running.discard(number)
            ran.append(number)

    def plain(_ctx: StepContext, _files: StepFiles, number: int) -> None:
        enter(number)
        time.sleep(0)
        leave(number)

    async def awaited(_ctx: StepContext, _files: StepFiles, number: int) -> None:
        enter(number)
        await anyio.lowlevel.checkpoint()
        leave(number)

    pipeline = make_pipeline()
    for number in range(600):
        step = functools.partial(plain if number % 150 < 75 else awaited, number=number)
        pipeline.add_step(f"step {number}", step)
    result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path, jobs=3)
    assert result.status == "completed"
    assert sorted(ran) == list(range(600))
    assert max(most) <= 3


async def test_numbers_of_steps_are_kept_while_the_run_goes_on(tmp_path: Path) -> None:
    query = "SELECT subject, count(*) FROM statistics WHERE scope = 'step' GROUP BY subject"
    seen: list[int] = []

    def load() -> dict[str, int]:
        with closing(sqlite3.connect(tmp_path / ".astro" / "stats.db")) as database:
            return dict(database.execute(query))

    def look(_ctx: StepContext, _files: StepFiles) -> None:
        # The steps before it are over; a checkpoint alone would come a second after they began.
        until = time.monotonic() + 20
        while not seen or (seen[-1] < 1000 and time.monotonic() < until):
            seen.append(len(load()))
            time.sleep(0.01)

    pipeline = make_pipeline()
    for number in range(1500):
        pipeline.add_step(f"step {number}", lambda _ctx, _files: None, AstroFileSpec("scores", readonly=True))
    pipeline.add_step("look", look, depends_on="step-1499")
    result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path, jobs=4)
    assert result.status == "completed"
    assert seen[-1] >= 1000
    assert load() == {**{f"step-{number}": 2 for number in range(1500)}, "look": 1}


@pytest.mark.parametrize("steps", [999, 1000, 1001, 1999, 2500])
async def test_numbers_are_complete_wherever_the_run_ends(steps: int, tmp_path: Path) -> None:
    # The thread that keeps them is about to begin then, busy, or done with what there was.
    pipeline = make_pipeline()
    for number in range(steps):
        pipeline.add_step(f"step {number}", lambda _ctx, _files: None)
    result = await ingest_and_run(pipeline, {"scores": SCORES}, tmp_path, jobs=4)
    assert result.status == "completed"
    with closing(sqlite3.connect(tmp_path / ".astro" / "stats.db")) as database:
        rows = database.execute("SELECT subject, action FROM statistics WHERE scope = 'step'").fetchall()
    assert sorted(rows) == sorted((f"step-{number}", "duration_ms") for number in range(steps))


@pytest.mark.parametrize(
    "record",
    [
        lambda stats: stats.record(3, 1),
        lambda stats: stats.record("rows", 1, subject=7),
        lambda stats: stats.record("rows", 1, scope="step ", subject="a"),
        lambda stats: stats.record("rows", float("nan")),
    ],
    ids=["an action", "a subject", "a scope", "a number"],
)
async def test_a_statistic_that_is_none_fails_its_step_and_not_the_run(
    record: Callable[[Any], None], tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    pipeline.add_step("bad", lambda ctx, _files: record(ctx.stats))
    pipeline.add_step("good", lambda ctx, _files: ctx.stats.record("rows", 1))
    result = await ingest_and_run(pipeline, SCORES, tmp_path, keep_going=True)
    assert statuses(result) == {"bad": "failed", "good": "complete"}
