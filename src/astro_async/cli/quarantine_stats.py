"""`astro quarantine stats`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from astro_async._core.decisions import choose_flows, count_waiting, parked_flows
from astro_async._core.events import FileFlow
from astro_async._core.records import RunRecord, StepRecord
from astro_async.cli.desk_options import DeskStepArgument, FileOption
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    RunArgument,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_quarantine import describe_decision, render_decisions
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import safe, shorten
from astro_async.reading import read_run

__all__ = ["command", "render_stats"]

command = make_command()


@command.command(
    epilog=show_examples(
        "astro quarantine stats", "astro quarantine stats k3x9a validate --json", title="Examples"
    )
)
def stats(
    run: RunArgument = "latest",
    step: DeskStepArgument = None,
    pipeline_dir: PipelineDirOption = ".",
    file: FileOption = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Count parked rows: by step, file and reason, decided and undecided.

    A row that breaks two rules counts for both reasons, and once as a row. Below stands what was decided,
    when and why.
    """
    record = read_run(pipeline_dir, run)
    keys = {
        (patch.step_id, patch.file)
        for patch in record.patches
        if step in (None, patch.step_id) and file in (None, patch.file)
    }
    flows = [
        (owner, flow)
        for owner, flow in parked_flows(record)
        if step in (None, owner.step_id) and file in (None, flow.name)
    ]
    if (step is not None or file is not None) and not (flows or keys):
        choose_flows(record, step, file, has_ingest=True)
    if json:
        print_document(stats_document(record, flows, keys))
        return
    if flows:
        open_screen().print(render_stats(record, flows))
    else:
        print(f"run {record.run_id} ({record.status.value}) has no rows in quarantine")
    if keys:
        open_screen().print(Group(*render_decisions(record, keys, {})))


def render_stats(record: RunRecord, flows: list[tuple[StepRecord, FileFlow]]) -> RenderableType:
    """Return two tables: rows by step and file, and by reason."""
    numbers = ["in", "parked", "amended", "discarded", "undecided"]
    rows = make_table("step", "file", *numbers, right=numbers)
    reasons = make_table("rows", "step", "file", "reason", right=["rows"])
    for owner, flow in flows:
        waiting = count_waiting(record, owner.step_id, flow.name)
        rows.add_row(
            safe(owner.step_id),
            safe(flow.name),
            f"{flow.rows_in:,}",
            f"{flow.rows_quarantined:,}",
            f"{waiting.amended:,}",
            f"{waiting.discarded:,}",
            f"{flow.rows_quarantined - waiting.rows:,}",
        )
        for reason, count in sorted(flow.reasons.items(), key=lambda each: -each[1]):
            reasons.add_row(
                f"{count:,}",
                safe(owner.step_id),
                safe(flow.name),
                Text(shorten(safe(reason), 200), style="yellow"),
            )
    return Group(rows, Text(), reasons)


def stats_document(
    record: RunRecord, flows: list[tuple[StepRecord, FileFlow]], keys: Collection[tuple[str, str]]
) -> dict[str, Any]:
    """Return the counts, and the decisions about rows of steps and files, oldest first."""
    counted = []
    for owner, flow in flows:
        waiting = count_waiting(record, owner.step_id, flow.name)
        counted.append(
            {
                "step_id": owner.step_id,
                "file": flow.name,
                "rows_in": flow.rows_in,
                "rows_quarantined": flow.rows_quarantined,
                "rows_amended_waiting": waiting.amended,
                "rows_discarded_waiting": waiting.discarded,
                "rows_withdrawn_waiting": waiting.withdrawn,
                "rows_undecided": flow.rows_quarantined - waiting.rows,
                "reasons": flow.reasons,
            }
        )
    decisions = [
        {
            "step_id": patch.step_id,
            "file": patch.file,
            "attempt": patch.attempt,
            "recorded_at": patch.recorded_at,
            "what": describe_decision(patch)[0],
            "rows": patch.rows,
            "because": patch.because,
        }
        for patch in record.patches
        if (patch.step_id, patch.file) in keys
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "quarantine": counted,
        "decisions": decisions,
    }
