"""Cells of the workbook: contents, looks and heights; a look is made once and copied."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from copy import copy
from functools import lru_cache

from openpyxl.cell.cell import Cell, MergedCell
from openpyxl.styles import Alignment
from openpyxl.styles.cell_style import StyleArray
from openpyxl.worksheet.worksheet import Worksheet

from planner.report import style
from planner.report.style import Kind
from planner.report.table import Book, Column, Formula, Table, Value, Written
from planner.report.text import clean_text, looks_like_formula

FLAG = "(1/0)"
"""End of the header of a column of flags."""
LINE_PT = 12.0
MAX_ROW_PT = 100.0
_CHARACTERS_PER_UNIT = 1.2
"""Average characters of running text that fit one unit of column width."""
_INDENT = 2.0
_HEADER_ROOM = 3.0
"""Characters that the indent, and the filter button of a header, take from a column's width."""


def cell_at(sheet: Worksheet, row: int, column: int) -> Cell:
    """The cell; there are no merged ones."""
    cell = sheet.cell(row, column)
    if isinstance(cell, MergedCell):
        raise TypeError(f"{cell.coordinate} is merged; the workbook has no merged cells")
    return cell


def write_value(cell: Cell, value: Value) -> None:
    """Write a value; text stays text whatever it starts with, only `Formula` templates become formulas."""
    if isinstance(value, str):
        text = clean_text(value)
        cell.value = text or None
        if text:
            cell.data_type = "s"
            if looks_like_formula(text):
                cell.quotePrefix = True
    else:
        cell.value = value  # type: ignore[assignment]


def write_content(cell: Cell, value: Value, book: Book) -> None:
    """A constant, or a formula that reads no row of its own."""
    if isinstance(value, Formula):
        cell.value = book.resolve(value, cell.parent.title)
    else:
        write_value(cell, value)


def is_text(value: Value) -> bool:
    """Whether a cell shows text; a formula that takes its text from sheet Solved does."""
    return bool(value.texts) if isinstance(value, Written) else isinstance(value, str)


def header_align(column: Column, table: Table) -> Alignment:
    """As the column's cells stand: a header over numbers stands right."""
    if column.header.endswith(FLAG):
        return style.FLAG_ALIGN
    numeric = any(value is not None and not is_text(value) for value in _cells(column, table))
    return style.HEADER_NUMBER_ALIGN if numeric and not column.left else style.HEADER_TEXT_ALIGN


def _cells(column: Column, table: Table) -> Iterable[Value]:
    return (column.cell(i) for i in range(1 if isinstance(column.cells, Formula) else table.rows))


def _align(column: Column, numeric: bool, top: bool) -> Alignment:
    if column.header.endswith(FLAG):
        found = style.FLAG_ALIGN
    else:
        found = style.NUMBER_ALIGN if numeric and not column.left else style.TEXT_ALIGN
    if not top:
        return found
    return Alignment(horizontal=found.horizontal, vertical="top", wrap_text=found.wrap_text, indent=found.indent)


class Looks:
    """Looks of the cells of a workbook, each made once."""

    def __init__(self, sheet: Worksheet) -> None:
        self._sheet = sheet
        self._made: dict[tuple[Kind, str, bool, bool, str, bool], StyleArray] = {}

    def put_on(self, cell: Cell, column: Column, i: int, value: Value, top: bool) -> None:
        """Give a cell of a table its look."""
        kind, numeric = column.kind_at(i), not is_text(value)
        quoted = isinstance(value, str) and looks_like_formula(clean_text(value))
        number = column.number_at(i) if numeric else ""
        key = (kind, "flag" if column.header.endswith(FLAG) else "", numeric and not column.left, top, number, quoted)
        if key not in self._made:
            self._made[key] = self._make(column, kind, numeric, top, number, quoted)
        cell._style = copy(self._made[key])  # type: ignore[attr-defined]

    def _make(self, column: Column, kind: Kind, numeric: bool, top: bool, number: str, quoted: bool) -> StyleArray:
        cell = Cell(self._sheet, row=1, column=1)
        cell.font, cell.border = style.FONTS[kind], style.CELL_BORDER
        cell.alignment = _align(column, numeric, top)
        if kind in style.FILLS:
            cell.fill = style.FILLS[kind]
        if number:
            cell.number_format = number
        if kind is Kind.INPUT:
            cell.protection = style.UNLOCKED
        if quoted:
            cell.quotePrefix = True
        made: StyleArray = copy(cell._style)  # type: ignore[attr-defined]
        return made


def header_height(table: Table) -> float:
    """Height that holds the wrapped headers."""
    return LINE_PT * max(_lines(column.header, column.width - _HEADER_ROOM) for column in table.columns) + 8


def row_heights(table: Table) -> list[float]:
    """Heights that hold the wrapped text of each row: neither Excel nor LibreOffice is asked to guess."""
    lines = [1] * table.rows
    for column in table.columns:
        if isinstance(column.cells, Formula):
            continue
        for i, value in enumerate(column.cells):
            for text in _texts(value):
                lines[i] = max(lines[i], _lines(text, column.width - _INDENT))
    return [LINE_PT * deepest + 5 for deepest in lines]


def _texts(value: Value) -> tuple[str, ...]:
    if isinstance(value, Written):
        return value.texts
    return (value,) if isinstance(value, str) else ()


@lru_cache(maxsize=65_536)
def _lines(text: str, width: float) -> int:
    """Lines that a text takes in a column of ``width`` characters; a long word (a URL) breaks early and takes more."""
    text = clean_text(text)
    room = max(4, int(width * _CHARACTERS_PER_UNIT))
    if len(text) <= room and "\n" not in text:
        return 1
    lines = sum(len(textwrap.wrap(line, room)) or 1 for line in text.split("\n"))
    return lines + any(len(word) > 1.5 * room for word in text.split())
