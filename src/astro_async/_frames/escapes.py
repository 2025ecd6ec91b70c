"""Keep bytes that are not text while a source is decoded, so that its other lines can be read.

Each such byte becomes one lone surrogate, U+DC00 and the byte, which no text that decodes has.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

__all__ = ["ESCAPED", "ESCAPING", "has_escapes", "show_escapes"]

# The name of the error handler, for every decoder.
ESCAPING: Final = "astro_async.escape"
# What such surrogates are in UTF-8, if it is made with "surrogatepass".
ESCAPED: Final = re.compile(rb"\xed[\xb0-\xb3]")

_FIRST: Final = 0xDC00
_SURROGATES: Final = re.compile("[\udc00-\udcff]")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(_FIRST + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(ESCAPING, _escape)


def has_escapes(text: str) -> bool:
    """Say whether a text stands for bytes that could not be decoded."""
    return _SURROGATES.search(text) is not None


def show_escapes(text: str) -> str:
    r"""Write escaped bytes as `\xNN`, and a backslash as two, so that both can be told apart again."""
    doubled = text.replace("\\", "\\\\")
    return _SURROGATES.sub(lambda found: f"\\x{ord(found[0]) - _FIRST:02x}", doubled)
