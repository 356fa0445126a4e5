"""The length law and the largest totals of a model under other lengths: as exact as the tail table allows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import in_order, of_model, with_model
from planner.traffic.operations.cell import Cell, added_cells, cells_of
from planner.traffic.operations.multiples import nearest, rounded_up
from planner.traffic.operations.tail_rows import TailRows, rows_in_tail
from planner.traffic.schema import ALL, LENGTHS, TAIL


def scale_lengths(canonical: Canonical, model: str, prompt: Fraction, output: Fraction) -> tuple[pa.Table, pa.Table]:
    """The length law and the tail of a model, multiplied, with the rest of both tables."""
    mine, tail = of_model(canonical.lengths, model), of_model(canonical.tail, model)
    cells = cells_of(mine)
    held = rows_in_tail(cells, tail)
    scaled = added_cells([_scale_cell(cell, held.get(i), prompt, output) for i, cell in enumerate(cells)])
    whole = added_cells(cell.replaced(traffic_class="") for cell in cells if cell.period == ALL)
    known = rows_in_tail(whole, tail)
    left = [_bound(cell, known.get(i), prompt, output) for i, cell in enumerate(whole)]
    rows = [
        {"model": model, "prompt": nearest(p, prompt), "output": nearest(o, output), "n": n}
        for p, o, n in zip(tail["prompt"].to_pylist(), tail["output"].to_pylist(), tail["n"].to_pylist(), strict=True)
    ]
    sure = max((bound for bound in left if bound is not None), default=-1)
    rows = [row for row in rows if row["prompt"] + row["output"] > sure]
    others = canonical.lengths.filter(pc.not_equal(canonical.lengths["model"], model))
    table = pa.Table.from_pylist([cell.row() for cell in scaled], schema=LENGTHS)
    return in_order(pa.concat_tables([others, table])), _with_tail(canonical.tail, model, rows)


def _with_tail(tail: pa.Table, model: str, rows: list[dict[str, Any]]) -> pa.Table:
    added: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row["prompt"], row["output"]
        added[key] = added.get(key, 0) + row["n"]
    ordered = sorted(added.items(), key=lambda item: (-sum(item[0]), -item[0][0]))
    mine = [{"model": model, "prompt": p, "output": o, "n": n} for (p, o), n in ordered]
    return with_model(tail, model, pa.Table.from_pylist(mine, schema=TAIL))


def _scale_cell(cell: Cell, held: TailRows | None, prompt: Fraction, output: Fraction) -> Cell:
    """One cell: its largest requests one by one, the sums of the others multiplied and rounded up."""
    known = [(nearest(p, prompt), nearest(o, output), n) for p, o, n in (held.rows if held else ())]
    rest = cell.less(held.rows) if held else cell
    bound = _bound(cell, held if held and held.certain else None, prompt, output)
    sums = {
        "sum_prompt": rounded_up(rest.sum_prompt, prompt),
        "sum_output": rounded_up(rest.sum_output, output),
    }
    squares = {
        "sum_pp": max(rounded_up(rest.sum_pp, prompt**2), _least_square(sums["sum_prompt"], rest.n)),
        "sum_po": rounded_up(rest.sum_po, prompt * output),
        "sum_oo": max(rounded_up(rest.sum_oo, output**2), _least_square(sums["sum_output"], rest.n)),
    }
    total = max([p + o for p, o, _ in known] + ([] if bound is None else [bound]))
    return cell.replaced(
        n=rest.n,
        prompt_lo=nearest(cell.prompt_lo, prompt),
        prompt_hi=nearest(cell.prompt_hi - 1, prompt) + 1,
        output_lo=nearest(cell.output_lo, output),
        output_hi=nearest(cell.output_hi - 1, output) + 1,
        sum_cached=min(nearest(cell.sum_cached, prompt), sums["sum_prompt"] + sum(n * p for p, _, n in known)),
        max_prompt=nearest(cell.max_prompt, prompt),
        max_output=nearest(cell.max_output, output),
        max_total=total,
        **sums,
        **squares,
    ).more(known)


def _least_square(total: int, n: int) -> int:
    """Numbers of this total have at least this sum of squares."""
    return -(-total * total // n) if n else 0


def _bound(cell: Cell, held: TailRows | None, prompt: Fraction, output: Fraction) -> int | None:
    """The largest multiplied total that a request of the cell outside the tail table can have; None without any."""
    if held is not None and held.n == cell.n:
        return None
    most = cell.max_total if held is None else min(cell.max_total, held.starts - 1)
    if prompt >= output:
        p = min(cell.max_prompt, most)
        o = min(cell.max_output, most - p)
    else:
        o = min(cell.max_output, most)
        p = min(cell.max_prompt, most - o)
    corner = nearest(cell.max_prompt, prompt) + nearest(cell.max_output, output)
    return min(corner, math.floor(p * prompt + o * output) + 1)
