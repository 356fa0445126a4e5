"""Cells with few requests merged into neighbours: a rare pair of lengths can point to one client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa

from planner.errors import InputError, Problem
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import in_order
from planner.traffic.operations.cell import Cell, cells_of
from planner.traffic.schema import LENGTHS


def merge_small(canonical: Canonical, smallest: int) -> Canonical:
    """No cell of the length law holds fewer than ``smallest`` requests.

    The cells of each law (model, class, period, coupling) are cut in two, again and again, along an edge that cuts no
    cell and leaves ``smallest`` requests on both sides: the side with more cells first, where the halves are closest in
    requests (Mondrian; K. LeFevre, D. DeWitt, R. Ramakrishnan, ICDE 2006). A part that cannot be cut becomes one cell
    when any of its cells is too small. Sums stay exact, the edges cover what was merged, and maxima are those of all.
    A law with fewer requests in all keeps one cell, and a remark. The tail table stays: it holds lengths only.

    Raises
    ------
    InputError
        If ``smallest`` is below 1.
    """
    if smallest < 1:
        raise InputError(Problem("smallest cell", f"{smallest} is no number of requests", "Give 1 or more"))
    laws: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells_of(canonical.lengths):
        laws.setdefault(cell.law, []).append(cell)
    merged = [cell for law in laws.values() for cell in merged_cells(law, smallest)]
    manifest = canonical.manifest
    short = [cell for cell in merged if cell.n < smallest]
    remarks = [
        f"{cell.model}: only {cell.n:,} requests in period '{cell.period}', fewer than the smallest cell of {smallest}"
        for cell in short
    ]
    return Canonical(
        manifest=manifest.model_copy(
            update={
                "smallest_cell": max(smallest, manifest.smallest_cell),
                "remarks": [*manifest.remarks, *(line for line in remarks if line not in manifest.remarks)],
            }
        ),
        lengths=in_order(pa.Table.from_pylist([cell.row() for cell in merged], schema=LENGTHS)),
        tail=canonical.tail,
        rates=canonical.rates,
        burst=canonical.burst,
        prefix=canonical.prefix,
    )


def merged_cells(cells: Sequence[Cell], smallest: int) -> Iterator[Cell]:
    """The cells of one law, those with too few requests merged."""
    parts = [list(cells)]
    while parts:
        part = parts.pop()
        if all(cell.n >= smallest for cell in part):
            yield from part
            continue
        halves = _cut(part, smallest)
        if halves is None:
            yield reduce(Cell.joined, part)
        else:
            parts.extend(halves)


def _cut(part: Sequence[Cell], smallest: int) -> tuple[list[Cell], list[Cell]] | None:
    """The best cut across the side with more distinct cells, else across the other; None where none is allowed."""
    sides = ("prompt", "output")
    for side in sorted(sides, key=lambda side: -len({getattr(cell, f"{side}_lo") for cell in part})):
        edge = _best_edge(part, side, smallest)
        if edge is not None:
            below = [cell for cell in part if getattr(cell, f"{side}_hi") <= edge]
            return below, [cell for cell in part if getattr(cell, f"{side}_lo") >= edge]
    return None


def _best_edge(part: Sequence[Cell], side: str, smallest: int) -> int | None:
    """The edge that cuts no cell, leaves enough on both sides, and halves the requests best; the lowest of equals."""
    total = sum(cell.n for cell in part)
    best: tuple[int, int] | None = None
    for edge, below in _edges((getattr(cell, f"{side}_lo"), getattr(cell, f"{side}_hi"), cell.n) for cell in part):
        found = abs(total - 2 * below), edge
        if smallest <= below <= total - smallest and (best is None or found < best):
            best = found
    return None if best is None else best[1]


def _edges(intervals: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Lower edges that no interval crosses, with the requests below them."""
    reached, below = None, 0
    for low, high, n in sorted(intervals):
        if reached is not None and low >= reached:
            yield low, below
        reached = high if reached is None else max(reached, high)
        below += n
