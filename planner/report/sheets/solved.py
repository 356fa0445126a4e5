"""Solved: what each scenario decided, a row for each cell of the workbook in which scenarios differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openpyxl.utils import get_column_letter

from planner.report.style import GREEN, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Sheet, Table, Value

FIRST_ROW = FIRST_TABLE_ROW + 1
_WHERE = 5
"""Columns before those of the scenarios."""


@dataclass(frozen=True)
class SolvedCell:
    """A cell of the workbook and what it holds in each scenario."""

    sheet: str
    table: str
    column: str
    row: int
    values: tuple[Value, ...]
    number: str
    """Its number format."""


def area(row: int, scenarios: int) -> str:
    """The values of all scenarios in a row."""
    first, last = get_column_letter(_WHERE + 1), get_column_letter(_WHERE + scenarios)
    return f"Solved!${first}{row}:${last}{row}"


def cell(row: int, scenario: int) -> str:
    """The value of one scenario (from 0) in a row."""
    return f"Solved!${get_column_letter(_WHERE + 1 + scenario)}{row}"


def _unit(header: str) -> str:
    """The unit that a header names behind its last comma."""
    return header.rsplit(", ", 1)[1] if ", " in header else ""


def build(rows: Sequence[SolvedCell], names: Sequence[str]) -> Sheet:
    """The Solved sheet."""
    numbers = tuple(row.number for row in rows)
    columns = (
        Column("Sheet", 14, tuple(row.sheet for row in rows)),
        Column("Table", 16, tuple(row.table for row in rows)),
        Column("Column", 30, tuple(row.column for row in rows)),
        Column("Row", 8, tuple(row.row for row in rows), Kind.RESULT),
        Column("Unit", 12, tuple(_unit(row.column) for row in rows)),
        *(
            Column(f"In {name}", 26, tuple(row.values[n] for row in rows), Kind.RESULT, numbers, left=True)
            for n, name in enumerate(names)
        ),
    )
    return Sheet(
        "Solved",
        "Solved: what each scenario decided",
        "Every cell of the workbook in which scenarios differ, and what it holds in each: sheets read it here by the "
        "scenario that is selected on sheet Summary.",
        "Every cell in which scenarios differ, side by side",
        GREEN,
        (Table("tblSolved", "Solved", FIRST_TABLE_ROW, columns, len(rows), workings=True),),
    )
