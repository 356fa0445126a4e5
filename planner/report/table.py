"""Tables of the workbook: columns by name, positions known before a cell is written, formulas by column name.

A formula is a template in the manner of Excel's structured references; it is written with plain A1 references, which
every spreadsheet program reads:

- ``[Header]`` is the cell of that column in the same row,
- ``tblX[Header]`` is the whole column of a table, ``tblX[Header]#total`` the cell of its total row,
  ``tblX[Header]@`` its cell in the same row of that table, ``tblX[Header]@3`` its cell in row 3 (from 0),
- ``<1>``, ``<2>`` … are the single cells named by ``Formula.cells``.

Text from outside never enters a template: a cell is found by its id, and only its address is written.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from planner.report.style import GENERAL, Kind

FIRST_TABLE_ROW = 4
_TABLE_NAME = re.compile(r"tbl[A-Z][A-Za-z]{2,30}")
_TOKEN = re.compile(r"(tbl\w+)?\[([^\]]+)\](#total|@\d*)?|<(\d)>")


@dataclass(frozen=True)
class Formula:
    """A formula template; ``cells`` are the ids that ``<1>``, ``<2>`` … stand for."""

    template: str
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written(Formula):
    """A formula that has its A1 references already."""

    texts: tuple[str, ...] = ()
    """Texts that it may show, for alignment and height; empty: numbers."""


Value = str | int | float | dt.date | Formula | None


@dataclass(frozen=True)
class Column:
    """One column: a formula filled down, or one value a row.

    ``number`` and ``kind`` may be given per row where the column lists different quantities.
    """

    header: str
    width: float
    cells: Formula | tuple[Value, ...]
    kind: Kind | tuple[Kind, ...] = Kind.TEXT
    number: str | tuple[str, ...] = GENERAL
    total: bool = False
    """Whether the total row sums this column."""
    left: bool = False
    """Whether numbers stand left, as in a column that lists texts and numbers."""
    pad: Value = None
    """Content of a row that other scenarios have and this one has not; ``None``: by what the column holds."""

    def cell(self, i: int) -> Value:
        """Content of row ``i`` of the table."""
        return self.cells if isinstance(self.cells, Formula) else self.cells[i]

    def kind_at(self, i: int) -> Kind:
        """Kind of row ``i``."""
        return self.kind if isinstance(self.kind, Kind) else self.kind[i]

    def number_at(self, i: int) -> str:
        """Number format of row ``i``."""
        return self.number if isinstance(self.number, str) else self.number[i]


@dataclass(frozen=True)
class Table:
    """A table at a fixed place of a sheet. ``top`` is its header row; a heading stands one row above a lower table."""

    name: str
    sheet: str
    top: int
    columns: tuple[Column, ...]
    rows: int
    heading: str | Formula = ""
    total_label: str = ""
    """Text of the total row's first cell; empty: no total row."""
    workings: bool = False
    """Whether it goes without a table object and its filter buttons: formualizer 0.13 takes 256 columns of such
    objects in a workbook, and no more."""
    ranked: bool = False
    """Whether rows stand by rank: those of several scenarios meet by position, not by name."""

    def __post_init__(self) -> None:
        """Refuse what Excel would refuse, or repair on opening."""
        headers = [column.header.casefold() for column in self.columns]
        if not _TABLE_NAME.fullmatch(self.name):
            raise ValueError(f"table name {self.name!r} is not of the form tblName")
        if len(set(headers)) != len(headers):
            raise ValueError(f"{self.name}: headers are not unique")
        if self.rows < 1:
            raise ValueError(f"{self.name}: a table needs a row")
        for column in self.columns:
            if not isinstance(column.cells, Formula) and len(column.cells) != self.rows:
                raise ValueError(f"{self.name}[{column.header}]: {len(column.cells)} cells for {self.rows} rows")

    @property
    def first(self) -> int:
        """First data row."""
        return self.top + 1

    @property
    def last(self) -> int:
        """Last data row."""
        return self.top + self.rows

    @property
    def bottom(self) -> int:
        """Last row taken, total row included."""
        return self.last + (1 if self.total_label else 0)

    @cached_property
    def _letters(self) -> Mapping[str, str]:
        return {column.header: get_column_letter(n) for n, column in enumerate(self.columns, start=1)}

    def letter(self, header: str) -> str:
        """Column letter of a header."""
        return self._letters[header]

    @property
    def ref(self) -> str:
        """Range of the table object: header and data, without the total row."""
        return f"A{self.top}:{get_column_letter(len(self.columns))}{self.last}"

    def address(self, header: str, i: int) -> str:
        """Absolute address of row ``i`` with the sheet."""
        return f"{self.sheet}!${self.letter(header)}${self.first + i}"

    def place(self, header: str, part: str, i: int) -> str:
        """Address without the sheet: a whole column (``""``), its total (``#total``), its row ``i`` (``@``) or ``@N``.

        Raises
        ------
        ValueError
            If there is no total row, or no row ``N``.
        """
        letter = self.letter(header)
        if part.startswith("@"):
            row = int(part[1:]) if part[1:] else i
            if row >= self.rows:
                raise ValueError(f"{self.name} has no row {row}")
            return f"${letter}{self.first + row}"
        if part == "#total":
            if not self.total_label:
                raise ValueError(f"{self.name} has no total row")
            return f"${letter}${self.last + 1}"
        return f"${letter}${self.first}:${letter}${self.last}"


