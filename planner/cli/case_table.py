"""Tables of cases as files: the whole is checked before a row is answered, and written whole."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

from planner.errors import InputError, Problem
from planner.memory.starts.case_answers import answer_cells, answer_columns
from planner.memory.starts.case_rows import CaseTable, Row
from planner.memory.starts.cases import Answer

AS_CSV = "Save it as CSV in UTF-8, columns separated by commas"
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and lines of cells; bytes that are no UTF-8 pass through unchanged.

    Raises
    ------
    InputError
        If the file cannot be read or is no CSV, or two of its columns have one name.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            header, lines = _parsed(path, file)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from error
    _check_header(path, header)
    return header, lines


def _parsed(path: Path, file: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    reader = csv.reader(file, strict=True)
    try:
        header, *lines = [cells for cells in reader if cells] or [[]]
    except csv.Error as error:
        open_quote = "a quote that is opened in this row or before it is never closed"
        reason = open_quote if "end of data" in str(error) else str(error)
        raise InputError(Problem(str(path), f"is no CSV: {reason}", AS_CSV, row=str(reader.line_num))) from error
    return [name.strip() for name in header], lines


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Whether the header is one of a CSV; each mistake of an export is named.

    Raises
    ------
    InputError
        If it is not.
    """
    if not any(header):
        raise InputError(Problem(str(path), "is empty", "Its first line names the columns"))
    if any(char < " " and char not in "\t\r\n" for name in header for char in name):
        raise InputError(Problem(str(path), "is no UTF-8 text: its header holds control characters", AS_CSV))
    separators = [word for char, word in OTHER_SEPARATORS.items() if char in header[0]] if len(header) == 1 else []
    if separators:
        raise InputError(Problem(str(path), f"has columns separated by {separators[0]}", AS_CSV, row="1"))
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(Problem(str(path), f"column {twice[0]!r:.40} occurs twice", "Keep one of them", row="1"))


def rows_of(header: Sequence[str], lines: Iterable[list[str]]) -> Iterator[Row]:
    """Lines as rows; one that is short has empty cells at its end, one that is long keeps its surplus in the last."""
    for cells in lines:
        surplus = cells[len(header) - 1 :]
        whole = cells if len(cells) <= len(header) else [*cells[: len(header) - 1], ",".join(surplus)]
        yield dict(zip_longest(header, whole, fillvalue=""))


class AnswerWriter:
    """Writes the input rows with the predictions beside them, in place of earlier ones."""

    def __init__(self, file: TextIO, header: Sequence[str], table: CaseTable) -> None:
        self._table = table
        self._added = answer_columns(table)
        self._kept = [name for name in header if name not in self._added]
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow((*self._kept, *self._added))

    def write(self, row: Row, result: Answer) -> None:
        """One row with its answer."""
        cells = answer_cells(self._table, result)
        self._writer.writerow((*(row[name] for name in self._kept), *(cells[name] for name in self._added)))
