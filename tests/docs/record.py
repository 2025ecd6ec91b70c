"""Writes into pages what their commands print now: `python tests/docs/record.py docs/running.md …`.

For when the output of a command has changed on purpose. Look at the difference before you keep it. Blocks
with a line `...` stay as they are.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.blocks import Block, parse_page
from docs.sessions import Session, run_page, split_commands

_RUN_IDS = ("k3x9a", "p7m2c", "t4w8e", "n5r1z", "h2v6q", "b8y3d")


@dataclass
class Recorder(Session):
    """A session that takes down what comes instead of judging it.

    Attributes:
        taken: By the line of a block, what its commands printed.
    """

    taken: dict[int, list[str]] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """Do what a block is there for; tell what is wrong with it, and go on."""
        try:
            super().run(block)
        except AssertionError as error:
            print(error, file=sys.stderr)

    def learn_run_ids(self, shown: str, printed: str) -> None:
        """Give each new run the id that the page shows, else the next one that it does not use."""
        super().learn_run_ids(shown, printed)
        for real in self.find_new_runs(printed):
            self.run_ids[next(each for each in _RUN_IDS if each not in self.run_ids)] = real

    def judge(self, block: Block, shown: str, printed: str) -> None:
        """Take down what came."""
        kept = shown if "..." in shown.splitlines() else printed
        self.taken.setdefault(block.line, []).append(
            "\n".join(map(str.rstrip, kept.strip("\n").splitlines()))
        )


def record_page(path: Path) -> None:
    """Run a page and write what its commands print."""
    page = parse_page(path)
    with tempfile.TemporaryDirectory() as folder:
        session = run_page(page, Path(folder), Recorder)
    assert isinstance(session, Recorder)
    lines = path.read_text(encoding="utf-8").splitlines()
    for block in reversed(page.blocks):
        taken = session.taken.get(block.line)
        if taken is None:
            continue
        if "output" in block.marks:
            text = taken[0]
        else:
            commands = split_commands(block.text, only_first="one" in block.marks)
            pairs = [(command, shown) for (command, _), shown in zip(commands, taken, strict=True)]
            text = "\n".join(f"$ {command}\n{shown}".rstrip() for command, shown in pairs)
        start = block.line - 1
        lines[start : start + len(block.text.splitlines())] = text.splitlines()
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record_page(Path(name).resolve())
