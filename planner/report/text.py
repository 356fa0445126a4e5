"""Text from outside, made safe for a cell: it stays text, is legal XML and fits."""

from __future__ import annotations

import re

MAX_CELL_CHARACTERS = 32_767
"""Longest text of an Excel cell, in UTF-16 code units (Microsoft: Excel specifications and limits)."""

_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_FORMULA_LEADS = ("=", "+", "-", "@")


def clean_text(text: str) -> str:
    """``text`` without control characters and no longer than a cell may be; a cut is marked."""
    legal = _ILLEGAL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " "))
    units = legal.encode("utf-16-le")
    n_units = len(units) // 2
    if n_units <= MAX_CELL_CHARACTERS:
        return legal
    mark = f" [cut: {n_units:,} characters in the plan]"
    keep = MAX_CELL_CHARACTERS - len(mark)
    return units[: 2 * keep].decode("utf-16-le", "ignore") + mark


def looks_like_formula(text: str) -> bool:
    """Whether a spreadsheet would take ``text`` for a formula if somebody typed it."""
    return text.lstrip().startswith(_FORMULA_LEADS)


def one_line(text: str, limit: int) -> str:
    """``text`` on one line of at most ``limit`` characters; a cut is marked by an ellipsis."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