@dataclass(frozen=True)
class Sheet:
    """A sheet: its tables, and what else stands on it."""

    name: str
    title: str | Formula
    purpose: str | Formula
    """What the sheet is for, and units; in row 2."""
    holds: str
    """The line of the index on the Cover."""
    tab: str
    tables: tuple[Table, ...]
    wide: bool = False
    """A3 instead of A4."""
    pages_wide: int = 1
    """Pages that its columns take in print: above 1 for data that is rarely printed."""
    extra_columns: int = 0
    """Columns to the right of the tables that charts cover."""
    least_rows: int = 0
    """Rows that charts reach down to."""
    finish: Callable[[Worksheet, Book], None] | None = None
    """Writes what is not a table: charts, a sign-off block."""
    charts: Mapping[str, str] = field(default_factory=dict)
    """Title and description of each chart that `finish` adds, in their order: what a reader without sight is told."""


@dataclass(frozen=True)
class Book:
    """All sheets, with the addresses of their tables."""

    sheets: tuple[Sheet, ...]
    named: Mapping[str, str]
    """Addresses of single cells that formulas read: inputs by id, figures of the Cover and the Summary."""
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For tables whose rows stand elsewhere in the workbook: the place of each (from 0)."""

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Tables by name."""
        return {table.name: table for sheet in self.sheets for table in sheet.tables}

    def a1(self, formula: Formula, table: Table, i: int) -> str:
        """The formula of row ``i`` of ``table`` with A1 references."""
        return self.resolve(formula, table.sheet, table, i)

    def resolve(self, formula: Formula, sheet: str, own: Table | None = None, i: int = 0) -> str:
        """The formula with A1 references, for a cell of ``sheet``."""
        return self.fill(formula, sheet, own)(i)

    def fill(self, formula: Formula, sheet: str, own: Table | None = None) -> Callable[[int], str]:
        """The formula of each row of ``own`` with A1 references: what does not depend on the row is found once."""
        if isinstance(formula, Written):
            return lambda _: formula.template
        pieces: list[str | Callable[[int], str]] = []
        end = 0
        for match in _TOKEN.finditer(formula.template):
            pieces += [formula.template[end : match.start()], self._reference(match, formula, sheet, own)]
            end = match.end()
        pieces.append(formula.template[end:])
        if all(isinstance(piece, str) for piece in pieces):
            text = "".join(piece for piece in pieces if isinstance(piece, str))
            return lambda _: text
        return lambda i: "".join(piece if isinstance(piece, str) else piece(i) for piece in pieces)

    def _row(self, name: str, i: int) -> int:
        return self.rows[name][i] if name in self.rows else i

    def _reference(
        self, match: re.Match[str], formula: Formula, sheet: str, own: Table | None
    ) -> str | Callable[[int], str]:
        name, header, part, cell = match.groups()
        if cell:
            return self.named[formula.cells[int(cell) - 1]].removeprefix(f"{sheet}!")
        if not name:
            if own is None:
                raise ValueError(f"no row for [{header}]")
            table, letter = own, own.letter(header)
            return lambda i: f"{letter}{table.first + self._row(table.name, i)}"
        table = self.tables[name]
        before = "" if table.sheet == sheet else f"{table.sheet}!"
        if not (part or "").startswith("@"):
            return before + table.place(header, part or "", 0)
        if part[1:]:
            return before + table.place(header, "@", self._row(name, _within(table, int(part[1:]), self.rows)))
        return lambda i: before + table.place(header, "@", self._row(name, i))


def _within(table: Table, row: int, rows: Mapping[str, tuple[int, ...]]) -> int:
    """A row number that the table has."""
    if row >= len(rows.get(table.name, range(table.rows))):
        raise ValueError(f"{table.name} has no row {row}")
    return row


def stack(tops: Iterable[Callable[[int], Table]], top: int = FIRST_TABLE_ROW) -> tuple[Table, ...]:
    """Tables of one sheet under each other from row ``top``, with two rows for the next heading."""
    tables: list[Table] = []
    for make in tops:
        tables.append(make(top))
        top = tables[-1].bottom + 3
    return tuple(tables)
