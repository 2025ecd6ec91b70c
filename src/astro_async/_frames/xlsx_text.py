"""Turn a sheet of an Excel workbook into the rows of a text, so that one way of reading values serves both.

Needs the `xlsx` extra. A workbook is a zip archive that must be unpacked to be read, so the sheet is held in
memory: the one format that is not streamed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from astro_async.exceptions import IngestError, PipelineError

__all__ = ["load_sheet_rows"]

# Excel has no days, only instants that are shown as days.
_MIDNIGHT: Final = re.compile(r"^(\d{4}-\d{2}-\d{2}) 00:00:00$")


def load_sheet_rows(source: str, sheet: str | None) -> list[list[str | None]]:
    """Load the cells of a sheet as text, row by row; blank rows are rows of None.

    Args:
        source: The workbook.
        sheet: The name of the sheet; None for the only one.

    Raises:
        PipelineError: The `xlsx` extra is not installed.
        IngestError: The workbook is damaged, or has no such sheet, or several to choose from.
    """
    try:
        fastexcel: Any = importlib.import_module("fastexcel")
    except ModuleNotFoundError:
        raise PipelineError(
            f"{source} is an Excel workbook, and reading those needs an extra: "
            f"pip install 'astro-async[xlsx]'"
        ) from None
    try:
        workbook = fastexcel.read_excel(source)
        chosen = _choose_sheet(source, workbook.sheet_names, sheet)
        frame = workbook.load_sheet(chosen, header_row=None, skip_rows=0, dtypes="string").to_polars()
    except fastexcel.FastExcelError:
        raise IngestError(
            f"{source} could not be read as an Excel workbook: it is damaged. Ask for the file again."
        ) from None
    return list(_iter_rows(frame))


def _choose_sheet(source: str, names: list[str], sheet: str | None) -> str:
    listed = ", ".join(map(repr, names))
    if sheet is None and len(names) != 1:
        raise IngestError(f"{source} has {len(names)} sheets: {listed}. Say with sheet= which one to read.")
    if sheet is not None and sheet not in names:
        raise IngestError(
            f"{source} has no sheet {sheet!r}. It has: {listed}. Change sheet=, or the workbook."
        )
    return names[0] if sheet is None else sheet


def _iter_rows(frame: pl.DataFrame) -> Iterator[list[str | None]]:
    for row in frame.iter_rows():
        yield [_MIDNIGHT.sub(r"\1", cell) if cell is not None else None for cell in row]
