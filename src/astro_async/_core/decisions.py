"""What waits in quarantine, and what operators have decided about it. Pure.

A decision is about rows that one attempt of a step set aside. It waits until the step starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from astro_async._core.events import FileFlow
from astro_async._core.names import INGEST_STEP
from astro_async._core.records import Patch, RunRecord, StepRecord
from astro_async._core.status import StepStatus
from astro_async.exceptions import RunRefusedError, UnknownNameError

__all__ = [
    "Forecast",
    "Waiting",
    "choose_flow",
    "choose_flows",
    "count_waiting",
    "find_same_again",
    "flows_in_quarantine",
    "group_patches",
    "ingest_step",
    "parked_flows",
    "waiting_patches",
]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a check would make of the rows that it parked of a file.

    Attributes:
        file: The file.
        parked: How many rows it parked.
        passing: How many of them would pass.
        discarded: How many of them are left out.
        new: How many rows would be parked that were not.
        problem: Why nothing can be said; the counts mean nothing then.
    """

    file: str
    parked: int
    passing: int = 0
    discarded: int = 0
    new: int = 0
    problem: str | None = None


class Waiting(NamedTuple):
    """How many rows of a step and file are decided, and wait for the step to start again."""

    amended: int = 0
    discarded: int = 0

    @property
    def rows(self) -> int:
        """Both together."""
        return self.amended + self.discarded


def ingest_step(record: RunRecord) -> StepRecord | None:
    """Return what the ingest has parked, as the record of a step; None if it has parked nothing."""
    flows = tuple(
        FileFlow(
            name=file.name,
            read=file.parquet_path,
            rows_in=file.rows_in or 0,
            rows_out=file.row_count,
            rows_quarantined=file.rows_quarantined,
            published=None,
            parts=file.parts,
            reasons=file.reasons,
            conserves_rows=True,
        )
        for file in record.files.values()
        if file.parts
    )
    return StepRecord(INGEST_STEP, StepStatus.QUARANTINED, files=flows) if flows else None


def flows_in_quarantine(record: RunRecord) -> list[tuple[StepRecord, FileFlow]]:
    """Return each step and file with rows in quarantine, in serial order."""
    return [(step, flow) for step in record.steps.values() for flow in step.files if flow.parts]


def parked_flows(record: RunRecord) -> list[tuple[StepRecord, FileFlow]]:
    """Return what the ingest has parked, under the step `ingest`, and then what the steps have."""
    ingest = ingest_step(record)
    ingested = [] if ingest is None else [(ingest, flow) for flow in ingest.files]
    return ingested + flows_in_quarantine(record)


def choose_flows(
    record: RunRecord, step_id: str | None, name: str | None, *, has_ingest: bool = False
) -> list[tuple[StepRecord, FileFlow]]:
    """Return what a step has set aside, by file; all that fits what is named.

    Args:
        record: The run.
        step_id: The step; None where only one has rows.
        name: The file; None for all.
        has_ingest: Whether what the ingest has parked counts too.

    Raises:
        RunRefusedError: Nothing is parked, or nothing of that name.
        UnknownNameError: The run has no step or file of that name.
    """
    flows = parked_flows(record) if has_ingest else flows_in_quarantine(record)
    if step_id == INGEST_STEP and not has_ingest:
        raise RunRefusedError(
            "rows that the ingest parked are lines that could not be read, so they cannot be corrected here: "
            "mend the source and ingest it again"
        )
    known = list(dict.fromkeys(owner.step_id for owner, _ in flows))
    if not known:
        raise RunRefusedError(f"run {record.run_id} ({record.status.value}) has no rows in quarantine")
    if step_id is None and len(known) > 1:
        raise RunRefusedError(
            f"several steps of run {record.run_id} have rows: name one of {', '.join(known)}"
        )
    wanted = known[0] if step_id is None else step_id
    if wanted not in known:
        step = record.steps.get(wanted)
        what = "is no step of the run" if step is None else f"({step.status.value}) has no rows in quarantine"
        refused = UnknownNameError if step is None else RunRefusedError
        raise refused(
            f"{wanted!r} {what}; in quarantine of run {record.run_id} are rows of {', '.join(known)}"
        )
    chosen = [(owner, flow) for owner, flow in flows if owner.step_id == wanted]
    names = [flow.name for _, flow in chosen]
    if name is not None and name not in names:
        refused = RunRefusedError if name in record.files else UnknownNameError
        raise refused(f"step {wanted!r} set aside no rows of {name!r}, but of {', '.join(names)}")
    return [(owner, flow) for owner, flow in chosen if name in (None, flow.name)]


def choose_flow(record: RunRecord, step_id: str | None, name: str | None) -> tuple[StepRecord, FileFlow]:
    """Return what a step has set aside of one file.

    Raises:
        RunRefusedError: As `choose_flows`; or there are several files, and none is named.
    """
    chosen = choose_flows(record, step_id, name)
    if len(chosen) > 1:
        names = ", ".join(flow.name for _, flow in chosen)
        raise RunRefusedError(
            f"step {chosen[0][0].step_id!r} set rows of several files aside: name one of {names} (--file)"
        )
    return chosen[0]


def group_patches(record: RunRecord) -> dict[tuple[str, str], list[list[Patch]]]:
    """Return patches by step and file, in the order in which they apply.

    Those about rows of one attempt are together: of two about one row the later one counts.
    """
    found: dict[tuple[str, str], list[list[Patch]]] = {}
    for patch in record.patches:
        groups = found.setdefault((patch.step_id, patch.file), [])
        if not groups or groups[-1][0].attempt != patch.attempt:
            groups.append([])
        groups[-1].append(patch)
    return found


def waiting_patches(record: RunRecord, step_id: str, name: str) -> list[Patch]:
    """Return the decisions about rows that the last attempt of a step set aside."""
    step = record.steps.get(step_id)
    return [
        patch
        for patch in record.patches
        if (patch.step_id, patch.file) == (step_id, name)
        and step is not None
        and patch.attempt == step.attempt
    ]


def count_waiting(record: RunRecord, step_id: str, name: str) -> Waiting:
    """Count the rows of a step and file that are decided and wait for the step to start again."""
    patches = waiting_patches(record, step_id, name)
    return Waiting(patches[-1].amended_waiting, patches[-1].discarded_waiting) if patches else Waiting()


def find_same_again(
    before: Mapping[str, StepRecord], after: RunRecord, params: Mapping[str, Any]
) -> list[str]:
    """Return the steps that have set aside what they had set aside before, and had nothing new to go by.

    Compared are the steps of the run, its parameters, the decisions about rows, the versions read, and the
    counts by reason. What the code of a step, or a database that it asks, said then is not on record.

    Args:
        before: The steps as they were before the run.
        after: The run as it is now.
        params: The parameters before.
    """
    if before.keys() != after.steps.keys() or dict(params) != after.params:
        return []
    same = []
    for step_id, step in after.steps.items():
        earlier = before[step_id]
        is_decided = any(
            patch.step_id == step_id and patch.attempt == earlier.attempt for patch in after.patches
        )
        if step.attempt == earlier.attempt or is_decided:
            continue
        parked = _describe_parked(step)
        if parked and parked == _describe_parked(earlier):
            same.append(step_id)
    return same


def _describe_parked(step: StepRecord) -> list[object]:
    return [(flow.name, flow.read, flow.rows_quarantined, flow.reasons) for flow in step.files if flow.parts]
