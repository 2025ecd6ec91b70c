"""Pictures of lines that are fitted to the terminal, to be drawn several times a second.

Not by tables of Rich: those cost several milliseconds a picture, which a run of many tiny steps would lose to
its display.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment

__all__ = ["Picture", "Piece", "cut", "pad"]

Piece: TypeAlias = tuple[str, str] | ProgressBar
"""A text with its style, or a bar."""


class Picture:
    """Lines of pieces, cut off where the terminal ends. Texts have no control characters."""

    def __init__(self, lines: Sequence[Sequence[Piece]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the lines."""
        for line in self._lines:
            left = options.max_width
            for piece in line:
                if isinstance(piece, ProgressBar):
                    # Without colours the part that is to come is left out.
                    bar = list(console.render(piece, options))
                    rest = (piece.width or 0) - Segment.get_line_length(bar)
                    yield from [*bar, Segment(" " * rest)]
                    left -= piece.width or 0
                    continue
                text, style = piece
                fitted = cut(text, left)
                left -= cell_len(fitted)
                yield Segment(fitted, console.get_style(style) if style else None)
            yield Segment.line()


def cut(text: str, width: int) -> str:
    """Return text of at most `width` columns, with an ellipsis where some is left out."""
    if len(text) <= width and (text.isascii() or cell_len(text) <= width):
        return text
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Return text of exactly `width` columns."""
    return set_cell_size(cut(text, width), width)
