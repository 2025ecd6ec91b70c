"""Blocking calls in worker threads, whatever others do with anyio's default limiter.

The limiter that anyio shares among all callers may be taken by the host or by a step; a run must go on
without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

__all__ = ["in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
    """Call a function in a worker thread and return what it returns.

    Once begun it is waited for, cancelled or not, so that nothing is left half done.
    """
    return await anyio.to_thread.run_sync(
        functools.partial(call, *args, **keywords), limiter=anyio.CapacityLimiter(1)
    )
