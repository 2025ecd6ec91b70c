"""What may be imported from the package is what it says, what is documented, and nothing else."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import astro_async
import astro_async.testing
from astro_async import exceptions

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
BESIDES = ("astro_async.context.Quarantine",)
"""Classes that are met in a step and not imported; they are documented too."""


def public_objects() -> dict[str, Any]:
    objects = {name: getattr(astro_async, name) for name in astro_async.__all__}
    objects |= {f"testing.{name}": getattr(astro_async.testing, name) for name in astro_async.testing.__all__}
    objects |= {f"exceptions.{name}": getattr(exceptions, name) for name in exceptions.__all__}
    for path in BESIDES:
        module, _, name = path.rpartition(".")
        objects[name] = getattr(import_module(module), name)
    return objects


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield public functions, classes, and the functions that classes of ours define."""
    for path, value in public_objects().items():
        if path == "FilterFn":  # a name for a type, documented in its module
            continue
        yield path, value
        if inspect.isclass(value):
            for name, member in vars(value).items():
                if not name.startswith("_") and inspect.isfunction(member):
                    yield f"{path}.{name}", member


CALLABLES = dict(public_callables())


def test_the_names_are_sorted_and_loaded_from_where_they_live() -> None:
    assert astro_async.__all__ == sorted(astro_async.__all__)
    assert set(astro_async.__all__) == set(astro_async._HOME_OF)
    for name, home in astro_async._HOME_OF.items():
        assert getattr(astro_async, name) is getattr(import_module(f"astro_async.{home}"), name)


def test_type_checkers_are_told_the_same_names() -> None:
    tree = ast.parse(Path(inspect.getfile(astro_async)).read_text(encoding="utf-8"))
    told: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            home = node.module.removeprefix("astro_async.")
            told |= {alias.name: home for alias in node.names if node.module.startswith("astro_async.")}
    assert told == astro_async._HOME_OF


def test_names_are_listed_and_others_are_refused() -> None:
    assert set(astro_async.__all__) <= set(dir(astro_async))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        astro_async.nothing  # noqa: B018


def test_importing_the_package_loads_no_polars() -> None:
    code = "import sys, astro_async, astro_async.reading; assert 'polars' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_name_is_in_the_reference_and_nothing_else_is() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    documented = set(re.findall(r"auto(?:class|function|data):: (\S+)", page))
    assert documented == {*astro_async.__all__, *BESIDES}


def test_all_errors_are_of_one_tree() -> None:
    errors = [getattr(exceptions, name) for name in exceptions.__all__]
    assert all(issubclass(error, exceptions.AstroError) for error in errors)
    assert {error.exit_code for error in errors} == {1, 2, 4}


@pytest.mark.parametrize("path", CALLABLES)
def test_a_docstring_says_what_is_there(path: str) -> None:
    value = CALLABLES[path]
    text = inspect.getdoc(value)
    assert text, f"{path} has no docstring"
    assert not inspect.isclass(value) or value.__doc__, f"{path} has only the docstring of its base"
    sections = dict(read_sections(text))
    if not inspect.isclass(value):
        check_arguments(path, value, sections)
    assert "    As `" not in text, f"{path} sends the reader elsewhere for its errors"
    for error in sections.get("Raises", ()):
        assert hasattr(exceptions, error) or hasattr(builtins, error), f"{path} raises {error}: unknown"


def check_arguments(path: str, function: Any, sections: dict[str, list[str]]) -> None:
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = [
        f"{stars.get(parameter.kind, '')}{name}"
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    if "Args" in sections:
        assert sections["Args"] == parameters, f"{path} documents other arguments than it has"


def read_sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each section of a docstring with the names that it begins its entries with."""
    for piece in re.split(r"\n(?=(?:Args|Attributes|Raises|Returns):\n)", text)[1:]:
        title, _, body = piece.partition(":\n")
        entries = re.findall(r"^    (\*{0,2}\w+): ", body, flags=re.MULTILINE)
        yield title, entries


@pytest.mark.parametrize(
    "function",
    [astro_async.ingest, astro_async.run, astro_async.read_run, astro_async.expect],
    ids=lambda function: function.__name__,
)
def test_the_way_in_says_what_it_takes_and_raises(function: Any) -> None:
    assert {"Args", "Raises"} <= dict(read_sections(inspect.getdoc(function) or "")).keys()
