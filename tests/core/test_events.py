"""Lines of the journal: each kind of fact survives them, and no line does harm."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._core.events import (
    AnyEvent,
    RunCreated,
    RunPlanned,
    StepFinished,
    StepProgress,
    StepStarted,
    dump_event,
    kind_of,
    parse_event,
)
from astro_async._core.records import fold
from astro_async._core.status import StepStatus
from astro_async.exceptions import AstroError, IllegalTransitionError, JournalError
from core.samples import RUN, TIME, Story, flow, freeze, planned_story
from core.strategies import EVENTS, damaged

LINES = [dump_event(event) for event in planned_story("f", "g", steps=["a", "b"]).events] + [
    dump_event(
        StepFinished(
            seq=5,
            time=TIME,
            run_id=RUN,
            step_id="a",
            attempt=1,
            status=StepStatus.COMPLETE,
            duration_ms=1.5,
            files=(flow("f", "ingested/f.parquet", "versions/f/a.1.parquet"),),
        )
    )
]


@pytest.mark.parametrize("kind", EVENTS)
def test_each_kind_survives_its_line(kind: str) -> None:
    @settings(max_examples=40, deadline=None, database=None)
    @given(EVENTS[kind])
    def survives(event: AnyEvent) -> None:
        line = dump_event(event)
        assert b"\n" not in line
        assert parse_event(line) == event
        assert parse_event(line.decode()) == event
        assert dump_event(parse_event(line)) == line
        assert line.startswith(b'{"kind":"' + kind.encode() + b'",')
        assert kind_of(event) == kind

    survives()


def test_progress_is_told_but_is_no_line_of_a_journal() -> None:
    progress = StepProgress(seq=4, time=TIME, run_id=RUN, step_id="s", fraction=0.5)
    with pytest.raises(JournalError, match="not an event"):
        parse_event(dump_event(progress))


def test_fields_of_a_later_version_are_ignored() -> None:
    line = b'{"kind":"run_ingested","seq":4,"time":"t","run_id":"abc12","colour":{"deep":[1]}}'
    assert kind_of(parse_event(line)) == "run_ingested"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"0",
        b'{"kind":"no_such_kind","seq":1,"time":"t","run_id":"abc12"}',
        b'{"kind":"run_ingested","seq":"1","time":"t","run_id":"abc12"}',
        b'{"kind":"run_ingested","seq":1e999,"time":"t","run_id":"abc12"}',
        b'{"kind":"run_ingested","time":"t","run_id":"abc12"}',
        b'{"kind":"run_ingested","seq":1,"time":"t","run_id":"abc12"}{}',
        b'{"kind":"run_finished","seq":1,"time":"t","run_id":"abc12","status":"odd","duration_ms":1}',
        b"\xff\xfe",
        b"\0" * 100,
        b'{"kind":' * 100_000,
        b'{"kind":"run_created","params":' + b"[" * 100_000,
    ],
    ids=lambda line: line[:30].decode("latin-1"),
)
def test_what_is_no_event(line: bytes) -> None:
    with pytest.raises(JournalError, match="not an event of a run"):
        parse_event(line)


def test_text_that_is_no_unicode_is_no_event() -> None:
    with pytest.raises(JournalError):
        parse_event('{"kind":"run_ingested\udc00"}')


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_no_event(line: bytes) -> None:
    with pytest.raises(JournalError):
        parse_event(line)


@settings(max_examples=200, deadline=None)
@given(damaged(LINES))
def test_a_damaged_line_is_an_event_or_a_journal_error_and_folds_or_is_refused(line: bytes) -> None:
    try:
        event = parse_event(line)
    except JournalError:
        return
    story = planned_story("f", "g", steps=["a", "b"])
    before = freeze(story.run)
    try:
        fold(story.run, event)
    except AstroError:
        assert story.run == before


_IDS = st.sampled_from(["a", "b", "c"])


@settings(max_examples=150, deadline=None)
@given(
    again=st.dictionaries(st.just("new"), st.lists(_IDS, max_size=3)),
    removed=st.lists(_IDS, max_size=2),
    order=st.lists(_IDS, max_size=4),
)
def test_a_plan_that_makes_no_sense_is_refused_whole(
    again: dict[str, list[str]], removed: list[str], order: list[str]
) -> None:
    story = planned_story("f", steps=["a", "b"])
    event = RunPlanned(
        **story.head(), again=again, params={"x": 1}, jobs=1, pid=1, host="", removed=removed, order=order
    )
    before = freeze(story.run)
    known = ({"a", "b"} - set(removed)) | {name for names in again.values() for name in names}
    try:
        fold(story.run, event)
    except (JournalError, IllegalTransitionError):
        assert story.run == before
    else:
        assert set(story.run.steps) == known


@pytest.mark.parametrize("text", ["\udc80", "caf\udce9.csv", "\ud800 alone"])
def test_text_that_is_no_unicode_can_be_told(text: str) -> None:
    # Names of files that are not UTF-8, and messages of exceptions that quote them, hold such text.
    event = StepFinished(
        **planned_story("f").head("s"), status=StepStatus.FAILED, duration_ms=1.0, detail=text
    )
    parsed = parse_event(dump_event(event))
    assert isinstance(parsed, StepFinished)
    assert parsed.detail
    created = RunCreated(
        seq=1, time=TIME, run_id=RUN, pipeline_name="p", source_directory=text, run_date="", params={}
    )
    assert isinstance(parse_event(dump_event(created)), RunCreated)


def test_a_journal_folds_to_the_state_that_wrote_it() -> None:
    story = planned_story("f", steps=["a", "b"])
    story.run_step("a", flow("f", "ingested/f.parquet", "versions/f/a.1.parquet"))
    story.tell(StepStarted(**story.head("b", 1)))
    copy = Story("f")
    for event in story.events[2:]:
        copy.tell(parse_event(dump_event(event)))
    assert copy.run == story.run
