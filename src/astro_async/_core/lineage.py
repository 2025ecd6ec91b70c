"""Versions: what a step reads, and what must run again.

One rule covers retries, crashes, `--rerun` and edited pipelines.
Walk the steps of the pipeline as it is now, in serial order, with the version of each file that a step
would read. A step runs again if it did not end well, is named, depends on a step that runs again, or
published something made from a version other than the one it would read now. Versions are compared by
path, for they never change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from astro_async._core.decisions import count_standing, group_patches, withdraw_command, withdrawn_steps
from astro_async._core.events import VersionWritten
from astro_async._core.graph import Graph, StepNode
from astro_async._core.names import StepId
from astro_async._core.records import RunRecord, StepRecord, written_paths
from astro_async._core.status import StepStatus
from astro_async.exceptions import RunRefusedError, UnknownNameError

__all__ = [
    "Plan",
    "Reason",
    "StaleRead",
    "VersionTable",
    "active_versions",
    "droppable_decisions",
    "droppable_versions",
    "plan_run",
]

_DONE: Final = frozenset({StepStatus.COMPLETE, StepStatus.SKIPPED})

# Stands for a version that a step which runs again has yet to make; no path contains it.
_TO_BE_MADE: Final = "\0"


class Reason(StrEnum):
    """Why a step runs again."""

    NEW = "new"
    UNFINISHED = "unfinished"
    QUARANTINED = "quarantined"
    FAILED = "failed"
    BLOCKED = "blocked"
    NAMED = "named"
    WITHDRAWN = "withdrawn"
    DEPENDENCY = "dependency"
    INPUT = "input"

    # That of `Enum` is written in Python, and there may be one for every step.
    __hash__ = str.__hash__


_REASON_OF_STATUS: Final = {
    StepStatus.PENDING: Reason.UNFINISHED,
    StepStatus.RUNNING: Reason.UNFINISHED,
    StepStatus.QUARANTINED: Reason.QUARANTINED,
    StepStatus.FAILED: Reason.FAILED,
    StepStatus.BLOCKED: Reason.BLOCKED,
}


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A completed step that published nothing, and read a version that has been replaced since.

    It does not run again, for nothing of its work is in the data or under a name; a warning names it.
    """

    step_id: StepId
    file: str
    read: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run has to do, as a value.

    Attributes:
        again: Steps that run again, in serial order, with the reason.
        because: For a step that runs again for another's sake, the step or file it is for.
        removed: Steps on record that the pipeline no longer has.
        stale: Steps that a warning names.
        needed: Paths of versions that are to be there already, with the first step that runs again and reads
            each; None for those that are only what is last of their file.
    """

    again: dict[StepId, Reason] = field(default_factory=dict)
    because: dict[StepId, str] = field(default_factory=dict)
    removed: tuple[StepId, ...] = ()
    stale: tuple[StaleRead, ...] = ()
    needed: dict[str, StepId | None] = field(default_factory=dict, compare=False)

    @property
    def has_work(self) -> bool:
        """Whether anything is to be run or forgotten."""
        return bool(self.again or self.removed)

    def by_reason(self) -> dict[str, list[str]]:
        """Return the steps that run again, grouped by reason, each group in serial order."""
        found: dict[Reason, list[str]] = {}
        for step_id, reason in self.again.items():
            found.setdefault(reason, []).append(step_id)
        return {reason.value: found[reason] for reason in Reason if reason in found}


def plan_run(graph: Graph, run: RunRecord, *, rerun: Collection[str] = ()) -> Plan:
    """Decide what must run again. Linear in steps and their files; changes nothing.

    Args:
        graph: The pipeline as it is now.
        run: The run as its journal tells it.
        rerun: Steps that the operator names.

    Raises:
        UnknownNameError: `rerun` names a step that the pipeline does not have.
        RunRefusedError: A step would read a version that was dropped; or decisions stand about rows of a step
            that the pipeline no longer has, or that touches their file no more.
    """
    unknown = sorted(set(rerun) - set(graph.position))
    if unknown:
        raise UnknownNameError(
            f"--rerun names {unknown[0]!r}, which is not a step of this pipeline{graph.suggest(unknown[0])}"
        )
    named = frozenset(rerun)
    current = {name: file.parquet_path for name, file in run.files.items()}
    withdrawn = withdrawn_steps(run)
    again: dict[StepId, Reason] = {}
    because: dict[StepId, str] = {}
    stale: list[StaleRead] = []
    needed: dict[str, StepId | None] = {}
    # Looking a member up costs as much as a call in Python 3.11, and a first run asks for it at every step.
    new = Reason.NEW
    for node in graph.nodes:
        record = run.steps.get(node.step_id)
        reason, cause = (new, None) if record is None else _judge(node, record, current, named, again)
        if reason is None and node.step_id in withdrawn:
            reason = Reason.WITHDRAWN
        if reason is not None:
            if run.dropped:
                _refuse_dropped(node, current, run, graph)
            again[node.step_id] = reason
            _note_needed(node, current, needed)
            if cause is not None:
                because[node.step_id] = cause
            for name in node.writes:
                current[name] = f"{_TO_BE_MADE}{node.step_id}"
        elif record is not None:
            if not _has_published(record):
                stale.extend(_stale_reads(record, current))
            current.update(record.published_versions())
    lost = sorted(path for path in current.values() if path in run.dropped)
    if lost:
        # A step that made the last version has left the pipeline.
        raise RunRefusedError(
            f"without the steps that are gone, {lost[0]} would be the last version, but it was dropped to "
            f"free its bytes: {_where_to_begin(lost, run, graph)}"
        )
    _refuse_forgotten(graph, run, again)
    removed = tuple(StepId(step_id) for step_id in run.steps if step_id not in graph.position)
    needed = {**dict.fromkeys(current.values()), **needed}
    needed = {path: step_id for path, step_id in needed.items() if not path.startswith(_TO_BE_MADE)}
    return Plan(again, because, removed, tuple(stale), needed)


def _judge(
    node: StepNode,
    record: StepRecord,
    current: dict[str, str],
    named: Collection[str],
    again: dict[StepId, Reason],
) -> tuple[Reason | None, str | None]:
    if record.status not in _DONE:
        return _REASON_OF_STATUS[record.status], None
    if node.step_id in named:
        return Reason.NAMED, None
    for dependency in node.depends_on:
        if dependency in again:
            return Reason.DEPENDENCY, dependency
    if record.status is StepStatus.SKIPPED:
        return (None, None) if node.skipped else (Reason.NEW, None)
    if _has_published(record):
        published = record.published_versions()
        read = record.read_versions()
        for name in node.files:
            # A file that was not delivered is read as nothing, then as now.
            if read.get(name) != current.get(name):
                return Reason.INPUT, name
        if not published.keys() <= set(node.writes):
            return Reason.INPUT, next(iter(published.keys() - set(node.writes)))
    return None, None


def _note_needed(node: StepNode, current: dict[str, str], needed: dict[str, StepId | None]) -> None:
    for name in node.files:
        if name in current:
            needed.setdefault(current[name], node.step_id)


def _has_published(record: StepRecord) -> bool:
    """Whether work of the step is to be seen: a version, or what `save_to` keeps under a name of its own."""
    return any(flow.published is not None or flow.saved for flow in record.files)


def _refuse_dropped(node: StepNode, current: dict[str, str], run: RunRecord, graph: Graph) -> None:
    groups = group_patches(run.patches)
    if any(
        patch.path in run.dropped
        for name in node.files
        for group in groups.get((node.step_id, name), [])
        for patch in group
    ):
        raise RunRefusedError(
            f"what was decided about rows of step {node.step_id!r} was removed by `astro cleanup "
            "--quarantine`, so it cannot run again: ingest the source again"
        )
    gone = sorted(current[name] for name in node.files if current.get(name) in run.dropped)
    if gone:
        raise RunRefusedError(
            f"step {node.step_id!r} needs {gone[0]}, a version that was dropped to free its bytes: "
            f"{_where_to_begin(gone, run, graph)}"
        )


def _refuse_forgotten(graph: Graph, run: RunRecord, again: Collection[str]) -> None:
    """Refuse a plan by which nobody would be given what an operator decided."""
    for (step_id, name), groups in group_patches(run.patches).items():
        if step_id not in run.steps:
            continue
        position = graph.position.get(step_id)
        if position is None:
            what = "is no step of the pipeline any more"
            way = f"give the step its old name back (step_id={step_id!r})"
        elif step_id in again and name not in graph.nodes[position].files:
            what = f"does not touch {name!r} any more"
            way = "give it the file back"
        else:
            continue
        is_removed = any(patch.path in run.dropped for group in groups for patch in group)
        rows = count_standing(run, step_id, name)
        about = f"{rows:,} {'row' if rows == 1 else 'rows'} of {name!r}"
        other = (
            "ingest the source again"
            if is_removed
            else f"take them back: {withdraw_command(run.run_id, step_id, name)} --all"
        )
        raise RunRefusedError(
            f"{step_id!r} {what}, but decisions stand for it about {about} (astro quarantine stats "
            f"{run.run_id}), and nothing would apply them: {way}, or {other}"
        )


def _where_to_begin(gone: list[str], run: RunRecord, graph: Graph) -> str:
    """Name the earliest step whose re-run makes dropped versions anew."""
    maker_of = {
        path: position
        for position, node in enumerate(graph.nodes)
        if node.step_id in run.steps
        for path in run.steps[node.step_id].published_versions().values()
    }
    earliest, wanted = len(graph.nodes), set(gone)
    while wanted:
        position = maker_of.get(wanted.pop())
        if position is None:
            return "no step of this pipeline makes it, so ingest the source again"
        earliest = min(earliest, position)
        reads = run.steps[graph.nodes[position].step_id].read_versions().values()
        wanted.update(path for path in reads if path in run.dropped and maker_of.get(path, -1) < position)
    return f"run again from the step that everything comes from, with --rerun {graph.nodes[earliest].step_id}"


def droppable_decisions(run: RunRecord) -> list[str]:
    """Return the paths of the files on disk that only the repair desk needs, of a run that is completed.

    What steps set aside is gone by then. What an ingest has parked is decided by nobody, and stays.
    """
    return [patch.path for patch in run.patches if patch.path not in run.dropped]


def droppable_versions(run: RunRecord) -> list[VersionWritten]:
    """Return the versions that are on disk and that nobody needs but a re-run: all but the last ones.

    What `save_to` named stays, whichever version it is.
    """
    kept = set(active_versions(run).values()) | {file.parquet_path for file in run.files.values()}
    kept |= run.dropped
    made: dict[str, VersionWritten] = {}
    for record in run.steps.values():
        for flow in record.files:
            kept.update(saved.path for saved in flow.saved)
            if flow.published is not None and flow.published.path != flow.read:
                made[flow.published.path] = flow.published
    return [version for path, version in made.items() if path not in kept]


def _stale_reads(record: StepRecord, current: dict[str, str]) -> Iterator[StaleRead]:
    for name, version in record.read_versions().items():
        if current.get(name, version) != version:
            yield StaleRead(StepId(record.step_id), name, version)


def named_by(run: RunRecord) -> set[str]:
    """Return the paths of all data files that the records of a run name and that were not dropped."""
    return set(run.named_paths()) - run.dropped


def forgotten_paths(run: RunRecord, plan: Plan) -> Iterator[str]:
    """Yield the files that only the steps of a plan name: litter, once the plan is durable."""
    gone = set(plan.again) | set(plan.removed)
    kept = {file.parquet_path for file in run.files.values()}
    for step_id, record in run.steps.items():
        if step_id not in gone:
            for flow in record.files:
                kept.add(flow.read)
                kept.update(written_paths(flow))
    for step_id in sorted(gone & run.steps.keys()):
        for flow in run.steps[step_id].files:
            yield from (path for path in written_paths(flow) if path not in kept)


def active_versions(run: RunRecord) -> dict[str, str]:
    """Return, for each file, the version published last in serial order, else the ingested one."""
    current = {name: file.parquet_path for name, file in run.files.items()}
    for record in run.steps.values():
        for flow in record.files:
            if flow.published is not None:
                current[flow.name] = flow.published.path
    return current


class VersionTable:
    """What each step reads, kept while a run goes on.

    A step with `rank` writers of a file before it reads what the first `rank` writers leave. The prefix
    of settled writers only ever grows, so each file keeps the version after each settled prefix, and a
    look-up is one index.
    """

    __slots__ = ("_after",)

    def __init__(self, run: RunRecord) -> None:
        self._after = {name: [file.parquet_path] for name, file in run.files.items()}

    def advance(self, name: str, published: str | None) -> None:
        """Note that the next writer of a file, in serial order, has settled."""
        versions = self._after.get(name)
        if versions is not None:
            versions.append(versions[-1] if published is None else published)

    def versions(self, names: Sequence[str], ranks: Sequence[int]) -> tuple[str | None, ...]:
        """Return, for each file of a step, the version that it reads; None if it was not delivered.

        All writers before the step must have settled.
        """
        after = self._after
        return tuple(
            [after[name][rank] if name in after else None for name, rank in zip(names, ranks, strict=True)]
        )
