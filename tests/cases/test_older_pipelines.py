"""A pipeline written for astro-pipeline 1.1.0 runs once its import lines are changed.

The text below has what the documentation of that version names for pipelines: of the lines under `# imports`,
only the names of the modules are ours.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from astro_async import RunStatus, ingest, load_pipeline, run
from astro_async.exceptions import RunRefusedError
from astro_async.testing import read_file, read_quarantine

pytest.importorskip("pandera.polars")
pytestmark = pytest.mark.anyio

PIPELINE = """
# imports
import pandera.polars as pa
import polars as pl
from astro_async import AstroFile, AstroFileSpec, ExecutionMode, IngestFileSpec, Pipeline, StepContext
from astro_async import FilterFn, StatisticsRecorder, StepExecutionMode


class EstablishmentsFile(AstroFileSpec):
    ingest_name = "establishments"
    marker = "configured"


class LinksFile(AstroFileSpec):
    ingest_name = "links"


class NotesFile(AstroFileSpec):
    ingest_name = "notes"


class BareFile(AstroFileSpec):
    ingest_name = "bare"


def load_notes(path):
    return pl.DataFrame({"note": path.read_text().splitlines()})


def remove_closed(df: pl.DataFrame) -> pl.DataFrame:
    return df.filter(pl.col("EstablishmentName").str.contains("Closed"))


remove: FilterFn = remove_closed


def count_rows(stats: StatisticsRecorder, file: AstroFile) -> None:
    stats.record_file(file.spec.__class__.ingest_name, "rows_read", file.row_count())


def step_validate(_ctx: StepContext, files: list[AstroFile]) -> None:
    file = files[0]
    assert file.spec.marker == "configured"
    df = file.load()
    bad = df.filter(pl.col("score") < 0)
    good = df.filter(pl.col("score") >= 0)
    if not bad.is_empty():
        _ctx.quarantine.quarantine_rows(file, bad, reason="negative score")
    file.save_in_place(good)


def step_links(ctx: StepContext, files: list[AstroFile]) -> None:
    file = files[0]
    for row in file.load().iter_rows(named=True):
        if row["target"] is None:
            ctx.quarantine.quarantine_row(file, row, reason="no target")
    file.sink(file.scan().filter(pl.col("target").is_not_null()))
    count_rows(ctx.stats, file)
    ctx.stats.record_run("custom_counter", 1)
    ctx.stats.record_step("rows_written", 1)


def step_bare(ctx: StepContext, files: list[AstroFile]) -> None:
    file = files[0]
    ctx.logger.info("run %s of %s in %s", ctx.run_id, ctx.run_date, ctx.run_directory.name)
    assert not file.is_large_file()
    if file.is_large_file():
        return
    assert sum(batch.height for batch in file.iter_batches()) == file.row_count()
    file.save_in_place_lazy(file.scan().with_columns(pl.lit(ctx.step_id).alias("stage")))
    assert (ctx.pipeline_dir / "pipeline.py").exists()


def step_copy(_ctx: StepContext, files: list[AstroFile]) -> None:
    file = files[0]
    file.save_to("processed", "establishments.parquet", file.load())
    lazy_frame = file.scan().with_columns(pl.lit("processed").alias("stage"))
    file.save_to_lazy("processed", "staged.parquet", lazy_frame)


class ExamplePipeline(Pipeline):
    name = "example"
    execution_mode = ExecutionMode.SERIAL
    step_execution_mode = StepExecutionMode.PARALLEL
    max_parallel_workers = 2
    large_file_threshold_bytes = 100 * 1024 * 1024
    ingest_batch_size = 100_000
    run_batch_size = 100_000
    ingest_files = [
        IngestFileSpec(
            name="establishments",
            source_pattern="edubase*.csv",
            schema=pa.DataFrameSchema(
                {"URN": pa.Column(str), "EstablishmentName": pa.Column(str), "score": pa.Column(int)},
                strict="filter",
            ),
            encoding="cp1252",
        ),
        IngestFileSpec(
            name="links",
            source_pattern="links*.csv",
            schema=pa.DataFrameSchema({"source": pa.Column(str), "target": pa.Column(str, nullable=True)}),
            has_header=True,
            column_names=None,
            preprocess=None,
            optional=False,
        ),
        IngestFileSpec(
            name="bare",
            source_pattern="bare.csv",
            schema=pa.DataFrameSchema({"a": pa.Column(int), "b": pa.Column(str)}),
            has_header=False,
            column_names=["a", "b"],
        ),
        IngestFileSpec(
            name="notes",
            source_pattern="notes.txt",
            schema=pa.DataFrameSchema({"note": pa.Column(str)}),
            preprocess=load_notes,
            optional=True,
        ),
    ]

    def configure_steps(self) -> None:
        self.add_filter("Remove closed", remove, [EstablishmentsFile()])
        is_test = pl.col("URN") == "0"
        self.add_filter("Remove tests", is_test, [EstablishmentsFile()], depends_on=["remove-closed"])
        self.add_step("Validate", step_validate, [EstablishmentsFile()], depends_on=["remove-tests"])
        self.add_step("Links", step_links, [LinksFile()])
        self.add_step("Bare", step_bare, [BareFile()], step_id="bare-step")
        self.add_step("Notes", step_bare, [NotesFile()])
        self.add_step("Copy", step_copy, [EstablishmentsFile()], depends_on=["validate", "notes"])


