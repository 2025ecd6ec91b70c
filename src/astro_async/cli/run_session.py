"""One `astro run` from its request to its exit code: choose, show, run, tell."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import anyio
import typer

from astro_async._core.records import RunRecord
from astro_async._core.status import RunStatus, StepStatus
from astro_async._executor.forecast import forecast_checks
from astro_async._store.layout import log_path, run_directory
from astro_async._store.log import LogTail
from astro_async.api import RunResult, StopSwitch, call_untold, plan, stream
from astro_async.cli.choice import Choice, choose_run
from astro_async.cli.display import Display, EventsFile, View, logging_to
from astro_async.cli.documents import no_run_document, plan_document, run_document
from astro_async.cli.ingest_command import describe_ingested, perform_ingest
from astro_async.cli.options import command_line
from astro_async.cli.output import Screen, claim_stdout, open_screen, print_document
from astro_async.cli.progress import RunProgress
from astro_async.cli.render_dashboard import MOST_LOG_LINES
from astro_async.cli.render_plain import Line, plan_lines, verdict_lines
from astro_async.cli.render_runs import describe_waiting
from astro_async.cli.signals import SignalWatch
from astro_async.cli.streams import flush_streams
from astro_async.cli.telling import Teller, tell_others
from astro_async.cli.views import DashboardView, JsonView, PlainView, QuietView, print_lines, print_note
from astro_async.cli.wording import safe
from astro_async.exceptions import StorageError
from astro_async.loading import load_pipeline
from astro_async.pipeline import Pipeline
from astro_async.reading import exit_code_of, find_run

__all__ = ["RunRequest", "perform_run", "was_interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the user asked for; the attributes are the options of `astro run`."""

    pipeline_dir: str
    run_id: str | None
    source: str | None
    jobs: int | None
    keep_going: bool
    mode: str
    params: dict[str, Any]
    events: str | None
    rerun: tuple[str, ...]
    allow_quarantined: bool
    dry_run: bool
    tellers: tuple[Teller, ...]
    json: bool
    debug: bool


def perform_run(request: RunRequest) -> None:
    """Do what was asked.

    Raises:
        typer.Exit: With the exit code of the command.
        AstroError: As `api.run` and `load_pipeline`.
    """
    needs_stdout = request.json or request.mode == "json"
    claim = claim_stdout() if needs_stdout else _plain_stdout()
    hung: tuple[str, ...] = ()
    code = 1
    try:
        with claim as out, SignalWatch() as watch:
            session = _Session(request, watch, out)
            # Back to where the command was given, wherever steps went: what is printed is relative to it.
            with contextlib.chdir(os.curdir):
                result, seconds = session.perform()
            if result is not None:
                hung, code = result.hung, session.exit_code(result)
                watch.settle(code)
                session.tell_verdict(result, seconds, code)
            else:
                code = 0
            session.tell_others(result)
    finally:
        if hung:
            # Their threads would keep the interpreter from ending, for ever perhaps.
            flush_streams()
            os._exit(code)
    raise typer.Exit(code)


@contextlib.contextmanager
def _plain_stdout() -> Iterator[None]:
    yield None


def was_interrupted(record: RunRecord, *, keep_going: bool) -> bool:
    """Tell whether something was left undone that the stop rules would have done.

    Before the stop point (the earliest step that failed or was blocked) everything runs, unless somebody
    stopped it.
    """
    if record.status is RunStatus.INTERRUPTED:
        return True
    for step in record.steps.values():
        if step.status in (StepStatus.FAILED, StepStatus.BLOCKED) and not keep_going:
            return False
        if step.status is StepStatus.PENDING:
            return True
    return False


