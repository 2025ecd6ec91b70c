"""Steps and folders that are not what they seem: what they cost, and what they must not."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, Retry, expect, load_pipeline
from astro_async.context import StepContext
from astro_async.exceptions import JournalError, PipelineError
from astro_async.files import StepFiles
from astro_async.testing import ingest_frames, read_file, read_quarantine

pytestmark = pytest.mark.anyio

FRAME = pl.DataFrame({"id": ["1", "2"]})


def make_pipeline() -> Pipeline:
    return Pipeline("p", ingest_files=[IngestFileSpec("a", "a.csv"), IngestFileSpec("b", "b.csv")])


async def go(pipeline: Pipeline, directory: Path, **options: Any) -> astro_async.RunResult:
    run_id = await ingest_frames(pipeline, {"a": FRAME, "b": FRAME}, directory)
    return await astro_async.run(pipeline, pipeline_dir=directory, run_id=run_id, **options)


async def test_a_step_whose_work_nobody_awaits_is_no_success(tmp_path: Path) -> None:
    async def work(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_in_place(FRAME.head(1))

    @functools.wraps(work)
    def wrapped(*args: Any) -> Any:
        return work(*args[:2])

    def generates(_ctx: StepContext, files: StepFiles) -> Iterator[None]:
        files[0].save_in_place(FRAME.head(1))
        yield

    pipeline = make_pipeline()
    pipeline.add_step("wrapped", lambda ctx, files: wrapped(ctx, files, "more"), AstroFileSpec("a"))
    pipeline.add_step("generates", generates, AstroFileSpec("b"))
    result = await go(pipeline, tmp_path, keep_going=True)
    assert result.record is not None
    details = {step.step_id: step.detail or "" for step in result.record.steps.values()}
    assert result.exit_code == 1
    assert "returned a coroutine, whose code nobody has run" in details["wrapped"]
    assert "returned a generator" in details["generates"]
    assert read_file(tmp_path, str(result.run_id), "a").equals(FRAME)


class Loaded:
    """Stands for a large frame."""


async def test_what_a_failed_async_step_had_loaded_is_free_at_once(tmp_path: Path) -> None:
    loaded: list[weakref.ref[Loaded]] = []

    async def fail(_ctx: StepContext, _files: StepFiles) -> None:
        large = Loaded()
        loaded.append(weakref.ref(large))
        raise ValueError("no")

    pipeline = make_pipeline()
    pipeline.add_step("fail", fail, AstroFileSpec("a"))
    gc.disable()
    try:
        await go(pipeline, tmp_path)
    finally:
        gc.enable()
    assert [each() for each in loaded] == [None]


async def test_a_returned_frame_is_no_save(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    pipeline.add_step("returns", lambda ctx, files: files[0].load(), AstroFileSpec("a"))
    result = await go(pipeline, tmp_path)
    assert result.record is not None
    assert "returned a DataFrame, which goes nowhere" in (result.record.steps["returns"].detail or "")


async def test_rows_that_are_parked_and_kept_are_told(tmp_path: Path) -> None:
    def work(ctx: StepContext, files: StepFiles) -> None:
        ctx.quarantine.quarantine_rows(files[0], files[0].load().head(1), reason="odd")

    pipeline = make_pipeline()
    pipeline.add_step("work", work, AstroFileSpec("a"))
    result = await go(pipeline, tmp_path)
    assert result.record is not None
    detail = result.record.steps["work"].detail or ""
    assert detail.startswith("1 of 2 rows of 'a' quarantined, and 1 more kept and quarantined than came in")


async def test_a_failure_says_where(tmp_path: Path) -> None:
    def work(_ctx: StepContext, _files: StepFiles) -> None:
        raise ValueError("no")

    pipeline = make_pipeline()
    pipeline.add_step("work", work, AstroFileSpec("a"))
    result = await go(pipeline, tmp_path)
    assert result.record is not None
    detail = result.record.steps["work"].detail or ""
    assert detail.startswith("ValueError: no (test_misbehaviour.py, line ")


async def test_a_reserved_column_is_refused_at_the_save(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    pipeline.add_step(
        "save", lambda ctx, files: files[0].save_in_place(FRAME.with_columns(_astro_x=1)), AstroFileSpec("a")
    )
    result = await go(pipeline, tmp_path)
    assert result.record is not None
    assert "'_astro_x'" in (result.record.steps["save"].detail or "")
    assert read_file(tmp_path, str(result.run_id), "a").equals(FRAME)


async def test_a_file_that_the_run_lacks_is_not_taken_for_an_optional_one(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    pipeline.add_check("check", expect("no", pl.col("id") != "1"), AstroFileSpec("a"))
    result = await go(pipeline, tmp_path)
    renamed = Pipeline("p", ingest_files=[IngestFileSpec("z", "z.csv"), IngestFileSpec("b", "b.csv")])
    renamed.add_check("check", expect("no", pl.col("id") != "1"), AstroFileSpec("z"))
    with pytest.raises(
        PipelineError, match=r"the run has no file 'z', which is not optional; it has 'a', 'b'"
    ):
        await astro_async.run(renamed, pipeline_dir=tmp_path, run_id=result.run_id)
    assert read_quarantine(tmp_path, str(result.run_id), "check", "a")["id"].to_list() == ["1"]


def test_a_decorator_without_parentheses_drops_no_step() -> None:
    pipeline = make_pipeline()
    with pytest.raises(PipelineError, match="needs parentheses"):

        @pipeline.step  # type: ignore[arg-type]
        def work(ctx: StepContext, files: StepFiles) -> None: ...

    @pipeline.step([AstroFileSpec("a"), AstroFileSpec("b")])  # type: ignore[arg-type]
    def both(ctx: StepContext, files: StepFiles) -> None: ...

    assert [step.file_names for step in pipeline.steps] == [("a", "b")]


async def test_a_run_that_cannot_be_read_is_not_nothing_to_do(tmp_path: Path) -> None:
    pipeline = make_pipeline()
    result = await go(pipeline, tmp_path)
    run = tmp_path / ".working" / str(result.run_id)
    (run / "manifest.json").write_bytes(b"")
    (run / "events.jsonl").write_bytes(b"garbage\n")
    with pytest.raises(JournalError, match=f"run {result.run_id} cannot be read"):
        await astro_async.run(pipeline, pipeline_dir=tmp_path)


async def test_a_rerun_removes_nothing_through_a_symlink(tmp_path: Path) -> None:
    def save(_ctx: StepContext, files: StepFiles) -> None:
        files[0].save_to("processed", "x.parquet", files[0].load())

    pipeline = make_pipeline()
    pipeline.add_step("save", save, AstroFileSpec("a"))
    result = await go(pipeline, tmp_path / "p")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "x.parquet").write_text("precious")
    processed = tmp_path / "p" / ".working" / str(result.run_id) / "processed"
    (processed / "x.parquet").unlink()
    processed.rmdir()
    processed.symlink_to(foreign)
    with pytest.raises(astro_async.AstroError, match="symbolic link"):
        await astro_async.run(pipeline, pipeline_dir=tmp_path / "p", run_id=result.run_id, rerun=["save"])
    assert (foreign / "x.parquet").read_text() == "precious"


async def test_a_failed_publication_leaves_no_names_behind(tmp_path: Path) -> None:
    def save(_ctx: StepContext, files: StepFiles) -> None:
        files["a"].save_to("processed", "a.parquet", files["a"].load())
        files["b"].save_to("elsewhere", "b.parquet", files["b"].load())

    pipeline = make_pipeline()
    pipeline.add_step("save", save, [AstroFileSpec("a"), AstroFileSpec("b")])
    run_id = await ingest_frames(pipeline, {"a": FRAME, "b": FRAME}, tmp_path)
    run = tmp_path / ".working" / run_id
    (run / "elsewhere").symlink_to(tmp_path)
    result = await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=run_id)
    assert result.exit_code == 1
    assert not (run / "processed" / "a.parquet").exists()
    assert not (tmp_path / "b.parquet").exists()
    assert list((run / "versions").rglob("*.parquet")) == []


async def test_a_name_is_not_a_file_and_a_folder(tmp_path: Path) -> None:
    def save(_ctx: StepContext, files: StepFiles) -> None:
        files["a"].save_to("out", "x", files["a"].load())
        files["b"].save_to("out/x", "y", files["b"].load())

    pipeline = make_pipeline()
    pipeline.add_step("save", save, [AstroFileSpec("a"), AstroFileSpec("b")])
    result = await go(pipeline, tmp_path)
    assert result.record is not None
    assert "'out/x' is saved too" in (result.record.steps["save"].detail or "")


async def test_a_first_run_sees_its_params_as_a_retry_does(tmp_path: Path) -> None:
    seen: list[object] = []
    pipeline = make_pipeline()
    pipeline.add_step("look", lambda ctx, files: seen.append(dict(ctx.params)), AstroFileSpec("a"))
    result = await go(pipeline, tmp_path, params={"pair": (1, 2)})
    await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=result.run_id, rerun=["look"])
    assert seen == [{"pair": [1, 2]}, {"pair": [1, 2]}]
    with pytest.raises(PipelineError, match="names of params are text"):
        await astro_async.run(pipeline, pipeline_dir=tmp_path, run_id=result.run_id, params={1: 2})  # type: ignore[dict-item]


def test_long_back_offs_stay_finite() -> None:
    assert Retry(2000, delay_s=1.0).delay_before(1500) == 300.0
    with pytest.raises(PipelineError, match="0 or more"):
        make_pipeline().add_step("s", print, AstroFileSpec("a"), retries=Retry(1, delay_s=-1.0))


def test_each_pipeline_has_its_own_neighbours(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rules.py").write_text(f"NAME = {name!r}\n")
        (folder / "pipeline.py").write_text(
            "from astro_async import IngestFileSpec, Pipeline\n"
            "from rules import NAME\n"
            "pipeline = Pipeline(NAME, ingest_files=[IngestFileSpec('a', 'a.csv')])\n"
        )
    assert [load_pipeline(tmp_path / name).name for name in ("one", "two")] == ["one", "two"]
    (tmp_path / "one" / "rules.py").write_text("NAME = 'edited'\n")
    assert load_pipeline(tmp_path / "one").name == "edited"


async def test_a_process_step_from_a_module_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "def double(ctx, files):\n"
        "    frame = files[0].load()\n"
        "    files[0].save_in_place(frame.vstack(frame))\n"
    )
    (tmp_path / "pipeline.py").write_text(
        "from astro_async import AstroFileSpec, IngestFileSpec, Pipeline\n"
        "from work import double\n"
        "files = [IngestFileSpec('a', 'a.csv'), IngestFileSpec('b', 'b.csv')]\n"
        "pipeline = Pipeline('p', ingest_files=files)\n"
        "pipeline.add_step('double', double, AstroFileSpec('a'), engine='process')\n"
    )
    result = await go(load_pipeline(tmp_path), tmp_path)
    assert result.exit_code == 0
    assert read_file(tmp_path, str(result.run_id), "a")["id"].to_list() == ["1", "2", "1", "2"]
