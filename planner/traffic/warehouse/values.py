"""The value of a role in a table of a warehouse: as text, number, moment or yes/no.

The Ibis counterpart of `planner.traffic.readers.values`, whose definitions it shares.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ibis

from planner.traffic.readers.words import TRUE
from planner.traffic.warehouse.numbers import NONE, finite, rounded, trimmed
from planner.traffic.warehouse.table import TableColumns


@dataclass(frozen=True)
class TableValues:
    """Expressions for the roles of one table; ``None`` where the table has no such column."""

    table: Any
    """An Ibis table."""
    columns: TableColumns

    def has(self, role: str) -> bool:
        """Whether the table has the column."""
        return self.columns.has(role)

    def kind(self, role: str) -> str:
        """``text``, ``whole``, ``real``, ``moment`` or ``truth``."""
        return self.columns.kinds.get(role, "text")

    def raw(self, role: str) -> Any:
        """The column."""
        return self.table[self.columns.of(role)]

    def text(self, role: str) -> Any:
        """Trimmed text; null where there is none."""
        return trimmed(self.raw(role)) if self.has(role) else ibis.null("string")

    def is_empty(self, role: str) -> Any:
        """Whether nothing stands there."""
        if not self.has(role):
            return ibis.literal(True)
        if self.kind(role) == "text":
            return self.text(role).isnull()
        column = self.raw(role)
        # On Spark, Ibis calls NaN null; its text is none.
        return (column.cast("string") if column.type().is_floating() else column).isnull()

    def number(self, role: str) -> Any:
        """A double; null where it is no finite number."""
        return finite(self.raw(role)) if self.has(role) else NONE

    def beside(self, role: str) -> Any:
        """A count that is added to another: an empty one is 0, an unreadable one spoils the sum (null)."""
        return ibis.ifelse(self.is_empty(role), 0.0, self.number(role))

    def moment_us(self, role: str) -> Any:
        """Microseconds since 1970, or since the start of the log, rounded down; a stamp without a zone is UTC."""
        column = self.raw(role)
        kind = column.type()
        if kind.is_date():
            column = column.cast("timestamp")
        elif not kind.is_timestamp():
            return rounded(self.number(role) * self.columns.time.us_per_unit)
        zone = "UTC" if kind.is_timestamp() and kind.timezone else None
        return column.delta(ibis.timestamp("1970-01-01 00:00:00", timezone=zone), unit="microsecond").cast("int64")

    def is_true(self, role: str, words: Iterable[str] = TRUE) -> Any:
        """Whether the table says yes; never null."""
        kind = self.kind(role)
        if kind == "truth":
            found = self.raw(role)
        elif kind in ("whole", "real"):
            found = self.raw(role) == 1
        else:
            found = self.text(role).lower().isin(tuple(words))
        return found.fill_null(False)
