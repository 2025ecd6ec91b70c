"""`astro status`: exits as the newest run of an age did, and says why in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from astro_async._core.names import RunId
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus
from astro_async.cli.ages import describe_age, parse_age
from astro_async.cli.status_command import judge_health
from cli.commands import FAILING, GOOD, PARKING, astro, document, ingest, make_project, write_pipeline

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)


def summary(status: RunStatus, hours: float, run_id: str = "k3x9a", **counts: int) -> RunSummary:
    time = (NOW - timedelta(hours=hours)).isoformat()
    rows = counts.pop("rows", 0)
    return RunSummary(RunId(run_id), status, "p", time, time, "/d", counts, rows)


@pytest.mark.parametrize(
    ("run", "code", "why"),
    [
        (summary(RunStatus.COMPLETED, 5, complete=4), 0, "is completed: 4 steps done (ingested 5 hours ago)"),
        (summary(RunStatus.QUARANTINED, 5, complete=4, quarantined=1, rows=2), 3, "2 rows in quarantine"),
        (summary(RunStatus.FAILED, 5, quarantined=1, blocked=1, rows=1), 3, "1 row in quarantine"),
        (summary(RunStatus.FAILED, 5, quarantined=1, failed=1, rows=1), 1, "1 step failed, 1 row in quarant"),
        (summary(RunStatus.FAILED, 5, complete=1, pending=1), 1, "could not be brought to its end"),
        (summary(RunStatus.INTERRUPTED, 5, complete=1), 1, "it has yet to come to its end"),
        (summary(RunStatus.INGESTED, 5), 1, "nobody has run it"),
        (
            summary(RunStatus.COMPLETED, 27, complete=4),
            1,
            "too old: the newest run, k3x9a (completed), was ing",
        ),
    ],
    ids=lambda value: value.status.value if isinstance(value, RunSummary) else str(value)[:12],
)
def test_verdicts(run: RunSummary, code: int, why: str) -> None:
    health = judge_health([run], now=NOW, max_age=timedelta(hours=26))
    assert health.exit_code == code
    assert why in health.words


def test_a_run_that_goes_on_is_not_judged() -> None:
    running = summary(RunStatus.RUNNING, 1, "zz111")
    before = summary(RunStatus.COMPLETED, 25, complete=1)
    health = judge_health([running, before], now=NOW, max_age=timedelta(hours=26))
    assert (health.exit_code, health.run) == (0, before)
    assert health.words.endswith("; run zz111 goes on")
    # One that hangs is found out, when the one before is too old.
    assert judge_health([running, before], now=NOW, max_age=timedelta(hours=24)).exit_code == 1
    assert judge_health([running], now=NOW, max_age=None).words == "no run has ended yet; run zz111 goes on"
    assert judge_health([], now=NOW, max_age=None) == (1, "there is no run", None)


def test_the_command(tmp_path: Path) -> None:
    assert astro("status", "-C", tmp_path, code=1).stdout == "there is no run\n"
    assert document("status", "-C", tmp_path, code=1)["run"] is None
    run_id = ingest(make_project(tmp_path))
    for pipeline, code in ((PARKING, 3), (FAILING, 1), (GOOD, 0)):
        write_pipeline(tmp_path, pipeline)
        astro("run", run_id, "-C", tmp_path, code=code)
        told = document("status", "--max-age", "1h", "-C", tmp_path, code=code)
        assert (told["exit_code"], told["run"]["run_id"]) == (code, run_id)
    line = astro("status", "-C", tmp_path).stdout
    assert line == f"run {run_id} is completed: 2 steps done (ingested 0 minutes ago)\n"
    assert "too old" in astro("status", "--max-age", "0m", "-C", tmp_path, code=1).stdout
    assert "such as 90m, 26h" in astro("status", "--max-age", "soon", "-C", tmp_path, code=2).stderr


def test_runs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / ".working" / "abc12").mkdir(parents=True)
    assert "warning: run abc12 cannot be read" in astro("status", "-C", tmp_path, code=1).stderr
    assert document("status", "-C", tmp_path, code=1)["notices"]


def test_ages() -> None:
    assert [parse_age(text) for text in ("90m", "26h", "30d", "8w")] == [
        timedelta(minutes=90),
        timedelta(hours=26),
        timedelta(days=30),
        timedelta(weeks=8),
    ]
    for text in ("", "26", "h", "-1h", "1.5h", "26 h", "9999999d"):
        with pytest.raises(typer.BadParameter):
            parse_age(text)
    ages = [timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=119), timedelta(hours=47)]
    assert [describe_age(age) for age in ages] == ["0 minutes", "1 minute", "119 minutes", "47 hours"]
    assert describe_age(timedelta(days=1200)) == "1,200 days"
