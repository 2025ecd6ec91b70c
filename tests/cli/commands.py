"""What the tests of the command line share: small pipelines, and `astro` in this process and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from astro_async.cli.app import app

HEAD = """
import os
import polars as pl
from astro_async import AstroFileSpec, IngestFileSpec, Pipeline, expect

class Scores(AstroFileSpec):
    ingest_name = "scores"

READER = AstroFileSpec("scores", readonly=True)
FILES = [IngestFileSpec("scores", "scores*.csv", {"id": pl.Int64, "score": pl.Int64})]
"""

PARKING = (
    HEAD
    + """
class P(Pipeline):
    name = "scores"
    ingest_files = FILES

    def configure_steps(self):
        self.add_check("Check", expect("score must not be negative", pl.col("score") >= 0), Scores)
        self.add_step("Publish", lambda ctx, files: None, READER, depends_on="check")

pipeline = P()
"""
)

GOOD = PARKING.replace('pl.col("score") >= 0', 'pl.col("score") >= -9')

FAILING = (
    HEAD
    + """
def boom(ctx, files):
    raise ValueError("no [red]such[/red] \\x1b[31mcolumn\\nhere")

class P(Pipeline):
    name = "scores"
    ingest_files = FILES

    def configure_steps(self):
        self.add_step("Boom", boom, READER)
        self.add_step("Publish", lambda ctx, files: None, READER, depends_on="boom")

pipeline = P()
"""
)

# Each step reports on one fifo and waits for another, so that a test knows where it is, without a clock.
GATED = (
    HEAD
    + """
def wait(ctx, files):
    with open("started", "w") as started:
        started.write(str(os.getpid()))
    with open("gate") as gate:
        gate.read()

class P(Pipeline):
    name = "scores"
    ingest_files = FILES

    def configure_steps(self):
        self.add_step("Wait", wait, READER)
        self.add_step("Later", lambda ctx, files: None, READER, depends_on="wait")

pipeline = P()
"""
)

CSV = "id,score\n1,5\n2,-1\n3,7\n"


def make_project(folder: Path, pipeline: str = PARKING, csv: str = CSV) -> Path:
    """Write pipeline.py and source/scores.csv into a folder."""
    (folder / "source").mkdir(parents=True, exist_ok=True)
    (folder / "source" / "scores.csv").write_text(csv)
    write_pipeline(folder, pipeline)
    return folder


def write_pipeline(folder: Path, pipeline: str) -> None:
    (folder / "pipeline.py").write_text(pipeline)


def astro(*arguments: str | Path, code: int | None = 0) -> Result:
    """Run `astro` in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if code is not None:
        assert result.exit_code == code, f"{result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.output
    return result


def document(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """Run `astro … --json` and return its one document."""
    parsed: dict[str, Any] = json.loads(astro(*arguments, "--json", code=code).stdout)
    assert parsed["schema_version"] == 1
    return parsed


def ingest(folder: Path) -> str:
    """Ingest the source of a project and return the run id."""
    return str(document("ingest", folder / "source", "-C", folder)["run_id"])


def start(
    *arguments: str | Path, cwd: Path, own_group: bool = False, **environment: str
) -> subprocess.Popen[str]:
    """Start `astro` as a process of its own, in a process group of its own if that is asked for."""
    return subprocess.Popen(
        [sys.executable, "-m", "astro_async", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=own_group,
    )


def tree(folder: Path) -> set[str]:
    """Return all paths below a folder, except what Python caches."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {path for path in paths if "__pycache__" not in path}
