"""Requests, in the imperative: what the reducer asks the shell to do."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from astro_async._core.names import StepId

__all__ = ["BlockStep", "Command", "SkipStep", "StartStep"]


class StartStep(msgspec.Struct, frozen=True, gc=False):
    """Hand the step to a worker, and record that it started.

    Attributes:
        position: Its place in serial order.
        attempt: The number of this attempt.
        inputs: For each file of the step, in its order, the version to read; None if not delivered.
    """

    position: int
    attempt: int
    inputs: tuple[str | None, ...]


class BlockStep(NamedTuple):
    """Record that the step is blocked."""

    step_id: StepId
    detail: str


class SkipStep(NamedTuple):
    """Record that the step is skipped."""

    step_id: StepId
    detail: str


Command = StartStep | BlockStep | SkipStep
