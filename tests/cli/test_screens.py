"""The pure renderers at 80 and 120 columns, against the screens in `screens/`.

`ASTRO_WRITE_SCREENS=1 pytest tests/cli/test_screens.py` writes them anew; look at the difference.
"""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from astro_async._core.events import (
    Event,
    FileFlow,
    FileIngested,
    PartWritten,
    RuleCount,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    StepBlocked,
    StepFinished,
    StepInterrupted,
    StepProgress,
    StepRetrying,
    StepStarted,
    VersionWritten,
)
from astro_async._core.names import RunId
from astro_async._core.records import RunRecord, fold, start_record
from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus, StepStatus
from astro_async._core.verification import Finding, FindingKind, RowDifference, Verification
from astro_async._executor.ingest_progress import FileProgress
from astro_async.cli.progress import RunProgress
from astro_async.cli.render_dashboard import choose_rows, render_dashboard
from astro_async.cli.render_ingest import FileClock, render_ingest
from astro_async.cli.render_plain import PlainLines, verdict_lines
from astro_async.cli.render_quarantine import QuarantinedRows, render_quarantine, render_rows
from astro_async.cli.render_runs import describe_waiting, list_lines, render_list, render_run
from astro_async.cli.render_verify import render_verification

SCREENS = Path(__file__).parent / "screens"
START = datetime(2026, 11, 29, 23, 47, tzinfo=UTC)
WIDTHS = pytest.mark.parametrize("width", [80, 120])
HOSTILE = "no [red]such[/red] \x1b[31mcolumn\n\u202ehere"


