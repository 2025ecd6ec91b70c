"""Random histories on the real engine: after repair the data is that of a run that never stumbled."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astro_async import RunStatus, StepStatus, read_run
from astro_async.exceptions import RunRefusedError
from properties.histories import Author, Mood
from properties.real_run import RealRun, undisturbed_frames

BACKENDS = ["asyncio", "trio"]
SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("backend", BACKENDS)
@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_every_history_ends_in_the_undisturbed_data(
    tmp_path_factory: pytest.TempPathFactory, backend: str, seed: int
) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    real = RealRun(tmp_path_factory.mktemp("run"), author.files, backend)
    for _ in range(rng.randint(1, 4)):
        named = [step.step_id for step in steps if rng.random() < 0.1] if rng.random() < 0.3 else []
        try:
            real.invoke(
                steps,
                author.mood(),
                jobs=rng.randint(1, 4),
                keep_going=rng.random() < 0.4,
                rerun=named,
                dies_at=rng.choice([None, rng.randint(1, 60)]),
            )
        except RunRefusedError:
            assert read_run(real.directory, real.run_id).status is RunStatus.COMPLETED
        steps = author.edit(steps)
    try:
        result = real.invoke(steps, Mood(), jobs=rng.randint(1, 4))
        assert result is not None
        assert result.exit_code == 0
    except RunRefusedError:
        pass
    record = read_run(real.directory, real.run_id)
    assert {each.step_id: each.status for each in record.steps.values()} == {
        step.step_id: StepStatus.COMPLETE for step in steps
    }
    expected = undisturbed_frames(steps, author.files)
    final = real.final()
    assert final.keys() == expected.keys()
    for name, frame in final.items():
        assert frame.equals(expected[name]), name


@SETTINGS
@given(seed=st.integers(0, 2**32), keep_going=st.booleans())
def test_many_jobs_settle_what_one_job_settles_alike(
    tmp_path_factory: pytest.TempPathFactory, seed: int, keep_going: bool
) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    steps = author.pipeline()
    mood = author.mood(fail_share=0.1)
    runs = {}
    for jobs in (1, rng.randint(2, 8)):
        real = RealRun(tmp_path_factory.mktemp("run"), author.files, "asyncio")
        result = real.invoke(steps, mood, jobs=jobs, keep_going=keep_going)
        assert result is not None
        assert result.record is not None
        runs[jobs == 1] = (real, result.record)
    (one, alone), (many, together) = runs[True], runs[False]
    assert alone.status == together.status
    stops = {StepStatus.FAILED, StepStatus.BLOCKED}
    if keep_going or not stops & {each.status for each in alone.steps.values()}:
        for step_id, record in alone.steps.items():
            assert together.steps[step_id].status == record.status
        final, other = one.final(), many.final()
        assert all(final[name].equals(other[name]) for name in author.files)
    for step_id, record in alone.steps.items():
        if record.status in {StepStatus.COMPLETE, StepStatus.QUARANTINED, StepStatus.FAILED}:
            settled = together.steps[step_id]
            assert (settled.status, settled.attempt, settled.files) == (
                record.status,
                record.attempt,
                record.files,
            )
