"""`astro report`: one page, with what happened in it, whatever the names and the words of steps are."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from astro_async._core.events import FileFlow, PartWritten, RuleCount, RunPlanned, VersionWritten
from astro_async._core.flow import Flow, derive_flow
from astro_async._core.graph import Graph, StepNode
from astro_async._core.names import RunId, StepId
from astro_async._core.records import IngestedFile, RunRecord, StepRecord
from astro_async._core.status import RunStatus, StepStatus
from astro_async._core.timeline import Attempt, Invocation, derive_critical_path
from astro_async._store.log import load_log_tail
from astro_async.cli.report_page import Report, render_page
from cli.commands import FAILING, HEAD, PARKING, astro, ingest, make_project, tree, write_pipeline

NIGHT = HEAD + (
    "pipeline = Pipeline('night', ingest_files=FILES)\n"
    "pipeline.add_filter('Drop', pl.col('score') == 7, Scores)\n"
    "pipeline.add_check('Check', [expect('negative', pl.col('score') >= 0),\n"
    "    expect('rare', pl.col('score') < 5, severity='warn')], Scores)\n"
    "@pipeline.step(READER)\n"
    "def look(ctx, files):\n"
    "    ctx.logger.info('looked at it')\n"
    "pipeline.add_step('Publish', lambda ctx, files: None, READER, depends_on='check')\n"
)
HOSTILE = (
    "</td></title></style></svg><script>alert(1)</script><img src=x onerror='x'> "
    '" \x1b[31m \u202e {{ 7*7 }} ]]>'
)
VOID = {"meta", "path", "rect", "img", "br"}


class Page(HTMLParser):
    """Reads a page, and checks on the way that it is well formed and holds nothing that acts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.section = ""
        self.rows: dict[str, list[list[str]]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        assert tag not in ("script", "img", "link", "iframe", "object", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "xlink:href")
            assert name != "href" or (value or "").startswith("#")
        if tag == "h2":
            self.section = attributes["id"] or ""
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        if tag in ("td", "th"):
            self.rows[self.section][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.section, []).append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[self.section][-1][-1] += data

    def text(self, section: str) -> str:
        return " ".join(" ".join(self.texts[section]).split())


def load(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_a_page_tells_what_happened(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, NIGHT))
    astro("run", "-C", tmp_path, code=3)
    path = tmp_path / "run.html"
    said = astro("report", run_id, "-o", path, "-C", tmp_path)
    assert re.fullmatch(rf"wrote {re.escape(str(path))}: [\d.]+ kB; open it in a browser\n", said.stdout)
    page = load(path)
    verdict = page.text("verdict")
    assert f"run {run_id} is failed (only for steps that quarantine blocks)" in verdict
    assert "1 of 2 rows of 'scores' quarantined" in verdict
    assert f"astro quarantine show {run_id} check" in verdict
    assert page.rows["rows"][1] == ["scores", "3", "1", "1", "1", ""]
    assert [row[:7] for row in page.rows["rows"][3:]] == [
        ["drop", "complete", "3", "2", "", "1", ""],
        ["check", "quarantined", "2", "1", "1", "", ""],
    ]
    assert page.rows["reasons"][1:] == [["1", "negative", "check", "scores"]]
    assert page.rows["rules"][1:] == [
        ["1", "negative", "check", "scores", ""],
        ["1", "rare", "check", "scores", "warns"],
    ]
    assert [(row[0], row[1], row[2]) for row in page.rows["steps"][1:]] == [
        ("drop", "complete", "1"),
        ("check", "quarantined", "1"),
        ("look", "complete", "1"),
        ("publish", "blocked", ""),
    ]
    assert "looked at it" in page.text("log")
    assert "INFO STAT" not in page.text("log")
    assert "Invocation 1 failed 3 attempts" in page.text("timeline")
    assert "quarantined, 1 row" in page.text("graph")
    bars = [attributes["class"] for tag, attributes in page.tags if tag == "rect" and "class" in attributes]
    assert any(name and name.startswith("b s-quarantined") for name in bars)
    assert any(name and name.endswith(" crit") for name in bars)
    policy = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_no_values_of_parked_rows_and_no_parameters(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, NIGHT, csv="id,score\n818283,-717273\n1,2\n"))
    astro("run", "-C", tmp_path, "--param", "token=hunter2", code=3)
    page = astro("report", "-o", "-", "-C", tmp_path).stdout
    assert "negative" in page
    assert not re.search("818283|717273|hunter2", page)