class _Session:
    """What the parts of one `astro run` share."""

    def __init__(self, request: RunRequest, watch: SignalWatch, out: IO[str] | None) -> None:
        self.request = request
        self.watch = watch
        self.out = out
        # Where people read: stdout, unless that is for a program.
        self.screen: Screen = open_screen() if out is None else open_screen(sys.stderr)
        self.says_much = request.mode != "quiet"
        self.mode = self._choose_mode()

    def perform(self) -> tuple[RunResult | None, float | None]:
        """Return how the run stands and how many seconds it took; None if nothing was to be run."""
        request = self.request
        with contextlib.closing(self._open_events_file()) as events_file:
            with logging_to(print_note, traces=request.debug):
                pipeline = load_pipeline(request.pipeline_dir)
                self.watch.renew()
                choice = self._choose(pipeline)
            if choice is None:
                self._tell_nothing_to_do()
                if pipeline.on_finish is not None and not request.dry_run:
                    with logging_to(print_note, traces=request.debug):
                        anyio.run(call_untold, pipeline, request.pipeline_dir)
                return None, None
            self._tell_choice(choice)
            if request.dry_run:
                self._tell_plan(pipeline, choice.run_id)
                return None, None
            return self._run(pipeline, choice, events_file)

    def exit_code(self, result: RunResult) -> int:
        """Return the exit code of the command."""
        record = result.record
        if record is None:
            return 0
        if self.watch.first is not None and was_interrupted(record, keep_going=self.request.keep_going):
            return self.watch.exit_code
        code = exit_code_of(record)
        return 0 if code == 3 and self.request.allow_quarantined else code

    def tell_verdict(self, result: RunResult, seconds: float | None, code: int) -> None:
        """Say how the run stands, and what to do next."""
        record = result.record
        if record is None:
            return
        if self.request.json and self.out is not None:
            directory = run_directory(self.request.pipeline_dir, record.run_id)
            print_document(run_document(record, directory), self.out)
            return
        for line in verdict_lines(
            record, pipeline_dir=self.request.pipeline_dir, seconds=seconds, interrupted=code > 128
        ):
            if self.says_much:
                print_lines(self.screen, [line])
            elif code:
                # A quiet run that ends well says nothing at all.
                print_note(line.text)

    def tell_others(self, result: RunResult | None) -> None:
        """Tell those whom `--notify-command` and `--notify-url` name, of this run and of what they missed."""
        if self.request.tellers and not self.request.dry_run:
            self.screen.flush()
            record = None if result is None else result.record
            tell_others(self.request.pipeline_dir, record, list(self.request.tellers), print_note)

    # -- before --------------------------------------------------------------------------------

    def _choose_mode(self) -> str:
        if self.request.json:
            return "quiet"
        if self.request.mode not in ("auto", "dashboard"):
            return self.request.mode
        # Where nothing can be drawn anew, a dashboard would be a heap of frames.
        return "dashboard" if self.screen.can_draw else "plain"

    def _open_events_file(self) -> EventsFile:
        path = self.request.events
        if path is None or self.request.dry_run:
            return EventsFile(None)
        try:
            return EventsFile(open(path, "ab"))
        except OSError as error:
            raise StorageError(f"--events {path} cannot be written: {error.strerror}") from error

    def _choose(self, pipeline: Pipeline) -> Choice | None:
        if self.request.source is not None:
            return self._ingest(pipeline, self.request.source)
        return choose_run(self.request.pipeline_dir, self.request.run_id)

    def _ingest(self, pipeline: Pipeline, source: str) -> Choice:
        request = self.request
        record = perform_ingest(
            self.watch,
            pipeline,
            source,
            request.pipeline_dir,
            request.params,
            shows_progress=request.mode not in ("quiet", "json"),
            debug=request.debug,
        )
        for line in describe_ingested(record):
            self._say(Line(line))
        found = find_run(request.pipeline_dir, record.run_id)
        return Choice(record.run_id, f"just ingested from {safe(source)}", found.waiting)

    # -- the run -------------------------------------------------------------------------------

    def _run(
        self, pipeline: Pipeline, choice: Choice, events_file: EventsFile
    ) -> tuple[RunResult, float | None]:
        request = self.request
        stop = StopSwitch()
        progress = RunProgress([step.step_id for step in pipeline.steps])
        title = f"run {choice.run_id}  {safe(pipeline.name)}"
        directory = run_directory(request.pipeline_dir, choice.run_id)
        view = self._make_view(progress, title, LogTail(log_path(directory), MOST_LOG_LINES), stop)
        if isinstance(view, DashboardView):
            self.watch.before_leaving = _show_cursor
        with Display(view, events_file) as display, logging_to(display.note, traces=request.debug):

            def obey(signals: int) -> None:
                if signals == 1:
                    stop.drain()
                    display.note("stopping: running steps finish, nothing else starts; again to cancel them")
                else:
                    stop.cancel()
                    display.note("cancelling what runs; again to leave at once")

            with self.watch.telling(obey):
                result = anyio.run(self._stream, pipeline, choice, stop, display)
        finished = progress.finished
        return result, None if finished is None else finished.duration_ms / 1000

    async def _stream(
        self, pipeline: Pipeline, choice: Choice, stop: StopSwitch, display: Display
    ) -> RunResult:
        request = self.request
        async with stream(
            pipeline,
            pipeline_dir=request.pipeline_dir,
            run_id=choice.run_id,
            waiting=choice.waiting,
            jobs=request.jobs,
            keep_going=request.keep_going,
            rerun=request.rerun,
            params=request.params or None,
            stop=stop,
        ) as events:
            async for event in events:
                display.put(event)
        return events.result

    def _make_view(self, progress: RunProgress, title: str, log: LogTail, stop: StopSwitch) -> View:
        if self.mode == "dashboard":
            return DashboardView(self.screen, progress, title, log, lambda: stop.level)
        if self.mode == "json" and self.out is not None:
            return JsonView(self.out)
        return PlainView(self.screen, progress) if self.mode == "plain" else QuietView()

    # -- words ---------------------------------------------------------------------------------

    def _say(self, line: Line) -> None:
        if self.says_much:
            print_lines(self.screen, [line])

    def _tell_choice(self, choice: Choice) -> None:
        waiting = f"; waiting: {describe_waiting(choice.waiting)}" if choice.waiting else ""
        self._say(Line(f"run {choice.run_id}: {choice.why}{waiting}"))
        self.screen.flush()

    def _tell_nothing_to_do(self) -> None:
        hint = command_line("ingest SOURCE_DIR", self.request.pipeline_dir)
        self._say(Line(f"nothing to do: no run is unfinished; `{hint}` makes one"))
        if self.request.json and self.out is not None:
            print_document(no_run_document(), self.out)

    def _tell_plan(self, pipeline: Pipeline, run_id: str) -> None:
        request = self.request
        record, planned = plan(
            pipeline, pipeline_dir=request.pipeline_dir, run_id=run_id, rerun=request.rerun
        )
        forecasts = forecast_checks(pipeline, request.pipeline_dir, record, planned)
        if request.json and self.out is not None:
            print_document(plan_document(record, planned, forecasts), self.out)
            return
        for line in plan_lines(record, planned, forecasts):
            self._say(line)


def _show_cursor() -> None:
    with contextlib.suppress(OSError):
        os.write(1, b"\x1b[?25h\n")
