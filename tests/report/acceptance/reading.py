"""Ways to read a workbook that know nothing of how it is written: cells, formulas, references, the package."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import formualizer
from openpyxl import Workbook, load_workbook
from openpyxl.cell.cell import Cell
from openpyxl.formula import Tokenizer
from openpyxl.formula.tokenizer import Token
from openpyxl.utils import column_index_from_string, get_column_letter
from openpyxl.utils.cell import coordinate_to_tuple, range_boundaries

Place = tuple[str, int, int]
"""Sheet, row, column."""
_AREA = re.compile(r"(?:'?(?P<sheet>[^'!]+)'?!)?(?P<area>\$?[A-Z]{1,3}\$?\d+(?::\$?[A-Z]{1,3}\$?\d+)?)")
_CELL = re.compile(r"(?P<c>\$?)(?P<letters>[A-Z]{1,3})(?P<r>\$?)(?P<row>\d+)")
_CHOSEN = "=CHOOSE(in_scenario,"
_KEPT = re.compile(r'=INDEX\((Solved!\$[A-Z]+\d+):\$[A-Z]+\d+,in_scenario\)(?:&"")?')
GREEN, YELLOW = "E2EFDA", "FFF9D6"


def cells(book: Workbook) -> Iterator[Cell]:
    """Every cell that holds something."""
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            yield from (cell for cell in row if cell.value is not None and isinstance(cell, Cell))


def formulas(book: Workbook) -> Iterator[Cell]:
    """Every cell with a formula."""
    return (cell for cell in cells(book) if cell.data_type == "f")


def place(cell: Cell) -> Place:
    """Where a cell stands."""
    return cell.parent.title, cell.row, cell.column


def name_of(cell: Cell) -> str:
    """Where a cell stands, for a message."""
    return f"{cell.parent.title}!{cell.coordinate}"


def fill(cell: Cell) -> str:
    """RGB of a cell's fill; empty where it has none."""
    return str(cell.fill.start_color.rgb)[2:] if cell.fill.fill_type else ""


def operands(formula: str, kind: str) -> list[str]:
    """Operands of a formula of one kind: ``Token.NUMBER``, ``Token.RANGE``, ``Token.TEXT``."""
    return [t.value for t in Tokenizer(formula).items if t.type == Token.OPERAND and t.subtype == kind]


def functions(formula: str) -> list[str]:
    """Names of the functions that a formula calls."""
    return [t.value.rstrip("(") for t in Tokenizer(formula).items if t.type == Token.FUNC and t.subtype == Token.OPEN]


def nested(formula: str, function: str) -> int:
    """How deep calls of one function stand in each other."""
    depth, deepest, stack = 0, 0, []
    for token in Tokenizer(formula).items:
        if token.type != Token.FUNC:
            continue
        if token.subtype == Token.OPEN:
            stack.append(token.value.rstrip("(") == function)
            depth += stack[-1]
        else:
            depth -= stack.pop()
        deepest = max(deepest, depth)
    return deepest


def relative(formula: str, row: int, column: int) -> str:
    """The formula with references relative to its own cell, so that cells filled down read alike."""

    def offset(match: re.Match[str]) -> str:
        there_column, there_row = column_index_from_string(match["letters"]), int(match["row"])
        across = f"C{there_column}" if match["c"] else f"C[{there_column - column}]"
        down = f"R{there_row}" if match["r"] else f"R[{there_row - row}]"
        return down + across

    parts = []
    for token in Tokenizer(formula).items:
        is_range = token.type == Token.OPERAND and token.subtype == Token.RANGE
        parts.append(_CELL.sub(offset, token.value) if is_range else token.value)
    return "".join(parts)


def terms(text: str) -> list[str]:
    """The formulas of all scenarios: the terms of CHOOSE by scenario, else the formula itself."""
    if not text.startswith(_CHOSEN):
        return [text]
    found, depth = [""], 0
    for token in Tokenizer("=" + text.removeprefix(_CHOSEN).removesuffix(")")).items:
        depth += (token.subtype == Token.OPEN) - (token.subtype == Token.CLOSE)
        if token.value == "," and depth == 0:
            found.append("")
        else:
            found[-1] += token.value
    return [f"={term}" for term in found]


def of_first_scenario(formula: str) -> str:
    """What a formula that differs by scenario reads while the first is shown."""
    first = terms(formula)[0]
    kept = _KEPT.fullmatch(first)
    return f"={kept.group(1)}" if kept else first


def precedents(formula: str, sheet: str) -> Iterator[Place]:
    """Cells that a formula of ``sheet`` reads."""
    for operand in operands(formula, Token.RANGE):
        match = _AREA.fullmatch(operand)
        if match is None:
            continue
        left, top, right, bottom = range_boundaries(match["area"].replace("$", ""))
        for row in range(top, bottom + 1):
            for column in range(left, right + 1):
                yield match["sheet"] or sheet, row, column


def leaves(book: Workbook, start: Iterable[Place]) -> list[Place]:
    """Cells without formula that some cells rest on, nearest first."""
    seen: dict[Place, None] = {}
    found: list[Place] = []
    queue = list(start)
    while queue:
        here = queue.pop(0)
        if here in seen:
            continue
        seen[here] = None
        cell = book[here[0]].cell(here[1], here[2])
        if cell.data_type == "f":
            queue.extend(precedents(of_first_scenario(str(cell.value)), here[0]))
        else:
            found.append(here)
    return found


def selector(book: Workbook) -> tuple[Place, str] | None:
    """The cell that offers a list of scenarios and the formula of that list; ``None`` where there is one only."""
    for sheet in book.worksheets:
        for rule in sheet.data_validations.dataValidation:
            if rule.type == "list":
                row, column = coordinate_to_tuple(str(rule.sqref).split(":", maxsplit=1)[0])
                return (sheet.title, row, column), str(rule.formula1)
    return None


class Calculated:
    """A workbook in memory; every edit calculates all of it again."""

    def __init__(self, path: Path) -> None:
        self.book = formualizer.load_workbook(str(path))
        self.book.evaluate_all()

    def set(self, where: Place, value: object) -> None:
        """Write a constant."""
        self.book.set_value(*where, value)
        self.book.evaluate_all()

    def get(self, where: Place) -> object:
        """Result of a cell."""
        return self.book.get_value(*where)

    def at(self, sheet: str, coordinate: str) -> object:
        """Result of a cell by its address."""
        return self.book.get_value(sheet, *coordinate_to_tuple(coordinate.replace("$", "")))


def parts(xlsx: Path) -> dict[str, bytes]:
    """Files of the package."""
    with zipfile.ZipFile(xlsx) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def xml(data: bytes) -> ElementTree.Element:
    """Root of a part."""
    return ElementTree.fromstring(data)


def plain(tag: str) -> str:
    """A tag without its namespace."""
    return tag.rsplit("}", maxsplit=1)[-1]


def edited(xlsx: Path, edits: dict[Place, object]) -> bytes:
    """The workbook with other constants and no stored results."""
    book = load_workbook(xlsx)
    for (sheet, row, column), value in edits.items():
        book[sheet].cell(row, column).value = value
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def address(where: Place) -> str:
    """A place as ``Sheet!A1``."""
    return f"{where[0]}!{get_column_letter(where[2])}{where[1]}"
