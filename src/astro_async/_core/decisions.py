"""What waits in quarantine, and what operators have decided about it. Pure.

A decision is about rows that one attempt of a step set aside. It waits until the step starts again, and
counts from then on, until it is withdrawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
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
    "choose_decided",
    "choose_flow",
    "choose_flows",
    "count_standing",
    "count_waiting",
    "find_same_again",
    "flows_in_quarantine",
    "given_patches",
    "group_patches",
    "has_decisions",
    "ingest_step",
    "parked_flows",
    "waiting_group",
    "withdraw_command",
    "withdrawn_steps",
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
    """How many rows of a step and file are decided, and wait for the step to start again.

    Of `withdrawn` rows a decision that the last attempt was given has been withdrawn.
    """

    amended: int = 0
    discarded: int = 0
    withdrawn: int = 0

    @property
    def rows(self) -> int:
        """Amended and discarded ones together."""
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


def group_patches(patches: Iterable[Patch]) -> dict[tuple[str, str], list[list[Patch]]]:
    """Return the patches of decisions that stand, by step and file, in the order in which they apply.

    Those about rows of one attempt are together: of two about one row the later one counts. A withdrawal is
    in every group before it.
    """
    found: dict[tuple[str, str], list[list[Patch]]] = {}
    for patch in patches:
        groups = found.setdefault((patch.step_id, patch.file), [])
        if patch.withdrawn:
            if not patch.standing:
                groups.clear()
            for group in groups:
                group.append(patch)
            continue
        if not groups or groups[-1][0].attempt != patch.attempt:
            groups.append([])
        groups[-1].append(patch)
    return {key: groups for key, groups in found.items() if groups}


def given_patches(record: RunRecord, step_id: str, name: str) -> list[list[Patch]]:
    """Return the decisions that the last attempt of a step was given, without those made since."""
    attempt = record.steps[step_id].attempt
    earlier = (patch for patch in record.patches if patch.attempt < attempt)
    return group_patches(earlier).get((step_id, name), [])


def waiting_group(record: RunRecord, step_id: str, name: str) -> list[Patch]:
    """Return the decisions about rows that the last attempt of a step set aside."""
    groups = group_patches(record.patches).get((step_id, name), [])
    return groups[-1] if groups and groups[-1][0].attempt == record.steps[step_id].attempt else []


def count_waiting(record: RunRecord, step_id: str, name: str) -> Waiting:
    """Count the rows of a step and file that are decided and wait for the step to start again."""
    step = record.steps.get(step_id)
    for patch in reversed(record.patches):
        if (patch.step_id, patch.file) == (step_id, name):
            if step is None or patch.attempt != step.attempt:
                break
            return Waiting(patch.amended_waiting, patch.discarded_waiting, patch.withdrawn_waiting)
    return Waiting()


def count_standing(record: RunRecord, step_id: str, name: str) -> int:
    """Count the rows of a step and file about which decisions stand.

    A row that was decided about after each of several attempts counts for each, until some are withdrawn.
    """
    earlier = waiting = attempt = 0
    for patch in record.patches:
        if (patch.step_id, patch.file) != (step_id, name):
            continue
        if patch.attempt != attempt:
            earlier, waiting, attempt = earlier + waiting, 0, patch.attempt
        waiting = patch.amended_waiting + patch.discarded_waiting
        if patch.withdrawn:
            earlier = patch.standing - waiting
    return earlier + waiting


def has_decisions(patches: Iterable[Patch], removed: Iterable[str]) -> bool:
    """Whether a decision stands about rows of a step that is not among the removed ones."""
    gone = set(removed)
    return any(step_id not in gone for step_id, _ in group_patches(patches))


def withdrawn_steps(run: RunRecord) -> set[str]:
    """Return the steps whose last attempt was given decisions that have been withdrawn since."""
    return {
        patch.step_id
        for patch in run.patches
        if patch.withdrawn_waiting
        and patch.step_id in run.steps
        and run.steps[patch.step_id].attempt == patch.attempt
    }


def withdraw_command(run_id: str, step_id: str, name: str) -> str:
    """Return the command that withdraws decisions about rows of a step and file; the rows are to be added."""
    return f"astro quarantine withdraw {run_id} {step_id} --file {shlex.quote(name)}"


def choose_decided(record: RunRecord, step_id: str, name: str | None) -> tuple[StepRecord, str]:
    """Return the step, and the file about whose rows decisions stand.

    Raises:
        RunRefusedError: None stands, or about several files and none is named.
    """
    if step_id not in record.steps:
        raise UnknownNameError(f"{step_id!r} is no step of run {record.run_id}")
    names = [file for step, file in group_patches(record.patches) if step == step_id]
    if not names:
        raise RunRefusedError(
            f"nothing is decided about rows of step {step_id!r} of run {record.run_id}, so there is nothing "
            "to withdraw"
        )
    if name is None and len(names) > 1:
        raise RunRefusedError(
            f"rows of several files are decided for step {step_id!r}: name one of {', '.join(names)} (--file)"
        )
    chosen = names[0] if name is None else name
    if chosen not in names:
        raise RunRefusedError(
            f"nothing is decided about rows of {chosen!r} for step {step_id!r}, but about rows of "
            f"{', '.join(names)}"
        )
    return record.steps[step_id], chosen


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
