"""What the tables of a written workbook hold."""

from __future__ import annotations

from pathlib import Path

import formualizer
from openpyxl import load_workbook

from planner.plan import FleetPlan
from planner.report.table import Book
from planner.report.workbook import layout, write_workbook
from planner.study import Study


class Read:
    """A workbook as it was written, with the stored results of its formulas."""

    def __init__(self, report: Study | FleetPlan, path: Path) -> None:
        write_workbook(report, path)
        self.path = path
        self.book: Book = layout(report)
        self.values = load_workbook(path, data_only=True)
        self.cells = load_workbook(path)

    def column(self, table: str, header: str) -> list:
        """Values of a column."""
        place = self.book.tables[table]
        letter = place.letter(header)
        return [self.values[place.sheet][f"{letter}{row}"].value for row in range(place.first, place.last + 1)]

    def total(self, table: str, header: str) -> float:
        """Value of a column's total."""
        place = self.book.tables[table]
        return self.values[place.sheet][f"{place.letter(header)}{place.last + 1}"].value

    def row(self, table: str, key: str, name: str, header: str) -> object:
        """Value of the row whose column ``key`` is ``name``."""
        return self.column(table, header)[self.column(table, key).index(name)]

    def failed_after(self, table: str, header: str, i: int, value: object) -> set[str]:
        """Texts of the checks that fail once one cell is overwritten."""
        place, checks = self.book.tables[table], self.book.tables["tblChecks"]
        book = formualizer.load_workbook(str(self.path))
        column = next(n for n, c in enumerate(place.columns, start=1) if c.header == header)
        book.set_value(place.sheet, place.first + i, column, value)
        book.evaluate_all()
        text, result = (
            next(n for n, c in enumerate(checks.columns, start=1) if c.header == name) for name in ("Check", "Result")
        )
        rows = range(checks.first, checks.last + 1)
        return {
            str(book.get_value("Checks", row, text)) for row in rows if book.get_value("Checks", row, result) == "FAIL"
        }

    def headline(self) -> str:
        """The words that every sheet shows about the checks."""
        return self.values["Checks"]["B3"].value
