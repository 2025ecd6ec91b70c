"""What the tests of the store share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the device: the order of syncs is looked at, no test pulls the plug."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
