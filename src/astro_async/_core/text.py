"""Text from data, authors and files, made so that it cannot drive a terminal or forge a line of a log."""

from __future__ import annotations

__all__ = ["escape_controls"]


def escape_controls(text: str) -> str:
    """Return text with control characters (newlines, ANSI escapes, bidi overrides) as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
