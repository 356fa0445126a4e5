"""Points 7 to 9 and 21: what is pasted, what stands in a formula, and that a column has one."""

from __future__ import annotations

import re

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.formula.tokenizer import Token

from planner.report.style import FONTS, Kind
from planner.report.table import Book, Column, Table
from tests.report.acceptance.reading import (
    GREEN,
    YELLOW,
    cells,
    fill,
    formulas,
    functions,
    name_of,
    nested,
    operands,
    relative,
    terms,
)

PLAIN_FUNCTIONS = frozenset({
    "ABS", "AND", "CHOOSE", "COUNT", "COUNTA", "COUNTBLANK", "COUNTIF", "COUNTIFS", "EXACT", "IF", "IFERROR", "INDEX",
    "INT", "ISNUMBER", "LEFT", "MATCH", "MAX", "MIN", "NOT", "OR", "ROUND", "ROWS", "SUM", "SUMIFS", "SUMPRODUCT",
    "TEXT", "COLUMNS",
})  # fmt: skip
"""What every spreadsheet program knows and calculates alike."""
VOLATILE = frozenset({"TODAY", "NOW", "OFFSET", "INDIRECT", "RAND", "RANDBETWEEN", "RANDARRAY", "CELL", "INFO"})
UNIVERSAL = frozenset({"0", "1"})
"""Nothing, and the whole."""
CONSTANTS: dict[tuple[str, str], frozenset[str]] = {}
"""Other numbers in formulas, by table and column, each with its reason."""
LENGTH = 120
SHORTER_ALONE = 240
"""A formula that differs by scenario is CHOOSE over those of the scenarios: each of its terms is short."""
LONGER = {"Checks!B": 130, "ChangeLog!G": 140}
"""Columns with longer formulas: the headline, which says in words what fails; the effect of a model's change, which is
looked up in two quarters."""
EXCEPTIONS = frozenset({("tblModels", "Idle charged, USD")})
"""Columns with a second formula: the last row is the supplies that no pool uses."""
LISTS = frozenset({"tblChecks", "tblSummary", "tblRun", "tblCoverage", "tblTerms", "tblBridge", "tblChange"})
"""Tables of single figures, a formula of its own in each row; everything else is filled down."""
NUMBERED = frozenset({"No", "Right", "Row"})
"""Headers of counting numbers, of rows of a sheet, and of the counts that a check asks for."""
_CONSTANT = str(FONTS[Kind.CONSTANT].color.rgb)


def _cell(book: Workbook, table: Table, column: Column, i: int) -> Cell:
    cell = book[table.sheet][f"{table.letter(column.header)}{table.first + i}"]
    assert isinstance(cell, Cell)
    return cell


def _columns(places: Book) -> list[tuple[Table, Column]]:
    return [(table, column) for table in places.tables.values() for column in table.columns]


def _is_number(cell: Cell) -> bool:
    return cell.data_type == "n" and isinstance(cell.value, int | float)


def test_point_7_money_is_pasted_only_where_somebody_decided_or_stated_it(book: Workbook, places: Book):
    pasted = 0
    for table, column in _columns(places):
        if "USD" not in column.header:
            continue
        for i in range(table.rows):
            cell = _cell(book, table, column, i)
            if _is_number(cell) and cell.value != 0:
                assert fill(cell) in {GREEN, YELLOW}, (table.name, column.header, cell.value)
                pasted += 1
    assert pasted, "the next best's extra cost is a re-solve"


def test_point_7_every_pasted_number_looks_like_what_it_is(book: Workbook, places: Book):
    """Yellow: stated. Green: the optimiser's. Grey: a constant. 0 stands where a lot has no such figure."""
    known = {}
    for table, column in _columns(places):
        for i in range(table.rows):
            cell = _cell(book, table, column, i)
            known[name_of(cell)] = column.header in NUMBERED
    for cell in cells(book):
        if not _is_number(cell) or cell.value == 0 or known.get(name_of(cell)):
            continue
        constant = cell.font.color is not None and cell.font.color.rgb == _CONSTANT
        assert fill(cell) in {GREEN, YELLOW} or constant, (name_of(cell), cell.value)


