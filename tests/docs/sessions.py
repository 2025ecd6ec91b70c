"""Runs the blocks of a page as a reader would: in one folder, in order, and compares what is shown.

`console` blocks hold commands after `$` and what they print; `python` blocks are executed one after the
other with the names of those before; other blocks are written to files where the page says so, else left
alone. What differs from run to run is put aside on both sides before the comparison: run ids, times,
durations, and the folder, which pages call `/srv/night`. A line `...` in a page stands for any lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import astro_async
from docs.blocks import Block, Page

__all__ = ["FOLDER", "RUN_ID", "Session", "run_page", "split_commands"]

FOLDER: Final = "/srv/night"

# As pages write them: with a digit, so that no word is taken for one.
RUN_ID: Final = re.compile(r"\b(?=[a-z]*[0-9])[a-z0-9]{5}\b")
_VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "TIME"),
    (re.compile(r"\b\d+\.\d+s\b"), "0.0s"),
    (re.compile(r"\b\d+\.\d+ ms\b"), "0 ms"),
    (re.compile(r"\bprocess \d+ on \S+"), "process N on HOST"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)
_TIMEOUT_S: Final = 60
_CODE: Final = str(Path(astro_async.__file__).resolve().parents[1])


@dataclass
class Session:
    """The state of a page between two of its blocks.

    Attributes:
        page: The page.
        folder: Where its files are and its commands run.
        names: What its Python blocks have defined.
        printed: What they have printed and no block has shown yet.
        exit_code: Of the last command.
        run_ids: From the ids that the page shows to the real ones.
    """

    page: Page
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    exit_code: int = 0
    run_ids: dict[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Do what a block is there for.

        Raises:
            AssertionError: It does not do what the page shows; the message names page and line.
        """
        if "fresh" in block.marks:
            self._start_again()
        if "skip" in block.marks:
            assert block.marks["skip"], f"{self._place(block)}: a block that is skipped says why"
        elif "file" in block.marks:
            path = self.folder / block.marks["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif "output" in block.marks:
            printed, self.printed = self.printed, ""
            self._compare(block, block.text, printed)
        elif block.language == "python":
            self._execute(block)
        elif block.language in ("console", "bash", "shell", "sh"):
            self._type(block)

    def _start_again(self) -> None:
        assert not self.printed.strip(), f"{self.page.name}: output that no block shows: {self.printed}"
        self.names, self.printed, self.exit_code, self.run_ids = {}, "", 0, {}
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    # -- Python --------------------------------------------------------------------------------

    def _execute(self, block: Block) -> None:
        # Padded, so that a traceback names the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(self.page.path), "exec", dont_inherit=True)
        self.names.setdefault("__name__", "page")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self.names)
        self.printed += printed.getvalue()

    # -- commands ------------------------------------------------------------------------------

    def _type(self, block: Block) -> None:
        assert block.language == "console", f"{self._place(block)}: commands stand in `console` blocks"
        expected_exit = int(block.marks.get("exit", 0))
        exits = set()
        for given, shown in split_commands(block.text, only_first="one" in block.marks):
            command = given
            for documented, real in self.run_ids.items():
                command = re.sub(rf"\b{documented}\b", real, command)
            printed = self._call(command)
            self.learn_run_ids(shown, printed)
            self._compare(block, shown, printed)
            if not command.startswith("echo $?"):
                exits.add(self.exit_code)
        assert exits <= {0, expected_exit}, f"{self._place(block)}: exit codes {exits}, not {expected_exit}"
        assert expected_exit in exits, f"{self._place(block)}: no command ends with {expected_exit}"

    def _call(self, command: str) -> str:
        scripts = str(Path(sys.executable).parent)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))},
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            # Commands run the code that the tests have imported, wherever it was found.
            "PYTHONPATH": _CODE,
            "COLUMNS": "100",
            "TERM": "dumb",
        }
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.exit_code})\n{command}"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if not command.startswith("echo $?"):
            self.exit_code = done.returncode
        return done.stdout

    def learn_run_ids(self, shown: str, printed: str) -> None:
        """Pair the ids that the page shows with those of the runs, in the order in which both appear."""
        documented = [each for each in dict.fromkeys(RUN_ID.findall(shown)) if each not in self.run_ids]
        self.run_ids.update(zip(documented, self.find_new_runs(printed), strict=False))

    def find_new_runs(self, printed: str) -> list[str]:
        """Return the ids of runs that are printed for the first time, in order."""
        known = set(self.run_ids.values())
        runs = [path.name for path in self.folder.glob("**/.working/*/") if path.name not in known]
        return sorted((each for each in runs if each in printed), key=printed.index)

    # -- comparison ----------------------------------------------------------------------------

    def _compare(self, block: Block, shown: str, printed: str) -> None:
        actual = printed.replace(str(self.folder), FOLDER)
        for documented, real in self.run_ids.items():
            actual = re.sub(rf"\b{real}\b", documented, actual)
        self.judge(block, shown, actual)

    def judge(self, block: Block, shown: str, printed: str) -> None:
        """Compare what a page shows with what was printed, in the page's words.

        Raises:
            AssertionError: They differ in more than what differs from run to run.
        """
        expected, actual = _put_aside(shown), _put_aside(printed)
        lines = ["(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in expected.splitlines()]
        assert re.fullmatch("".join(lines), actual), (
            f"{self._place(block)}: the page shows\n{_indent(expected)}\nbut this came\n{_indent(actual)}"
        )

    def _place(self, block: Block) -> str:
        return f"{self.page.name}:{block.line}"


def run_page(page: Page, folder: Path, kind: type[Session] = Session) -> Session:
    """Run all blocks of a page in a folder, which is the current one meanwhile.

    Raises:
        AssertionError: A block does not do what the page shows.
    """
    session = kind(page, folder.resolve())
    with contextlib.chdir(folder):
        for block in page.blocks:
            session.run(block)
    assert not session.printed.strip(), f"{page.name}: output that no block shows:\n{session.printed}"
    return session


def split_commands(text: str, *, only_first: bool) -> Iterator[tuple[str, str]]:
    """Yield each command and what the page shows it to print."""
    for piece in re.split(r"^\$ ", text, maxsplit=int(only_first), flags=re.MULTILINE)[1:]:
        command, _, shown = piece.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command}\n{more.removeprefix('> ')}"
        yield command, shown


def _put_aside(text: str) -> str:
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    text = re.sub(r" {2,}", "  ", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
