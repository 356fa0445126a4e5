"""Questions to a length law: what a limit refuses, what remains, which limit a tail budget needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.errors import InputError, Problem
from planner.traffic.buckets import lower_edge
from planner.traffic.types import FloatArray, IntArray, LengthLaw, Tail, Traffic

BoolArray = npt.NDArray[np.bool_]

REQUESTS_BEYOND = 10
"""Requests that a period must be expected to hold beyond a quantile before that quantile means something."""


class RefusedShares(NamedTuple):
    """What a ``max_model_len`` refuses."""

    requests: float
    """Share of requests."""
    tokens: float
    """Share of prompt plus output tokens."""


def is_exact(traffic: Traffic, max_model_len: int) -> bool:
    """Whether the tail table holds every request longer than the limit, so that counts above it are exact."""
    if int(traffic.tail.n.sum()) == traffic.law.requests:
        return True
    return max_model_len >= _tail_starts(traffic) - 1


def _tail_starts(traffic: Traffic) -> int:
    """The total from which on the tail table holds every request; an empty one holds all beyond the maximum."""
    if traffic.tail.n.size:
        return int(traffic.tail.total.min())
    return int(traffic.law.max_total.max()) + 1


def refused_shares(traffic: Traffic, max_model_len: int) -> RefusedShares:
    """Shares of requests and tokens with ``prompt + output > max_model_len``.

    Exact where `is_exact` holds. Below the tail table, a cell counts as refused when its largest total is above the
    limit: never too few.
    """
    law = traffic.law
    tokens = float(law.sum_prompt.sum() + law.sum_output.sum())
    if is_exact(traffic, max_model_len):
        over = traffic.tail.total > max_model_len
        n = int(traffic.tail.n[over].sum())
        refused = float((traffic.tail.total[over] * traffic.tail.n[over]).sum())
    else:
        above = law.max_total > max_model_len
        n = int(law.n[above].sum())
        refused = float((law.sum_prompt[above] + law.sum_output[above]).sum())
    return RefusedShares(n / law.requests, refused / tokens if tokens else 0.0)


def length_at_tail(traffic: Traffic, share: float) -> int:
    """The least ``max_model_len`` that refuses at most ``share`` of the requests.

    Exact where the tail table holds that many requests; otherwise from the cells, never too short.

    Raises
    ------
    ValueError
        If ``share`` is not in [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"share must be in [0, 1), got {share}")
    # A share such as 0.001 of 10,000 requests must allow 10, whatever its binary digits.
    allowed = int(np.floor(share * traffic.law.requests + 1e-9))
    tail = traffic.tail
    held = np.cumsum(tail.n)
    if held.size and allowed < held[-1]:
        return int(tail.total[np.searchsorted(held, allowed, side="right")])
    order = np.argsort(-traffic.law.max_total, kind="stable")
    above = np.cumsum(traffic.law.n[order])
    first_kept = int(np.searchsorted(above, allowed, side="right"))
    return min(int(traffic.law.max_total[order][first_kept]), _tail_starts(traffic))


def truncate(traffic: Traffic, max_model_len: int) -> LengthLaw:
    """The law of the requests that are served under ``max_model_len``.

    Exact sums where `is_exact` holds: the refused requests are subtracted, one by one, from their cells. Below the
    tail table, a cell that straddles the limit is kept but for its rows in the tail table, so that the load is never
    too small. Cached tokens, which the tail table does not hold, are taken out in proportion. Maxima of cells that
    lost requests are upper bounds.

    Raises
    ------
    InputError
        If the limit refuses every request.
    """
    law = traffic.law
    prompt_lo, output_lo = corners(law)
    alive = prompt_lo + output_lo <= max_model_len
    cell = cell_of(traffic.tail, law)
    gone = _refused_by_cell(traffic.tail, max_model_len, cell, law.n.size)
    n = law.n - gone.n
    alive &= n > 0
    if not alive.any():
        fix = f"The shortest lengths need at least {int(law.max_total.min()):,} tokens"
        raise InputError(Problem(traffic.model, f"max_model_len {max_model_len:,} refuses every request", fix))
    shrunk = gone.n > 0
    total_cap = np.where(shrunk, _largest_left(traffic, max_model_len, cell), law.max_total)
    return LengthLaw(
        n=n[alive],
        sum_prompt=_left(law.sum_prompt, gone.p, n, alive),
        sum_output=_left(law.sum_output, gone.o, n, alive),
        sum_cached=(law.sum_cached * n / law.n)[alive],
        sum_pp=_left(law.sum_pp, gone.pp, n, alive),
        sum_po=_left(law.sum_po, gone.po, n, alive),
        sum_oo=_left(law.sum_oo, gone.oo, n, alive),
        max_prompt=np.minimum(law.max_prompt, max_model_len - output_lo)[alive],
        max_output=np.minimum(law.max_output, max_model_len - prompt_lo)[alive],
        max_total=np.minimum(total_cap, max_model_len)[alive],
        prompt_lo=prompt_lo[alive],
        output_lo=output_lo[alive],
    )


