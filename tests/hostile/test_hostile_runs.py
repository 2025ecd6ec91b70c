"""Planted links, names that lead outside, tampered records: refused, and nothing outside changes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest
from typer.testing import CliRunner

from astro_async import (
    AstroFileSpec,
    IngestFileSpec,
    Pipeline,
    StepContext,
    StepFiles,
    list_runs,
    read_run,
    run,
)
from astro_async.cli.app import app
from astro_async.exceptions import AstroError, InvalidNameError, JournalError, PipelineError, SymlinkError
from astro_async.testing import ingest_frames, read_file
from cli.commands import CSV, GATED, GOOD, HEAD, astro, document, ingest, make_project, start

SCORES = pl.DataFrame({"id": [1, 2, 3], "score": [5, -1, 7]})


def park(ctx: StepContext, files: StepFiles) -> None:
    frame = files[0].load()
    if not ctx.params.get("accept"):
        ctx.quarantine.quarantine_rows(files[0], frame.filter(pl.col("score") < 0), reason="negative")
        frame = frame.filter(pl.col("score") >= 0)
    files[0].save_to("processed", "scores.parquet", frame)


def make_pipeline() -> Pipeline:
    pipeline = Pipeline("hostile", ingest_files=[IngestFileSpec("scores", "scores.csv")])
    pipeline.add_step("park", park, AstroFileSpec("scores"))
    return pipeline


def go(directory: Path, **options: Any) -> Any:
    async def main() -> Any:
        return await run(make_pipeline(), pipeline_dir=directory, **options)

    return anyio.run(main)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A pipeline directory with a run that has parked a row."""
    directory = tmp_path / "pipeline"

    async def main() -> None:
        await ingest_frames(make_pipeline(), {"scores": SCORES}, directory)

    anyio.run(main)
    assert go(directory).exit_code == 3
    return directory


def run_folder(base: Path) -> Path:
    (folder,) = (base / ".working").glob("?????")
    return folder


def make_outside(tmp_path: Path) -> Path:
    """A folder of somebody else's."""
    outside = tmp_path / "outside"
    (outside / "scores").mkdir(parents=True)
    for name in ("scores.parquet", "scores/park.1.parquet", "precious.txt"):
        (outside / name).write_text("precious")
    return outside


def assert_untouched(outside: Path) -> None:
    files = {
        str(path.relative_to(outside)): path.read_text() for path in outside.rglob("*") if path.is_file()
    }
    names = ("scores.parquet", "scores/park.1.parquet", "precious.txt")
    assert files == dict.fromkeys(names, "precious")


def contents_of(root: Path) -> dict[Path, bytes]:
    """All files of a run but those of its lock."""
    found = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith("run.")]
    return {path: path.read_bytes() for path in found}


