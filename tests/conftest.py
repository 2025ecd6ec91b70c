"""What all tests share: async tests run on asyncio and on trio."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Return the event loop that an async test runs on."""
    return str(request.param)
