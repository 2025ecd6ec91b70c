"""Folding: every pair of status and event is legal, or raises and changes nothing."""

from __future__ import annotations

import pytest

from astro_async._core.events import (
    AnyEvent,
    FileIngested,
    RowsPatched,
    RunCreated,
    RunFinished,
    RunIngested,
    RunPlanned,
    StepStarted,
    VersionsDropped,
    VersionWritten,
)
from astro_async._core.names import RunId
from astro_async._core.records import Patch, RunRecord, StepRecord, fold, start_record
from astro_async._core.status import RunStatus, StepStatus
from astro_async.exceptions import AstroError, IllegalTransitionError, JournalError
from core.samples import (
    RUN,
    TIME,
    Story,
    flow,
    freeze,
    planned_story,
    step_event,
    story_in_run_status,
)

P, R = StepStatus.PENDING, StepStatus.RUNNING
C, Q, F = StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.FAILED
B, S = StepStatus.BLOCKED, StepStatus.SKIPPED

# What each kind of event makes of a step that is pending, and of one that is running; no other may follow.
AFTER_PENDING = {"step_started": R, "step_blocked": B, "step_skipped": S}
AFTER_RUNNING = {"step_started": R, "step_retrying": R, "step_interrupted": P}
STEP_KINDS = [
    "step_started",
    "step_retrying",
    "step_blocked",
    "step_skipped",
    "step_interrupted",
]


def expect_refusal(story: Story, event: AnyEvent, error: type[AstroError]) -> None:
    before = freeze(story.run)
    with pytest.raises(error):
        fold(story.run, event)
    assert story.run == before


@pytest.mark.parametrize("kind", STEP_KINDS)
@pytest.mark.parametrize("present", StepStatus)
def test_every_pair_of_step_status_and_event(present: StepStatus, kind: str) -> None:
    story = planned_story("f")
    story.to_step_status("s", present)
    event = step_event(story, kind)
    after = {P: AFTER_PENDING, R: AFTER_RUNNING}.get(present, {}).get(kind)
    if after is None:
        expect_refusal(story, event, IllegalTransitionError)
    else:
        story.tell(event)
        assert story.run.steps["s"].status is after


@pytest.mark.parametrize("target", StepStatus)
@pytest.mark.parametrize("present", StepStatus)
def test_every_pair_of_step_status_and_outcome(present: StepStatus, target: StepStatus) -> None:
    story = planned_story("f")
    story.to_step_status("s", present)
    event = step_event(story, "step_finished", target)
    if present is R and target in (C, Q, F):
        story.tell(event)
        assert story.run.steps["s"].status is target
    else:
        expect_refusal(story, event, IllegalTransitionError)


@pytest.mark.parametrize("present", StepStatus)
def test_a_plan_makes_any_step_pending_and_keeps_its_attempts(present: StepStatus) -> None:
    story = planned_story("f")
    story.to_step_status("s", present)
    attempt = story.run.steps["s"].attempt
    story.plan("s")
    assert story.run.steps["s"] == StepRecord("s", P, attempt=attempt)


@pytest.mark.parametrize("kind", [*STEP_KINDS, "step_finished"])
def test_a_step_that_was_never_planned_is_refused(kind: str) -> None:
    story = planned_story("f", steps=["other"])
    expect_refusal(story, step_event(story, kind), IllegalTransitionError)


def run_event(story: Story, kind: str) -> AnyEvent:
    head = story.head()
    match kind:
        case "run_created":
            return RunCreated(
                **head, pipeline_name="again", source_directory="/", run_date="", params={"a": 1}
            )
        case "file_ingested":
            version = VersionWritten("ingested/f.parquet", 99, 9, 9)
            return FileIngested(**head, name="f", source_path="/x", source_size_bytes=9, version=version)
        case "run_ingested":
            return RunIngested(**head)
        case _:
            return RunPlanned(**head, again={"new": ["s", "t"]}, params={"a": 1}, jobs=1, pid=1, host="h")


@pytest.mark.parametrize("present", RunStatus)
def test_a_second_run_created_is_refused_in_every_run_status(present: RunStatus) -> None:
    story = story_in_run_status(present)
    expect_refusal(story, run_event(story, "run_created"), JournalError)


