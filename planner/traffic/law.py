"""Questions to a length law: what a limit refuses, what remains, which limit a tail budget needs, how bursty."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.errors import InputError, Problem
from planner.traffic.buckets import lower_edge
from planner.traffic.types import Burst, IntArray, LengthLaw, Tail, Traffic

STATED_IDC = "traffic.options = {idc = 3}"
"""How a request states an index of dispersion, by example."""
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
    tail = traffic.tail
    if int(tail.n.sum()) == traffic.law.requests:
        return True
    return max_model_len >= int(tail.total.min()) - 1


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
    if allowed < held[-1]:
        return int(tail.total[np.searchsorted(held, allowed, side="right")])
    order = np.argsort(-traffic.law.max_total, kind="stable")
    above = np.cumsum(traffic.law.n[order])
    first_kept = int(np.searchsorted(above, allowed, side="right"))
    return min(int(traffic.law.max_total[order][first_kept]), int(tail.total.min()))


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
    prompt_lo, output_lo = lower_edge(law.max_prompt), lower_edge(law.max_output)
    alive = prompt_lo + output_lo <= max_model_len
    gone = _refused_by_cell(traffic.tail, max_model_len, prompt_lo, output_lo)
    n = law.n - gone.n
    alive &= n > 0
    if not alive.any():
        fix = f"The shortest lengths need at least {int(law.max_total.min()):,} tokens"
        raise InputError(Problem(traffic.model, f"max_model_len {max_model_len:,} refuses every request", fix))
    shrunk = gone.n > 0
    total_cap = np.where(shrunk, _largest_left(traffic, max_model_len, prompt_lo, output_lo), law.max_total)
    return LengthLaw(
        n=n[alive],
        sum_prompt=(law.sum_prompt - gone.p)[alive],
        sum_output=(law.sum_output - gone.o)[alive],
        sum_cached=(law.sum_cached * n / law.n)[alive],
        sum_pp=np.maximum(law.sum_pp - gone.pp, 0.0)[alive],
        sum_po=np.maximum(law.sum_po - gone.po, 0.0)[alive],
        sum_oo=np.maximum(law.sum_oo - gone.oo, 0.0)[alive],
        max_prompt=np.minimum(law.max_prompt, max_model_len - output_lo)[alive],
        max_output=np.minimum(law.max_output, max_model_len - prompt_lo)[alive],
        max_total=np.minimum(total_cap, max_model_len)[alive],
    )


class _Gone(NamedTuple):
    """Sums of the refused tail rows in each cell."""

    n: IntArray
    p: IntArray
    o: IntArray
    pp: IntArray
    po: IntArray
    oo: IntArray


def _cell_of(tail: Tail, prompt_lo: IntArray, output_lo: IntArray) -> IntArray:
    """Index of the cell of each tail row; every tail row has one, because it is also in the law."""
    index = {cell: i for i, cell in enumerate(zip(prompt_lo.tolist(), output_lo.tolist(), strict=True))}
    keys = zip(lower_edge(tail.prompt).tolist(), lower_edge(tail.output).tolist(), strict=True)
    return np.fromiter((index[key] for key in keys), dtype=np.int64, count=tail.n.size)


def _refused_by_cell(tail: Tail, limit: int, prompt_lo: IntArray, output_lo: IntArray) -> _Gone:
    over = tail.total > limit
    cell = _cell_of(tail, prompt_lo, output_lo)[over]
    p, o, n = tail.prompt[over], tail.output[over], tail.n[over]

    def add(values: IntArray) -> IntArray:
        sums = np.zeros(prompt_lo.size, dtype=np.int64)
        np.add.at(sums, cell, values)
        return sums

    return _Gone(add(n), add(n * p), add(n * o), add(n * p * p), add(n * p * o), add(n * o * o))


def _largest_left(traffic: Traffic, limit: int, prompt_lo: IntArray, output_lo: IntArray) -> IntArray:
    """Largest total left in each cell: that of its served tail rows, else just below the tail table."""
    tail = traffic.tail
    left = np.full(prompt_lo.size, max(int(tail.total.min()) - 1, 1), dtype=np.int64)
    served = tail.total <= limit
    np.maximum.at(left, _cell_of(tail, prompt_lo, output_lo)[served], tail.total[served])
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


def idc_at(burst: Burst, scale_s: float) -> float:
    """Index of dispersion of counts at a time scale, at least 1.

    Interpolated linearly in the logarithm of the scale between the scales that the log resolves; beyond them, the
    nearest one holds.

    Raises
    ------
    InputError
        If the log resolves no scale at all.
    """
    good = burst.resolution_ok & np.isfinite(burst.idc)
    if not good.any():
        fix = (
            "Give a log over a longer time or with finer time stamps, or state the index of dispersion of the arrivals "
            f"in the request: {STATED_IDC} (1 is Poisson; more is burstier)"
        )
        raise InputError(
            Problem("traffic", "no burst can be measured: the log is too short or its clock too coarse", fix)
        )
    value = np.interp(np.log(max(scale_s, 1e-9)), np.log(burst.scale_s[good]), burst.idc[good])
    return max(1.0, float(value))


def unmeasured(burst: Burst) -> dict[str, list[float]]:
    """Scales in seconds at which no index of dispersion could be measured, by the reason."""
    found: dict[str, list[float]] = {}
    for scale, idc, good in zip(burst.scale_s, burst.idc, burst.resolution_ok, strict=True):
        if not np.isfinite(idc):
            found.setdefault("the log is too short", []).append(float(scale))
        elif not good:
            found.setdefault("the clock of the log is too coarse", []).append(float(scale))
    return found


def state_idc(burst: Burst, idc: float) -> Burst:
    """The burst table with the index of dispersion that the user states, at every scale."""
    stated = np.full(burst.scale_s.shape, float(idc))
    return replace(burst, idc=stated, var_n=stated * burst.mean_n, resolution_ok=np.ones(stated.shape, dtype=np.bool_))
