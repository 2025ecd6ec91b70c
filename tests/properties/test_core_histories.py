"""Random histories on the pure core: whatever stumbles, the repaired run has the undisturbed data."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from astro_async._core.manifest import dump_manifest, parse_manifest, restore_record, snapshot_record
from astro_async._core.status import StepStatus
from properties.histories import Author, Mood, undisturbed
from properties.memory_run import MemoryRun

RAN = {StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.FAILED}
STOPS = {StepStatus.FAILED, StepStatus.BLOCKED}


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_every_history_ends_in_the_undisturbed_data(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    run = MemoryRun(author.files)
    for _ in range(rng.randint(1, 5)):
        named = frozenset(step.step_id for step in steps if rng.random() < 0.1)
        run.plan(steps, named if rng.random() < 0.3 else frozenset())
        run.execute(
            steps,
            rng,
            author.mood(),
            jobs=rng.randint(1, 4),
            keep_going=rng.random() < 0.4,
            kill_after=rng.choice([None, None, rng.randint(0, len(steps))]),
        )
        steps = author.edit(steps)
    run.plan(steps)
    run.execute(steps, rng, Mood(), jobs=rng.randint(1, 4))
    assert set(run.statuses(steps).values()) == {StepStatus.COMPLETE}
    assert run.final() == undisturbed(steps, author.files)
    assert run.refold() == run.record
    document = dump_manifest(snapshot_record(run.record, journal_bytes=1))
    assert restore_record(parse_manifest(document)) == run.record


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_a_second_run_of_a_complete_one_has_nothing_to_do(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    run = MemoryRun(author.files)
    run.plan(steps)
    run.execute(steps, rng, Mood(), jobs=2)
    before = list(run.starts)
    assert not run.plan(steps).has_work
    run.execute(steps, rng, Mood(), jobs=2)
    assert run.starts == before


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_many_jobs_settle_what_one_job_settles_alike(seed: int, keep_going: bool) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    mood = author.mood(fail_share=0.1)
    one, many = MemoryRun(author.files), MemoryRun(author.files)
    for run, jobs in ((one, 1), (many, rng.randint(2, 6))):
        run.plan(steps)
        run.execute(steps, rng, mood, jobs=jobs, keep_going=keep_going)
    assert one.record.status == many.record.status
    alone, together = one.statuses(steps), many.statuses(steps)
    if keep_going or not STOPS & set(alone.values()):
        assert alone == together
    for number, status in alone.items():
        if status in RAN:
            step_id = f"step-{number}"
            assert together[number] == status
            assert one.record.steps[step_id] == many.record.steps[step_id]
    for path in one.contents.keys() & many.contents.keys():
        assert one.contents[path] == many.contents[path]
    # After repair they are equal again.
    for run in (one, many):
        run.plan(steps)
        run.execute(steps, rng, Mood(), jobs=3)
    assert one.final() == many.final() == undisturbed(steps, author.files)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_one_job_runs_in_serial_order_up_to_the_stop_point(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    mood = author.mood()
    run = MemoryRun(author.files)
    run.plan(steps)
    run.execute(steps, rng, mood, jobs=1)
    expected = []
    unsatisfied: set[int] = set()
    for step in steps:
        if unsatisfied & set(step.depends_on):
            unsatisfied.add(step.number)
            break
        expected.append(step.step_id)
        if step.number in mood.fails:
            break
        if step.number in mood.quarantines and not step.continues:
            unsatisfied.add(step.number)
    assert run.starts == expected
