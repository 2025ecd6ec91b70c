"""`astro stats` and `astro stats trend`."""

from __future__ import annotations

import shutil
from pathlib import Path

from astro_async.cli.render_stats import draw_bars, gather_series, render_trend
from cli.commands import GOOD, HEAD, astro, document, ingest, make_project, write_pipeline
from cli.test_screens import HOSTILE, draw


def test_without_any_run(tmp_path: Path) -> None:
    for more in ([], ["--json"]):
        assert "there is no run in" in astro("stats", "-C", tmp_path, *more, code=1).stderr
    assert "there is no run 'zzzzz'" in astro("stats", "zzzzz", "-C", tmp_path, code=1).stderr
    assert "is not a run id" in astro("stats", "../x", "-C", tmp_path, code=2).stderr
    assert "has recorded 'rows_quarantined' for a step" in astro("stats", "trend", "-C", tmp_path).stdout
    assert document("stats", "trend", "-C", tmp_path)["series"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_a_run(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path))
    astro("run", "-C", tmp_path, code=3)
    lines = [line.split() for line in astro("stats", "-C", tmp_path).stdout.splitlines()]
    assert next(line for line in lines if line[:1] == ["check"])[:2] == ["check", "duration_ms"]
    assert ["rows_quarantined", "1"] in lines
    told = document("stats", run_id, "-C", tmp_path)
    numbers = {(each["subject"], each["action"]): each["value"] for each in told["statistics"]}
    assert numbers["check", "rows_out"] == 2
    assert numbers["scores", "row_count"] == 3
    assert numbers[run_id, "steps_quarantined"] == 1


def test_statistics_outlive_the_run_and_the_database(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    astro("run", "-C", tmp_path)
    kept = tmp_path / "kept"
    shutil.move(tmp_path / ".working" / run_id, kept)
    assert document("stats", run_id, "-C", tmp_path)["statistics"]
    shutil.move(kept, tmp_path / ".working" / run_id)
    (tmp_path / ".astro" / "stats.db").unlink()
    assert f"`astro verify {run_id} --repair` makes them" in astro("stats", "-C", tmp_path).stdout


def test_a_trend(tmp_path: Path) -> None:
    make_project(tmp_path)
    run_ids = []
    for csv, code in (("1,5\n", 0), ("1,-5\n2,-6\n", 3), ("1,-5\n", 3)):
        (tmp_path / "source" / "scores.csv").write_text(f"id,score\n{csv}")
        run_ids.append(ingest(tmp_path))
        astro("run", run_ids[-1], "-C", tmp_path, code=code)
    told = document("stats", "trend", "--since", "1d", "-C", tmp_path)
    series = {each["subject"]: each["points"] for each in told["series"]}
    assert [(point["run_id"], point["value"]) for point in series["check"]] == [
        (run_ids[0], 0),
        (run_ids[1], 2),
        (run_ids[2], 1),
    ]
    text = astro("stats", "trend", "-C", tmp_path).stdout
    assert "rows_quarantined by step, 3 runs from" in text
    assert "check  ▁█▅        1      0     1     2" in text
    files = document("stats", "trend", "--by", "file", "-C", tmp_path)["series"]
    assert [point["value"] for point in files[0]["points"]] == [1, 2, 1]
    (runs,) = document("stats", "trend", "--by", "run", "-C", tmp_path)["series"]
    assert runs["subject"] == "scores"
    assert len(runs["points"]) == 3
    assert document("stats", "trend", "--since", "0m", "-C", tmp_path)["series"] == []
    assert document("stats", "trend", "--since", "900000w", "-C", tmp_path)["series"]
    own = document("stats", "trend", "--action", "rows_in", "-C", tmp_path)["series"]
    assert [point["value"] for point in own[0]["points"]] == [1, 2, 1]


def test_options_of_a_trend_belong_to_a_trend(tmp_path: Path) -> None:
    ingest(make_project(tmp_path))
    for option in (["--since", "8w"], ["--by", "step"], ["--action", "x"]):
        assert "astro stats trend" in astro("stats", *option, "-C", tmp_path, code=2).stderr
    assert "such as" in astro("stats", "trend", "--since", "x", "-C", tmp_path, code=2).stderr


def test_what_authors_record_is_shown_as_text(tmp_path: Path) -> None:
    pipeline = HEAD + (
        "pipeline = Pipeline('p', ingest_files=FILES)\n"
        "@pipeline.step(READER)\n"
        "def count(ctx, files):\n"
        "    ctx.stats.record('[red]a\\x1b[31mb', 2.5)\n"
    )
    make_project(tmp_path)
    write_pipeline(tmp_path, pipeline)
    ingest(tmp_path)
    astro("run", "-C", tmp_path)
    text = astro("stats", "-C", tmp_path).stdout
    assert "[red]a\\x1b[31mb" in text
    assert "\x1b" not in text
    assert "2.500" in text


def test_bars() -> None:
    assert draw_bars([0, 1, 3.5, 7, None]) == "▁▂▅█·"
    assert draw_bars([0, 0, None]) == "▁▁·"
    assert draw_bars([]) == ""


def test_a_trend_fits_the_screen() -> None:
    found = [(HOSTILE, f"r{n:04}", f"2026-11-{n % 30 + 1:02}", float(n)) for n in range(200)]
    found += [("a" * 60, "r0001", "2026-11-02", 2.0e9)]
    for width in (80, 120):
        text = draw(render_trend(gather_series(found), by="step", action="duration_ms", width=width), width)
        assert all(len(line) <= width for line in text.splitlines())
        assert "\x1b" not in text
