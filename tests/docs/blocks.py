"""Finds the code blocks of a Markdown page, and what the page says about running them.

A mark is an HTML comment on the line before a block, which readers never see:

- `<!-- file: pipeline.py -->`: the block is written to that file of the page's folder.
- `<!-- exit: 3 -->`: a command of the block ends with this exit code; without it, with 0.
- `<!-- one -->`: only the first line is a command, though what it prints has lines with `$` too.
- `<!-- output -->`: what the `python` blocks since the last such block print.
- `<!-- fresh -->`: the page starts again here, in an empty folder, with no names defined.
- `<!-- skip: reason -->`: the block is not run, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Block", "Page", "find_pages", "find_paths", "parse_page"]

ROOT: Final = Path(__file__).resolve().parents[2]

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}-]*)(?: .*)?$")
_MARK: Final = re.compile(r"^ *<!-- (?P<name>file|exit|one|output|fresh|skip)(?:: (?P<value>.*?))? -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        line: The line of its first content, from 1.
        language: What stands behind the fence.
        text: Its content, with a line feed at the end.
        marks: What the comments before it say, by name.
    """

    line: int
    language: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file.

    Attributes:
        path: The file.
        name: Its path below the root of the repository.
        blocks: All its blocks, in order.
    """

    path: Path
    name: str
    blocks: tuple[Block, ...]


def find_pages() -> list[Page]:
    """Return all pages of the documentation: those beside the README, and those in `docs/`.

    The pages of the benchmarks are left out: they are written by them, and their commands take many minutes.
    """
    return [parse_page(path) for path in find_paths() if not path.name.startswith("benchmarks")]


def find_paths() -> list[Path]:
    """Return the files of all pages, those of the benchmarks included."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def parse_page(path: Path) -> Page:
    """Return a page with its blocks.

    Raises:
        ValueError: A block has no end, or a mark no block.
    """
    blocks = tuple(_iter_blocks(path.read_text(encoding="utf-8").splitlines(), path))
    return Page(path, str(path.relative_to(ROOT)), blocks)


def _iter_blocks(lines: list[str], path: Path) -> Iterator[Block]:
    marks: dict[str, str] = {}
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        mark = _MARK.match(line)
        fence = _FENCE.match(line)
        if mark is not None:
            marks[mark["name"]] = mark["value"] or ""
        elif fence is not None:
            content = list(_read_to_end(numbered, fence["indent"], path, number))
            yield Block(number + 1, fence["language"], "\n".join([*content, ""]), marks)
            marks = {}
        elif marks:
            raise ValueError(f"{path}:{number}: a mark stands before something that is no block")


def _read_to_end(numbered: Iterator[tuple[int, str]], indent: str, path: Path, start: int) -> Iterator[str]:
    for _, line in numbered:
        if line == f"{indent}```":
            return
        yield line.removeprefix(indent)
    raise ValueError(f"{path}:{start}: this block has no end")
