"""Which column of a dropped row offends, and what may be shown of it: numbers and dates, never text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.privacy import safe_name
from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.words import SUCCESS
from planner.traffic.rules import Rule

VALUE_CHARS = 40
NUMERIC_ROLES = ("timestamp", "prompt", "output", "status")
"""Columns whose values may be shown, as far as they are numbers or dates."""
NUMBER = re.compile(
    r"-?\d*\.?\d+([eE][+-]?\d+)?|\d{1,3}(,\d{3})+|[+-]?(nan|inf|infinity)"
    r"|\d{4}-\d\d-\d\d([T ][\d:]+(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?|\d{1,2}[/.]\d{1,2}[/.]\d{4}( [\d:]+)?",
    re.IGNORECASE | re.ASCII,
)
"""Addresses and telephone numbers with their signs and blanks are none."""
ROLE_OF = {
    Rule.OTHER_MODEL: "model",
    Rule.BAD_TIMESTAMP: "timestamp",
    Rule.IMPLAUSIBLE_TIMESTAMP: "timestamp",
    Rule.CACHE_HIT: "cache_hit",
    Rule.REJECTED_RETRIED: "status",
    Rule.REJECTED: "status",
    Rule.FAILED: "status",
    Rule.ABORTED_EMPTY: "output",
    Rule.OUTSIDE_WINDOW: "timestamp",
    Rule.ZERO_TOKENS: "prompt",
    Rule.DUPLICATE: "request_id",
}
OFFENDS: dict[Rule, Callable[[str | None, float | None], bool]] = {
    Rule.MISSING_TOKENS: lambda text, number: text is None,
    Rule.NOT_WHOLE_TOKENS: lambda text, number: number is None or not math.isfinite(number) or number % 1 != 0,
    Rule.NEGATIVE_TOKENS: lambda text, number: number is not None and number < 0,
    Rule.ABSURD_TOKENS: lambda text, number: number is not None and number > MAX_TOKENS,
}
"""For rules on either token count: whether this one is the offender."""


@dataclass(frozen=True)
class DroppedRow:
    """One dropped row."""

    file: str
    row: int
    """Row of the file, 1-based; the header of a CSV is row 1."""
    field: str
    """The offending column; empty when the row as a whole offends."""
    value: str
    """What stands there: a number or date, cut to `VALUE_CHARS`; of text only its length."""


def dropped_row(table: TableFile, rule: Rule, row: Mapping[str, Any]) -> DroppedRow:
    """The row, with the column that the rule is about and what stands there."""
    role = _role(rule, row)
    if role == "status" and (not table.columns.status or (table.columns.error and _is_success(row["status_text"]))):
        role = "error"
    field = getattr(table.columns, role) if role else ""
    value = _shown(row[f"{role}_text"]) if role in NUMERIC_ROLES else ""
    if rule is Rule.MALFORMED:
        value = "neither time nor tokens"
    return DroppedRow(safe_name(table.head.path.name), int(row["row"]), printable(field), value)


def _is_success(status: str | None) -> bool:
    """Whether the status says nothing against the row, so that something else must."""
    text = (status or "").strip().lower()
    return not text or text in SUCCESS or (len(text) == 3 and text.startswith("2"))


def _role(rule: Rule, row: Mapping[str, Any]) -> str:
    if rule in OFFENDS:
        return "prompt" if OFFENDS[rule](row["prompt_text"], row["p"]) else "output"
    return ROLE_OF.get(rule, "")


def _shown(text: str | None) -> str:
    """Numbers and dates as they are; of anything else, which may be somebody's words, only how long it is."""
    if text is None:
        return "empty"
    if not NUMBER.fullmatch(text):
        return f"text of length {len(text):,}"
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"


def printable(name: str) -> str:
    """A column name without what acts on a terminal, cut to a sane length."""
    return "".join(c if c.isprintable() else "?" for c in name)[:VALUE_CHARS]
