"""`astro describe`, and `astro show --story`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from astro_async._core.flow import derive_flow
from astro_async._core.graph import Graph
from astro_async.cli.flow_formats import draw_dot, draw_mermaid, render_flow
from cli.commands import FAILING, HEAD, PARKING, astro, document, ingest, make_project, write_pipeline
from cli.test_screens import HOSTILE, WIDTHS, compare, draw, stumbling_night
from core.samples import node

GRAPH = Graph(
    (
        node("validate", writes=["orders"]),
        node("enrich", reads=["customers"], writes=["orders"]),
        node("load-customers", reads=["customers"]),
        node("publish-everything-to-the-warehouse-of-record", reads=["orders"], after=["validate"]),
        node("report", reads=["orders", "customers"], after=["enrich", "load-customers"]),
        node("mail", after=["report"]),
    )
)
KINDS: dict[str, str] = {
    each.step_id: "check" if each.step_id == "validate" else "step" for each in GRAPH.nodes
}
PATTERNS = {"orders": "orders_*.csv", "customers": HOSTILE}


def test_a_flow() -> None:
    flow = derive_flow(GRAPH)
    assert [step.stage for step in flow.steps] == [1, 2, 1, 3, 3, 4]
    publish = flow.steps[3]
    assert (publish.depends_on, publish.follows) == (["validate"], {"orders": "enrich"})
    assert {step.status for step in flow.steps} == {None}


@WIDTHS
def test_the_screen(width: int) -> None:
    flow = derive_flow(GRAPH, stumbling_night().record)
    text = draw(render_flow(HOSTILE, PATTERNS, KINDS, flow), width)
    compare("describe", text, width)
    compare("describe-plain", draw(render_flow("orders", PATTERNS, KINDS, derive_flow(GRAPH)), width), width)


def test_mermaid_and_dot() -> None:
    flow = derive_flow(GRAPH, stumbling_night().record)
    mermaid = draw_mermaid(flow).splitlines()
    assert mermaid[:3] == [
        "flowchart TD",
        '  s0["validate<br/>quarantined, 40 rows"]',
        '  s1["enrich<br/>failed"]',
    ]
    for line in ("  s0 --> s3", "  s0 -. orders .-> s1", "  s1 -. orders .-> s3", "  s4 --> s5"):
        assert line in mermaid
    assert "  class s0 quarantined" in mermaid
    dot = draw_dot('a "name"\\\n', flow).splitlines()
    assert dot[0] == 'digraph "a \\"name\\"\\\\\\\\n" {'
    assert '  "validate" [label="validate\\nquarantined, 40 rows", fillcolor="#ffe9a8"];' in dot
    assert '  "validate" -> "enrich" [style=dashed, label="orders"];' in dot
    assert '  "enrich" -> "report";' in dot
    assert dot[-1] == "}"


def test_the_command(tmp_path: Path) -> None:
    make_project(tmp_path)
    text = astro("describe", "-C", tmp_path).stdout
    assert "scores*.csv" in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        ["1", "check", "check", "scores"],
        ["2", "publish", "step", "scores", "(reads)", "check"],
    ]
    plain = document("describe", "-C", tmp_path)
    assert [step["status"] for step in plain["steps"]] == [None, None]
    run_id = ingest(tmp_path)
    astro("run", "-C", tmp_path, code=3)
    shown = document("describe", "latest", "-C", tmp_path)
    assert (shown["run_id"], shown["run_status"]) == (run_id, "failed")
    assert [(s["kind"], s["status"], s["rows_quarantined"]) for s in shown["steps"]] == [
        ("check", "quarantined", 1),
        ("step", "blocked", 0),
    ]
    assert json.loads(astro("describe", "latest", "--format", "json", "-C", tmp_path).stdout) == shown
    assert "quarantined (1 row)" in astro("describe", run_id, "-C", tmp_path).stdout
    assert astro("describe", "--format", "mermaid", "-C", tmp_path).stdout.startswith("flowchart TD\n")
    assert astro("describe", "--format", "dot", "-C", tmp_path).stdout.startswith('digraph "scores" {\n')


def test_what_the_pipeline_prints_is_not_in_the_document(tmp_path: Path) -> None:
    make_project(tmp_path, "print('hello')\n" + PARKING)
    assert document("describe", "-C", tmp_path)["pipeline_name"] == "scores"


def test_without_pipeline_or_run(tmp_path: Path) -> None:
    assert "there is no pipeline.py" in astro("describe", "-C", tmp_path, code=2).stderr
    make_project(tmp_path)
    assert "there is no run in" in astro("describe", "latest", "-C", tmp_path, code=1).stderr
    assert "there is no run 'zzzzz'" in astro("describe", "zzzzz", "-C", tmp_path, code=1).stderr


def test_the_story_of_a_step(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    fresh = document("show", "--story", "publish", "-C", tmp_path)
    assert (fresh["status"], fresh["events"]) == ("pending", [])
    assert fresh["why_not_started"] == [
        "the run has not been run yet: the next `astro run` takes it up",
        "it depends on check, which is pending",
        "it works on scores after check, which may change it and is pending",
    ]
    astro("run", "-C", tmp_path, code=3)
    text = astro("show", "--story", "publish", "-C", tmp_path).stdout
    assert f"step publish of run {run_id}  blocked" in text
    assert "because: new (process" in text
    assert "  it depends on check, which is quarantined\n" in text
    told = document("show", "--story", "check", "-C", tmp_path)
    assert [event["kind"] for event in told["events"]] == ["run_planned", "step_started", "step_finished"]
    assert told["events"][0]["again"] == {"new": ["check"]}
    assert told["why_not_started"] == []
    assert "quarantined  after" in astro("show", "--story", "check", "-C", tmp_path).stdout


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_stories_that_cannot_be_told(tmp_path: Path, more: list[str]) -> None:
    assert "there is no run in" in astro("show", "--story", "x", "-C", tmp_path, *more, code=1).stderr
    run_id = ingest(make_project(tmp_path))
    named = astro("show", "--story", "chek", "-C", tmp_path, *more, code=2).stderr
    assert f"'chek' is no step of run {run_id}: did you mean 'check'?" in named


def test_the_story_where_the_pipeline_is_broken_or_hostile(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, FAILING))
    astro("run", "-C", tmp_path, code=1)
    text = astro("show", "--story", "boom", "-C", tmp_path).stdout
    assert "no [red]such[/red] \\x1b[31mcolumn" in text
    assert "\x1b" not in text
    write_pipeline(tmp_path, "x = (")
    told = document("show", "--story", "publish", "-C", tmp_path)
    assert told["why_not_started"] == ["blocked by boom, which is failed"]
    write_pipeline(tmp_path, HEAD + "pipeline = Pipeline('p', ingest_files=FILES)\n")
    (reason,) = document("show", "--story", "publish", "-C", tmp_path)["why_not_started"]
    assert reason == "it is no step of the pipeline any more: the next `astro run` forgets it"
