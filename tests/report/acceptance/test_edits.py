"""Points 12 and 13: an edited input turns the headline to FAIL and says why; every check can be made to fail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from openpyxl import Workbook
from openpyxl.utils import column_index_from_string

from planner.plan import FleetPlan
from planner.report.sheets.checks import INPUTS_AS_SOLVED
from planner.report.table import Book
from planner.study import Study
from tests.report.acceptance.reading import Calculated, Place, address, leaves, of_first_scenario, precedents, selector

SIGNATURES = frozenset({"Cover", "ChangeLog"})
"""Sheets whose unlocked cells are names and dates of people who sign: text that nothing is calculated from."""
ANOTHERS = "(a check of another scenario)"
"""A row that another scenario fills, such as the limits of a pool that this one has not."""
SORTED = "Sensitivities that do not stand in the order of their swing"
"""Says nothing where there are none."""
MOST_TRIES = 400
"""Deliberate errors that are tried for one check."""


def _editable(book: Workbook) -> Iterator[tuple[Place, object]]:
    chosen = selector(book)
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                where = (sheet.title, cell.row, cell.column)
                if not cell.protection.locked and not (chosen and where == chosen[0]):
                    yield where, cell.value


def _other(value: object) -> object:
    """Another value of the same type."""
    if isinstance(value, dt.date):
        return value + dt.timedelta(days=1)
    if isinstance(value, int | float):
        return value * 1.01 + 1
    return f"{value or ''} edited"


def test_point_12_every_edit_of_an_input_fails_and_says_where(xlsx: Path, book: Workbook, places: Book):
    calculated, checks, inputs = Calculated(xlsx), places.tables["tblChecks"], places.tables["tblInputs"]
    rows = range(checks.first, checks.last + 1)
    results, texts = (column_index_from_string(checks.letter(header)) for header in ("Result", "Check"))
    changed = column_index_from_string(inputs.letter("Changed (1/0)"))
    as_solved = next(row for row in rows if calculated.get(("Checks", row, texts)) == INPUTS_AS_SOLVED)
    edits = [(where, value) for where, value in _editable(book) if where[0] not in SIGNATURES]
    assert len(edits) > 60
    for where, value in edits:
        calculated.set(where, _other(value))
        assert calculated.at("Checks", "A3") == 0, address(where)
        for sheet in ("Cover", "Summary", where[0]):
            assert "FAIL" in str(calculated.at(sheet, "A3")), (address(where), sheet)
        assert calculated.get(("Checks", as_solved, results)) == "FAIL", address(where)
        flags = [row for row in range(inputs.first, inputs.last + 1) if calculated.get(("Inputs", row, changed)) == 1]
        assert flags == [where[1]], address(where)
        calculated.set(where, value)
    assert calculated.at("Checks", "A3") == 1


def test_point_12_signatures_change_no_check(xlsx: Path, book: Workbook):
    calculated = Calculated(xlsx)
    signed = [where for where, _ in _editable(book) if where[0] in SIGNATURES]
    assert len(signed) >= 6
    for where in signed:
        calculated.set(where, "Ana Gómez")
    assert calculated.at("Checks", "A3") == 1


def _errors(value: object) -> Iterator[object]:
    """What somebody might write over a cell by mistake."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value * 2 + 1, 0, -value - 1, value * 1000 + 1000)
    elif isinstance(value, dt.date):
        yield dt.date(2001, 1, 1)
    yield from ("somebody else", None)


def _numbers(places: Book) -> range:
    checks = places.tables["tblChecks"]
    return range(checks.first, checks.last + 1)


def _rests_on(book: Workbook, places: Book, row: int) -> list[Place]:
    """Cells that a check rests on, nearest first: those of its left side, then of its right."""
    found: dict[Place, None] = {}
    for header in ("Left", "Right"):
        cell = book["Checks"][f"{places.tables['tblChecks'].letter(header)}{row}"]
        if cell.data_type == "f":
            found |= dict.fromkeys(leaves(book, precedents(of_first_scenario(cell.value), "Checks")))
    return list(found)


def _caught(calculated: Calculated, book: Workbook, cells: list[Place], result: Place) -> tuple[Place, object] | None:
    """The first deliberate error that makes a check fail, undone again."""
    tries = 0
    for where in cells:
        value = book[where[0]].cell(where[1], where[2]).value
        for wrong in _errors(value):
            tries += 1
            calculated.set(where, wrong)
            failed = calculated.get(result) == "FAIL"
            calculated.set(where, value)
            if failed:
                return where, wrong
            if tries == MOST_TRIES:
                return None
    return None


@pytest.fixture(scope="module")
def calculated(xlsx: Path) -> Calculated:
    """The workbook in memory; every test leaves it as it was."""
    return Calculated(xlsx)


def test_point_13_all_checks_hold_and_each_can_be_made_to_fail(
    report: Study | FleetPlan, calculated: Calculated, book: Workbook, places: Book
):
    """A check that no error in anything it rests on can fail would say nothing."""
    table = places.tables["tblChecks"]
    result = column_index_from_string(table.letter("Result"))
    text = column_index_from_string(table.letter("Check"))
    blind, vacant = [], {ANOTHERS, *([] if isinstance(report, Study) else [SORTED])}
    for row in _numbers(places):
        where = ("Checks", row, result)
        assert calculated.get(where) == "PASS", calculated.get(("Checks", row, text))
        if calculated.get(("Checks", row, text)) in vacant:
            continue
        if _caught(calculated, book, _rests_on(book, places, row), where) is None:
            blind.append(calculated.get(("Checks", row, text)))
    assert not blind
    assert calculated.at("Checks", "A3") == 1


def test_point_13_a_check_of_text_instead_of_a_number_fails(calculated: Calculated, book: Workbook, places: Book):
    """What cannot be calculated fails: an error never looks like a pass."""
    table = places.tables["tblPlan"]
    where = (table.sheet, table.first, column_index_from_string(table.letter("Replicas")))
    was = book[where[0]].cell(where[1], where[2]).value
    calculated.set(where, "three")
    assert calculated.at("Checks", "A3") == 0
    assert "FAIL" in str(calculated.at("Cover", "A3"))
    if not str(was).startswith("="):
        calculated.set(where, was)
        assert calculated.at("Checks", "A3") == 1


def test_point_13_checks_are_named_once_and_say_where_to_look(book: Workbook, values: Workbook, places: Book):
    table = places.tables["tblChecks"]

    def shown(header: str) -> list[str]:
        return [str(values["Checks"][f"{table.letter(header)}{row}"].value) for row in _numbers(places)]

    texts = [text for text in shown("Check") if text != ANOTHERS]
    assert len(set(texts)) == len(texts)
    for where in shown("Sheets to look at"):
        assert {name.strip() for name in where.split(",")} - {"", "None"} <= set(book.sheetnames), where
