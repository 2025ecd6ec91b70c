"""`astro trace`: a Chrome trace, as its format wants it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli.commands import GOOD, HEAD, PARKING, astro, ingest, make_project, write_pipeline

NIGHT = HEAD + (
    "pipeline = Pipeline('night', ingest_files=FILES)\n"
    "@pipeline.step(READER, retries=1)\n"
    "def flaky(ctx, files):\n"
    "    if ctx.attempt == 1:\n"
    "        raise ValueError('secret 4711')\n"
    "pipeline.add_check('Check', expect('negative', pl.col('score') >= 0), Scores)\n"
    "pipeline.add_step('Publish', lambda ctx, files: None, READER, depends_on='check')\n"
).replace("retries=1", "retries=__import__('astro_async').Retry(1, delay_s=0)")


def load(path: Path) -> list[dict[str, Any]]:
    """Read a trace, and hold it against what the format asks of each event."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    for event in events:
        assert event["ph"] in "MXisf"
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert isinstance(event["ts"], int)
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] in "sf":
            # An arrow binds to a slice of its lane.
            assert any(
                e["ph"] == "X"
                and (e["pid"], e["tid"]) == (event["pid"], event["tid"])
                and e["ts"] <= event["ts"] <= e["ts"] + e["dur"]
                for e in events
            )
    return events


def test_a_trace(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, NIGHT))
    astro("run", "-C", tmp_path, code=3)
    write_pipeline(tmp_path, NIGHT.replace(">= 0", ">= -9"))
    astro("run", "-C", tmp_path)
    path = tmp_path / "trace.json"
    said = astro("trace", run_id, "-o", path, "-C", tmp_path).stdout
    assert said.startswith(f"wrote {path}: 5 attempts in 2 invocations")
    events = load(path)
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted((e["pid"], e["name"], e["args"]["outcome"]) for e in slices) == [
        (1, "check", "quarantined"),
        (1, "flaky", "retrying"),
        (1, "flaky (attempt 2)", "complete"),
        (2, "check (attempt 2)", "complete"),
        (2, "publish", "complete"),
    ]
    for one in slices:
        for other in slices:
            if one is not other and (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
                assert one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]
    marks = {event["name"]: event["args"] for event in events if event["ph"] == "i"}
    assert marks["quarantined 1 of scores"]["reasons"] == {"negative": 1}
    assert marks["retrying flaky"] == {"step_id": "flaky", "attempt": 1}
    assert "blocked publish" in marks
    critical = [e["args"]["step_id"] for e in slices if e["pid"] == 2 and e["args"]["critical_path"]]
    assert sorted(critical) == ["check", "publish"]
    assert {event["id"] for event in events if event["ph"] == "s"} == {
        event["id"] for event in events if event["ph"] == "f"
    }
    assert "secret" not in path.read_text()
    assert json.loads(astro("trace", "-o", "-", "-C", tmp_path).stdout) == json.loads(path.read_text())


def test_without_the_pipeline_there_is_no_critical_path(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, GOOD))
    astro("run", "-C", tmp_path)
    write_pipeline(tmp_path, "x = (")
    path = tmp_path / "trace.json"
    assert "no critical path" in astro("trace", "-o", path, "-C", tmp_path).stderr
    assert not any(e["args"]["critical_path"] for e in load(path) if e["ph"] == "X")


def test_what_cannot_be_traced(tmp_path: Path) -> None:
    assert "there is no run in" in astro("trace", "-o", "x.json", "-C", tmp_path, code=1).stderr
    run_id = ingest(make_project(tmp_path, PARKING))
    assert f"run {run_id} has not been run yet" in astro("trace", "-o", "x", "-C", tmp_path, code=1).stderr
    assert "--output" in astro("trace", "-C", tmp_path, code=2).stderr
    astro("run", "-C", tmp_path, code=3)
    nowhere = tmp_path / "nowhere" / "x.json"
    assert f"cannot write {nowhere}" in astro("trace", "-o", nowhere, "-C", tmp_path, code=1).stderr
