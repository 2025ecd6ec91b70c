"""Every block of the README and of the pages in `docs/` does what the page says."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from docs.blocks import ROOT, Page, find_pages, parse_page
from docs.sessions import run_page

PAGES = [page for page in find_pages() if page.blocks]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_shows(page: Page) -> None:
    # A short path, wherever the tests run: what is printed is broken into lines by its length.
    with tempfile.TemporaryDirectory() as folder:
        run_page(page, Path(folder).resolve())


def test_few_blocks_are_left_out() -> None:
    skipped = [block for page in PAGES for block in page.blocks if "skip" in block.marks]
    executed = [block for page in PAGES for block in page.blocks if block.language in ("python", "console")]
    assert all(block.marks["skip"] for block in skipped)
    assert len(skipped) <= len(executed) // 8


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\n1 / 0\n```\n", "division by zero"),
        ('```python\nprint("a")\n```\n', "output that no block shows"),
        ('```python\nprint("a")\n```\n\n<!-- output -->\n```text\nb\n```\n', "page.md:7: the page shows"),
        ("```console\n$ echo a\nb\n```\n", "page.md:2: the page shows"),
        ("```console\n$ exit 3\n```\n", "exit codes {3}, not 0"),
        ("<!-- exit: 3 -->\n```console\n$ true\n```\n", "no command ends with 3"),
        ("```sh\ntrue\n```\n", "commands stand in `console` blocks"),
        ("<!-- skip -->\n```python\n```\n", "a block that is skipped says why"),
        ("```python\n", "this block has no end"),
        ("<!-- file: a -->\n\nNo block.\n", "a mark stands before something that is no block"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs.blocks.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises((AssertionError, ValueError, ZeroDivisionError)) as raised:
        run_page(parse_page(path), folder)
    assert complaint in str(raised.value)


def test_a_page_that_is_right_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs.blocks.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(
        "<!-- file: a/b.txt -->\n```text\nhello\n```\n\n"
        "```python\nfrom pathlib import Path\n\nprint(Path('a/b.txt').read_text())\n```\n\n"
        "<!-- output -->\n```text\nhello\n```\n\n"
        "<!-- exit: 3 -->\n```console\n$ cat a/b.txt; exit 3\n...\n$ echo $?\n3\n```\n",
        encoding="utf-8",
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    run_page(parse_page(path), folder)


def test_pages_are_found() -> None:
    names = {page.name for page in find_pages()}
    assert {"README.md", "docs/index.md", "docs/quarantine.md"} <= names
    assert (ROOT / "pyproject.toml").is_file()