def draw(renderable: RenderableType, width: int, *, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def compare(name: str, text: str, width: int) -> None:
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "\x1b" not in text
    path = SCREENS / f"{name}.{width}.txt"
    if os.environ.get("ASTRO_WRITE_SCREENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


class Night:
    """Writes the events of one run, with a clock that moves a second each time."""

    def __init__(self, *steps: str) -> None:
        self.steps = steps
        self.events: list[Event] = []
        self.record: RunRecord | None = None
        self.seq = 0
        self.progress = RunProgress(steps)

    def envelope(self, step_id: str | None = None) -> dict[str, object]:
        self.seq += 1
        time = (START + timedelta(seconds=self.seq)).isoformat().replace("+00:00", "Z")
        attempt = None if step_id is None else 1
        return {"seq": self.seq, "time": time, "run_id": "k3x9a", "step_id": step_id, "attempt": attempt}

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.progress.apply(event)
        if isinstance(event, RunCreated):
            self.record = start_record(event)
        elif self.record is not None and not isinstance(event, StepProgress):
            fold(self.record, event)  # type: ignore[arg-type]

    def begin(self) -> None:
        self.tell(
            RunCreated(
                **self.envelope(),  # type: ignore[arg-type]
                pipeline_name="orders",
                source_directory="/data/deliveries/2026-11-29",
                run_date="2026-11-29",
                params={"threshold": 5},
            )
        )
        version = VersionWritten("ingested/orders.parquet", 2_000_000, 12, 80_000_000)
        self.tell(
            FileIngested(
                **self.envelope(),  # type: ignore[arg-type]
                name="orders",
                source_path="/data/deliveries/2026-11-29/orders.csv",
                source_size_bytes=123_456_789,
                version=version,
            )
        )
        self.tell(RunIngested(**self.envelope()))  # type: ignore[arg-type]
        self.tell(
            RunPlanned(
                **self.envelope(),  # type: ignore[arg-type]
                again={"new": list(self.steps)},
                params={"threshold": 5},
                jobs=4,
                pid=1,
                host="h",
            )
        )

    def start(self, *step_ids: str) -> None:
        for step_id in step_ids:
            self.tell(StepStarted(**self.envelope(step_id)))  # type: ignore[arg-type]

    def settle(self, step_id: str, status: StepStatus, detail: str | None = None, *flows: FileFlow) -> None:
        self.tell(
            StepFinished(
                **self.envelope(step_id),  # type: ignore[arg-type]
                status=status,
                duration_ms=1234.0,
                detail=detail,
                files=flows,
            )
        )

    def block(self, step_id: str, by: str) -> None:
        detail = f"blocked by {by}, which is quarantined"
        self.tell(StepBlocked(**{**self.envelope(step_id), "attempt": None}, detail=detail))  # type: ignore[arg-type]

    def finish(self, status: RunStatus) -> None:
        self.tell(RunFinished(**self.envelope(), status=status, duration_ms=65_000.0))  # type: ignore[arg-type]

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seq + 1)


PARKED = FileFlow(
    "orders",
    "ingested/orders.parquet",
    2_000_000,
    1_999_960,
    40,
    VersionWritten("versions/orders/validate.1.parquet", 1_999_960, 12, 79_000_000),
    parts=(PartWritten("quarantine/validate/orders.part-00001.parquet", 40, 4000),),
    reasons={"score must not be negative": 38, HOSTILE: 2},
)
STEPS = (
    "validate",
    "enrich",
    "load-customers",
    "publish-everything-to-the-warehouse-of-record",
    "report",
    "mail",
)


def stumbling_night() -> Night:
    night = Night(*STEPS)
    night.begin()
    night.start("validate", "enrich", "load-customers")
    detail = "40 of 2,000,000 rows of 'orders' quarantined"
    night.settle("validate", StepStatus.QUARANTINED, detail, PARKED)
    night.block("publish-everything-to-the-warehouse-of-record", "validate")
    night.tell(StepProgress(**night.envelope("load-customers"), fraction=0.25))  # type: ignore[arg-type]
    night.seq -= 1
    night.settle("enrich", StepStatus.FAILED, f"ValueError: {HOSTILE} {'and so on ' * 30}")
    return night


LOG = (
    "2026-11-29T23:47:04.250Z INFO [load-customers] read 12,000 customers",
    f"2026-11-29T23:47:05.000Z WARNING [load-customers] {HOSTILE} {'and so on ' * 30}",
    "2026-11-29T23:47:05.500Z INFO [load-customers] \u5ba2\u6237 " + "\u5ba2" * 80,
)


@WIDTHS
def test_dashboard_of_few_steps(width: int) -> None:
    night = stumbling_night()
    screen = render_dashboard(
        night.progress,
        title="run k3x9a  orders",
        width=width,
        height=24,
        now=night.now,
        log=LOG,
        stop_level=1,
    )
    compare("dashboard-few", draw(screen, width), width)


@WIDTHS
def test_dashboard_of_ten_thousand_steps(width: int) -> None:
    night = Night(*(f"step-{number}" for number in range(10_000)))
    night.begin()
    for number in range(0, 5000, 100):
        night.start(f"step-{number}")
        night.settle(f"step-{number}", StepStatus.FAILED, "ValueError: no")
    for number in range(1, 90):
        night.start(f"step-{number}")
        night.settle(f"step-{number}", StepStatus.COMPLETE)
    for number in range(5050, 5060):
        night.start(f"step-{number}")
        night.settle(f"step-{number}", StepStatus.QUARANTINED, "40 rows", PARKED)
    night.start(*(f"step-{number}" for number in range(6000, 6004)))
    screen = render_dashboard(
        night.progress, title="run k3x9a  orders", width=width, height=24, now=night.now, log=LOG * 3
    )
    text = draw(screen, width)
    assert len(text.splitlines()) < 24
    compare("dashboard-many", text, width)


@pytest.mark.parametrize("height", [1, 3, 6, 10, 24, 60])
@pytest.mark.parametrize("running", [0, 4, 300])
def test_the_dashboard_never_outgrows_the_terminal(height: int, running: int) -> None:
    night = Night(*(f"step-{number}" for number in range(1000)))
    night.begin()
    for number in range(400, 700):
        night.start(f"step-{number}")
        status = StepStatus.FAILED if number % 2 else StepStatus.COMPLETE
        night.settle(f"step-{number}", status, "no")
    night.start(*(f"step-{number}" for number in range(running)))
    for width in (20, 80):
        screen = render_dashboard(
            night.progress, title="run", width=width, height=height, now=night.now, log=LOG
        )
        lines = draw(screen, width).splitlines()
        assert len(lines) <= max(height - 1, 1)
        assert max(map(cell_len, lines)) <= width
        assert lines[0].startswith("run")
        if height >= 6:
            # However low the terminal is, what failed and the counts are there.
            assert any(line.startswith("failed") for line in lines)
            assert any(line.startswith("150 complete, 150") for line in lines)
    night.progress.finished = RunFinished(
        seq=1, time="", run_id="k3x9a", status=RunStatus.FAILED, duration_ms=1
    )
    assert choose_rows(night.progress, 20) == []


def test_one_failure_is_not_lost_among_thousands_in_quarantine() -> None:
    night = Night(*(f"step-{number}" for number in range(5000)))
    night.begin()
    for number in range(4000):
        night.start(f"step-{number}")
        status = StepStatus.FAILED if number == 3000 else StepStatus.QUARANTINED
        night.settle(f"step-{number}", status, "no")
    screen = draw(render_dashboard(night.progress, title="run", width=80, height=24, now=night.now), 80)
    lines = screen.splitlines()
    assert lines[1].split()[:2] == ["failed", "step-3000"]
    assert "… 3,994 more quarantined" in screen


@WIDTHS
def test_an_ingest(width: int, tmp_path: Path) -> None:
    (tmp_path / "orders").write_bytes(bytes(1_200_000))
    orders = FileProgress("orders", 281_400_000, str(tmp_path / "orders"), has_begun=True)
    hostile = FileProgress(HOSTILE, 1_000_000_000, str(tmp_path / "none"), has_begun=True)
    done = FileProgress("done", 10, "", has_begun=True, is_done=True)
    files = [done, orders, hostile, FileProgress("later", 10, "")]
    clock = FileClock()

    def show(seconds: float, read: tuple[int, int], *, height: int = 24, is_stopping: bool = False) -> str:
        orders.facts.read_bytes, hostile.facts.read_bytes = read
        picture = render_ingest(files, clock, height=height, elapsed=seconds, is_stopping=is_stopping)
        return draw(picture, width)

    screens = [show(2.0, (70_000_000, 1_000)), show(4.0, (140_000_000, 400_000_000))]
    # One is converted, while the other is read anew: neither goes on with the time of the pass before.
    screens += [show(5.0, (281_400_000, 10)), show(9.0, (281_400_000, 80_000_000), is_stopping=True)]
    compare("ingest", "\n".join(screens), width)
    assert len(show(9.0, (1, 1), height=2).splitlines()) == 2


def test_the_dashboard_has_colours_and_no_others() -> None:
    night = stumbling_night()
    screen = render_dashboard(night.progress, title="run", width=120, height=24, now=night.now)
    text = draw(screen, 120, colour=True)
    assert "\x1b[33mquarantined" in text
    assert "\x1b[1;31mfailed" in text
    # The escape that the error brought along stands there as text.
    assert "\\x1b[31m" in text


@WIDTHS
def test_list(width: int) -> None:
    counts = {"complete": 12, "quarantined": 1, "blocked": 3}

    def summary(
        run_id: str, status: RunStatus, name: str, day: int, counts: dict[str, int], rows: int
    ) -> RunSummary:
        time = f"2026-11-{day}T01:00:02.123456Z"
        return RunSummary(RunId(run_id), status, name, time, time, "/d", counts, rows)

    runs = [
        summary("zz111", RunStatus.INGESTED, "orders", 30, {}, 0),
        summary("k3x9a", RunStatus.FAILED, "orders", 29, counts, 2_000_040),
        summary("aaaaa", RunStatus.COMPLETED, HOSTILE, 28, {"complete": 16}, 0),
    ]
    compare("list", draw(render_list(runs, RunId("zz111")), width), width)
    compare("list", draw(render_list(runs, RunId("zz111"), width=60), 60), 60)
    # Plain lines are the table, but that they are not folded.
    for chosen in (RunId("zz111"), None):
        lines = ["".join(text for text, _ in line).rstrip() for line in list_lines(runs, chosen, width=120)]
        assert lines == draw(render_list(runs, chosen, width=120), 120).splitlines()
        # Many are lines on a terminal, too; they are cut off there.
        many = draw(render_list(runs * 70, chosen, width=width), width).splitlines()
        assert len(many) == 212
        assert many[1] == many[4] == lines[1]
        assert many[2] == (lines[2] if width == 120 else f"{lines[2][:79]}…")
    assert describe_waiting(runs[:2]) == "zz111 (ingested), k3x9a (failed, 2,000,040 rows)"
    assert describe_waiting(runs * 2).endswith(" and 3 more (astro list)")
    assert "No run has anything to do." in draw(render_list(runs, None), width)


@WIDTHS
def test_show(width: int) -> None:
    night = stumbling_night()
    night.tell(StepInterrupted(**night.envelope("load-customers"), detail="interrupted"))  # type: ignore[arg-type]
    night.finish(RunStatus.FAILED)
    assert night.record is not None
    screen = render_run(night.record, "/pipelines/orders/.working/k3x9a", hints=["astro run k3x9a"])
    compare("show", draw(screen, width), width)


@WIDTHS
def test_show_where_the_rows_went_and_what_rules_they_break(width: int) -> None:
    night = Night("check-everything", "tidy", "shorten")
    night.begin()
    night.start("check-everything", "tidy", "shorten")
    path = "ingested/orders.parquet"
    rules = (
        RuleCount("price is out of bounds", 1_940),
        RuleCount("customer is not in customers", 0),
        RuleCount(HOSTILE, 1_999_960, "warn"),
    )
    part = PartWritten("quarantine/check-everything/orders.part-00001.parquet", 1_940, 9)
    version = VersionWritten("versions/orders/check-everything.1.parquet", 1_998_000, 12, 9)
    checked = FileFlow(
        "orders", path, 2_000_000, 1_998_000, 1_940, version, (part,), rows_discarded=60, rules=rules
    )
    night.settle("check-everything", StepStatus.QUARANTINED, "1,940 rows", checked)
    tidied = FileFlow("orders", path, 1_998_000, 998_000, 0, None, rows_filtered=1_000_000)
    night.settle("tidy", StepStatus.COMPLETE, None, tidied)
    night.settle("shorten", StepStatus.COMPLETE, None, FileFlow("orders", path, 998_000, 998_012, 0, None))
    night.finish(RunStatus.QUARANTINED)
    assert night.record is not None
    compare("show-flow", draw(render_run(night.record, "/p/.working/k3x9a"), width), width)
    lines = [line.text for line in PlainLines(RunProgress(night.steps)).take(night.events)]
    assert any("(warns: 1,999,960 of 2,000,000 rows: no [red]such" in line for line in lines)


@WIDTHS
def test_quarantine(width: int) -> None:
    record = stumbling_night().record
    assert record is not None
    screen = render_quarantine(record, [(record.steps["validate"], PARKED)], hint="astro quarantine show")
    compare("quarantine-list", draw(screen, width), width)


@WIDTHS
@pytest.mark.parametrize("columns", [4, 12])
def test_quarantined_rows(width: int, columns: int) -> None:
    names = {"id": "Int64", "note": "String", "bill_length_mm": "Float64", "shipped_at_local_time": "Date"}
    names |= {f"measurement_{number}": "Float64" for number in range(columns - 4)}
    values = [(7, "", 1.5, None, *range(columns - 4)), (12, HOSTILE, None, "2026-11-29", *range(columns - 4))]
    rows = QuarantinedRows("validate", "orders", names, values, ["too long", "too long"], 40)
    compare(f"rows-{columns}", draw(render_rows(rows, width), width), width)


@WIDTHS
def test_verify(width: int) -> None:
    advice = "`astro run k3x9a --rerun validate` makes it anew"
    path = "versions/orders/validate.1.parquet"
    overwritten = "was overwritten: it has 1,200 bytes instead of 80,000,000; it was given to 'enrich'"
    findings = [
        Finding(FindingKind.CHANGED, True, f"{path} {overwritten}", path, "validate", advice),
        Finding(FindingKind.MISSING, True, f"{HOSTILE} is missing", HOSTILE),
        *[Finding(FindingKind.LITTER, False, f"{number} is named by no record") for number in range(25)],
    ]
    differences = (
        RowDifference("dedupe", "orders", 2_000_000, 1_999_000, 40, 1, 959),
        RowDifference("explode", HOSTILE, 10, 12, 0, 0, -2),
    )
    repairs = ("the statistics of the run were rebuilt from the journal",)
    status = RunStatus.QUARANTINED
    found = Verification("k3x9a", status, False, tuple(findings), differences, 9, 7, 3_400_000, repairs)
    compare("verify", draw(render_verification(found), width), width)
    sound = Verification("k3x9a", RunStatus.RUNNING, True, (), files=1, rows=1, size_bytes=10)
    assert draw(render_verification(sound), width) == (
        "run k3x9a  running  sound\n  1 file, 1 row, 10 B read, as the journal stood\n"
    )


def test_the_verdict_says_what_dropping_old_versions_would_free() -> None:
    night = Night("validate", "enrich")
    night.begin()
    for name, size_bytes in (("validate", 120_000_000), ("enrich", 10)):
        night.start(name)
        version = VersionWritten(f"versions/orders/{name}.1.parquet", 1, 1, size_bytes)
        night.settle(name, StepStatus.COMPLETE, None, FileFlow("orders", "x", 1, 1, 0, version))
    night.finish(RunStatus.COMPLETED)
    assert night.record is not None
    lines = list(verdict_lines(night.record, pipeline_dir=os.getcwd(), seconds=1.0))
    assert [line.text for line in lines[1:]] == [
        "dropping old versions would free 120.0 MB: astro cleanup k3x9a --versions"
    ]


def test_plain_lines() -> None:
    night = stumbling_night()
    night.tell(StepRetrying(**night.envelope("load-customers"), detail="retry at 23:59", error="busy"))  # type: ignore[arg-type]
    night.settle("load-customers", StepStatus.COMPLETE)
    night.finish(RunStatus.FAILED)
    lines = list(PlainLines(RunProgress(STEPS)).take(night.events))
    assert [line.text[:60].rstrip() for line in lines] == [
        "[1/6] quarantined validate 1.2s 40 of 2,000,000 rows",
        "[2/6] blocked     1 step: publish-everything-to-the-warehous",
        "[3/6] failed      enrich 1.2s ValueError: no [red]such[/red]",
        "[3/6] retrying    load-customers retry at 23:59: busy",
        "[4/6] complete    load-customers 1.2s",
    ]
    assert all(line.text.isprintable() for line in lines)
    assert night.record is not None
    verdict = list(verdict_lines(night.record, pipeline_dir=os.getcwd(), seconds=65.0))
    assert verdict[0].text == (
        "run k3x9a is failed: 1 complete, 1 quarantined, 1 failed, 1 blocked, 2 pending in 1m05s"
    )
    assert verdict[-1].text == "next: mend pipeline.py or what it reads, then: astro run k3x9a"
    assert all(line.text.isprintable() for line in verdict)
