"""How what is printed looks: tables without boxes, and text from outside on one line."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from planner.report.text import one_line

NAME_CHARACTERS = 24


def clean(text: str, limit: int = NAME_CHARACTERS) -> str:
    """Text from outside on one line, with no control characters and no markup."""
    return escape(one_line(text, limit))


def printed_table(title: str, *headers: str, left: int) -> Table:
    """A table whose first ``left`` columns are text and whose others are numbers; only numbers and names never wrap."""
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for n, header in enumerate(headers):
        name_or_number = n == 0 or n >= left
        table.add_column(header, justify="left" if n < left else "right", no_wrap=name_or_number)
    return table
