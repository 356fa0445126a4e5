"""Widths of columns whose headers are single words, as those of FOCUS: a word should break between its parts."""

from __future__ import annotations

import re

_PARTS = re.compile(r"[A-Z]?[a-z0-9_]+|[A-Z]+(?![a-z])")
_UNITS_PER_LETTER = 0.8
"""Of a bold 9 pt letter, in units of column width (a 10 pt digit)."""
_PADDING = 1.0
_AMOUNT = 9.5
"""Holds 9,999,999."""
_ONE_LINE = 14
"""Letters of a header that stands on one line."""


def fitting(header: str, least: float = _AMOUNT) -> float:
    """Width in which a header of one word takes one line, or where it is long two, broken between two of its parts.

    A cell is filled before a word breaks, so the first line must be the longer one.
    """
    if len(header) <= _ONE_LINE:
        return max(least, round(_UNITS_PER_LETTER * len(header) + _PADDING, 1))
    parts = _PARTS.findall(header)
    lengths = [sum(map(len, parts[:n])) for n in range(1, len(parts) + 1)]
    first = min((n for n in lengths if 2 * n >= len(header)), default=len(header))
    return max(least, round(_UNITS_PER_LETTER * first + _PADDING, 1))
