"""Finding and loading `pipeline.py`.

It is code and is executed: only point at directories that you trust.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Final

import pydantic
from pydantic_core import ErrorDetails

from astro_async.exceptions import AstroError, PipelineError
from astro_async.pipeline import Pipeline

__all__ = ["PIPELINE_FILE", "load_pipeline"]

PIPELINE_FILE: Final = "pipeline.py"

# Loading puts the pipeline's folder first on sys.path, and its neighbours into sys.modules, for a moment.
_LOADING = threading.Lock()


def load_pipeline(pipeline_dir: str | os.PathLike[str]) -> Pipeline:
    """Execute `pipeline.py` of a directory and return its `pipeline`, with its graph validated.

    `pipeline` is an instance of `Pipeline` or a subclass of it. Modules beside `pipeline.py` can be
    imported at its top; each load has its own. (An import inside a function comes too late for that.)

    Args:
        pipeline_dir: The folder that holds `pipeline.py`.

    Raises:
        PipelineError: There is none, it raises, it defines no pipeline, or the pipeline makes no sense.
    """
    directory = os.path.abspath(os.fspath(pipeline_dir))
    path = os.path.join(directory, PIPELINE_FILE)
    if not os.path.isfile(path):
        raise PipelineError(
            f"there is no {PIPELINE_FILE} in {directory}: go to the folder that has one, or name it with -C"
        )
    module = _execute(path, directory)
    found = getattr(module, "pipeline", None)
    if isinstance(found, type) and issubclass(found, Pipeline):
        found = _construct(found, path)
    if not isinstance(found, Pipeline):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise PipelineError(
            f"{path} names {kind} `pipeline`: assign your Pipeline to it, as in `pipeline = MyPipeline()`"
        )
    try:
        found.graph()
    except PipelineError as error:
        raise PipelineError(f"{path}: {error}") from error
    except Exception as error:
        raise PipelineError(f"{path}: configure_steps raised {type(error).__name__}: {error}") from error
    return found


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time.

    A cached one is looked up by size and whole seconds: an edit within a second could go unseen. And the
    author's folder stays free of ours.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _execute(path: str, directory: str) -> ModuleType:
    name = f"astro_async_pipeline_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshLoader(name, path))
    if spec is None or spec.loader is None:  # pragma: no cover - a .py file always has a loader
        raise PipelineError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    with _LOADING:
        before = set(sys.modules)
        working_directory = os.getcwd()
        sys.path.insert(0, directory)
        # Registered, so that dataclasses and pickles of the pipeline's own classes find their module.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            sys.modules.pop(name, None)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PipelineError(f"{path}{_describe(error, path)}") from error
        finally:
            # What the caller was given as a relative path must go on meaning the same.
            os.chdir(working_directory)
            if directory in sys.path:
                sys.path.remove(directory)
            _forget_siblings(directory, before, name)
    return module


def _forget_siblings(directory: str, before: set[str], name: str) -> None:
    """Forget the modules beside `pipeline.py` that it imported.

    The pipeline has them; another pipeline has others of the same names, and after an edit they are others.
    """
    for other in set(sys.modules) - before - {name}:
        origin = getattr(sys.modules[other], "__file__", None)
        if origin is not None and os.path.abspath(origin).startswith(f"{directory}{os.sep}"):
            del sys.modules[other]


def _construct(pipeline: type[Pipeline], path: str) -> Pipeline:
    try:
        return pipeline()
    except Exception as error:
        raise PipelineError(f"{path}: {pipeline.__name__}(){_describe(error, path)}") from error


def _describe(error: BaseException, path: str) -> str:
    """Return what is to be said after the place that raised an error."""
    if isinstance(error, SyntaxError):
        return f" raised SyntaxError: {error.msg}, line {error.lineno}"
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = "" if line is None else f", line {line}"
    if isinstance(error, pydantic.ValidationError):
        return f"{where}: {error.title}: {'; '.join(map(_describe_fault, error.errors()))}"
    text = " ".join(str(error).split())
    if isinstance(error, AstroError):
        return f"{where}: {text}"
    return f" raised {type(error).__name__}: {text}{where}"


def _describe_fault(fault: ErrorDetails) -> str:
    place = ".".join(f"argument {each + 1}" if isinstance(each, int) else each for each in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {message[:1].lower()}{message[1:]}" if place else message
