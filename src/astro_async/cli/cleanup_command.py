"""`astro cleanup`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import typer

from astro_async._core.names import RunId, check_run_id
from astro_async._core.retention import refuse_removal, select_removable
from astro_async._core.selection import RunSummary
from astro_async._executor.clock import format_time, utc_now
from astro_async._store.atomic import Disk
from astro_async._store.catalogue import existing_run_directory, load_run
from astro_async._store.layout import command_line, holder_path, lock_path, run_directory
from astro_async._store.lock import refuse_if_locked
from astro_async._store.removal import (
    Droppable,
    drop_files,
    measure_droppable,
    measure_run,
    read_unless_damaged,
    remove_leftovers,
    remove_run,
    scan_leftovers,
)
from astro_async.cli.ages import parse_age
from astro_async.cli.documents import SCHEMA_VERSION
from astro_async.cli.failures import describe_failure
from astro_async.cli.options import (
    DebugOption,
    JsonOption,
    PipelineDirOption,
    complete_run,
    make_command,
    show_examples,
)
from astro_async.cli.output import open_screen, print_document
from astro_async.cli.render_runs import make_table
from astro_async.cli.wording import describe_count, describe_size, describe_time, safe, status_text
from astro_async.exceptions import AstroError, RunRefusedError
from astro_async.reading import LATEST, list_runs, read_run

__all__ = ["command"]

command = make_command()


_WORDS: Final[dict[Droppable | None, str]] = {
    None: "to remove: ",
    "versions": "old versions of ",
    "quarantine": "what was decided about rows of ",
}


class Unreadable(NamedTuple):
    """A run whose records are damaged or lost."""

    run_id: RunId


class Item(NamedTuple):
    """One run that is to be removed, or to lose files, and what that frees."""

    run: RunSummary | Unreadable
    size_bytes: int

    @property
    def status(self) -> str | None:
        """How the run stands; None if it cannot be read."""
        return None if isinstance(self.run, Unreadable) else self.run.status.value


@command.command(
    epilog=show_examples(
        "astro cleanup --dry-run",
        "astro cleanup --older-than 30d --keep-last 10 --yes",
        "astro cleanup --versions            keep the runs, drop what only a retry would need",
        "astro cleanup --quarantine --older-than 30d --yes    drop the values of rows that were decided",
        "astro cleanup k3x9a",
        title="Examples",
    )
)
def cleanup(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Run ids, or 'latest'. Default: all completed runs.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    pipeline_dir: PipelineDirOption = ".",
    versions: Annotated[
        bool,
        typer.Option(
            "--versions",
            help="Keep the runs; drop all versions of their files but the ingested and the last ones.",
            show_default=False,
        ),
    ] = False,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Keep the runs; drop what was decided about rows, with their values as they were and are.",
            show_default=False,
        ),
    ] = False,
    keep_last: Annotated[
        int, typer.Option("--keep-last", min=0, metavar="N", help="Leave the N newest completed runs alone.")
    ] = 0,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Only runs ingested longer ago, such as 30d."),
    ] = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Remove failed, interrupted and never run ones, too; none with rows parked or decided.",
            show_default=False,
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed.", show_default=False)
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)] = False,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Remove completed runs, or files of theirs that only a re-run needs.

    Says what that frees, and asks. Runs that did not come to a good end stay, unless --unfinished; runs with
    undecided rows in quarantine, or with decisions that are yet to be applied, and all statistics stay in any
    case. A run whose records are damaged or lost goes if it is named with --unfinished. A run that a process
    is on is refused with exit code 4. Killed at any moment, no half of a run is
    left: the next cleanup finishes the work.
    """
    what = _choose_files(versions=versions, quarantine=quarantine, unfinished=unfinished)
    if runs and (keep_last or older_than is not None):
        raise typer.BadParameter("name runs, or choose them with --keep-last and --older-than")
    if json and not (yes or dry_run):
        raise typer.BadParameter("nobody can be asked: give --yes or --dry-run", param_hint="--json")
    age = None if older_than is None else parse_age(older_than)
    summaries, notices = list_runs(pipeline_dir)
    for notice in notices:
        print(f"warning: {safe(notice)}", file=sys.stderr)
    chosen: Sequence[RunSummary | Unreadable]
    if runs:
        chosen = _take_named(pipeline_dir, runs, unfinished=unfinished)
    else:
        chosen = select_removable(
            summaries, now=utc_now(), older_than=age, keep_last=keep_last, unfinished=unfinished
        )
    items = list(_measure(pipeline_dir, chosen, what))
    leftovers = [] if what else scan_leftovers(pipeline_dir)
    leftover_bytes = sum(measure_run(path) for path in leftovers)
    if not json:
        _tell(items, len(leftovers), leftover_bytes, pipeline_dir, what)
    removed: list[RunId] = []
    code = 0
    if not dry_run and (items or leftovers):
        total = describe_size(sum(item.size_bytes for item in items) + leftover_bytes)
        if not yes:
            typer.confirm(f"Free {total}?", abort=True)
        remove_leftovers(leftovers, Disk())
        removed, code = _remove(pipeline_dir, items, what, unfinished=unfinished)
    if json:
        print_document(_document(items, removed, leftover_bytes, what))
    elif removed or (leftovers and not dry_run):
        freed = sum(item.size_bytes for item in items if item.run.run_id in removed) + leftover_bytes
        print(f"freed {describe_size(freed)}")
    if code:
        raise typer.Exit(code)


