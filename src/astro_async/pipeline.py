"""What authors write: a pipeline of ingest files and steps.

Two ways to the same thing. A subclass with `ingest_files` and `configure_steps()`:

```python
class Orders(Pipeline):
    name = "orders"
    ingest_files = [IngestFileSpec("orders", "orders*.csv")]

    def configure_steps(self) -> None:
        self.add_step("Validate", validate, [AstroFileSpec("orders")])


pipeline = Orders()
```

or an instance with decorators, which return the plain function:

```python
pipeline = Pipeline("orders", ingest_files=[IngestFileSpec("orders", "orders*.csv")])


@pipeline.step(AstroFileSpec("orders"))
def validate(ctx, files): ...
```
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, TypeVar

import polars as pl

from astro_async._core.graph import Graph, StepNode
from astro_async._core.names import StepId, check_distinct, check_name, slugify
from astro_async.exceptions import PipelineError
from astro_async.expectation import Expectation, ForeignKey, Rules, flatten_rules
from astro_async.files import AstroFileSpec
from astro_async.ingest_spec import IngestFileSpec
from astro_async.steps import CheckStep, FilterFn, FilterStep

__all__ = [
    "ExecutionMode",
    "IngestFileSpec",
    "Pipeline",
    "Retry",
    "StepDefinition",
    "StepExecutionMode",
    "StepFn",
]

StepFn = Callable[..., Any]
Fn = TypeVar("Fn", bound=StepFn)
FileSpecs = AstroFileSpec | type[AstroFileSpec] | Sequence[AstroFileSpec | type[AstroFileSpec]]
StepRef = str | StepFn

_DEFAULT_JOBS_CAP: Final = 32


class ExecutionMode(StrEnum):
    """Whether a new ingest may begin while an earlier run is incomplete (`serial`: it may not)."""

    SERIAL = "serial"
    PARALLEL = "parallel"


class StepExecutionMode(StrEnum):
    """Whether steps run one at a time unless `--jobs` says otherwise. Understood for older pipelines."""

    SERIAL = "serial"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed step is tried again within one invocation, and how long it waits.

    Attributes:
        attempts: How many more starts.
        delay_s: Seconds before the first of them.
        backoff: Each further wait is this many times the one before.
        max_delay_s: No wait is longer.
    """

    attempts: int
    delay_s: float = 1.0
    backoff: float = 2.0
    max_delay_s: float = 300.0

    def delay_before(self, retry: int) -> float:
        """Return the seconds to wait before the `retry`-th retry, counted from 1."""
        try:
            return float(min(self.delay_s * self.backoff ** (retry - 1), self.max_delay_s))
        except OverflowError:
            return self.max_delay_s


_NO_RETRY: Final = Retry(0)


@dataclass(frozen=True, slots=True, eq=False)
class StepDefinition:
    """One step as declared; the arguments are those of `Pipeline.add_step`."""

    step_id: StepId
    label: str
    fn: StepFn
    files: tuple[AstroFileSpec, ...]
    depends_on: tuple[StepId, ...]
    is_async: bool
    timeout_s: float | None
    retry: Retry
    limits: tuple[str, ...]
    engine: Literal["thread", "process"]
    on_quarantine: Literal["block", "continue"]
    max_quarantined: int | None
    max_quarantined_fraction: float | None
    file_names: tuple[str, ...]
    writes: tuple[str, ...]


