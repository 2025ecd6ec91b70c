"""`astro status`: one line and an exit code, for a monitor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

import typer

from astro_async._core.selection import RunSummary
from astro_async._core.status import RunStatus, StepStatus
from astro_async.cli.ages import describe_age, parse_age, parse_time
from astro_async.cli.documents import SCHEMA_VERSION, summary_document
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    make_command,
    show_examples,
)
from astro_async.cli.output import print_document
from astro_async.cli.wording import describe_count, safe
from astro_async.reading import list_runs

__all__ = ["Health", "command", "judge_health"]

command = make_command()


class Health(NamedTuple):
    """What a monitor is told.

    Attributes:
        exit_code: 0, 1 or 3.
        words: Why.
        run: The run that decides; None if there is none.
    """

    exit_code: int
    words: str
    run: RunSummary | None


@command.command(
    epilog=show_examples(
        "astro status --max-age 26h         for a pipeline that runs every night",
        "astro status --json | jq .why",
        title="Examples",
    )
)
def status(
    pipeline_dir: PipelineDirOption = ".",
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age",
            metavar="AGE",
            help="How long ago its files may have been ingested, such as 90m, 26h, 8d. Default: any time.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say in one line how the newest run ended, and exit as it did.

    Exits with 0 if it is completed, 1 if a step failed, it was interrupted or never run, 3 if rows wait in
    quarantine; and with 1 if there is none as new as --max-age. A run that goes on at this moment is not
    judged yet: the one before it decides.
    """
    age = None if max_age is None else parse_age(max_age)
    summaries, notices = list_runs(pipeline_dir)
    for notice in notices:
        print(f"warning: {safe(notice)}", file=sys.stderr)
    health = judge_health(summaries, now=datetime.now(UTC), max_age=age)
    if json:
        run = None if health.run is None else summary_document(health.run, None)
        if run is not None:
            del run["is_next"]
        print_document(
            {
                "schema_version": SCHEMA_VERSION,
                "exit_code": health.exit_code,
                "why": health.words,
                "run": run,
                "notices": notices,
            }
        )
    else:
        print(health.words)
    if health.exit_code:
        raise typer.Exit(health.exit_code)


def judge_health(runs: Sequence[RunSummary], *, now: datetime, max_age: timedelta | None) -> Health:
    """Return how the newest run that does not go on stands.

    Args:
        runs: All runs, newest first.
        now: The time.
        max_age: How long ago it may have been ingested; None for any time.
    """
    running = [run.run_id for run in runs if run.status is RunStatus.RUNNING]
    settled = [run for run in runs if run.status not in (RunStatus.RUNNING, RunStatus.CREATED)]
    goes_on = f"; run {running[0]} goes on" if running else ""
    if not settled:
        return Health(1, f"no run has ended yet{goes_on}" if runs else "there is no run", None)
    newest = settled[0]
    age = now - parse_time(newest.ingested_at or newest.created_at)
    since = f"ingested {describe_age(age)} ago"
    if max_age is not None and age > max_age:
        return Health(
            1,
            f"too old: the newest run, {newest.run_id} ({newest.status.value}), was {since}{goes_on}",
            newest,
        )
    exit_code, why = _judge(newest)
    return Health(
        exit_code, f"run {newest.run_id} is {newest.status.value}: {why} ({since}){goes_on}", newest
    )


def _judge(run: RunSummary) -> tuple[int, str]:
    failed = run.counts.get(StepStatus.FAILED.value, 0)
    rows = f"{describe_count(run.rows_quarantined, 'row')} in quarantine"
    if run.status is RunStatus.COMPLETED:
        return 0, f"{describe_count(sum(run.counts.values()), 'step')} done"
    if run.status is RunStatus.INTERRUPTED:
        return 1, "it has yet to come to its end"
    if run.status is RunStatus.INGESTED:
        return 1, "nobody has run it"
    if failed:
        return 1, f"{describe_count(failed, 'step')} failed" + (f", {rows}" if run.rows_quarantined else "")
    if run.rows_quarantined:
        return 3, rows
    return 1, "it could not be brought to its end"
