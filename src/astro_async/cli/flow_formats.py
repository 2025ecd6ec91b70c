"""What `astro describe` prints: the flow of a pipeline for terminals, Mermaid, Graphviz and programs. Pure.

Step ids and file names hold letters, digits, `_`, `-` and `.` only; all other text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from astro_async._core.flow import Flow, FlowStep
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_count, safe, status_text

__all__ = ["FILLS", "draw_dot", "draw_mermaid", "flow_document", "render_flow"]

# Pale enough for black text on them.
FILLS: Final = {
    "pending": "#eeeeee",
    "running": "#c5e8f7",
    "complete": "#c8e6c9",
    "quarantined": "#ffe9a8",
    "failed": "#ffc4c4",
    "blocked": "#e3cdf2",
    "skipped": "#eeeeee",
}


def render_flow(
    name: str, patterns: Mapping[str, str], kinds: Mapping[str, str], flow: Flow
) -> RenderableType:
    """Return files and steps, in serial order, each with what it comes after."""
    head = Text.assemble(("pipeline ", "bold"), (safe(name), "bold"))
    if flow.run is not None:
        head.append_text(Text.assemble(f"  run {flow.run.run_id}  ", status_text(flow.run.status.value)))
    files = make_table("file", "source")
    for file, pattern in patterns.items():
        files.add_row(safe(file), safe(pattern))
    has_status = [] if flow.run is None else ["status"]
    steps = make_table("stage", "step", "kind", *has_status, "files", "after", right=["stage"])
    for step in flow.steps:
        steps.add_row(
            str(step.stage),
            safe(step.step_id),
            kinds[step.step_id],
            *([_describe_status(step)] if has_status else []),
            _describe_files(step),
            _describe_waits(step),
        )
    parts: list[RenderableType] = [head, Text(), files, Text()]
    parts.append(steps if flow.steps else Text("no steps: the pipeline only ingests"))
    return Group(*parts)


def _describe_status(step: FlowStep) -> Text:
    text = status_text("" if step.status is None else step.status.value)
    return (
        text.append(f" ({describe_count(step.rows_quarantined, 'row')})") if step.rows_quarantined else text
    )


def _describe_files(step: FlowStep) -> str:
    reads = [f"{name} (reads)" for name in step.reads]
    return safe(", ".join([*step.writes, *reads]))


def _describe_waits(step: FlowStep) -> str:
    follows = [f"{step_id} (for {name})" for name, step_id in step.follows.items()]
    return safe(", ".join([*step.depends_on, *follows]))


def draw_mermaid(flow: Flow) -> str:
    """Return a Mermaid flowchart: solid arrows are dependencies, dotted ones the order on a file."""
    number = {step.step_id: f"s{i}" for i, step in enumerate(flow.steps)}
    lines = ["flowchart TD"]
    lines += [f'  {number[step.step_id]}["{_label(step, "<br/>")}"]' for step in flow.steps]
    for step in flow.steps:
        lines += [f"  {number[each]} --> {number[step.step_id]}" for each in step.depends_on]
        lines += [f"  {number[each]} -. {name} .-> {number[step.step_id]}" for each, name in _follows(step)]
    for status, fill in FILLS.items():
        members = [number[step.step_id] for step in flow.steps if step.status == status]
        if members:
            lines.append(f"  classDef {status} fill:{fill},stroke:#555,color:#000")
            lines.append(f"  class {','.join(members)} {status}")
    return "\n".join(lines)


def draw_dot(name: str, flow: Flow) -> str:
    """Return a Graphviz digraph: solid arrows are dependencies, dashed ones the order on a file."""
    lines = [f"digraph {_quote(name)} {{", '  node [shape=box, style="rounded,filled", fillcolor=white];']
    for step in flow.steps:
        fill = "" if step.status is None else f', fillcolor="{FILLS[step.status.value]}"'
        lines.append(f'  {_quote(step.step_id)} [label="{_label(step, chr(92) + "n")}"{fill}];')
    for step in flow.steps:
        target = _quote(step.step_id)
        lines += [f"  {_quote(each)} -> {target};" for each in step.depends_on]
        lines += [
            f"  {_quote(each)} -> {target} [style=dashed, label={_quote(name)}];"
            for each, name in _follows(step)
        ]
    return "\n".join([*lines, "}"])


def _follows(step: FlowStep) -> Iterator[tuple[str, str]]:
    """Yield each step that is followed for the sake of files, with the names of those."""
    files: dict[str, list[str]] = {}
    for name, step_id in step.follows.items():
        files.setdefault(step_id, []).append(name)
    for step_id, names in files.items():
        yield step_id, ", ".join(names)


def _label(step: FlowStep, line_break: str) -> str:
    if step.status is None:
        return step.step_id
    rows = f", {describe_count(step.rows_quarantined, 'row')}" if step.rows_quarantined else ""
    return f"{step.step_id}{line_break}{step.status.value}{rows}"


def _quote(text: str) -> str:
    escaped = safe(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def flow_document(
    name: str, patterns: Mapping[str, str], kinds: Mapping[str, str], flow: Flow
) -> dict[str, Any]:
    """Return the flow for programs; `status` is null where no run is named."""
    return {
        "schema_version": SCHEMA_VERSION,
        "pipeline_name": name,
        "run_id": None if flow.run is None else flow.run.run_id,
        "run_status": None if flow.run is None else flow.run.status.value,
        "files": [{"name": file, "source_pattern": pattern} for file, pattern in patterns.items()],
        "steps": [
            {
                "step_id": step.step_id,
                "kind": kinds[step.step_id],
                "stage": step.stage,
                "reads": list(step.reads),
                "writes": list(step.writes),
                "depends_on": list(step.depends_on),
                "follows": step.follows,
                "status": None if step.status is None else step.status.value,
                "rows_quarantined": step.rows_quarantined,
            }
            for step in flow.steps
        ],
    }