class _Declared:
    """The steps declared so far, and what many of them share."""

    def __init__(self) -> None:
        self.steps: list[StepDefinition] = []
        self._ids_of: dict[int, list[StepId]] = {}
        self._files: dict[tuple[int, ...], tuple[AstroFileSpec, ...]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, step: StepDefinition) -> None:
        self.steps.append(step)
        # By identity, for a callable need not be hashable; the step keeps it alive.
        self._ids_of.setdefault(id(step.fn), []).append(step.step_id)

    def ids_of(self, fn: StepFn) -> list[StepId]:
        """Return the steps that a function is."""
        return self._ids_of.get(id(fn), [])

    def share_files(self, files: tuple[AstroFileSpec, ...]) -> tuple[AstroFileSpec, ...]:
        """Return the tuple of the same files that an earlier step has, or this one."""
        return self._files.setdefault(tuple(map(id, files)), files)

    def share_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return one tuple for the same names, whoever asks."""
        listed = tuple(names)
        return self._names.setdefault(listed, listed)


class Pipeline:
    """Ingest files, steps, and how they run.

    Attributes:
        name: Shown to people and recorded with each run.
        ingest_files: The source files; their names are what steps refer to.
        execution_mode: See `ExecutionMode`.
        jobs: How many steps run at once unless `--jobs` is given; default `min(32, cores + 4)`.
        limits: Sizes of named limits, such as `{"database": 2}`; a step takes one unit of each it names.
        keep_versions: False drops all versions but the last ones when a run completes.
        fsync: False never waits for the device; a power cut may then cost whole runs.
        on_finish: Called with the `RunResult` when an invocation on a run has ended, however it ended: in a
            worker thread, or awaited if it is async. A subclass may have it as a method. What it raises is
            logged and does not change the verdict; the next invocation calls it again.
        step_execution_mode: `"serial"` is the same as `jobs = 1`. For older pipelines.
        max_parallel_workers: The same as `jobs`. For older pipelines.
    """

    name: str = "pipeline"
    ingest_files: ClassVar[Sequence[IngestFileSpec]] = ()
    execution_mode: ExecutionMode | str = ExecutionMode.PARALLEL
    jobs: int | None = None
    limits: Mapping[str, int] = {}
    keep_versions: bool = True
    fsync: bool = True
    on_finish: Callable[[Any], Any] | None = None
    step_execution_mode: StepExecutionMode | str | None = None
    max_parallel_workers: int | None = None

    def __init__(
        self,
        name: str | None = None,
        *,
        ingest_files: Sequence[IngestFileSpec] | None = None,
        execution_mode: ExecutionMode | str | None = None,
        jobs: int | None = None,
        limits: Mapping[str, int] | None = None,
        keep_versions: bool | None = None,
        fsync: bool | None = None,
        on_finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """Make a pipeline; what is not given comes from the class."""
        given = {
            "name": name,
            "ingest_files": ingest_files,
            "execution_mode": execution_mode,
            "jobs": jobs,
            "limits": limits,
            "keep_versions": keep_versions,
            "fsync": fsync,
            "on_finish": on_finish,
        }
        for attribute, value in given.items():
            if value is not None:
                setattr(self, attribute, value)

    def configure_steps(self) -> None:
        """Override to declare the steps, by calls of `add_step`, `add_check` and `add_filter`."""

    # -- declaring steps -----------------------------------------------------------------------

    def add_step(
        self,
        label: str,
        fn: StepFn,
        files: FileSpecs = (),
        *,
        step_id: str | None = None,
        depends_on: StepRef | Sequence[StepRef] | None = None,
        timeout: float | None = None,
        retries: int | Retry = 0,
        limits: str | Sequence[str] = (),
        engine: Literal["thread", "process"] = "thread",
        on_quarantine: Literal["block", "continue"] = "block",
        max_quarantined: int | None = None,
        max_quarantined_fraction: float | None = None,
    ) -> StepFn:
        """Declare a step, last in serial order.

        Args:
            label: For people; its slug is the step's id.
            fn: `def fn(ctx, files)` runs in a worker thread, `async def fn(ctx, files)` on the event loop.
            files: What it works on. By position and by name in `files`.
            step_id: The id, if not the slug of the label.
            depends_on: Earlier steps, by id or function, that must be `complete` first.
            timeout: Seconds after which an attempt is `failed`. A thread cannot be killed: its slot stays
                taken, and a retry waits, until it is gone.
            retries: How often a failed attempt is followed by another, within one invocation.
            limits: Named limits (see `Pipeline.limits`) of which the step takes one unit each.
            engine: `"process"` runs the function in a process of its own.
            on_quarantine: `"continue"` lets dependents run on the good rows.
            max_quarantined: Strictly more rows set aside and the step is `failed`, its parts kept to read.
            max_quarantined_fraction: The same as a share of the rows of each file, 0.0 to 1.0.

        Returns:
            `fn`.

        Raises:
            PipelineError: Something of it makes no sense; the message names the step.
        """
        identity = StepId(step_id) if step_id is not None else slugify(label)
        declared = self._declared
        specs = declared.share_files(_as_specs(identity, files))
        definition = StepDefinition(
            step_id=identity,
            label=label,
            fn=_check_callable(identity, fn),
            files=specs,
            depends_on=tuple(self._resolve(identity, ref) for ref in _as_refs(depends_on)),
            is_async=_is_async(fn),
            timeout_s=timeout,
            retry=retries if isinstance(retries, Retry) else _NO_RETRY if not retries else Retry(retries),
            limits=(limits,) if isinstance(limits, str) else tuple(limits),
            engine=engine,
            on_quarantine=on_quarantine,
            max_quarantined=max_quarantined,
            max_quarantined_fraction=max_quarantined_fraction,
            file_names=declared.share_names(spec.ingest_name for spec in specs),
            writes=declared.share_names(spec.ingest_name for spec in specs if not spec.readonly),
        )
        _check_policy(definition)
        declared.add(definition)
        return fn

    def step(
        self, *files: AstroFileSpec | type[AstroFileSpec], label: str | None = None, **options: Any
    ) -> Callable[[Fn], Fn]:
        """Return a decorator that declares a function as a step, and leaves the function as it is.

        Args:
            *files: What the step works on.
            label: Default: the function's name, in words.
            **options: As `add_step`.
        """
        if len(files) == 1 and isinstance(files[0], Sequence):
            files = tuple(files[0])
        if len(files) == 1 and inspect.isfunction(files[0]):
            raise PipelineError(
                f"@pipeline.step needs parentheses: write @pipeline.step(AstroFileSpec('name')) above "
                f"{files[0].__name__}"
            )

        def declare(fn: Fn) -> Fn:
            words = label if label is not None else fn.__name__.strip("_").replace("_", " ")
            if label is None:
                options.setdefault("step_id", fn.__name__.strip("_"))
            self.add_step(words, fn, files, **options)
            return fn

        return declare

    def add_check(self, label: str, rules: Rules, files: FileSpecs, **options: Any) -> None:
        """Declare a step that quarantines the rows of each file that break a rule.

        Rows in are rows out plus rows quarantined, asserted for each file.

        Args:
            label: For people; its slug is the step's id.
            rules: Made by `expect` and its kin, schemas of pandera.polars or dataframely, or a sequence of
                them.
            files: The files to check, all by the same rules. Read-only files are not checked: they are those
                that `expect_foreign` looks at.
            **options: As `add_step`.
        """
        try:
            flat = tuple(flatten_rules(rules))
        except TypeError as error:
            raise PipelineError(f"check {label!r}: {error}") from None
        if not flat:
            raise PipelineError(f"check {label!r} needs rules, such as expect('reason', pl.col('x') > 0)")
        _check_roles(label, flat, _as_specs(label, files))
        self.add_step(label, CheckStep(flat), files, **options)

    def add_filter(
        self,
        label: str,
        rows: FilterFn | pl.Expr | FileSpecs | None = None,
        files: FileSpecs | None = None,
        *,
        remove: FilterFn | pl.Expr | None = None,
        keep: pl.Expr | None = None,
        **options: Any,
    ) -> None:
        """Declare a step that removes rows on purpose; they are kept under `filtered/` and counted.

        `add_filter(label, rows, files)` and `add_filter(label, files, remove=rows)` name the rows to remove,
        `add_filter(label, files, keep=rows)` those to keep. A null verdict keeps the row either way.

        Args:
            label: For people; its slug is the step's id.
            rows: A Boolean expression, or a function that is given a file's DataFrame and returns the rows
                to remove.
            files: The files to filter.
            remove: The same as `rows`, said plainly.
            keep: An expression that is true for rows to keep; rows for which it is false are removed.
            **options: As `add_step`.
        """
        if files is None and (remove is not None or keep is not None):
            files, rows = rows, None  # type: ignore[assignment]
        chosen = [each for each in (rows, remove, keep) if each is not None]
        if len(chosen) != 1 or files is None:
            raise PipelineError(f"filter {label!r} needs files and exactly one of rows, remove= and keep=")
        if keep is not None and not isinstance(keep, pl.Expr):
            raise PipelineError(
                f"filter {label!r}: keep= is a Polars expression; a function names rows to remove"
            )
        if not isinstance(chosen[0], pl.Expr) and not callable(chosen[0]):
            raise PipelineError(f"filter {label!r}: name the rows by a Polars expression or a function")
        self.add_step(label, FilterStep(chosen[0], removes=keep is None), files, **options)  # type: ignore[arg-type]

    # -- what the engine reads -----------------------------------------------------------------

    @property
    def steps(self) -> tuple[StepDefinition, ...]:
        """The steps in serial order. Calls `configure_steps` once, when first asked."""
        if not self.__dict__.get("_is_configured"):
            self.__dict__["_is_configured"] = True
            try:
                self.configure_steps()
            except BaseException:
                self.__dict__["_is_configured"] = False
                self.__dict__.pop("_definitions", None)
                raise
        return tuple(self._declared.steps)

    def file_specs(self) -> dict[str, IngestFileSpec]:
        """Return the ingest files by name.

        Raises:
            PipelineError: There are none, or names collide.
        """
        specs = list(self.ingest_files)
        if not specs:
            raise PipelineError(f"pipeline {self.name!r} declares no ingest_files: name at least one")
        if not all(isinstance(spec, IngestFileSpec) for spec in specs):
            raise PipelineError(f"pipeline {self.name!r}: ingest_files is a list of IngestFileSpec")
        for spec in specs:
            check_name(spec.name, what="ingest_name")
        check_distinct((spec.name for spec in specs), what="ingest_name")
        return {spec.name: spec for spec in specs}

    def graph(self, delivered: Iterable[str] | None = None) -> Graph:
        """Return the validated graph of the steps.

        Args:
            delivered: Names of the files that a run has; None stands for all.

        Raises:
            PipelineError: Ids collide; a dependency is unknown, later or the step itself; a step names a
                file that the pipeline does not ingest, or that the run does not have though it is not
                optional; a limit has no size; a mode is none that there is.
        """
        self._check_modes()
        specs, steps = self.file_specs(), self.steps
        present = frozenset(specs if delivered is None else delivered)
        optional = tuple((name, spec.optional) for name, spec in specs.items())
        key = (steps, present, optional, dict(self.limits))
        known: tuple[object, Graph] | None = self.__dict__.get("_graph")
        if known is None or known[0] != key:
            # Whoever loads a pipeline asks for it, to see that it is sound; whoever runs it, again.
            known = self.__dict__["_graph"] = (key, self._build_graph(specs, steps, present))
        return known[1]

    def _check_modes(self) -> None:
        known: dict[str, type[StrEnum]] = {
            "execution_mode": ExecutionMode,
            "step_execution_mode": StepExecutionMode,
        }
        for name, modes in known.items():
            mode = getattr(self, name)
            choices = [each.value for each in modes]
            if mode is not None and mode not in choices:
                raise PipelineError(f"{name} is {' or '.join(map(repr, choices))}, not {mode!r}")

    def _build_graph(
        self,
        specs: Mapping[str, IngestFileSpec],
        steps: Sequence[StepDefinition],
        present: frozenset[str],
    ) -> Graph:
        used = {name for definition in steps for name in definition.file_names}
        lost = [name for name, spec in specs.items() if name in used - present and not spec.optional]
        if lost:
            raise PipelineError(
                f"the run has no file {lost[0]!r}, which is not optional; it has "
                f"{', '.join(map(repr, sorted(present))) or 'none'}: give the file its old name back, "
                "make it optional, or ingest the source again"
            )
        return Graph([self._node(definition, specs, present) for definition in steps])

    def default_jobs(self) -> int:
        """Return how many steps run at once unless the operator says otherwise."""
        if self.jobs is not None:
            return self.jobs
        if self.step_execution_mode is not None and StepExecutionMode(self.step_execution_mode) == "serial":
            return 1
        if self.max_parallel_workers is not None:
            return self.max_parallel_workers
        return min(_DEFAULT_JOBS_CAP, (os.cpu_count() or 1) + 4)

    # ------------------------------------------------------------------------------------------

    @property
    def _declared(self) -> _Declared:
        # Made on first use, so that a subclass need not call our constructor.
        declared: _Declared | None = self.__dict__.get("_definitions")
        if declared is None:
            declared = self.__dict__["_definitions"] = _Declared()
        return declared

    def _resolve(self, step_id: str, ref: StepRef) -> StepId:
        if isinstance(ref, str):
            return StepId(ref)
        found = self._declared.ids_of(ref)
        if not found:
            name = getattr(ref, "__name__", repr(ref))
            raise PipelineError(f"step {step_id!r} depends on {name}, which is not an earlier step")
        if len(found) > 1:
            raise PipelineError(
                f"step {step_id!r} depends on a function that is step {found[0]!r} and {found[1]!r}: "
                "name one by its id"
            )
        return found[0]

    def _node(
        self, step: StepDefinition, specs: Mapping[str, IngestFileSpec], present: Collection[str]
    ) -> StepNode:
        names = step.file_names
        for name in names:
            if name not in specs:
                raise PipelineError(
                    f"step {step.step_id!r} works on file {name!r}, which the pipeline does not ingest; "
                    f"it ingests {', '.join(map(repr, specs))}"
                )
        if len(set(names)) < len(names):
            raise PipelineError(f"step {step.step_id!r} names a file twice")
        for limit in step.limits:
            if limit not in self.limits:
                raise PipelineError(
                    f"step {step.step_id!r} takes limit {limit!r}, which has no size: "
                    f"set limits={{{limit!r}: N}} on the pipeline"
                )
        return StepNode(
            step_id=step.step_id,
            files=names,
            writes=step.writes,
            depends_on=step.depends_on,
            continues=step.on_quarantine == "continue",
            limits=tuple(dict.fromkeys(step.limits)) if step.limits else (),
            skipped=bool(names) and not any(name in present for name in names),
            queue=_queue_of(step),
        )


def _queue_of(step: StepDefinition) -> Literal["threads", "loop"] | None:
    if step.timeout_s is not None or step.limits or step.engine != "thread":
        # A timeout counts from the start, a limit is held from the start, a process is started at once.
        return None
    return "loop" if step.is_async else "threads"


def _is_async(fn: StepFn) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _check_callable(step_id: str, fn: object) -> StepFn:
    if not callable(fn):
        raise PipelineError(f"step {step_id!r} needs a function fn(ctx, files), not {type(fn).__name__}")
    return fn


def _as_specs(step_id: str, files: object) -> tuple[AstroFileSpec, ...]:
    listed = files if isinstance(files, Sequence) and not isinstance(files, str) else (files,)
    specs = []
    for each in listed:
        spec = each() if isinstance(each, type) and issubclass(each, AstroFileSpec) else each
        if not isinstance(spec, AstroFileSpec):
            raise PipelineError(
                f"step {step_id!r}: files are AstroFileSpec('name') or subclasses of it, not {each!r}"
            )
        specs.append(spec)
    return tuple(specs)


def _check_roles(label: str, rules: Sequence[Any], specs: Sequence[AstroFileSpec]) -> None:
    """Check that each file of a check is judged, or read-only and looked at by a rule."""
    keys = [rule.valid for rule in rules if isinstance(rule, Expectation)]
    looked_at = {key.file for key in keys if isinstance(key, ForeignKey)}
    readonly = {spec.ingest_name for spec in specs if spec.readonly}
    if missing := sorted(looked_at - readonly):
        raise PipelineError(
            f"check {label!r} has a rule that looks at file {missing[0]!r}: "
            f"add AstroFileSpec({missing[0]!r}, readonly=True) to its files"
        )
    if idle := sorted(readonly - looked_at):
        raise PipelineError(
            f"check {label!r} cannot set rows of {idle[0]!r} aside, which is read-only, and no rule looks at "
            "it: drop readonly=True, or the file"
        )
    if len(readonly) == len(specs):
        raise PipelineError(f"check {label!r} has no file to check: all of them are read-only")


def _as_refs(depends_on: StepRef | Sequence[StepRef] | None) -> Sequence[StepRef]:
    if depends_on is None:
        return ()
    if isinstance(depends_on, str) or callable(depends_on):
        return (depends_on,)
    return depends_on


def _is_at_least(value: object, least: float, *, most: float = math.inf) -> bool:
    return isinstance(value, int | float) and least <= value <= most


def _check_policy(step: StepDefinition) -> None:
    retry, rows, share = step.retry, step.max_quarantined, step.max_quarantined_fraction
    problems = {
        "timeout is a number of seconds above 0": step.timeout_s is not None
        and not (_is_at_least(step.timeout_s, 0) and step.timeout_s),
        "retries is 0 or more": not _is_at_least(retry.attempts, 0),
        "the delays and the back-off of a Retry are 0 or more": not all(
            _is_at_least(value, 0) for value in (retry.delay_s, retry.max_delay_s, retry.backoff)
        ),
        "engine is 'thread' or 'process'": step.engine not in ("thread", "process"),
        "engine='process' takes a plain function, not an async one": step.engine == "process"
        and step.is_async,
        "on_quarantine is 'block' or 'continue'": step.on_quarantine not in ("block", "continue"),
        "max_quarantined is 0 or more": rows is not None and not _is_at_least(rows, 0),
        "max_quarantined_fraction is between 0 and 1": share is not None
        and not _is_at_least(share, 0, most=1),
    }
    for problem, is_present in problems.items():
        if is_present:
            raise PipelineError(f"step {step.step_id!r}: {problem}")
