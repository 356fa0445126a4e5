"""Names as SUMIFS, COUNTIF and MATCH can look them up: their criteria are a small language of their own.

A criterion may start with an operator (``=``, ``<``, ``>``), hold wildcards (``*``, ``?``, ``~``), be read as a number
or as TRUE, and is no longer than 255 characters (Microsoft: SUMIFS function). A name that would be read so is written
in quotes, its wildcards as signs that look alike, and a long one is cut; wherever it stands, in the same way.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from planner.report.align import KEYS
from planner.report.table import Column, Formula, Sheet, Table, Value
from planner.report.text import clean_text

LOOKED_UP = KEYS | {"Of", "Subject", "Cost centre"}
"""Headers of columns in which names are looked up."""
_LONGEST = 200
_LIKE_WILDCARDS = str.maketrans({"*": "\u2217", "?": "\uff1f", "~": "\u223c", "\\": "\uff3c"})
"""Asterisk operator, full-width question mark, tilde operator; and a full-width backslash, because formualizer 0.13
reads a backslash in a criterion as an escape."""
_OPERATORS = ("=", "<", ">")
_BOOLEANS = ("TRUE", "FALSE")


def lookup_text(name: str) -> str:
    """The name as it stands in columns in which it is looked up; nearly every name stays as it is."""
    text = clean_text(name).translate(_LIKE_WILDCARDS)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\u2026 {hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"
    return f"'{text}'" if _is_read_otherwise(text) else text


def _is_read_otherwise(text: str) -> bool:
    if text.startswith(_OPERATORS) or text != text.strip() or text.upper() in _BOOLEANS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def with_lookups(sheet: Sheet) -> Sheet:
    """The sheet with names that can be looked up."""
    return replace(sheet, tables=tuple(_table(table) for table in sheet.tables))


def _table(table: Table) -> Table:
    return replace(table, columns=tuple(_column(column) for column in table.columns))


def _column(column: Column) -> Column:
    if column.header not in LOOKED_UP or isinstance(column.cells, Formula):
        return column
    cells: tuple[Value, ...] = tuple(lookup_text(cell) if isinstance(cell, str) else cell for cell in column.cells)
    return column if cells == column.cells else replace(column, cells=cells)