def test_stdout_is_the_page_alone(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, f"{NIGHT}print('from the pipeline')\n"))
    astro("run", "-C", tmp_path, code=3)
    before = tree(tmp_path)
    result = astro("report", "latest", "-o", "-", "-C", tmp_path)
    assert result.stdout.startswith("<!doctype html>\n")
    assert result.stdout.endswith("</html>\n")
    assert "from the pipeline" not in result.stdout
    assert tree(tmp_path) == before


def test_words_of_steps_are_text(tmp_path: Path) -> None:
    pipeline = FAILING.replace("no [red]such[/red]", "</pre><script>alert(1)</script>")
    ingest(make_project(tmp_path, pipeline))
    astro("run", "-C", tmp_path, code=1)
    astro("report", "-o", tmp_path / "x.html", "-C", tmp_path)
    page = load(tmp_path / "x.html")
    for section in ("verdict", "steps", "log"):
        assert r"ValueError: </pre><script>alert(1)</script> \x1b[31mcolumn" in page.text(section)


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, NIGHT))
    path = tmp_path / "x.html"
    path.write_text("mine")
    refused = astro("report", "-o", path, "-C", tmp_path, code=1)
    assert f"{path} exists already" in refused.stderr
    assert path.read_text() == "mine"
    astro("report", "-o", path, "--force", "-C", tmp_path)
    assert "it has not been run yet" in load(path).text("verdict")
    assert "The run has not been run yet." in load(path).text("timeline")
    assert "is a directory" in astro("report", "-o", tmp_path, "--force", "-C", tmp_path, code=1).stderr


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    assert "there is no run in" in astro("report", "-o", "x.html", "-C", tmp_path, code=1).stderr
    ingest(make_project(tmp_path, PARKING))
    assert "--output" in astro("report", "-C", tmp_path, code=2).stderr
    assert (
        "there is no run 'zzzzz'" in astro("report", "zzzzz", "-o", "x.html", "-C", tmp_path, code=1).stderr
    )
    nowhere = tmp_path / "nowhere" / "x.html"
    assert f"cannot write {nowhere}" in astro("report", "-o", nowhere, "-C", tmp_path, code=1).stderr


def test_without_the_pipeline_there_is_no_graph(tmp_path: Path) -> None:
    ingest(make_project(tmp_path, NIGHT))
    astro("run", "-C", tmp_path, code=3)
    write_pipeline(tmp_path, "x = (")
    path = tmp_path / "x.html"
    assert "no graph and no critical path" in astro("report", "-o", path, "-C", tmp_path).stderr
    page = load(path)
    assert "the pipeline cannot be loaded" in page.text("graph")
    assert page.rows["reasons"][1:] == [["1", "negative", "check", "scores"]]


