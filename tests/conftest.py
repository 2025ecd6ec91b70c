"""What all tests share: async tests run on asyncio and on trio."""

from __future__ import annotations

import os

import pytest

# Workers of a parallel run are told how wide the screen is; commands under test write to none.
os.environ.pop("COLUMNS", None)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Return the event loop that an async test runs on."""
    return str(request.param)
