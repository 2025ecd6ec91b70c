"""Say how a CSV file is written: encoding, header, separator, quotes, what stands for null.

Only a description: nothing here opens a file. A dialect that exists is valid.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field

from astro_async._frames.value_forms import PLAIN_FORMS, ValueForms
from astro_async.exceptions import PipelineError

__all__ = ["CsvDialect"]

# Polars reads these bytes as they are. Every other encoding, ASCII too, is decoded by Python first: a byte
# outside of it must be an error, and to Polars it would be UTF-8.
_UTF8_NAMES = frozenset({"utf-8", "utf-8-sig"})

_LINE_ENDS = frozenset("\r\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvDialect:
    """How one CSV file is written.

    Attributes:
        encoding: Any text encoding that Python knows. A byte order mark is dropped under each of them.
        has_header: The first line that is neither skipped nor blank holds the names of the columns.
        column_names: Replaces the names of the header, by position, or names a file without header.
        separator: One ASCII character between fields.
        quote_char: One ASCII character around fields, doubled inside them; None takes it as text.
        skip_rows: Physical lines before the header (or the data), whatever they hold.
        skip_footer: Physical lines after the data, not counting blank ones at the very end.
        null_values: Texts that stand for null in every column, quoted or not.
        aliases: What some columns are called, by the name that the header may have for them.
        forms: How numbers and days are written.

    Raises:
        PipelineError: An attribute makes no sense; the message says which and what to give instead.
    """

    encoding: str = "utf-8"
    has_header: bool = True
    column_names: tuple[str, ...] | None = None
    separator: str = ","
    quote_char: str | None = '"'
    skip_rows: int = 0
    skip_footer: int = 0
    null_values: tuple[str, ...] | str = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    forms: ValueForms = PLAIN_FORMS

    def __post_init__(self) -> None:
        _check_encoding(self.encoding)
        _check_character("separator", self.separator)
        if self.quote_char is not None:
            _check_character("quote_char", self.quote_char)
        if self.quote_char == self.separator:
            raise PipelineError(f"separator and quote_char are both {self.separator!r}; they must differ")
        for option, count in (("skip_rows", self.skip_rows), ("skip_footer", self.skip_footer)):
            if count < 0:
                raise PipelineError(f"{option} must be 0 or more, not {count}")
        if isinstance(self.column_names, str):
            raise PipelineError("column_names must be a tuple of names, not one string")
        if self.aliases and (self.column_names is not None or not self.has_header):
            raise PipelineError(
                "aliases rename what a header says: leave out column_names, and keep has_header"
            )

    @property
    def is_utf8(self) -> bool:
        """Say whether the file can be read as it is, without decoding it first."""
        return codecs.lookup(self.encoding).name in _UTF8_NAMES

    @property
    def reading_encoding(self) -> str:
        """Name the encoding to open the file with: UTF-8 with its byte order mark dropped, or as given."""
        return "utf-8-sig" if self.is_utf8 else self.encoding

    @property
    def nulls(self) -> tuple[str, ...]:
        """Give `null_values` as a tuple, also where one text was given."""
        return (self.null_values,) if isinstance(self.null_values, str) else tuple(self.null_values)


def _check_encoding(encoding: str) -> None:
    try:
        # Encoding is what tells text encodings from the others: codecs such as "hex" are known but refuse.
        "".encode(encoding)
    except (LookupError, UnicodeError, ValueError) as error:
        raise PipelineError(
            f"encoding {encoding!r} is not a text encoding that Python knows. "
            f"Common ones are 'utf-8', 'cp1252', 'latin-1' and 'utf-16'."
        ) from error


def _check_character(option: str, value: str) -> None:
    if len(value) != 1 or not value.isascii() or value in _LINE_ENDS or value == "\0":
        raise PipelineError(
            f"{option} must be one ASCII character and no line end, not {value!r}. "
            f"Convert the file first if it needs another."
        )
