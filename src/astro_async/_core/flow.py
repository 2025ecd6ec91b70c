"""The flow of a pipeline as a value: its steps, what each comes after, and how they stand in a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from astro_async._core.graph import Graph
from astro_async._core.records import RunRecord
from astro_async._core.status import StepStatus
from astro_async._core.waiting import derive_waits

__all__ = ["Flow", "FlowStep", "derive_flow"]


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One step of a flow.

    Attributes:
        step_id: The step.
        stage: One more than the latest stage of what it comes after: steps of a stage may run side by side.
        reads: Files that it only reads.
        writes: Files that it may change.
        depends_on: Steps that must end well first.
        follows: By file, the step that may change it before; it only has to settle.
        status: In the run; None where no run is named.
        rows_quarantined: In the run.
    """

    step_id: str
    stage: int
    reads: Sequence[str]
    writes: Sequence[str]
    depends_on: Sequence[str]
    follows: dict[str, str]
    status: StepStatus | None = None
    rows_quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """All steps in serial order, and the run that they are shown in, if any."""

    steps: Sequence[FlowStep]
    run: RunRecord | None = None


def derive_flow(graph: Graph, run: RunRecord | None = None) -> Flow:
    """Return the flow of a graph; linear in its steps and edges.

    Args:
        graph: The pipeline.
        run: Colours the steps by how they stand in it.
    """
    steps: list[FlowStep] = []
    for position, node in enumerate(graph.nodes):
        waits = derive_waits(graph, position)
        record = None if run is None else run.steps.get(node.step_id)
        status = None if run is None else StepStatus.PENDING if record is None else record.status
        parked = 0 if record is None else sum(each.rows_quarantined for each in record.files if each.parts)
        steps.append(
            FlowStep(
                step_id=node.step_id,
                stage=1 + max((steps[earlier].stage for earlier, _ in waits), default=0),
                reads=[name for name in node.files if name not in node.writes],
                writes=list(node.writes),
                depends_on=[steps[earlier].step_id for earlier, name in waits if name is None],
                follows={name: steps[earlier].step_id for earlier, name in waits if name is not None},
                status=status,
                rows_quarantined=parked,
            )
        )
    return Flow(steps, run)