def test_point_7_no_amount_of_money_hides_in_a_text(book: Workbook):
    for cell in cells(book):
        if isinstance(cell.value, str) and cell.data_type != "f":
            assert not re.search(r"\d USD|USD \d", cell.value), (name_of(cell), cell.value)


def test_point_8_formulas_have_no_constants_but_universal_ones(book: Workbook, places: Book):
    stated = {
        name_of(_cell(book, table, column, i)): CONSTANTS[table.name, column.header]
        for table, column in _columns(places)
        if (table.name, column.header) in CONSTANTS
        for i in range(table.rows)
    }
    for cell in formulas(book):
        allowed = UNIVERSAL | stated.get(name_of(cell), frozenset())
        assert set(operands(cell.value, Token.NUMBER)) <= allowed, (name_of(cell), cell.value)


def test_terms_of_a_choice_are_found_whatever_they_hold():
    """The splitting itself, on commas in calls and in texts."""
    assert terms('=CHOOSE(in_scenario,SUM(A1,B1),"a,b",Solved!$E$5)') == ["=SUM(A1,B1)", '="a,b"', "=Solved!$E$5"]
    assert terms("=CHOOSE(1,2,3)") == ["=CHOOSE(1,2,3)"]


def test_point_9_formulas_are_short_and_never_nest_an_if(book: Workbook):
    for cell in formulas(book):
        for term in terms(cell.value):
            assert len(term) <= LONGER.get(name_of(cell).rstrip("0123456789"), LENGTH), (name_of(cell), term)
        assert len(cell.value) <= SHORTER_ALONE, (name_of(cell), cell.value)
        assert nested(cell.value, "IF") <= 1, (name_of(cell), cell.value)


def _is_link(text: str) -> bool:
    """Whether a formula only fetches a cell."""
    return re.fullmatch(r"=(?:\w+!)?\$?[A-Z]{1,3}\$?\d+", text) is not None


def _shape(text: str, cell: Cell) -> str:
    """The formula as it reads when filled down; the cell of another sheet that a row fetches is its own."""
    return re.sub(
        r"\w+!R(?:\[-?\d+\]|\d+)C(?:\[-?\d+\]|\d+)(?![\d:])", "fetched", relative(text, cell.row, cell.column)
    )


def _shapes(cell: Cell) -> set[str]:
    """How the cell's formula reads in each scenario; nothing where it only fetches a figure or is a constant."""
    found = set()
    for term in terms(cell.value):
        bare = term.removesuffix('&""')
        if bare.startswith("=INDEX(Solved!") or _is_link(bare) or not operands(term, Token.RANGE):
            continue
        found.add(_shape(term, cell))
    return found


def test_point_9_a_column_has_one_formula(book: Workbook, places: Book):
    """Where rows fetch a figure by its id, or have none, the rest of the formula is the same in all of them."""
    compared = 0
    for table, column in _columns(places):
        if table.name in LISTS or (table.name, column.header) in EXCEPTIONS:
            continue
        found = [_cell(book, table, column, i) for i in range(table.rows)]
        shapes = [_shapes(cell) for cell in found if cell.data_type == "f"]
        compared += sum(map(bool, shapes))
        assert len(set().union(*shapes)) <= 1, (table.name, column.header, set().union(*shapes))
    assert compared > 300


def test_point_21_functions_are_plain_and_not_volatile(book: Workbook):
    used = {name for cell in formulas(book) for name in functions(cell.value)}
    assert not used & VOLATILE
    assert used <= PLAIN_FUNCTIONS, used - PLAIN_FUNCTIONS


def test_point_21_formulas_read_this_workbook_only_and_fill_one_cell(book: Workbook):
    for cell in cells(book):
        assert not type(cell.value).__name__.startswith(("ArrayFormula", "DataTable")), name_of(cell)
    for cell in formulas(book):
        assert "[" not in cell.value, (name_of(cell), cell.value)
        assert "#REF" not in cell.value, (name_of(cell), cell.value)
        for text in operands(cell.value, Token.RANGE):
            if "!" in text:
                assert text.split("!")[0].strip("'") in book.sheetnames, (name_of(cell), text)
