"""The manifest: it holds the record, whole, or it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._core.events import PartWritten
from astro_async._core.lineage import active_versions
from astro_async._core.manifest import (
    SCHEMA_VERSION,
    ManifestHead,
    dump_manifest,
    parse_attention,
    parse_head,
    parse_manifest,
    restore_record,
    snapshot_record,
    summarise,
)
from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus, StepStatus
from astro_async.exceptions import JournalError, SchemaVersionError
from core.samples import RUN, Story, flow, freeze, planned_story
from core.strategies import PARAMS, damaged


def busy_run() -> RunRecord:
    story = planned_story("f", "größe", steps=["a", "b", "c", "gone"])
    story.run_step("a", flow("f", "ingested/f.parquet", "versions/f/a.1.parquet"))
    part = PartWritten("quarantine/b/f.part-00001.parquet", 3, 9, "quarantine/b/f.part-00001.rows")
    story.run_step(
        "b",
        flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet", parts=[part]),
        status=StepStatus.QUARANTINED,
    )
    story.plan(removed=["gone"])
    story.start("c")
    return story.run


DOCUMENT = dump_manifest(snapshot_record(busy_run(), journal_bytes=777))


def round_trip(run: RunRecord) -> RunRecord:
    return restore_record(parse_manifest(dump_manifest(snapshot_record(run, journal_bytes=5))))


@pytest.mark.parametrize("status", StepStatus)
def test_a_record_survives_its_manifest(status: StepStatus) -> None:
    story = planned_story("f")
    story.to_step_status("s", status)
    assert round_trip(story.run) == story.run


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.CREATED])
def test_a_run_survives_in_every_status(status: RunStatus) -> None:
    story = planned_story("f")
    story.run.status = status
    assert round_trip(story.run) == story.run


def test_empty_and_busy_runs_survive() -> None:
    assert round_trip(Story().run) == Story().run
    assert round_trip(busy_run()) == busy_run()


def test_what_the_manifest_says() -> None:
    manifest = parse_manifest(DOCUMENT)
    assert manifest.schema_version == SCHEMA_VERSION == 1
    assert (manifest.journal_bytes, manifest.journal_seq) == (777, busy_run().seq)
    assert manifest.step_counts == {"complete": 1, "quarantined": 1, "running": 1}
    assert manifest.rows_quarantined == 3
    assert manifest.removed_steps == {"gone": 0}
    active = {file.name: file.active_path for file in manifest.ingested_files}
    assert active == {"f": "versions/f/b.1.parquet", "größe": "ingested/größe.parquet"}


def first_line(run: RunRecord) -> bytes:
    document = dump_manifest(snapshot_record(run, journal_bytes=777))
    return document[: document.index(b"\n") + 1]


def test_the_first_line_is_the_head_and_tells_what_a_list_needs() -> None:
    head, whole = parse_head(first_line(busy_run())), parse_manifest(DOCUMENT)
    assert [getattr(head, name) for name in ManifestHead.__struct_fields__] == [
        getattr(whole, name) for name in ManifestHead.__struct_fields__
    ]
    assert summarise(head, locked=True) == summarise(whole, locked=True)
    assert not hasattr(head, "step_states")


@settings(max_examples=50, deadline=None)
@given(PARAMS)
def test_a_head_has_any_params(params: dict[str, Any]) -> None:
    story = planned_story("f")
    story.plan("s", params=params)
    assert parse_head(first_line(story.run)).params == story.run.params


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"{", b"[]", b"{}", b"\0" * 50, b"\xff", DOCUMENT, DOCUMENT[:300]]
)
def test_what_is_no_head(line: bytes) -> None:
    with pytest.raises(JournalError, match="not a manifest"):
        parse_head(line)


QUIET = (StepStatus.COMPLETE, StepStatus.PENDING, StepStatus.SKIPPED)


@given(statuses=st.lists(st.sampled_from(StepStatus), max_size=8), publishes=st.data())
def test_what_needs_attention_is_read_from_the_lines(
    statuses: list[StepStatus], publishes: st.DataObject
) -> None:
    steps = [f"s{number}" for number in range(len(statuses))]
    story = planned_story("f", "g", steps=steps)
    for step, status in zip(steps, statuses, strict=True):
        if status is not StepStatus.COMPLETE:
            story.to_step_status(step, status)
            continue
        names = publishes.draw(st.sets(st.sampled_from("fg")))
        # Its detail looks like a line that is quiet, and like one that is not.
        story.run_step(
            step,
            *(flow(name, f"ingested/{name}.parquet", f"versions/{name}/{step}.1.parquet") for name in names),
        )
    story.run.detail = '"status":"failed"'
    manifest = snapshot_record(story.run, journal_bytes=7)
    lines = dump_manifest(manifest).splitlines(keepends=True)
    assert parse_attention(lines, above=len(steps)) is None
    found = parse_attention(lines, above=len(steps) - 1)
    assert found is not None
    assert found.ingested_files == manifest.ingested_files
    assert found.step_counts == manifest.step_counts
    read = restore_record(found)
    assert active_versions(read) == active_versions(story.run)
    # What is left out went well or waits; what is there is as it was, in the order that it had.
    left_out = [step for step in story.run.steps.values() if step.step_id not in read.steps]
    assert all(step.status in QUIET for step in left_out)
    assert list(read.steps.values()) == [s for s in story.run.steps.values() if s.step_id in read.steps]


def test_many_quiet_steps_are_not_decoded() -> None:
    story = planned_story("f", steps=[f"s{number}" for number in range(500)])
    for number in range(400):
        story.run_step(f"s{number}", flow("f", "ingested/f.parquet", f"versions/f/s{number}.1.parquet"))
    story.to_step_status("s450", StepStatus.FAILED)
    lines = dump_manifest(snapshot_record(story.run, journal_bytes=7)).splitlines(keepends=True)
    found = parse_attention(lines, above=60)
    assert found is not None
    # The one that made the active version, and the one that failed.
    assert [step.step_id for step in found.step_states] == ["s399", "s450"]
    with pytest.raises(JournalError):
        parse_attention(lines[:-1], above=60)


def test_a_line_that_ends_among_the_params_is_no_head() -> None:
    story = planned_story("f")
    story.plan("s", params={"a": 1, "ingested_files": [{"name": "x"}]})
    line, _, _ = first_line(story.run).partition(b'"ingested_files":[')
    with pytest.raises(JournalError, match="not a manifest"):
        parse_head(line + b"\n")


def test_a_head_of_a_later_schema_is_named() -> None:
    line = first_line(busy_run()).replace(b'"schema_version":1', b'"schema_version":2')
    with pytest.raises(SchemaVersionError, match="schema version 2"):
        parse_head(line)


def test_the_fields_that_the_contract_names() -> None:
    document: dict[str, Any] = json.loads(DOCUMENT)
    assert {
        "schema_version",
        "run_id",
        "pipeline_name",
        "status",
        "source_directory",
        "run_date",
        "params",
        "created_at",
        "ingested_at",
        "ingested_files",
        "step_states",
    } <= document.keys()
    assert {
        "name",
        "source_path",
        "parquet_path",
        "active_path",
        "row_count",
        "column_count",
        "source_size_bytes",
    } <= document["ingested_files"][0].keys()
    assert [step["step_id"] for step in document["step_states"]] == ["a", "b", "c"]
    for step in document["step_states"]:
        assert {"step_id", "status", "detail", "attempt", "started_at", "finished_at", "files"} <= step.keys()


def test_it_can_be_read_by_people() -> None:
    lines = DOCUMENT.decode().splitlines()
    assert DOCUMENT.endswith(b"}\n")
    assert [line for line in lines if line.startswith('{"step_id":"')] == [
        line for line in lines if '"attempt":' in line
    ]
    assert sum(line.startswith('{"name":"') and '"active_path":' in line for line in lines) == 2


def test_a_snapshot_does_not_show_later_events() -> None:
    story = planned_story("f")
    story.start("s")
    before = freeze(story.run)
    manifest = snapshot_record(story.run, journal_bytes=1)
    story.finish("s", files=[flow("f", "ingested/f.parquet", "versions/f/s.1.parquet")])
    story.plan("t", removed=["s"])
    story.end(RunStatus.COMPLETED)
    assert restore_record(parse_manifest(dump_manifest(manifest))) == before


def test_a_restored_record_goes_on_as_the_original_does() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a", flow("f", "ingested/f.parquet", "versions/f/a.1.parquet"))
    original = story.run
    story.run = round_trip(original)
    story.run_step("b", flow("f", "versions/f/a.1.parquet", "versions/f/b.1.parquet"))
    assert original.steps["b"].status is StepStatus.PENDING
    assert round_trip(story.run) == story.run
    assert [record.status for record in story.run.steps.values()] == [StepStatus.COMPLETE] * 2


@settings(max_examples=50, deadline=None)
@given(PARAMS)
def test_any_params_survive(params: dict[str, Any]) -> None:
    story = planned_story("f")
    story.plan("s", params=params)
    assert round_trip(story.run) == story.run


def test_params_that_look_like_the_document_survive() -> None:
    story = planned_story("f")
    params = {
        "a": 1,
        "ingested_files": [{"name": "x"}, {"name": "y"}],
        "step_states": [{"step_id": 1}, {"step_id": 2}],
    }
    story.plan("s", params={**params, "text": ',"ingested_files":[', "more": '},{"name":'})
    assert round_trip(story.run) == story.run


@settings(max_examples=150, deadline=None)
@given(damaged([DOCUMENT]))
def test_a_damaged_manifest_is_read_or_is_a_journal_error(document: bytes) -> None:
    try:
        manifest = parse_manifest(document)
    except JournalError:
        return
    restore_record(manifest)
    summarise(manifest, locked=False)


@pytest.mark.parametrize("cut", range(0, len(DOCUMENT) - 2, 37))
def test_a_manifest_that_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(JournalError, match="not a manifest"):
        parse_manifest(DOCUMENT[:cut])


@pytest.mark.parametrize("document", [b"", b"\0" * 50, b"[]", b"{}", b"\xff", b"[" * 100_000, DOCUMENT * 2])
def test_what_is_no_manifest(document: bytes) -> None:
    with pytest.raises(JournalError, match="not a manifest"):
        parse_manifest(document)


@pytest.mark.parametrize("rest", ["", ',"run":{"id":"abc12"}'])
def test_a_later_schema_is_named_whatever_else_it_holds(rest: str) -> None:
    for document in (
        DOCUMENT.replace(b'"schema_version":1', b'"schema_version":2'),
        f'{{"schema_version":2{rest}}}'.encode(),
    ):
        with pytest.raises(JournalError, match="schema version 2, this program reads 1"):
            parse_manifest(document)


@pytest.mark.parametrize("status", RunStatus)
@pytest.mark.parametrize("locked", [True, False])
def test_a_summary(status: RunStatus, locked: bool) -> None:
    run = busy_run()
    run.status = status
    summary = summarise(snapshot_record(run, journal_bytes=1), locked=locked)
    dead = status is RunStatus.RUNNING and not locked
    assert summary.status is (RunStatus.INTERRUPTED if dead else status)
    assert (summary.run_id, summary.rows_quarantined) == (RUN, 3)
    assert summary.counts == {"complete": 1, "quarantined": 1, "running": 1}


def test_text_that_is_no_unicode_does_not_keep_a_manifest_from_being_written() -> None:
    run = restore_record(parse_manifest(DOCUMENT))
    run.detail = "caf\udce9"
    restored = restore_record(parse_manifest(dump_manifest(snapshot_record(run, journal_bytes=1))))
    assert restored.detail == "caf?"