FOLDERS = ["versions", "quarantine", "snapshots", "filtered", "patches", "staging", "current", "processed"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_leads_outside(base: Path, tmp_path: Path, folder: str, is_killed: bool) -> None:
    """Be it in a retry or in the clearing up after a crash: nothing is written or removed out there."""
    outside, root = make_outside(tmp_path), run_folder(base)
    if is_killed:
        # The journal is ahead of the manifest, as after a kill: opening clears up.
        manifest = root / "manifest.json"
        manifest.write_bytes(b"")
    if (root / folder).exists():
        (root / folder).rename(tmp_path / "taken-away")
    (root / folder).symlink_to(outside)
    try:
        said = str(go(base, params={"accept": True}).record.steps)
    except SymlinkError as error:
        said = str(error)
    # In a run that is whole these two are not touched by what it does.
    if is_killed or folder not in ("filtered", "patches"):
        assert f"{folder} is a symbolic link, which could lead out of the run: remove it" in said
    assert_untouched(outside)
    (root / folder).unlink()
    if (tmp_path / "taken-away").exists():
        (tmp_path / "taken-away").rename(root / folder)
    last = go(base, run_id=root.name, params={"accept": True}, rerun=["park"])
    assert last.status == "completed"
    assert read_file(base, run_folder(base).name, "scores").equals(SCORES)


@pytest.mark.parametrize(
    "name", ["events.jsonl", "astro.log", "manifest.json.tmp", "run.lock", "run.holder.json.tmp"]
)
def test_a_file_of_the_run_that_leads_outside(base: Path, tmp_path: Path, name: str) -> None:
    root, victim = run_folder(base), tmp_path / "victim"
    content = b"precious"
    if (root / name).exists():
        content = (root / name).read_bytes()
        (root / name).unlink()
    victim.write_bytes(content)
    (root / name).symlink_to(victim)
    with pytest.raises(AstroError, match=r"symbolic link|symlink"):
        go(base, params={"accept": True})
    assert victim.read_bytes() == content


def test_a_run_that_is_a_link_is_refused_and_a_working_folder_that_is_one_is_not(
    base: Path, tmp_path: Path
) -> None:
    root = run_folder(base)
    elsewhere = tmp_path / "elsewhere"
    root.rename(elsewhere)
    root.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    for act in (lambda: go(base, run_id=root.name), lambda: read_run(base, root.name)):
        with pytest.raises(SymlinkError, match=root.name):
            act()
    summaries, notices = list_runs(base)
    assert (summaries, len(notices)) == ([], 1)
    assert "symbolic link" in notices[0]
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before
    # A larger disk for all runs is the operator's own choice.
    root.unlink()
    elsewhere.rename(root)
    (base / ".working").rename(tmp_path / "large")
    (base / ".working").symlink_to(tmp_path / "large")
    assert go(base, params={"accept": True}).status == "completed"
    assert read_file(base, root.name, "scores").equals(SCORES)


# -- records -----------------------------------------------------------------------------------------

PATHS = [
    "../../victim",
    "/etc/passwd",
    "versions/../../../victim",
    "versions//x",
    "versions/\0",
    "events.jsonl",
    "",
]


def tamper(document: Any, key: str, value: str) -> int:
    """Replace each text under a key, at any depth; return how many."""
    count = 0
    for name, inner in document.items() if isinstance(document, dict) else enumerate(document):
        if name == key and isinstance(inner, str):
            document[name] = value
            count += 1
        elif isinstance(inner, dict | list):
            count += tamper(inner, key, value)
    return count


@pytest.mark.parametrize("path", PATHS, ids=repr)
@pytest.mark.parametrize("key", ["path", "read", "parquet_path", "positions"])
def test_a_manifest_with_a_path_outside_the_run(base: Path, tmp_path: Path, key: str, path: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    manifest = run_folder(base) / "manifest.json"
    document = json.loads(manifest.read_text())
    if not tamper(document, key, path):
        tamper(document, "path", path)
    manifest.write_text(json.dumps(document))
    # It is rebuilt from the journal, which is whole, and the damage is told.
    result = go(base, params={"accept": True})
    assert "the manifest was rebuilt from the journal" in result.notices[0]
    assert victim.read_text() == "precious"
    assert read_file(base, run_folder(base).name, "scores").equals(SCORES)


@pytest.mark.parametrize("path", PATHS, ids=repr)
@pytest.mark.parametrize("key", ["path", "read", "name", "step_id", "run_id"])
def test_a_journal_with_a_path_outside_the_run(base: Path, tmp_path: Path, key: str, path: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    root = run_folder(base)
    (root / "manifest.json").unlink()
    journal = root / "events.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum(tamper(line, key, path) for line in lines)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = {
        path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "run." not in path.name
    }
    with pytest.raises(JournalError, match=r"events\.jsonl"):
        go(base, run_id=root.name, params={"accept": True})
    assert victim.read_text() == "precious"
    after = {
        path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "run." not in path.name
    }
    assert after == before


@pytest.mark.parametrize("filler", [b"x", b"[", b"\n"], ids=repr)
def test_a_journal_line_of_50_megabytes(base: Path, filler: bytes) -> None:
    """Behind what is durable it is a torn tail; where everything must be good it is an error of one line."""
    root = run_folder(base)
    journal = root / "events.jsonl"
    good = journal.read_bytes()
    journal.write_bytes(good + filler * (50_000_000 // len(filler)))
    assert read_run(base, root.name).status == "quarantined"
    result = go(base, params={"accept": True})
    assert "the end of the journal was torn and has been dropped" in result.notices
    assert read_file(base, root.name, "scores").equals(SCORES)
    (root / "manifest.json").unlink()
    journal.write_bytes(filler * (50_000_000 // len(filler)) + b"\n" + good)
    with pytest.raises(JournalError) as caught:
        go(base, run_id=root.name)
    assert len(str(caught.value)) < 1000


def test_a_valid_line_of_50_megabytes_is_shown_shortened(tmp_path: Path) -> None:
    run_id = ingest(make_project(tmp_path, GOOD))
    astro("run", "-C", tmp_path)
    root = tmp_path / ".working" / run_id
    (root / "manifest.json").unlink()
    lines = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    lines[-1]["detail"] = "x" * 50_000_000
    (root / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(astro("list", "-C", tmp_path).stdout) < 10_000
    assert len(astro("show", "-C", tmp_path).stdout) < 10_000


# -- names -------------------------------------------------------------------------------------------

LONG, ODD_NAMES = "x" * 201, ["..", ".", "a/b", "/a", "a\0b", "a\nb", "-a", "", " ", "\ud800", "a\\b"]


@pytest.mark.parametrize("name", [LONG, "é" * 101, *ODD_NAMES], ids=ascii)
def test_names_that_become_paths(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError):
        Pipeline("p", ingest_files=[IngestFileSpec(name, "*.csv")]).graph()
    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("scores", "*.csv")])

    def declare() -> None:
        pipeline.add_step("label", park, AstroFileSpec("scores"), step_id=name)
        pipeline.graph()

    with pytest.raises(PipelineError):
        declare()
    with pytest.raises(InvalidNameError):
        read_run(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


# A folder in a folder is a good place to save to.
@pytest.mark.parametrize("name", [LONG, *(name for name in ODD_NAMES if name != "a/b")], ids=ascii)
def test_save_to(name: str, tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def save(_ctx: StepContext, files: StepFiles) -> None:
        for subfolder, filename in ((name, "a.parquet"), ("processed", name), (f"processed/{name}/x", "a")):
            try:
                files[0].save_to(subfolder, filename, SCORES)
            except InvalidNameError as error:
                caught.append(error)

    pipeline = Pipeline("p", ingest_files=[IngestFileSpec("scores", "scores.csv")])
    pipeline.add_step("save", save, AstroFileSpec("scores"))

    async def main() -> Any:
        run_id = await ingest_frames(pipeline, {"scores": SCORES}, tmp_path / "p")
        return await run(pipeline, pipeline_dir=tmp_path / "p", run_id=run_id)

    assert anyio.run(main).status == "completed"
    assert len(caught) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert not list(run_folder(tmp_path / "p").rglob("a.parquet"))


@pytest.mark.parametrize("name", ["a" * 10_000, "../x", "\0", "\x1b[31m", "\ud800"], ids=ascii)
def test_params(name: str, base: Path) -> None:
    """They are text in the records, and become no path; what is no Unicode cannot be recorded."""
    root = run_folder(base)
    if name == "\ud800":
        with pytest.raises(PipelineError, match="params"):
            go(base, params={name: name, "accept": True})
        return
    result = go(base, params={name: name, "accept": True})
    assert result.record.params[name] == name
    assert read_run(base, root.name).params[name] == name
    assert read_file(base, root.name, "scores").equals(SCORES)
    assert "\x1b" not in astro("show", "-C", base).stdout


# -- pipeline.py -------------------------------------------------------------------------------------

CHANGES = """
import os, signal
os.chdir("/")
os.environ.clear()
os.environ.update(HOME="/nowhere", TMPDIR="/nowhere", PYTHONHASHSEED="x", COLUMNS="x", TERM="\\x1b")
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.set_wakeup_fd(-1)
"""


def test_a_pipeline_that_changes_the_process(tmp_path: Path) -> None:
    """Relative paths go on meaning the same, and signals go on being heard."""
    make_project(tmp_path, GATED + CHANGES)
    source = GATED.replace('open("started", "w")', f'open("{tmp_path}/started", "w")')
    (tmp_path / "pipeline.py").write_text(
        source.replace('open("gate")', f'open("{tmp_path}/gate")') + CHANGES
    )
    for fifo in ("started", "gate"):
        os.mkfifo(tmp_path / fifo)
    taken_in = start("ingest", "source", cwd=tmp_path)
    out, err = taken_in.communicate(timeout=120)
    assert taken_in.returncode == 0, err
    process = start("run", cwd=tmp_path)
    with open(tmp_path / "started") as started:
        started.read()
    process.terminate()
    assert process.stderr is not None
    assert "stopping: running steps finish" in process.stderr.readline()
    (tmp_path / "gate").write_text("go")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "is interrupted: 1 complete, 1 pending" in out
    assert "[1/1] complete    later" in start("run", cwd=tmp_path).communicate(timeout=120)[0]


# -- text --------------------------------------------------------------------------------------------

DRIVING = "\\x1b]0;owned\\x07\\x1b[31mred\\x1b[0m[bold]\\r\\n\\u202eevil\\x9b2J"

TALKING = (
    HEAD
    + f"""
TEXT = "{DRIVING}"

def work(ctx, files):
    ctx.logger.warning("log %s", TEXT)
    ctx.report_progress(0.5)
    frame = files[0].load()
    ctx.quarantine.quarantine_rows(files[0], frame.head(1), reason="reason " + TEXT)
    files[0].save_in_place(frame.tail(2))

def fail(ctx, files):
    raise ValueError("error " + TEXT)

pipeline = Pipeline("name " + TEXT, ingest_files=[IngestFileSpec("scores", "scores*.csv")])
pipeline.add_step("label " + TEXT, work, Scores, step_id="work", on_quarantine="continue")
pipeline.add_step("fail", fail, READER)
"""
)


def test_text_never_drives_a_terminal(tmp_path: Path) -> None:
    column = "co\x1b[31ml\x07\u202e"
    project = make_project(tmp_path / "dir", TALKING)
    (project / "source" / "scores.csv").unlink()
    name = "scores \x1b[2J\x07\n.csv"
    (project / "source" / name).write_text(f"id,{column}\n1,\x1b[5mx\n2,b\n3,c\n")
    said = [astro("ingest", project / "source", "-C", project)]
    said.append(astro("run", "-k", "-C", project, code=1))
    commands = ["list", "show", "logs", "run --dry-run", "quarantine list", "quarantine show"]
    # Not by the way of the other tests, which want no traceback: the log has that of the step.
    said += [CliRunner().invoke(app, [*command.split(), "-C", str(project)]) for command in commands]
    assert {result.exit_code for result in said[2:]} == {0}
    for result in said:
        text = result.stdout + result.stderr
        assert text
        drives = [char for char in text if not char.isprintable() and char != "\n"]
        assert drives == [], text
    shown = said[-1].stdout
    assert "reason \\x1b]0;owned" in shown
    assert "co\\x1b[31ml" in shown
    (run_id,) = [each["run_id"] for each in document("list", "-C", project)["runs"]]
    frame = read_file(project, run_id, "scores")
    # Data stay as they are: only what is shown is escaped.
    assert frame.columns == ["id", column]
    assert frame[column].to_list() == ["b", "c"]
    parts = document("quarantine", "show", "-C", project)
    assert "\x1b[5mx" in json.dumps(parts, ensure_ascii=False) or "\\u001b[5mx" in json.dumps(parts)


# -- a step that writes into its input ---------------------------------------------------------------

OVERWRITES = (
    HEAD
    + """
def overwrite(ctx, files):
    files[0].load().clear().write_parquet(files[0].active_path)

pipeline = Pipeline("p", ingest_files=FILES)
pipeline.add_step("overwrite", overwrite, Scores)
"""
)


def test_a_step_that_writes_into_its_input(tmp_path: Path) -> None:
    """The mode refuses it to all but root, whom no mode binds; the file is read-only in any case."""
    run_id = ingest(make_project(tmp_path, OVERWRITES))
    ingested = tmp_path / ".working" / run_id / "ingested" / "scores.parquet"
    assert ingested.stat().st_mode & 0o777 == 0o444
    if os.geteuid() == 0:
        return
    astro("run", "-C", tmp_path, code=1)
    (step,) = document("show", "-C", tmp_path)["step_states"]
    assert step["status"] == "failed"
    assert "Permission denied" in step["detail"]
    assert pl.read_parquet(ingested).height == CSV.count("\n") - 1