def make_report(steps: int, *, words: str = "bad", step_name: str = "step-{}", per_stage: int = 50) -> Report:
    """Return a run of many steps, each of them on one file of its own; one in ten parked rows."""
    record = RunRecord(
        run_id=RunId("k3x9a"),
        pipeline_name=words,
        status=RunStatus.QUARANTINED,
        source_directory=words,
        run_date="2026-11-30",
        params={},
        created_at="2026-11-30T01:00:00.000000Z",
    )
    planned = RunPlanned(
        run_id=RunId("k3x9a"),
        seq=1,
        time="2026-11-30T01:00:00.000000Z",
        again={},
        params={},
        jobs=64,
        pid=1,
        host="h",
    )
    invocation = Invocation(planned, 0, steps * 1000, "quarantined")
    nodes = []
    for number in range(steps):
        name, file = StepId(step_name.format(number)), f"file-{number % 500}"
        parks = number % 10 == 0
        parquet = f"ingested/{file}.parquet"
        record.files[file] = IngestedFile(file, words, parquet, 100, 3, 1, 1)
        flow = FileFlow(
            name=file,
            read=parquet,
            rows_in=100,
            rows_out=90 if parks else 100,
            rows_quarantined=10 if parks else 0,
            published=VersionWritten(f"versions/{file}/{number}.1.parquet", 90, 3, 1) if parks else None,
            parts=(PartWritten(f"quarantine/{number}/{file}.part-00001.parquet", 10, 1),) if parks else (),
            reasons={f"{words} {number}": 10} if parks else {},
            rules=(RuleCount(words, 10 if parks else 0),),
        )
        status = StepStatus.QUARANTINED if parks else StepStatus.COMPLETE
        record.steps[name] = StepRecord(name, status, words if parks else None, 1, files=(flow,))
        start = number // 64 * 64_000
        invocation.attempts.append(
            Attempt(name, 1, start, start + 60_000, status.value, (flow,), number % 64 + 1)
        )
        after = (StepId(step_name.format(number - per_stage)),) if number >= per_stage else ()
        nodes.append(StepNode(name, (file,), (), after))
    graph = Graph(nodes)
    return Report(
        record=record,
        invocations=[invocation] * 7,
        critical={6: derive_critical_path(graph, invocation)},
        flow=derive_flow(graph, record),
        problem=None,
        log=[words],
        pipeline_dir=".",
        made_at="2026-11-30T07:00:00.000000Z",
    )


def test_ten_thousand_steps_are_a_page_that_says_what_it_leaves_out() -> None:
    text = render_page(make_report(10_000))
    assert len(text) < 2_500_000
    page = Page(text)
    assert "Not shown: 24 more lanes" in page.text("timeline")
    assert "Not shown: 2 more invocations" in page.text("timeline")
    assert "too short for bars of their own" in page.text("timeline")
    assert "200 stages" in page.text("graph")
    assert "Not shown: 9,500 more steps" in page.text("steps")
    assert "Not shown: 700 more reasons" in page.text("reasons")
    assert "Not shown: 9,700 more rules" in page.text("rules")
    assert "Not shown: 200 more files" in page.text("rows")
    # All that are parked come first.
    assert {row[1] for row in page.rows["steps"][1:]} == {"quarantined"}


@pytest.mark.parametrize("steps", [12, 400])
def test_hostile_words_are_text_everywhere(steps: int) -> None:
    report = make_report(steps, words=HOSTILE, per_stage=4)
    names = list(report.record.steps)
    renamed = {name: f"{HOSTILE} {number}" for number, name in enumerate(names)}
    report.record.steps = {
        renamed[name]: msgspec.structs.replace(step, step_id=renamed[name])
        for name, step in report.record.steps.items()
    }
    assert report.flow is not None
    flow_steps = [
        replace(step, step_id=renamed[step.step_id], depends_on=[renamed[each] for each in step.depends_on])
        for step in report.flow.steps
    ]
    report = replace(report, flow=Flow(flow_steps, report.record), problem=HOSTILE)
    for attempt in report.invocations[0].attempts:
        attempt.step_id = renamed[attempt.step_id]
    text = render_page(report)
    # The parser refuses scripts, handlers and whatever is fetched, and a tag that closes too early.
    page = Page(text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    shown = HOSTILE.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e")
    for section in ("verdict", "reasons", "rules", "steps", "log"):
        assert shown in page.text(section)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "49" not in page.text("log")


def test_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "astro.log"
    assert load_log_tail(str(path)) == []
    path.write_text("".join(f"TIME INFO {n}\nTIME INFO STAT run=k3x9a {n}\n" for n in range(300)))
    assert load_log_tail(str(path)) == [f"TIME INFO {n}" for n in range(100, 300)]
    # Longer than what is read of it, with a line that is being written.
    path.write_bytes(b"x" * 5_000_000 + b"\nlast \xff\nhalf")
    assert load_log_tail(str(path)) == [r"last \xff", "half"]