pipeline = ExamplePipeline()
"""


async def test_an_older_pipeline_runs(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    source = tmp_path / "source"
    source.mkdir()
    (source / "edubase1.csv").write_bytes(
        "URN,EstablishmentName,score,other\n007,Café,3,\n008,Closed school,1,\n0,Test,1,\n9,Low,-1,\n".encode(
            "cp1252"
        )
    )
    (source / "links1.csv").write_text("source,target\na,b\nc,\n")
    (source / "bare.csv").write_text("1,x\n2,y\n")
    pipeline = load_pipeline(tmp_path)
    record = await ingest(pipeline, source, pipeline_dir=tmp_path)
    assert record.files["establishments"].ignored_columns == ("other",)
    result = await run(pipeline, pipeline_dir=tmp_path)
    assert result.record is not None
    assert {step_id: step.status.value for step_id, step in result.record.steps.items()} == {
        "remove-closed": "complete",
        "remove-tests": "complete",
        "validate": "quarantined",
        "links": "quarantined",
        "bare-step": "complete",
        "notes": "skipped",
        "copy": "blocked",
    }
    run_directory = tmp_path / ".working" / record.run_id
    closed = pl.read_parquet(run_directory / "filtered/remove-closed/establishments.parquet")
    assert closed.rows() == [("008", "Closed school", 1)]
    parked = read_quarantine(tmp_path, record.run_id, "validate", "establishments")
    assert parked.rows() == [("9", "Low", -1, "negative score")]
    assert read_quarantine(tmp_path, record.run_id, "links", "links")["source"].to_list() == ["c"]
    assert read_file(tmp_path, record.run_id, "bare").rows() == [(1, "x", "bare-step"), (2, "y", "bare-step")]
    assert json.loads((run_directory / "manifest.json").read_bytes())["status"] == result.record.status.value
    recorded = {each[:3]: each[3] for each in read_statistics(tmp_path, record.run_id)}
    assert recorded["file", "links", "rows_read"] == recorded["run", record.run_id, "custom_counter"] == 1.0
    assert recorded["step", "links", "rows_written"] == recorded["step", "links", "rows_quarantined"] == 1.0

    # Serial: nothing new comes in while a run waits.
    with pytest.raises(RunRefusedError, match=record.run_id):
        await ingest(pipeline, source, pipeline_dir=tmp_path)

    # Mended, it goes on where it stopped: the rows come once.
    mended = PIPELINE.replace('pl.col("score") < 0', 'pl.col("score") < -9').replace(
        'pl.col("score") >= 0', 'pl.col("score") >= -9'
    )
    mended = mended.replace('if row["target"] is None', "if False")
    (tmp_path / "pipeline.py").write_text(mended)
    result = await run(load_pipeline(tmp_path), pipeline_dir=tmp_path)
    assert result.status is RunStatus.COMPLETED
    staged = pl.read_parquet(run_directory / "processed/staged.parquet")
    assert staged.rows() == [("007", "Café", 3, "processed"), ("9", "Low", -1, "processed")]
    assert pl.read_parquet(run_directory / "processed/establishments.parquet").height == 2

    # The next delivery has the optional file, which a function of the pipeline reads.
    (source / "notes.txt").write_text("first\nsecond\n")
    second = await ingest(load_pipeline(tmp_path), source, pipeline_dir=tmp_path)
    result = await run(load_pipeline(tmp_path), pipeline_dir=tmp_path, run_id=second.run_id)
    assert result.status is RunStatus.COMPLETED
    assert read_file(tmp_path, second.run_id, "notes").rows() == [("first", "notes"), ("second", "notes")]


def read_statistics(folder: Path, run_id: str) -> list[tuple[str, str, str, float]]:
    with closing(sqlite3.connect(folder / ".astro" / "stats.db")) as database:
        query = "SELECT scope, subject, action, value FROM statistics WHERE run_id = ?"
        return database.execute(query, (run_id,)).fetchall()
