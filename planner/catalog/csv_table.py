"""Catalogue tables: CSV rows into frozen records; every problem with file, row and field."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from planner.errors import Problems

Row = TypeVar("Row", bound=BaseModel)

_FIXES = {
    "greater_than": "Correct the figure, or leave the cell empty where the column allows it",
    "finite_number": "Correct the figure, or leave the cell empty where the column allows it",
    "missing": "Fill the cell",
    "string_too_short": "Fill the cell: every row needs its source",
}


def read_table(path: Path, record: type[Row], problems: Problems) -> list[tuple[int, Row]]:
    """The valid rows of a CSV file, each with its row number (1-based, the header is row 1).

    An empty cell takes the column's default. A file whose columns are wrong yields no rows: one problem per column
    says more than one problem per cell.

    Parameters
    ----------
    path
        UTF-8 CSV file with a header.
    record
        Model of one row; its fields are the columns.
    problems
        Receives everything that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problems.add(str(path), f"cannot be read: {error}", "The catalogue needs this file as UTF-8 text")
        return []
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    if not _columns_fit(header, record, path, problems):
        return []
    return [
        (number, row)
        for number, cells in _rows(reader, header, path, problems)
        if (row := _parse(cells, record, path, number, problems)) is not None
    ]


def read_rows(path: Path, record: type[Row]) -> tuple[Row, ...]:
    """The rows of a CSV file that must be without a problem.

    Raises
    ------
    InputError
        Listing every problem.
    """
    problems = Problems()
    rows = tuple(row for _, row in read_table(path, record, problems))
    problems.raise_if_any()
    return rows


def _columns_fit(header: list[str], record: type[BaseModel], path: Path, problems: Problems) -> bool:
    known = list(record.model_fields)
    before = len(problems.found)
    for column in header:
        if column not in known:
            close = difflib.get_close_matches(column, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known columns: {', '.join(known)}"
            problems.add(str(path), "unknown column", hint, row="1", field=column or "(empty)")
        elif header.count(column) > 1:
            problems.add(str(path), "column occurs twice", "Keep one of them", row="1", field=column)
    for name, field in record.model_fields.items():
        if field.is_required() and name not in header:
            problems.add(str(path), "column is missing", "Add it to the header", row="1", field=name)
    return len(problems.found) == before


def _rows(
    reader: Iterator[list[str]], header: list[str], path: Path, problems: Problems
) -> Iterator[tuple[int, dict[str, str]]]:
    for number, cells in enumerate(reader, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            fix = "A comma too many or too few, or a text that needs quotes"
            problems.add(str(path), f"{len(cells)} cells where the header has {len(header)}", fix, row=str(number))
            continue
        yield number, {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}


def _parse(cells: dict[str, str], record: type[Row], path: Path, number: int, problems: Problems) -> Row | None:
    try:
        return record.model_validate(cells)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = str(item["loc"][0]) if item["loc"] else ""
            given = f" (given: {cells[name]!r})" if name in cells else ""
            problems.add(str(path), f"{item['msg']}{given}", _FIXES.get(item["type"], ""), row=str(number), field=name)
    return None
