"""What would become of parked rows if the run went on now: checks judged on their amended input.

Only checks can be judged so, and only where their input is known: no step before them makes it anew. Takes no
lock, and changes nothing of the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

import polars as pl

from astro_async._core.decisions import Forecast, group_patches, withdraw_command
from astro_async._core.events import FileFlow
from astro_async._core.lineage import Plan
from astro_async._core.records import RunRecord, StepRecord
from astro_async._executor.parked import load_parked, scan_amended
from astro_async._frames.columns import ROW_COLUMN
from astro_async._frames.parquet import load_frame, scan_frame, write_frame
from astro_async._frames.split import split_lazy
from astro_async._store.layout import patch_paths, run_directory
from astro_async.exceptions import AstroError
from astro_async.expectation import compile_rule_set, flatten_rules
from astro_async.pipeline import Pipeline, StepDefinition
from astro_async.steps import CheckStep

__all__ = ["forecast_checks"]


def forecast_checks(
    pipeline: Pipeline, pipeline_dir: str, record: RunRecord, plan: Plan
) -> dict[str, list[Forecast]]:
    """Judge the checks that would run again and have rows parked. Blocks: their input is streamed once.

    Returns:
        By step, one forecast for each file of which it parked rows.
    """
    remade: dict[str, str] = {}
    found: dict[str, list[Forecast]] = {}
    for step in pipeline.steps:
        if step.step_id not in plan.again:
            continue
        parked = record.steps.get(step.step_id)
        flows = [] if parked is None else [flow for flow in parked.files if flow.parts]
        if isinstance(step.fn, CheckStep) and parked is not None and flows:
            found[step.step_id] = [
                _forecast(step, pipeline_dir, record, parked, flow, remade) for flow in flows
            ]
        remade.update(dict.fromkeys(step.writes, step.step_id))
    return found


def _forecast(
    step: StepDefinition,
    pipeline_dir: str,
    record: RunRecord,
    parked: StepRecord,
    flow: FileFlow,
    remade: Mapping[str, str],
) -> Forecast:
    # A rule may look rows up in the other files, too.
    for name in (flow.name, *(name for name in step.file_names if name not in step.writes)):
        if name in remade:
            problem = f"{remade[name]} makes {name} anew before"
            return Forecast(flow.name, flow.rows_quarantined, problem=problem)
    assert isinstance(step.fn, CheckStep)
    reads = parked.read_versions()
    directory = run_directory(pipeline_dir, record.run_id)
    groups = group_patches(record.patches).get((step.step_id, flow.name), [])
    patches = patch_paths(directory, groups)
    withdraw = withdraw_command(record.run_id, step.step_id, flow.name)
    try:
        before = load_parked(pipeline_dir, record, parked.step_id, flow.name).rows[ROW_COLUMN]
        with tempfile.TemporaryDirectory(prefix="astro-forecast-") as folder:
            given, good, bad = (f"{folder}/{name}.parquet" for name in ("given", "good", "bad"))
            write_frame(scan_amended(f"{directory}/{flow.read}", patches, withdraw=withdraw), given)
            frame = scan_frame(given).drop(ROW_COLUMN)
            rules = compile_rule_set(
                list(flatten_rules(step.fn.rules)),
                frame,
                lambda name: scan_frame(f"{directory}/{reads[name]}"),
            )
            split = split_lazy(frame, rules, good_path=good, bad_path=bad)
            places = load_frame(given, [ROW_COLUMN])[ROW_COLUMN]
            after = (
                places.gather(load_frame(bad, [ROW_COLUMN])[ROW_COLUMN]) if split.bad.rows else places.head(0)
            )
    except AstroError as error:
        return Forecast(flow.name, flow.rows_quarantined, problem=str(error))
    return _compare(flow, before.drop_nulls(), after, places)


def _compare(flow: FileFlow, before: pl.Series, after: pl.Series, given: pl.Series) -> Forecast:
    there = before.filter(before.is_in(given.implode()))
    passing = there.filter(~there.is_in(after.implode()))
    return Forecast(
        file=flow.name,
        parked=flow.rows_quarantined,
        passing=len(passing),
        discarded=len(before) - len(there),
        new=int((~after.is_in(before.implode())).sum()),
    )
