"""A few of the random kills that `nox -s crash` deals by the hundred."""

from __future__ import annotations

import pytest

from crash.random_kills import Report, kill_at_random


# Signals that ask are in `cli/test_processes.py`.
@pytest.mark.parametrize("victim", ["kill", "step", "ingest"])
def test_nothing_is_lost_and_nothing_is_there_twice(victim: str) -> None:
    report = kill_at_random(victim, 1, seed=7, most_kills=2)
    assert report.kills >= 1
    assert report == Report(histories=report.histories, kills=report.kills)
