"""`astro stats`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

import typer

from astro_async._core.names import check_run_id
from astro_async._store.layout import statistics_path
from astro_async._store.statistics import load_statistics, load_trend
from astro_async.cli.ages import parse_age
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    complete_run,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_stats import Series, gather_series, render_statistics, render_trend
from astro_async.reading import LATEST, read_run

__all__ = ["By", "command"]

command = make_command()

TREND: Final = "trend"
_DEFAULT_SPAN: Final = "8w"


class By(StrEnum):
    """What a line of a trend is about."""

    STEP = "step"
    FILE = "file"
    RUN = "run"


_DEFAULT_ACTIONS: Final = {By.STEP: "rows_quarantined", By.FILE: "row_count", By.RUN: "duration_ms"}


@command.command(
    epilog=show_examples(
        "astro stats",
        "astro stats k3x9a --json",
        "astro stats trend --since 8w --by step --action rows_quarantined",
        "astro stats trend --by run          how long the runs took",
        title="Examples",
    )
)
def stats(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|trend",
            help="A run id, 'latest', or 'trend' for many runs.",
            autocompletion=complete_run,
        ),
    ] = LATEST,
    pipeline_dir: PipelineDirOption = ".",
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="AGE", help="Trend: of runs ingested so long ago at most. Default: 8w."
        ),
    ] = None,
    by: Annotated[
        By | None,
        typer.Option("--by", metavar="KIND", help="Trend: a line for each step, file or run. Default: step."),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            metavar="NAME",
            help="Trend: which number. Default: rows_quarantined of steps, row_count of files, duration_ms "
            "of runs.",
        ),
    ] = None,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Print the statistics of a run, or how they went over many runs.

    Statistics outlive the runs: they are kept when `astro cleanup` removes a run.
    """
    if run == TREND:
        _tell_trend(pipeline_dir, since or _DEFAULT_SPAN, by or By.STEP, action, json=json)
        return
    given = {"--since": since, "--by": by, "--action": action}
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter("belongs to a trend: `astro stats trend`", param_hint=name)
    _tell_run(pipeline_dir, run, json=json)


def _tell_run(pipeline_dir: str, run: str, *, json: bool) -> None:
    path = statistics_path(pipeline_dir)
    run_id = read_run(pipeline_dir, LATEST).run_id if run == LATEST else check_run_id(run)
    statistics = load_statistics(path, run_id)
    if not statistics:
        # Raises where there is no such run.
        read_run(pipeline_dir, run_id)
    if json:
        rows = [
            {"scope": each.scope, "subject": each.subject, "action": each.action, "value": each.value}
            | {"recorded_at": each.recorded_at}
            for each in statistics
        ]
        print_document({"schema_version": SCHEMA_VERSION, "run_id": run_id, "statistics": rows})
    elif statistics:
        open_screen().print(render_statistics(run_id, statistics))
    else:
        print(f"run {run_id} has no statistics: `astro verify {run_id} --repair` makes them from its journal")


def _tell_trend(pipeline_dir: str, since: str, by: By, action: str | None, *, json: bool) -> None:
    chosen = action or _DEFAULT_ACTIONS[by]
    begin = _format(datetime.now(UTC), parse_age(since))
    found = load_trend(statistics_path(pipeline_dir), scope=by.value, action=chosen, since=begin)
    series = gather_series(found)
    if json:
        print_document(
            {
                "schema_version": SCHEMA_VERSION,
                "since": begin,
                "by": by.value,
                "action": chosen,
                "series": [_series_document(each) for each in series],
            }
        )
    elif series:
        screen = open_screen()
        screen.print(render_trend(series, by=by.value, action=chosen, width=screen.width))
    else:
        print(f"no run since {begin[:10]} has recorded {chosen!r} for a {by.value}")


def _series_document(series: Series) -> dict[str, object]:
    points = [
        {"run_id": point.run_id, "ingested_at": point.ingested_at, "value": point.value}
        for point in series.points
    ]
    return {"subject": series.subject, "points": points}


def _format(now: datetime, span: timedelta) -> str:
    try:
        return (now - span).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return ""