@pytest.mark.parametrize("present", RunStatus)
def test_files_are_ingested_only_while_the_run_is_created(present: RunStatus) -> None:
    story = story_in_run_status(present)
    event = run_event(story, "file_ingested")
    if present is RunStatus.CREATED:
        story.tell(event)
        assert story.run.files["f"].row_count == 99
    else:
        # The ingested version never changes.
        expect_refusal(story, event, IllegalTransitionError)


@pytest.mark.parametrize("present", RunStatus)
def test_a_run_is_ingested_once(present: RunStatus) -> None:
    story = story_in_run_status(present)
    event = run_event(story, "run_ingested")
    if present is RunStatus.CREATED:
        story.tell(event)
        assert (story.run.status, story.run.ingested_at) == (RunStatus.INGESTED, TIME)
    else:
        expect_refusal(story, event, IllegalTransitionError)


@pytest.mark.parametrize("present", RunStatus)
def test_any_ingested_run_may_be_planned(present: RunStatus) -> None:
    story = story_in_run_status(present)
    event = run_event(story, "run_planned")
    if present is RunStatus.CREATED:
        expect_refusal(story, event, IllegalTransitionError)
        return
    story.tell(event)
    assert story.run.status is RunStatus.RUNNING
    assert list(story.run.steps) == ["s", "t"]
    assert story.run.params == {"a": 1}
    assert (story.run.detail, story.run.finished_at) == (None, None)


@pytest.mark.parametrize("target", RunStatus)
@pytest.mark.parametrize("present", RunStatus)
def test_every_pair_of_run_status_and_verdict(present: RunStatus, target: RunStatus) -> None:
    story = story_in_run_status(present)
    event = RunFinished(**story.head(), status=target, duration_ms=3.0, detail="why")
    verdicts = {
        RunStatus.COMPLETED,
        RunStatus.QUARANTINED,
        RunStatus.FAILED,
        RunStatus.INTERRUPTED,
    }
    if present is RunStatus.RUNNING and target in verdicts:
        story.tell(event)
        assert story.run.status is target
        assert (story.run.detail, story.run.finished_at) == ("why", TIME)
    else:
        expect_refusal(story, event, IllegalTransitionError)


@pytest.mark.parametrize("kind", ["step_started", "step_blocked", "step_skipped"])
@pytest.mark.parametrize("present", RunStatus)
def test_steps_move_only_while_the_run_is_running(present: RunStatus, kind: str) -> None:
    story = story_in_run_status(present)
    event = step_event(story, kind)
    if present is RunStatus.RUNNING:
        story.tell(event)
        assert story.run.steps["s"].status is AFTER_PENDING[kind]
    else:
        expect_refusal(story, event, IllegalTransitionError)


@pytest.mark.parametrize("seq", [0, 4, 6, -1])
def test_a_gap_or_a_repeat_in_seq_is_refused(seq: int) -> None:
    story = planned_story("f")
    assert story.run.seq == 4
    event = StepStarted(seq=seq, time=TIME, run_id=RUN, step_id="s")
    expect_refusal(story, event, JournalError)


def test_an_event_of_another_run_is_refused() -> None:
    story = planned_story("f")
    expect_refusal(story, StepStarted(seq=5, time=TIME, run_id="other", step_id="s"), JournalError)


def test_a_run_event_that_names_a_step_and_a_step_event_that_names_none_are_refused() -> None:
    story = planned_story("f")
    expect_refusal(
        story, RunFinished(**story.head("s"), status=RunStatus.FAILED, duration_ms=1.0), JournalError
    )
    expect_refusal(story, StepStarted(**story.head()), JournalError)


def test_a_journal_starts_with_run_created() -> None:
    with pytest.raises(JournalError, match="starts with run_ingested"):
        start_record(RunIngested(seq=1, time=TIME, run_id=RUN))
    record = start_record(Story().events[0])
    assert record == RunRecord(RunId("abc12"), "p", RunStatus.CREATED, "/in", "2026-01-02", {}, TIME, seq=1)


def test_what_a_finished_step_leaves_on_record() -> None:
    story = planned_story("f")
    files = (flow("f", "ingested/f.parquet", "versions/f/s.1.parquet"),)
    story.run_step("s", *files)
    record = story.run.steps["s"]
    assert record == StepRecord("s", C, None, 1, TIME, TIME, files)
    assert record.read_versions() == {"f": "ingested/f.parquet"}
    assert record.published_versions() == {"f": "versions/f/s.1.parquet"}


