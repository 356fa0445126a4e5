"""One cell of a length law as whole numbers of any size: taking requests out, putting them in, cutting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from planner.traffic.schema import LENGTHS

Row = tuple[int, int, int]
"""Prompt, output, and how many requests have just these."""


@dataclass(frozen=True)
class Cell:
    """A row of `planner.traffic.schema.LENGTHS`; its sums of squares are whole numbers here."""

    model: str
    traffic_class: str
    period: str
    coupling: str
    prompt_lo: int
    prompt_hi: int
    output_lo: int
    output_hi: int
    n: int
    sum_prompt: int
    sum_output: int
    sum_cached: int
    sum_pp: int
    sum_po: int
    sum_oo: int
    max_prompt: int
    max_output: int
    max_total: int

    @property
    def edges(self) -> tuple[int, int, int, int]:
        """Prompt and output edges."""
        return self.prompt_lo, self.prompt_hi, self.output_lo, self.output_hi

    @property
    def law(self) -> tuple[str, str, str, str]:
        """Which law the cell belongs to."""
        return self.model, self.traffic_class, self.period, self.coupling

    @property
    def possible(self) -> bool:
        """Whether so many requests within the edges and maxima can have these sums; without any, all sums are 0."""
        if self.n <= 0:
            return not any((self.n, self.sum_prompt, self.sum_output, self.sum_pp, self.sum_po, self.sum_oo))
        return (
            self.n * self.prompt_lo <= self.sum_prompt <= self.n * self.max_prompt
            and self.n * self.output_lo <= self.sum_output <= self.n * self.max_output
            and self.n * self.sum_pp >= self.sum_prompt**2
            and self.n * self.sum_oo >= self.sum_output**2
        )

    def row(self) -> dict[str, Any]:
        """As a row of the table; squares become floating point, exact below 2^53."""
        return asdict(self) | {name: float(getattr(self, name)) for name in ("sum_pp", "sum_po", "sum_oo")}

    def replaced(self, **changes: Any) -> Cell:
        """The cell with some entries changed."""
        return replace(self, **changes)

    def less(self, rows: Sequence[Row]) -> Cell:
        """The cell without these requests; edges, maxima and cached tokens stay."""
        return self._add(rows, -1)

    def more(self, rows: Sequence[Row]) -> Cell:
        """The cell with these requests again; edges, maxima and cached tokens stay."""
        return self._add(rows, 1)

    def _add(self, rows: Sequence[Row], sign: int) -> Cell:
        return replace(
            self,
            n=self.n + sign * sum(n for _, _, n in rows),
            sum_prompt=self.sum_prompt + sign * sum(n * p for p, _, n in rows),
            sum_output=self.sum_output + sign * sum(n * o for _, o, n in rows),
            sum_pp=self.sum_pp + sign * sum(n * p * p for p, _, n in rows),
            sum_po=self.sum_po + sign * sum(n * p * o for p, o, n in rows),
            sum_oo=self.sum_oo + sign * sum(n * o * o for _, o, n in rows),
        )

    def joined(self, other: Cell) -> Cell:
        """Two cells of one law as one, which covers both."""
        return replace(
            self,
            prompt_lo=min(self.prompt_lo, other.prompt_lo),
            prompt_hi=max(self.prompt_hi, other.prompt_hi),
            output_lo=min(self.output_lo, other.output_lo),
            output_hi=max(self.output_hi, other.output_hi),
            n=self.n + other.n,
            sum_prompt=self.sum_prompt + other.sum_prompt,
            sum_output=self.sum_output + other.sum_output,
            sum_cached=self.sum_cached + other.sum_cached,
            sum_pp=self.sum_pp + other.sum_pp,
            sum_po=self.sum_po + other.sum_po,
            sum_oo=self.sum_oo + other.sum_oo,
            max_prompt=max(self.max_prompt, other.max_prompt),
            max_output=max(self.max_output, other.max_output),
            max_total=max(self.max_total, other.max_total),
        )


def cells_of(lengths: pa.Table) -> list[Cell]:
    """The cells of the table, in its order."""
    rows = lengths.select(LENGTHS.names).to_pylist()
    squares = ("sum_pp", "sum_po", "sum_oo")
    return [Cell(**(row | {name: round(row[name]) for name in squares})) for row in rows]


def added_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Cells of one law and the same edges become one."""
    found: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        key = cell.law + cell.edges
        found[key] = found[key].joined(cell) if key in found else cell
    return list(found.values())
