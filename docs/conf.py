"""How the documentation is built: Markdown pages, and a reference made of the docstrings."""

from __future__ import annotations

import re

import astro_async

project = "astro_async"
author = "The astro_async authors"
copyright = author  # noqa: A001 - Sphinx calls it that
version = release = astro_async.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"astro_async {release}"
html_static_path: list[str] = []
html_copy_source = False

myst_enable_extensions = ["deflist", "fieldlist", "strikethrough"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The page of the benchmarks is there once they have been run.
suppress_warnings = ["toc.empty_glob"]

_TICKS = re.compile(r"(?<![`:\\])`([^`\n]+)`(?![`_])")


def _to_restructured_text(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are written in the Markdown of the pages; autodoc reads reStructuredText."""
    translated: list[str] = []
    in_code = False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
            translated += [".. code-block:: python", ""] if in_code else [""]
        else:
            translated.append(f"    {line}" if in_code else _TICKS.sub(r"``\1``", line))
    lines[:] = translated


def setup(app: object) -> None:
    """Have docstrings translated before Napoleon reads their sections."""
    app.connect("autodoc-process-docstring", _to_restructured_text, priority=100)  # type: ignore[attr-defined]