@pytest.mark.parametrize("kind", ["step_blocked", "step_skipped"])
def test_a_step_that_did_not_run_has_no_files_of_its_last_attempt(kind: str) -> None:
    story = planned_story("f")
    story.run_step("s", flow("f", "ingested/f.parquet", "versions/f/s.1.parquet"))
    story.plan("s")
    story.tell(step_event(story, kind))
    record = story.run.steps["s"]
    assert (record.files, record.attempt) == ((), 1)


def test_attempts_count_every_start() -> None:
    story = planned_story("f")
    for expected in (1, 2, 3):
        story.start("s")
        assert story.run.steps["s"].attempt == expected
        story.tell(step_event(story, "step_retrying"))
        assert story.run.steps["s"].detail == "retry at noon"
    story.tell(step_event(story, "step_interrupted"))
    assert story.run.steps["s"] == StepRecord("s", P, "interrupted", 3)


def test_a_removed_step_is_forgotten_but_for_its_attempts() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a")
    story.run_step("b")
    story.plan("b", removed=["a"])
    assert (list(story.run.steps), story.run.removed) == (["b"], {"a": 1})
    story.plan("a")
    assert story.run.removed == {}
    assert story.run.steps["a"] == StepRecord("a", P, attempt=1)
    story.start("a")
    assert story.run.steps["a"].attempt == 2


def test_a_plan_puts_steps_in_serial_order() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.plan("new", order=["new", "b", "a"])
    assert list(story.run.steps) == ["new", "b", "a"]


@pytest.mark.parametrize("order", [["s", "nobody"], ["nobody"]])
def test_an_order_that_names_an_unknown_step_is_refused(order: list[str]) -> None:
    story = planned_story("f")
    event = RunPlanned(
        **story.head(), again={"new": ["t"]}, params={"a": 1}, jobs=1, pid=1, host="", order=order
    )
    expect_refusal(story, event, JournalError)


def test_an_order_that_leaves_out_a_step_is_refused() -> None:
    story = planned_story("f", steps=["a", "b"])
    event = RunPlanned(**story.head(), again={}, params={}, jobs=1, pid=1, host="", order=["a"])
    # A record that vanishes takes the only mention of its versions with it.
    expect_refusal(story, event, JournalError)


def test_dropped_versions_are_remembered() -> None:
    story = story_in_run_status(RunStatus.COMPLETED)
    story.tell(VersionsDropped(**story.head(), paths=["v1", "v2"], size_bytes=5))
    story.tell(VersionsDropped(**story.head(), paths=["v2", "v3"], size_bytes=5))
    assert story.run.dropped == {"v1", "v2", "v3"}
    assert story.run.status is RunStatus.COMPLETED


def test_patches_are_kept_in_order() -> None:
    story = story_in_run_status(RunStatus.QUARANTINED)
    for path in ("p1", "p2"):
        story.tell(RowsPatched(**story.head("s"), file="f", path=path, rows=2, discarded=1, because="why"))
    assert story.run.patches == [Patch("s", "f", path, 2, 1, "why", TIME) for path in ("p1", "p2")]


@pytest.mark.parametrize("status", ["completed", "quarantined", "failed", "interrupted"])
@pytest.mark.parametrize("given", [0, 2])
def test_only_a_completed_run_is_reopened_by_a_withdrawal_of_what_it_was_given(
    given: int, status: str
) -> None:
    before = RunStatus(status)
    story = story_in_run_status(before)
    head = story.head("s")
    story.tell(
        RowsPatched(**head, file="f", path="p1", rows=2, discarded=0, withdrawn=2, withdrawn_waiting=given)
    )
    is_reopened = before is RunStatus.COMPLETED and given
    assert story.run.status is (RunStatus.INTERRUPTED if is_reopened else before)
    assert (story.run.detail or "").startswith("decisions") is bool(is_reopened)
    story.plan("s")
    assert (story.run.status, story.run.detail) == (RunStatus.RUNNING, None)


def test_a_patch_that_names_no_step_is_refused() -> None:
    story = story_in_run_status(RunStatus.QUARANTINED)
    event = RowsPatched(**story.head(), file="f", path="p", rows=2, discarded=1)
    expect_refusal(story, event, JournalError)
