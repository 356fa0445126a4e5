"""What a warehouse answered: the rows of each query of `planner.traffic.warehouse.queries`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


@dataclass(frozen=True)
class Answers:
    """Rows of every query of `planner.traffic.warehouse.queries`, by its name; whole numbers as ``int``."""

    tables: Mapping[str, tuple[Row, ...]]

    def rows(self, name: str) -> tuple[Row, ...]:
        """Rows of one query."""
        return self.tables[name]

    def digest(self) -> str:
        """SHA-256 of all answers, whatever the order of their rows."""
        found = hashlib.sha256()
        for name in sorted(self.tables):
            lines = sorted("\t".join(f"{k}={row[k]}" for k in sorted(row)) for row in self.tables[name])
            found.update("\n".join([name, *lines, ""]).encode())
        return found.hexdigest()


def plain_rows(table: pa.Table) -> tuple[Row, ...]:
    """Rows of an answer: engines give whole numbers as decimals, doubles or integers of any width."""
    return tuple({name: _plain(value) for name, value in row.items()} for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal | float) else value
