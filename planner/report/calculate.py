"""Formula results: calculated by formualizer, so that previewers, pandas and phones show numbers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from openpyxl import Workbook
from openpyxl.utils import get_column_letter

from planner.errors import PlannerError

Result = str | float | bool | None
Grid = Sequence[Sequence[Result]]
"""Values of a sheet, a row each, from A1."""
_MOST_NAMED = 20
"""Cells with an error value that a message names."""


def results_of(package: bytes, shape: Workbook, now: dt.datetime) -> dict[str, Grid]:
    """Every value of a workbook, by sheet, formulas calculated.

    The calculator's own way to rewrite a file takes some 100,000 formulas and no more; values have no such limit.

    Parameters
    ----------
    package
        An xlsx file.
    shape
        The same workbook: its sheets and how far they reach.
    now
        The fixed clock of the calculation, aware.

    Raises
    ------
    PlannerError
        If formualizer is missing or fails, or if a formula gives an error value.
    """
    try:
        import formualizer  # noqa: PLC0415 - a missing package must end in a message, not at import
    except ImportError as error:
        raise PlannerError(f"the workbook needs formualizer to calculate its formulas: {error}") from None
    try:
        book = formualizer.load_workbook_bytes(package)
        book.set_temporal_egress("serial")
        book.set_deterministic_clock(now)
        book.evaluate_all()
        found: dict[str, Grid] = {
            sheet.title: book.sheet(sheet.title).get_values(
                formualizer.RangeAddress(sheet.title, 1, 1, sheet.max_row, sheet.max_column)
            )
            for sheet in shape.worksheets
        }
    except Exception as error:
        raise PlannerError(f"formualizer could not calculate the workbook: {error}") from error
    _refuse_errors(found)
    return found


def _refuse_errors(found: Mapping[str, Sequence[Sequence[object]]]) -> None:
    """Error values arrive as mappings with their kind."""
    places = [
        f"{sheet}!{get_column_letter(column)}{row} ({value['kind']})"
        for sheet, grid in found.items()
        for row, values in enumerate(grid, start=1)
        for column, value in enumerate(values, start=1)
        if isinstance(value, dict)
    ]
    if places:
        named = ", ".join(places[:_MOST_NAMED])
        raise PlannerError(f"the workbook has {len(places)} error values: {named}")
