"""One workbook for several scenarios: it shows the one that is selected.

Every sheet is laid out once for each scenario. Here the rows of each table meet by name, rows that a scenario has not
are padded, and a cell that differs takes its value by the number of the scenario: a constant from sheet Solved, a
formula by CHOOSE.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from planner.report.align import KEYS, Aligned, align
from planner.report.sheets import solved
from planner.report.sheets.solved import SolvedCell
from planner.report.table import Book, Column, Formula, Sheet, Table, Value, Written
from planner.strict import PADDING

_BEFORE = "Checks"
"""Sheet before which Solved stands."""
_T = TypeVar("_T")
_NUMBERED = re.compile(r"@\d")
_BESIDE = re.compile(r"(tbl\w+)\[[^\]]+\]@(?!\d)")
_ADDRESS = re.compile(r"(\w+)!\$([A-Z]+)\$(\d+)")


@dataclass
class _Cells:
    """Cells that differ, as they are found."""

    number: str
    """Number of the scenario that is shown, as formulas read it."""
    scenarios: int
    rows: list[SolvedCell] = field(default_factory=list)

    def add(self, where: tuple[str, str, str, int], values: Sequence[Value], form: str) -> int:
        """Row of sheet Solved that keeps the values."""
        mixed = not all(isinstance(value, str | None) for value in values)
        kept = tuple(Written('=""') if mixed and value == "" else value for value in values)
        self.rows.append(SolvedCell(*where, kept, form))
        return solved.FIRST_ROW + len(self.rows) - 1

    def merged(self, where: tuple[str, str, str, int], values: Sequence[Value], form: str) -> Value:
        """What a cell holds that shows one of ``values``."""
        values = ["" if value is None else value for value in values]
        if all(_same(values[0], value) for value in values[1:]):
            return values[0]
        if all(isinstance(value, Written) for value in values):
            return self._chosen(where, values, form)
        if any(isinstance(value, Formula) for value in values):
            return self._chosen(where, values, form)
        row = self.add(where, values, form)
        texts = tuple(value for value in values if isinstance(value, str))
        all_text = len(texts) == len(values)
        empty = '&""' if all_text and "" in texts else ""
        found = f"=INDEX({solved.area(row, self.scenarios)},{self.number}){empty}"
        return Written(found, texts=texts if all_text else ())

    def _chosen(self, where: tuple[str, str, str, int], values: Sequence[Value], form: str) -> Written:
        """A formula for each scenario; text from outside is read from sheet Solved."""
        texts = [value for value in values if isinstance(value, str) and value]
        row = self.add(where, [v if isinstance(v, str) else "" for v in values], form) if texts else 0
        terms = []
        for n, value in enumerate(values):
            if isinstance(value, Formula):
                terms.append(value.template.removeprefix("="))
            elif isinstance(value, str):
                terms.append(solved.cell(row, n) if value else '""')
            elif isinstance(value, dt.date):
                raise TypeError(f"{where}: a date beside a formula")
            else:
                terms.append(repr(value))
        return Written(f"=CHOOSE({self.number},{','.join(terms)})")


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, Formula) or isinstance(other, Formula):
        return isinstance(one, Formula) and isinstance(other, Formula) and one.template == other.template
    return isinstance(one, str) == isinstance(other, str) and one == other


def merge(books: Sequence[Book], names: Sequence[str], number: str) -> Book:
    """One book for all scenarios.

    Parameters
    ----------
    books
        The workbook of each scenario alone: the same sheets, tables and headers in each.
    names
        Of the scenarios.
    number
        How formulas read the number of the scenario that is shown.

    Raises
    ------
    ValueError
        If the books do not have the same sheets, tables and headers, or a named cell stands elsewhere.
    """
    _check_alike(books)
    aligned = {name: align([book.tables[name] for book in books]) for name in books[0].tables}
    placed = tuple(_placed(books, n, aligned) for n in range(len(books[0].sheets)))
    skeleton = Book(placed, {})
    named = _named(books, aligned, skeleton)
    readers = [Book(placed, named, {name: rows.places[v] for name, rows in aligned.items()}) for v in range(len(books))]
    cells = _Cells(number, len(books))
    sheets = [_sheet(n, books, readers, aligned, cells) for n in range(len(placed))]
    at = next(n for n, sheet in enumerate(sheets) if sheet.name == _BEFORE)
    kept = [solved.build(cells.rows, names)] if cells.rows else []
    return Book((*sheets[:at], *kept, *sheets[at:]), named)


def _check_alike(books: Sequence[Book]) -> None:
    def shape(book: Book) -> list[tuple[object, ...]]:
        return [
            (sheet.name, [(t.name, [c.header for c in t.columns], t.total_label) for t in sheet.tables])
            for sheet in book.sheets
        ]

    first = shape(books[0])
    for book in books[1:]:
        for one, other in zip(first, shape(book), strict=True):
            if one != other:
                raise ValueError(f"scenarios have other tables: {one} and {other}")


def _placed(books: Sequence[Book], n: int, aligned: Mapping[str, Aligned]) -> Sheet:
    """A sheet with its tables where they stand in the workbook, without cells."""
    sheet = books[0].sheets[n]
    tables: list[Table] = []
    for k, table in enumerate(sheet.tables):
        rows = aligned[table.name].rows
        top = tables[-1].bottom + table.top - sheet.tables[k - 1].bottom if tables else table.top
        empty = tuple(replace(column, cells=(None,) * rows) for column in table.columns)
        tables.append(replace(table, top=top, rows=rows, columns=empty))
    return replace(sheet, tables=tuple(tables))


def _named(books: Sequence[Book], aligned: Mapping[str, Aligned], skeleton: Book) -> dict[str, str]:
    """Where the named cells of all scenarios stand in the workbook."""
    named: dict[str, str] = {}
    for v, book in enumerate(books):
        for name, address in book.named.items():
            moved = _moved(address, v, book, aligned, skeleton)
            if named.setdefault(name, moved) != moved:
                raise ValueError(f"{name} stands at {named[name]} and, in another scenario, at {moved}")
    return named


def _moved(address: str, v: int, book: Book, aligned: Mapping[str, Aligned], skeleton: Book) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address} is not one cell")
    name, letter, row = match.group(1), match.group(2), int(match.group(3))
    sheet = next(sheet for sheet in book.sheets if sheet.name == name)
    for table in sheet.tables:
        there = skeleton.tables[table.name]
        if table.first <= row <= table.last:
            place = aligned[table.name].places[v][row - table.first]
            return f"{name}!${letter}${there.first + place}"
        if table.total_label and row == table.last + 1:
            return f"{name}!${letter}${there.last + 1}"
    if row >= sheet.tables[0].top:
        raise ValueError(f"{address} stands in no table")
    return address


def _sheet(
    n: int, books: Sequence[Book], readers: Sequence[Book], aligned: Mapping[str, Aligned], cells: _Cells
) -> Sheet:
    """A sheet with the cells of all scenarios."""
    own, placed = [book.sheets[n] for book in books], readers[0].sheets[n]
    tables = [
        _table([sheet.tables[k] for sheet in own], there, readers, aligned, cells)
        for k, there in enumerate(placed.tables)
    ]

    def words(what: str, values: Sequence[str | Formula]) -> str | Formula:
        merged = cells.merged((placed.name, "", what, 1), values, "General")
        return merged if isinstance(merged, Formula) else str(merged)

    return replace(
        placed,
        tables=tuple(tables),
        title=words("title", [sheet.title for sheet in own]),
        purpose=words("purpose", [sheet.purpose for sheet in own]),
        extra_columns=max(sheet.extra_columns for sheet in own),
        least_rows=max(sheet.least_rows for sheet in own),
    )


def _table(
    own: Sequence[Table], there: Table, readers: Sequence[Book], aligned: Mapping[str, Aligned], cells: _Cells
) -> Table:
    columns = tuple(
        _column([table.columns[n] for table in own], there, readers, aligned, cells) for n in range(len(there.columns))
    )
    heading = cells.merged((there.sheet, there.name, "heading", there.top - 1), [t.heading for t in own], "General")
    return replace(there, columns=columns, heading=heading if isinstance(heading, Formula) else str(heading))


def _column(
    own: Sequence[Column], there: Table, readers: Sequence[Book], aligned: Mapping[str, Aligned], cells: _Cells
) -> Column:
    first, rows = own[0], aligned[there.name]
    if all(column == first for column in own[1:]) and _stays(first, rows, aligned):
        return first
    contents = [_contents(column, there, reader) for column, reader in zip(own, readers, strict=True)]
    pad, down = _pad(own, there), all(_fills_down(column, rows, aligned) for column in own)
    merged: list[Value] = []
    kinds, numbers = [], []
    for r in range(rows.rows):
        sources = [source[r] for source in rows.sources]
        v, i = next((v, i) for v, i in enumerate(sources) if i is not None)
        kinds.append(own[v].kind_at(i))
        numbers.append(own[v].number_at(i))
        other = contents[v](i) if down else pad
        found = [other if i is None else contents[v](i) for v, i in enumerate(sources)]
        merged.append(cells.merged((there.sheet, there.name, first.header, there.first + r), found, numbers[-1]))
    return replace(first, cells=tuple(merged), kind=_alike(kinds), number=_alike(numbers))


def _fills_down(column: Column, rows: Aligned, aligned: Mapping[str, Aligned]) -> bool:
    """Whether a formula may stand in padded rows too: what it reads is 0 there, also in tables that it reads by row."""
    if not isinstance(column.cells, Formula):
        return False
    beside = _BESIDE.findall(column.cells.template)
    return all(aligned[name].places == rows.places for name in beside)


def _stays(column: Column, rows: Aligned, aligned: Mapping[str, Aligned]) -> bool:
    """Whether a column that is the same in every scenario is the same in the workbook."""
    if isinstance(column.cells, Formula):
        return not _NUMBERED.search(column.cells.template) and _fills_down(column, rows, aligned)
    unmoved = all(places == tuple(range(rows.rows)) for places in rows.places)
    return unmoved and not any(isinstance(cell, Formula) and "@" in cell.template for cell in column.cells)


def _alike(values: Sequence[_T]) -> _T | tuple[_T, ...]:
    """One value where all are equal."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def _contents(column: Column, there: Table, reader: Book) -> Callable[[int], Value]:
    """Content of each of a scenario's own rows; formulas with A1 references."""
    if isinstance(column.cells, Formula):
        fill = reader.fill(column.cells, there.sheet, there)
        return lambda i: Written(fill(i))

    def value(i: int) -> Value:
        cell = column.cell(i)
        return Written(reader.resolve(cell, there.sheet, there, i)) if isinstance(cell, Formula) else cell

    return value


def _pad(own: Sequence[Column], there: Table) -> Value:
    """Content of a padded row: "(none)" where names are looked up, no text, no date, or 0."""
    column = own[0]
    if column.pad is not None:
        return column.pad
    cells = [cell for item in own if isinstance(item.cells, tuple) for cell in item.cells if cell is not None]
    constants = [cell for cell in cells if not isinstance(cell, Formula)]
    if any(isinstance(cell, dt.date) for cell in constants):
        return ""
    if not constants or not all(isinstance(cell, str) for cell in constants):
        return 0
    return PADDING if column.header in KEYS or column.header == there.columns[0].header else ""
