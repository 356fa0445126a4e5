"""Which requests of a cell are known one by one, because the tail table holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from planner.traffic.law import cell_of
from planner.traffic.operations.cell import Cell, Row
from planner.traffic.schema import ALL
from planner.traffic.types import IntArray, LengthLaw, Tail


@dataclass(frozen=True)
class TailRows:
    """Requests of one cell in the tail table."""

    rows: tuple[Row, ...]
    starts: int
    """Every request of the cell with this total or more is among them, if they are `certain`."""
    certain: bool = True
    """False where several classes have this cell: the tail table does not say to which of them a request belongs."""

    @property
    def n(self) -> int:
        """How many."""
        return sum(n for _, _, n in self.rows)


def rows_in_tail(cells: Sequence[Cell], tail: pa.Table) -> dict[int, TailRows]:
    """The rows of one model's tail table by the place of their cell of the whole window.

    A cell is left out when the requests that seem to be its own cannot be: what would be left of it is no cell.
    """
    places = [place for place, cell in enumerate(cells) if cell.period == ALL]
    if not places or not tail.num_rows:
        return {}
    mine = [cells[place] for place in places]
    table = Tail(*(tail[name].to_numpy() for name in ("prompt", "output", "n")))
    found = cell_of(table, _law(mine))
    starts = int(table.total.min()) if (found >= 0).all() else max(cell.max_total for cell in mine) + 1
    rows: dict[int, list[Row]] = {}
    for cell, *row in zip(found.tolist(), table.prompt.tolist(), table.output.tolist(), table.n.tolist(), strict=True):
        if cell >= 0:
            rows.setdefault(places[cell], []).append((row[0], row[1], row[2]))
    edges = Counter(cell.edges for cell in mine)
    return {
        place: TailRows(tuple(known), starts, certain=edges[cells[place].edges] == 1)
        for place, known in rows.items()
        if cells[place].less(known).possible
    }


def _law(cells: Sequence[Cell]) -> LengthLaw:
    """What finding a cell needs; the sums are not used."""

    def ints(name: str) -> IntArray:
        return np.array([getattr(cell, name) for cell in cells], dtype=np.int64)

    none = np.zeros(len(cells))
    return LengthLaw(
        n=ints("n"),
        sum_prompt=none,
        sum_output=none,
        sum_cached=none,
        sum_pp=none,
        sum_po=none,
        sum_oo=none,
        max_prompt=ints("max_prompt"),
        max_output=ints("max_output"),
        max_total=ints("max_total"),
        prompt_lo=ints("prompt_lo"),
        output_lo=ints("output_lo"),
    )
