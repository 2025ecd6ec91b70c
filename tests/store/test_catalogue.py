"""The runs of a pipeline directory, as a reader sees them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from astro_async._core.names import RunId
from astro_async._core.status import RunStatus, StepStatus
from astro_async._store.catalogue import existing_run_directory, load_run, load_summaries
from astro_async._store.layout import list_run_ids
from astro_async.exceptions import JournalError, RunNotFoundError
from core.samples import node
from store.samples import Night, ingest, run_folder, tree

NODES = [node("a", writes=["f"]), node("b", writes=["f"], after=["a"])]


def test_a_directory_without_runs(tmp_path: Path) -> None:
    assert list_run_ids(str(tmp_path)) == []
    assert load_summaries(str(tmp_path)) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_only_run_ids_are_runs(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    for name in (".ingest-abc12", "notarun", "ABC12", ".ingest.lock"):
        (tmp_path / ".working" / name).mkdir()
    assert list_run_ids(str(tmp_path)) == [run_id]


def test_a_summary_of_each_run(tmp_path: Path) -> None:
    ready, done = ingest(tmp_path, "f"), ingest(tmp_path, "f")
    night = Night(tmp_path, done)
    night.commit(*NODES)
    night.run_step("a", version=b"v", parts=[b"part"])
    night.end(RunStatus.QUARANTINED)
    summaries, notices = load_summaries(str(tmp_path))
    assert notices == []
    found = {summary.run_id: summary for summary in summaries}
    assert found[ready].status is RunStatus.INGESTED
    assert found[done].status is RunStatus.QUARANTINED
    assert found[done].counts == {"quarantined": 1, "pending": 1}
    assert found[done].rows_quarantined == 5
    assert found[done].source_directory == "/in"


def test_a_run_that_says_running_is_interrupted_unless_somebody_holds_it(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    assert [summary.status for summary in load_summaries(str(tmp_path))[0]] == [RunStatus.RUNNING]
    assert load_run(str(tmp_path), run_id).status is RunStatus.RUNNING
    night.die()
    assert [summary.status for summary in load_summaries(str(tmp_path))[0]] == [RunStatus.INTERRUPTED]
    assert load_run(str(tmp_path), run_id).status is RunStatus.INTERRUPTED


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 99, None])
def test_a_damaged_manifest_falls_back_to_the_journal(tmp_path: Path, content: bytes | None) -> None:
    run_id = ingest(tmp_path, "f")
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    night.end(RunStatus.INTERRUPTED)
    manifest = night.folder / "manifest.json"
    before = load_summaries(str(tmp_path))
    if content is None:
        manifest.unlink()
    else:
        manifest.write_bytes(content)
    left = tree(night.folder)
    (summary,), notices = before
    assert load_summaries(str(tmp_path)) == ([replace(summary, is_unfinished=True)], notices)
    assert load_run(str(tmp_path), run_id) == night.run
    # Readers repair nothing.
    assert tree(night.folder) == left


def test_a_summary_needs_the_first_line_of_the_manifest_alone(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    night.end(RunStatus.INTERRUPTED)
    manifest = night.folder / "manifest.json"
    before = load_summaries(str(tmp_path))
    head, _, lists = manifest.read_bytes().partition(b"\n")
    for rest in (b"", b"\0" * len(lists), lists[: len(lists) // 2]):
        manifest.write_bytes(head + b"\n" + rest)
        assert load_summaries(str(tmp_path)) == before
        # Who reads the run itself does without the manifest then.
        assert load_run(str(tmp_path), run_id) == night.run


def test_a_first_line_that_is_not_the_head_is_no_damage(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    folder = run_folder(tmp_path, run_id)
    before = load_summaries(str(tmp_path))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for document in (
        json.dumps(manifest),
        json.dumps(manifest, indent=2),
        json.dumps({**manifest, "params": {"a": 1, "ingested_files": [{"name": "x"}]}}),
    ):
        (folder / "manifest.json").write_text(document)
        assert load_summaries(str(tmp_path)) == before


def test_a_run_of_a_later_version_is_a_notice(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    manifest = run_folder(tmp_path, run_id) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))
    summaries, (notice,) = load_summaries(str(tmp_path))
    assert summaries == []
    assert "schema version 2" in notice


def test_a_run_that_cannot_be_read_is_a_notice_and_hides_no_other(tmp_path: Path) -> None:
    good, bad = ingest(tmp_path, "f"), ingest(tmp_path, "f")
    folder = run_folder(tmp_path, bad)
    (folder / "manifest.json").write_bytes(b"{")
    (folder / "events.jsonl").write_bytes(b"#" * 500)
    (tmp_path / ".working" / "empty").mkdir()
    (tmp_path / ".working" / "afile").write_bytes(b"")
    summaries, notices = load_summaries(str(tmp_path))
    assert [summary.run_id for summary in summaries] == [good]
    assert sorted(notice.split(":")[0] for notice in notices) == sorted(
        f"run {name} cannot be read" for name in (bad, "empty", "afile")
    )
    with pytest.raises(JournalError):
        load_run(str(tmp_path), bad)


def test_a_run_shows_what_the_journal_has_beyond_the_manifest(tmp_path: Path) -> None:
    run_id = ingest(tmp_path, "f")
    night = Night(tmp_path, run_id)
    night.commit(*NODES)
    night.run_step("a", version=b"v")
    record = load_run(str(tmp_path), run_id)
    assert record.steps["a"].status is StepStatus.COMPLETE
    assert record == night.run
    night.die()


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    ingest(tmp_path, "f")
    for call in (existing_run_directory, load_run):
        with pytest.raises(RunNotFoundError, match=r"there is no run 'zzzzz' in .*astro list"):
            call(str(tmp_path), RunId("zzzzz"))
