"""Why a step has not started: what it waits for, in the words of the rules. Pure.

The rules are those of the scheduler (`reducer`); here they are told of a state at rest, to people.
"""

from __future__ import annotations

from collections.abc import Iterator

from astro_async._core.decisions import group_patches
from astro_async._core.graph import Graph, StepNode
from astro_async._core.records import RunRecord, StepRecord
from astro_async._core.status import SETTLED, RunStatus, StepStatus, is_satisfied

__all__ = ["derive_waits", "explain_waiting", "nearest_writers"]

_STOPS = (StepStatus.FAILED, StepStatus.BLOCKED)


def nearest_writers(graph: Graph, position: int) -> dict[str, int]:
    """Return, for each file of a step that has one, the position of its nearest earlier writer."""
    node = graph.nodes[position]
    return {
        name: graph.writers[name][rank - 1]
        for name, rank in zip(node.files, graph.ranks[position], strict=True)
        if rank
    }


def derive_waits(graph: Graph, position: int) -> list[tuple[int, str | None]]:
    """Return the steps that a step comes after: its dependencies (None), and the writers of its files.

    Of the writers of a file only the nearest: that one waits for those before it.
    """
    depends_on = [graph.position[name] for name in dict.fromkeys(graph.nodes[position].depends_on)]
    waits: list[tuple[int, str | None]] = [(earlier, None) for earlier in depends_on]
    waits += [
        (writer, name)
        for name, writer in nearest_writers(graph, position).items()
        if writer not in depends_on
    ]
    return waits


def explain_waiting(graph: Graph, run: RunRecord, step_id: str) -> list[str]:
    """Return why a step has not started, one reason a line; nothing if it runs, or has settled by running.

    Args:
        graph: The pipeline as it is now.
        run: The run as it stands.
        step_id: The step.
    """
    position = graph.position.get(step_id)
    if position is None:
        is_decided = any(step == step_id for step, _ in group_patches(run.patches))
        then = "is refused while decisions about its rows stand" if is_decided else "forgets it"
        return [f"it is no step of the pipeline any more: the next `astro run` {then}"]
    node, record = graph.nodes[position], run.steps.get(step_id)
    if record is None:
        when = "the run has not been run yet" if not run.steps else "it is new in the pipeline"
        return [f"{when}: the next `astro run` takes it up", *_what_it_waits_for(graph, run, node, position)]
    if record.status is StepStatus.BLOCKED:
        # Where its dependencies have changed since, only the record still knows.
        return list(_what_it_waits_for(graph, run, node, position)) or [record.detail or "it was blocked"]
    if record.status is not StepStatus.PENDING:
        return []
    reasons = list(_what_it_waits_for(graph, run, node, position))
    stop = _stop_point(graph, run)
    if stop is not None and stop.step_id != step_id and graph.position[stop.step_id] < position:
        reasons.append(
            f"it lies behind the stop point: {stop.step_id} is {stop.status.value}, and no step after it "
            "starts (--keep-going goes on)"
        )
    if run.status is RunStatus.INTERRUPTED:
        reasons.append("the run was interrupted: the next `astro run` goes on")
    if not reasons:
        reasons.append(
            "nothing holds it up but a free slot, or one of its limits"
            if run.status is RunStatus.RUNNING
            else "nothing holds it up: the next `astro run` starts it"
        )
    return reasons


def _what_it_waits_for(graph: Graph, run: RunRecord, node: StepNode, position: int) -> Iterator[str]:
    for name in dict.fromkeys(node.depends_on):
        earlier = graph.nodes[graph.position[name]]
        status = _status(run, name)
        if not is_satisfied(status, continues=earlier.continues):
            yield f"it depends on {name}, which is {status.value}"
    for file, rank in zip(node.files, graph.ranks[position], strict=True):
        writers = [graph.nodes[each].step_id for each in graph.writers.get(file, ())[:rank]]
        unsettled = [each for each in writers if _status(run, each) not in SETTLED]
        if unsettled:
            last = unsettled[-1]
            more = f" and {len(unsettled) - 1:,} more" if len(unsettled) > 1 else ""
            yield (
                f"it works on {file} after {last}{more}, which may change it and is "
                f"{_status(run, last).value}"
            )


def _status(run: RunRecord, step_id: str) -> StepStatus:
    record = run.steps.get(step_id)
    return StepStatus.PENDING if record is None else record.status


def _stop_point(graph: Graph, run: RunRecord) -> StepRecord | None:
    records = (run.steps.get(node.step_id) for node in graph.nodes)
    return next((each for each in records if each is not None and each.status in _STOPS), None)
