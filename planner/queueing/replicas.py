"""The least number of replicas for a load, looked for by many candidates of many pools at once.

Every constraint loosens as the load of a replica falls, so feasibility is monotone in the number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from planner.queueing.load import Candidates, Demand, Limits, PoolCheck, used_shares
from planner.queueing.screen import MAX_REPLICAS, BoolArray, Screen, screen_of
from planner.traffic.types import FloatArray, IntArray

GALLOP = 0.25
"""While nothing has held yet, the next number that is tried lies this share further, and twice as far every time."""

Holds = Callable[[IntArray, IntArray], BoolArray]
"""Whether the candidates at some places hold with some numbers of replicas."""


def feasible(
    candidates: Candidates,
    demand: Demand,
    replicas: FloatArray,
    limits: Limits,
    check: PoolCheck = PoolCheck.BOUND,
) -> BoolArray:
    """Whether each candidate holds every constraint with its number of replicas, the token pool as ``check`` says."""
    shares = used_shares(candidates, demand, replicas, limits, check)
    return np.asarray(np.all(np.stack(list(shares.values())) <= 1.0, axis=0))


def least_replicas(
    candidates: Candidates, demand: Demand, limits: Limits, check: PoolCheck = PoolCheck.BOUND
) -> IntArray:
    """Least replicas per candidate that satisfy every constraint, 0 where `MAX_REPLICAS` do not.

    A lower bound on the exact need with `PoolCheck.BOUND`.
    """
    if not len(candidates):
        return np.zeros(0, dtype=np.int64)
    screen = screen_of(candidates, demand, limits)
    everyone = np.arange(len(screen))
    can = reachable(screen, everyone)
    found = np.zeros(len(screen), dtype=np.int64)
    holds = partial(_holds_at_peak, screen, everyone[can], check)
    found[can] = least_holding(holds, screen.least_by_work()[can] - 1)
    return found


def reachable(screen: Screen, candidates: IntArray) -> BoolArray:
    """Which candidates hold their limits at all, however many replicas share the load."""
    most = np.full(len(candidates), MAX_REPLICAS)
    return screen.holds(candidates, screen.peak[candidates], most, (PoolCheck.BOUND,))[0]


def _holds_at_peak(screen: Screen, which: IntArray, check: PoolCheck, place: IntArray, n: IntArray) -> BoolArray:
    return screen.holds(which[place], screen.peak[which[place]], n, (check,))[0]


def least_holding(
    holds: Holds,
    low: IntArray,
    high: IntArray | None = None,
    needless: Callable[[IntArray], BoolArray] = lambda low: np.zeros(low.shape, dtype=bool),
) -> IntArray:
    """The least numbers that hold, each above its ``low``, which does not; 0 where it became needless to know.

    Parameters
    ----------
    holds
        Is asked for ever fewer places, with one number for each.
    low, high
        Numbers known not to hold, and to hold (`MAX_REPLICAS` where nothing is known).
    needless
        From the numbers known not to hold, which places need no answer any more.
    """
    low = low.copy()
    high = np.full(low.shape, MAX_REPLICAS, dtype=np.int64) if high is None else high.copy()
    step = np.ones_like(low)
    dropped = needless(low)
    while True:
        place = np.nonzero((high - low > 1) & ~dropped)[0]
        if not place.size:
            return np.where(dropped, 0, high)
        probe = np.minimum(low + step, (low + high) // 2)[place]
        held = holds(place, probe)
        high[place] = np.where(held, probe, high[place])
        low[place] = np.where(held, low[place], probe)
        further = np.maximum(2 * step, (GALLOP * low).astype(np.int64))
        step[place] = np.where(held, MAX_REPLICAS, further[place])
        dropped = needless(low)


def peak_replicas(screen: Screen, candidates: IntArray, group: IntArray, rank: IntArray) -> IntArray:
    """Least replicas in the busiest period by the bound, 0 for candidates that another one of the group outdoes.

    A candidate is outdone when its bound is above a number with which another one of the group, which refuses no more,
    holds for sure (`PoolCheck.SURE`): whatever the exact needs are, the other one needs fewer replicas of as many GPUs.

    Parameters
    ----------
    candidates
        Places in ``screen``; all of them `reachable`.
    group
        Candidates with the same number serve the same requests with replicas of the same GPU type and degree.
    rank
        Order in the group by what is refused: a candidate of a lower or the same rank refuses no more.
    """
    best = np.full((int(group.max(initial=0)) + 1, int(rank.max(initial=0)) + 1), MAX_REPLICAS, dtype=np.int64)
    period = screen.peak[candidates]

    def holds(place: IntArray, n: IntArray) -> BoolArray:
        held, sure = screen.holds(candidates[place], period[place], n, (PoolCheck.BOUND, PoolCheck.SURE))
        at = place[sure]
        np.minimum.at(best, (group[at], rank[at]), n[sure])
        return held

    def outdone(low: IntArray) -> BoolArray:
        return np.asarray(low >= np.minimum.accumulate(best, axis=1)[group, rank])

    return least_holding(holds, screen.least_by_work()[candidates] - 1, needless=outdone)


def period_replicas(screen: Screen, candidates: IntArray, at_peak: IntArray) -> IntArray:
    """Least replicas in every period by the bound, shape (candidates, periods).

    From the busiest period down: what fails with n at rate r fails with n r' / r or fewer at any other rate r' (the
    same load a replica, in burstier parts), and what holds at a higher rate holds at a lower one. A period without
    requests needs one replica like any other.

    Parameters
    ----------
    at_peak
        Least replicas in the busiest period.
    """
    rates = screen.asks.rate_per_s[screen.ask[screen.state[candidates]]]
    order = np.argsort(-rates, axis=1, kind="stable")
    rows = np.arange(len(candidates))
    found = np.empty(rates.shape, dtype=np.int64)
    found[rows, order[:, 0]] = before = at_peak
    peak = rates[rows, order[:, 0]]
    fails = at_peak - 1
    for rank in range(1, rates.shape[1]):
        period = order[:, rank]
        rate, last = rates[rows, period], rates[rows, order[:, rank - 1]]
        low = np.maximum(_scaled_down(fails, rate, peak), _scaled_down(before - 1, rate, last))
        idle = rate == 0.0
        low = np.where(rate == last, before - 1, np.minimum(low, before - 1))
        holds = partial(_holds_in, screen, candidates, period)
        found[rows, period] = before = least_holding(holds, np.where(idle, 0, low), np.where(idle, 1, before))
    return found


def _scaled_down(fails: IntArray, rate: FloatArray, at_rate: FloatArray) -> IntArray:
    """The most replicas that surely fail at ``rate`` where ``fails`` do at a higher one."""
    share = np.divide(rate, at_rate, out=np.zeros_like(rate), where=at_rate > 0)
    return np.asarray(np.floor(fails * share * (1.0 - 1e-9)), dtype=np.int64)


def _holds_in(screen: Screen, candidates: IntArray, period: IntArray, place: IntArray, n: IntArray) -> BoolArray:
    return np.asarray(screen.holds(candidates[place], period[place], n, (PoolCheck.BOUND,))[0])