def _choose_files(*, versions: bool, quarantine: bool, unfinished: bool) -> Droppable | None:
    """Return which files go of runs that stay; None where runs go."""
    if versions and quarantine:
        raise typer.BadParameter("give --versions and --quarantine one after the other")
    what: Droppable | None = "versions" if versions else "quarantine" if quarantine else None
    if what and unfinished:
        raise typer.BadParameter(f"--{what} keeps what a retry may need; it does not go with --unfinished")
    return what


def _take_named(
    pipeline_dir: str, names: Sequence[str], *, unfinished: bool
) -> list[RunSummary | Unreadable]:
    """Return the runs that are named.

    Raises:
        RunLockedError: A process is on one.
        RunRefusedError: One may not be removed.
        RunNotFoundError: There is no such run.
    """
    ids = [read_run(pipeline_dir, name).run_id if name == LATEST else check_run_id(name) for name in names]
    summaries = {summary.run_id: summary for summary in list_runs(pipeline_dir)[0]}
    chosen: list[RunSummary | Unreadable] = []
    for run_id in dict.fromkeys(ids):
        directory = existing_run_directory(pipeline_dir, run_id)
        refuse_if_locked(lock_path(directory), holder_path(directory), what=f"run {run_id}")
        if unfinished and read_unless_damaged(directory) is None:
            chosen.append(Unreadable(run_id))
            continue
        if run_id not in summaries:
            # Raises what is wrong with it.
            load_run(pipeline_dir, run_id)
        summary = summaries[run_id]
        why = refuse_removal(
            summary.status, summary.rows_quarantined, is_decided=summary.is_decided, unfinished=unfinished
        )
        if why is not None:
            hint = command_line(f"run {run_id}", pipeline_dir)
            raise RunRefusedError(f"run {run_id} is left alone: it {why}; `{hint}` brings it to its end")
        chosen.append(summary)
    return chosen


def _measure(
    pipeline_dir: str, runs: Sequence[RunSummary | Unreadable], what: Droppable | None
) -> list[Item]:
    items = []
    for run in runs:
        directory = run_directory(pipeline_dir, run.run_id)
        if what is None:
            items.append(Item(run, measure_run(directory)))
        elif size_bytes := measure_droppable(directory, load_run(pipeline_dir, run.run_id), what):
            items.append(Item(run, size_bytes))
    return items


def _tell(
    items: Sequence[Item],
    leftovers: int,
    leftover_bytes: int,
    pipeline_dir: str,
    what: Droppable | None,
) -> None:
    if items:
        table = make_table("run", "status", "ingested (UTC)", "frees", right=["frees"])
        for item in items:
            run, size = item.run, describe_size(item.size_bytes)
            if isinstance(run, Unreadable):
                table.add_row(run.run_id, "cannot be read", "", size)
            else:
                time = describe_time(run.ingested_at or run.created_at)[:16]
                table.add_row(run.run_id, status_text(run.status.value), time, size)
        open_screen().print(table)
        total = describe_size(sum(item.size_bytes for item in items))
        print(f"{_WORDS[what]}{describe_count(len(items), 'run')}, {total}")
        if any(isinstance(item.run, Unreadable) for item in items):
            print("nobody can say whether rows are parked in a run that cannot be read; they go with it")
    if leftovers:
        size = describe_size(leftover_bytes)
        print(f"{describe_count(leftovers, 'run')} half removed by an earlier cleanup, {size}")
    if not items and not leftovers:
        hint = command_line("list", pipeline_dir)
        kind = {"versions": "old versions of ", "quarantine": "decisions about rows of "}.get(what or "", "")
        print(f"nothing to remove: no {kind}completed runs that you chose (`{hint}` shows the runs)")


def _remove(
    pipeline_dir: str, items: Sequence[Item], what: Droppable | None, *, unfinished: bool
) -> tuple[list[RunId], int]:
    """Remove what can be; return which runs, and the exit code."""
    removed: list[RunId] = []
    code = 0
    for run, _ in items:
        now = format_time(utc_now())
        try:
            if what:
                drop_files(pipeline_dir, run.run_id, what, disk=Disk(), now=now)
            else:
                remove_run(
                    pipeline_dir,
                    run.run_id,
                    disk=Disk(),
                    now=now,
                    unfinished=unfinished,
                    unreadable=isinstance(run, Unreadable),
                )
        except AstroError as error:
            message, each = describe_failure(error)
            print(f"error: {message}", file=sys.stderr)
            code = max(code, each)
        else:
            removed.append(run.run_id)
    return removed, code


def _document(
    items: Sequence[Item], removed: Sequence[RunId], leftover_bytes: int, what: Droppable | None
) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "what": what or "runs",
        "runs": [
            {"run_id": item.run.run_id, "status": item.status, "size_bytes": item.size_bytes}
            | {"is_removed": item.run.run_id in removed}
            for item in items
        ],
        "leftover_bytes": leftover_bytes,
    }
