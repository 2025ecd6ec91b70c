"""A few of the random kills that `nox -s crash` deals by the hundred."""

from __future__ import annotations

import dataclasses

import pytest

from crash.random_kills import VICTIMS, Report, kill_at_random


@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_lost_and_nothing_is_there_twice(victim: str) -> None:
    report = kill_at_random(victim, 2, seed=7)
    assert report.kills >= 2
    assert report == Report(**{**dataclasses.asdict(Report()), **_counts(report)})
    assert report.is_good


def _counts(report: Report) -> dict[str, int]:
    return {"histories": report.histories, "kills": report.kills}
