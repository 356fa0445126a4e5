"""Where the rows of a table stand when several scenarios share it: rows of one name are one row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.report.table import Table

KEYS = frozenset(
    {
        *("Pool", "Lot", "Supply", "Period", "Limit", "Model", "GPU", "Gpu", "Tenant", "Workload", "CostCentre"),
        *("CommitmentDiscountId", "x_Lot", "x_Pool", "Fleet"),
    }
)
"""Headers of columns in which names are looked up; the first of a table tells its rows apart."""
_MOST_ROWS = 1.5
"""Rows of the union over those of the longest scenario, beyond which rows meet by position: names have little in
common then."""


@dataclass(frozen=True)
class Aligned:
    """Where the rows of a table stand in the workbook."""

    rows: int
    places: tuple[tuple[int, ...], ...]
    """For each scenario: the row (from 0) of each of its rows."""

    @cached_property
    def sources(self) -> tuple[tuple[int | None, ...], ...]:
        """For each scenario: its own row of each row; ``None`` where it has none."""
        found = []
        for places in self.places:
            own: list[int | None] = [None] * self.rows
            for i, place in enumerate(places):
                own[place] = i
            found.append(tuple(own))
        return tuple(found)


def align(tables: Sequence[Table]) -> Aligned:
    """Rows of one table in all scenarios: those of one name (its first column of text) and occurrence are one row."""
    longest = max(table.rows for table in tables)
    by_position = Aligned(longest, tuple(tuple(range(table.rows)) for table in tables))
    label = _label(tables)
    if label is None or tables[0].ranked:
        return by_position
    keys = [_keys(table, label) for table in tables]
    union = _union(keys)
    if len(union) > _MOST_ROWS * longest:
        return by_position
    return Aligned(len(union), tuple(tuple(union[key] for key in own) for own in keys))


def _label(tables: Sequence[Table]) -> int | None:
    """The column of names: the first of `KEYS`, else the first one that is text in every scenario."""
    found = []
    for n in range(len(tables[0].columns)):
        cells = [table.columns[n].cells for table in tables]
        if all(isinstance(own, tuple) and all(isinstance(cell, str) for cell in own) for own in cells):
            found.append(n)
    named = [n for n in found if tables[0].columns[n].header in KEYS]
    return next(iter((*named, *found)), None)


def _keys(table: Table, label: int) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    keys = []
    for i in range(table.rows):
        name = str(table.columns[label].cell(i))
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _union(keys: Sequence[Sequence[tuple[str, int]]]) -> dict[tuple[str, int], int]:
    """Position of every key: in the first scenario's order, one of another scenario behind the one before it there."""
    behind: dict[tuple[str, int] | None, list[tuple[str, int]]] = {}
    known: set[tuple[str, int]] = set()
    for own in keys:
        before: tuple[str, int] | None = None
        for key in own:
            if key not in known:
                known.add(key)
                behind.setdefault(before, []).append(key)
            before = key
    order: list[tuple[str, int]] = []
    waiting = list(reversed(behind.get(None, [])))
    while waiting:
        key = waiting.pop()
        order.append(key)
        # The first scenario's own next key was added first and goes last: what others have between comes before it.
        waiting += behind.get(key, [])
    return {key: n for n, key in enumerate(order)}