def _left(sums: FloatArray, gone: IntArray, n: IntArray, alive: BoolArray) -> FloatArray:
    """Sums of the requests that remain in each cell.

    Where cells overlap, a refused request may have been taken out of a neighbour. What a cell without requests then
    leaves behind goes to the cell with the most, so that no load is lost.
    """
    rest = sums - gone
    left = np.maximum(rest[alive], 0.0)
    left[np.argmax(n[alive])] += max(float(rest[n == 0].sum()), 0.0)
    return left


class _Gone(NamedTuple):
    """Sums of the refused tail rows in each cell."""

    n: IntArray
    p: IntArray
    o: IntArray
    pp: IntArray
    po: IntArray
    oo: IntArray


def corners(law: LengthLaw) -> tuple[IntArray, IntArray]:
    """Least prompt and output of each cell; a law that does not state them has the cells of `buckets`."""
    prompt = lower_edge(law.max_prompt) if law.prompt_lo is None else law.prompt_lo
    output = lower_edge(law.max_output) if law.output_lo is None else law.output_lo
    return prompt, output


def cell_of(tail: Tail, law: LengthLaw) -> IntArray:
    """Index of the cell of each row of the tail table, or -1 where none has room for it.

    A cell of the buckets is found by its corner. Cells that were merged, cut or scaled may be wider, and may overlap
    when laws of different cells were added: then the narrowest cell that can hold the row, and has not given all its
    requests to rows before, takes it. A row without a cell stays in the law: never an underestimate.
    """
    corner = corners(law)
    index = {cell: i for i, cell in enumerate(zip(corner[0].tolist(), corner[1].tolist(), strict=True))}
    keys = zip(lower_edge(tail.prompt).tolist(), lower_edge(tail.output).tolist(), strict=True)
    found = np.fromiter((index.get(key, -1) for key in keys), dtype=np.int64, count=tail.n.size)
    simple = len(index) == law.n.size and bool((found >= 0).all())
    if simple and (_below(tail, law, found) and (np.bincount(found, tail.n, law.n.size) <= law.n).all()):
        return found
    return _cell_by_search(tail, law, corner)


def _below(tail: Tail, law: LengthLaw, cell: IntArray) -> bool:
    inside = (tail.prompt <= law.max_prompt[cell]) & (tail.output <= law.max_output[cell])
    return bool((inside & (tail.total <= law.max_total[cell])).all())


def _cell_by_search(tail: Tail, law: LengthLaw, corner: tuple[IntArray, IntArray]) -> IntArray:
    order = np.argsort((law.max_prompt - corner[0] + 1) * (law.max_output - corner[1] + 1), kind="stable")
    low = corner[0][order], corner[1][order]
    high = law.max_prompt[order], law.max_output[order], law.max_total[order]
    left = law.n[order]
    found = np.full(tail.n.size, -1, dtype=np.int64)
    for row, (p, o, n) in enumerate(zip(tail.prompt.tolist(), tail.output.tolist(), tail.n.tolist(), strict=True)):
        fits = (low[0] <= p) & (p <= high[0]) & (low[1] <= o) & (o <= high[1]) & (p + o <= high[2]) & (left >= n)
        place = int(fits.argmax()) if fits.size else 0
        if fits.size and fits[place]:
            found[row] = order[place]
            left[place] -= n
    return found


def _refused_by_cell(tail: Tail, limit: int, cell: IntArray, cells: int) -> _Gone:
    over = (tail.total > limit) & (cell >= 0)
    p, o, n = tail.prompt[over], tail.output[over], tail.n[over]

    def add(values: IntArray) -> IntArray:
        sums = np.zeros(cells, dtype=np.int64)
        np.add.at(sums, cell[over], values)
        return sums

    return _Gone(add(n), add(n * p), add(n * o), add(n * p * p), add(n * p * o), add(n * o * o))


def _largest_left(traffic: Traffic, limit: int, cell: IntArray) -> IntArray:
    """Largest total left in each cell: that of its served tail rows, else just below the tail table."""
    tail = traffic.tail
    left = np.full(traffic.law.n.size, max(_tail_starts(traffic) - 1, 1), dtype=np.int64)
    served = (tail.total <= limit) & (cell >= 0)
    np.maximum.at(left, cell[served], tail.total[served])
    return np.minimum(left, traffic.law.max_total)


def sampling_warning(traffic: Traffic, share: float) -> str | None:
    """A sentence for the report when the log is too short for the tail that is asked of it; ``None`` when it is not.

    Ten requests should lie beyond the quantile, so 10,000 for 0.1 %.
    """
    if share <= 0:
        return f"The longest of {traffic.law.requests:,} observed requests is no bound: a longer one may come"
    needed = int(np.ceil(REQUESTS_BEYOND / share - 1e-9))
    if traffic.law.requests >= needed:
        return None
    return (
        f"A tail of {share:.3g} needs at least {needed:,} requests; the log holds {traffic.law.requests:,}, "
        "so the length at that tail is uncertain"
    )
