"""Say how numbers and days are written where they are not written as programs write them.

Pure: expressions and checks. A form that exists is valid, and is exact: what does not fit it in full is no
value, so `26` is no `%Y`, and `1.5` is no number with a decimal comma.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from astro_async.exceptions import PipelineError

__all__ = [
    "PLAIN_FORMS",
    "UNIT_DIGITS",
    "YEAR",
    "YEAR_IN_NS",
    "ValueForms",
    "read_formatted",
    "read_number_text",
]

_GROUP_MARKS: Final = {".": r"\.", ",": ",", " ": "[ \u00a0\u202f]", "'": "['\u2019]", "_": "_"}

# There is no year 0, and Python could not show it. Years that nanoseconds cannot reach would wrap around.
YEAR: Final = "(?:[1-9][0-9]{3}|0[0-9]{2}[1-9]|0[0-9][1-9]0|0[1-9]00)"
YEAR_IN_NS: Final = "(?:1(?:6[89]|[7-9][0-9])[0-9]|2(?:[01][0-9]|2[0-5])[0-9]|226[01])"
UNIT_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}

_DIRECTIVE: Final = re.compile(r"%(?:\.f|.)|\.%f", re.DOTALL)
_TWO_DIGITS: Final = frozenset({"%d", "%m", "%H", "%I", "%M", "%S"})
_DIGITS: Final = _TWO_DIGITS | {"%Y", "%y", "%j"}
_PATTERNS: Final = {
    "%y": "[0-9]{2}",
    "%j": "[0-9]{3}",
    "%b": "[A-Za-z]+",
    "%B": "[A-Za-z]+",
    "%a": "[A-Za-z]+",
    "%A": "[A-Za-z]+",
    "%p": "[AaPp][Mm]",
    "%z": "[+-][0-9]{2}:?[0-9]{2}",
    "%%": "%",
}
_OF_DAY: Final = frozenset({"%Y", "%y", "%m", "%d", "%b", "%B", "%j", "%a", "%A"})
_OF_CLOCK: Final = frozenset({"%H", "%I", "%M", "%S", "%p", "%.f"})
_SUPPORTED: Final = "%Y %y %m %d %b %B %a %A %j %H %I %M %S %.f %p %z %%"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueForms:
    """How the numbers and days of one file are written.

    Attributes:
        decimal_comma: The decimals of a number follow a comma.
        thousands_separator: Stands between groups of three digits of a number, or is left out. A blank
            stands for unbreakable blanks too.
        date_formats: For some columns, or for all of days and times, the formats to try in order.

    Raises:
        PipelineError: A form makes no sense; the message says which and what to give instead.
    """

    decimal_comma: bool = False
    thousands_separator: str | None = None
    date_formats: Mapping[str, tuple[str, ...]] | tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        mark = self.thousands_separator
        if mark is not None and mark not in _GROUP_MARKS:
            raise PipelineError(
                f"thousands_separator must be one of {' '.join(map(repr, _GROUP_MARKS))}, not {mark!r}"
            )
        if mark == self._decimal_mark:
            raise PipelineError(f"{mark!r} cannot stand for decimals and thousands both: change one of them")
        by_column = self.date_formats if isinstance(self.date_formats, Mapping) else {"": self.date_formats}
        for column, formats in by_column.items():
            if column and not formats:
                raise PipelineError(f"date_formats has no format for column {column!r}")
            for form in formats:
                _split_format(form)

    @property
    def _decimal_mark(self) -> str:
        return "," if self.decimal_comma else "."

    def formats_of(self, name: str) -> tuple[str, ...]:
        """Return the formats of one column of days or times; none where it is written as ISO 8601 says."""
        if isinstance(self.date_formats, Mapping):
            return self.date_formats.get(name, ())
        return self.date_formats

    def apply_to(self, name: str, dtype: pl.DataType) -> bool:
        """Say whether values of the column are not written as programs write them."""
        if dtype.is_numeric():
            return self.decimal_comma or self.thousands_separator is not None
        return dtype.is_temporal() and bool(self.formats_of(name))

    def check(self, schema: Mapping[str, pl.DataType] | None) -> None:
        """Refuse formats that the columns of a schema have no use for.

        Raises:
            PipelineError: A column is not there, or its type does not go with its format.
        """
        if isinstance(self.date_formats, Mapping):
            for name in self.date_formats:
                if schema is None or name not in schema or not schema[name].is_temporal():
                    raise PipelineError(
                        f"date_formats names {name!r}, which is no column of days or times in the schema"
                    )
        elif self.date_formats and not any(dtype.is_temporal() for dtype in (schema or {}).values()):
            raise PipelineError("date_formats is given, but no column of the schema has days or times")
        for name, dtype in (schema or {}).items():
            if dtype.is_temporal():
                for form in self.formats_of(name):
                    _check_format(form, name, dtype)

    def describe(self, name: str, dtype: pl.DataType) -> str:
        """Say what a value of the column looks like, where these forms have a say in it."""
        if dtype.is_temporal():
            return f"{dtype} (written as {' or '.join(self.formats_of(name))})"
        mark = self.thousands_separator
        thousands = "" if mark is None else f", {mark!r} between thousands or nothing"
        decimals = "" if dtype.is_integer() else f", {self._decimal_mark!r} before decimals"
        return f"{dtype} (digits{decimals}{thousands})"


PLAIN_FORMS: Final = ValueForms()


def read_number_text(text: pl.Expr, dtype: pl.DataType, forms: ValueForms) -> pl.Expr:
    """Build the text of a number as programs write it; null where the text is no number of these forms."""
    group = None if forms.thousands_separator is None else _GROUP_MARKS[forms.thousands_separator]
    whole = "[0-9]+" if group is None else f"(?:[0-9]+|[0-9]{{1,3}}(?:{group}[0-9]{{3}})+)"
    pattern = f"[+-]?{whole}"
    if not dtype.is_integer():
        mark = "," if forms.decimal_comma else r"\."
        pattern = f"[+-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)"
    if dtype.is_float():
        pattern = rf"{pattern}(?:[eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity|nan)"
    shaped: pl.Expr = pl.when(text.str.contains(f"^(?:{pattern})$")).then(text)
    if group is not None:
        shaped = shaped.str.replace_all(group, "")
    return shaped.str.replace(",", ".", literal=True) if forms.decimal_comma else shaped


def read_formatted(text: pl.Expr, dtype: pl.DataType, formats: tuple[str, ...]) -> pl.Expr:
    """Build the value of the first format that the whole text fits; null where it fits none."""
    return pl.coalesce(_read_format(text, dtype, form) for form in formats)


def _read_format(text: pl.Expr, dtype: pl.DataType, form: str) -> pl.Expr:
    shaped = pl.when(text.str.contains(f"^(?:{_pattern_of(form, dtype)})$")).then(text)
    native = form.replace(".%f", "%.f")
    if isinstance(dtype, pl.Date):
        return shaped.str.to_date(native, strict=False)
    if isinstance(dtype, pl.Time):
        return shaped.str.to_time(native, strict=False)
    assert isinstance(dtype, pl.Datetime)
    read = shaped.str.to_datetime(native, time_unit=dtype.time_unit, strict=False)
    if dtype.time_zone is None:
        return read
    if "%z" in form:
        return read.dt.convert_time_zone(dtype.time_zone)
    # A local time that occurs twice or never is not known to be any one instant.
    return read.dt.replace_time_zone(dtype.time_zone, ambiguous="null", non_existent="null")


def _split_format(form: str) -> list[str]:
    """Split a format into directives and the text between them.

    Raises:
        PipelineError: It has a directive that is not supported, or none.
    """
    parts, position = [], 0
    for match in _DIRECTIVE.finditer(form):
        if match.start() > position:
            parts.append(form[position : match.start()])
        parts.append("%.f" if match.group() == ".%f" else match.group())
        position = match.end()
    parts.append(form[position:])
    directives = [part for part in parts if part.startswith("%")]
    unknown = [part for part in directives if part not in _DIGITS | _PATTERNS.keys() | {"%.f"}]
    if unknown or not directives or (form.endswith("%") and not form.endswith("%%")):
        what = f"has {', '.join(unknown)}" if unknown else "has no directive, or an unfinished one"
        raise PipelineError(f"date format {form!r} {what}: the directives are {_SUPPORTED}")
    return [part for part in parts if part]


def _pattern_of(form: str, dtype: pl.DataType) -> str:
    parts = _split_format(form)
    in_ns = isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns"
    digits = UNIT_DIGITS[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 9
    pattern = ""
    for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        if part == "%Y":
            pattern += YEAR_IN_NS if in_ns else YEAR
        elif part == "%.f":
            # Zeros beyond what the type holds lose nothing.
            pattern += rf"(?:\.[0-9]{{1,{digits}}}0*)?"
        elif part in _TWO_DIGITS:
            # Where no other character stands between two numbers, only their widths tell them apart.
            least = "" if before in _DIGITS or after in _DIGITS else "?"
            pattern += f"[0-5]{least}[0-9]" if part == "%S" else f"[0-9]{least}[0-9]"
        else:
            pattern += _PATTERNS.get(part, re.escape(part))
    return pattern


def _check_format(form: str, name: str, dtype: pl.DataType) -> None:
    directives = set(_split_format(form))
    has_year = bool(directives & {"%Y", "%y"})
    has_day = has_year and ("%j" in directives or ("%d" in directives and directives & {"%m", "%b", "%B"}))
    has_hour = "%H" in directives or {"%I", "%p"} <= directives
    problem = None
    if isinstance(dtype, pl.Time):
        if not has_hour or directives & (_OF_DAY | {"%z"}):
            problem = "names no time of a day alone"
    elif not has_day:
        problem = "does not name a year, a month and a day"
    elif isinstance(dtype, pl.Date) and directives & (_OF_CLOCK | {"%z"}):
        problem = "has a time, which a Date cannot hold"
    elif directives & (_OF_CLOCK | {"%z"}) and not has_hour:
        problem = "has a time without its hour (%H, or %I with %p)"
    elif "%z" in directives and isinstance(dtype, pl.Datetime) and dtype.time_zone is None:
        problem = "has an offset: declare a time zone, such as pl.Datetime('us', 'UTC')"
    if problem is not None:
        raise PipelineError(f"date format {form!r} of column {name!r} ({dtype}) {problem}")
