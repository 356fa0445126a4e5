"""The least number of replicas for a load, by bisection over all candidates at once."""

from __future__ import annotations

import numpy as np

from planner.queueing.load import Candidates, Demand, Limits, PoolCheck, used_shares
from planner.traffic.types import FloatArray, IntArray

MAX_REPLICAS = 1 << 30
"""No load that a request may state needs more; a candidate that fails with so many can never hold its limits."""


def feasible(
    candidates: Candidates,
    demand: Demand,
    replicas: FloatArray,
    limits: Limits,
    check: PoolCheck = PoolCheck.BOUND,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each candidate holds every constraint with its number of replicas, the token pool as ``check`` says."""
    shares = used_shares(candidates, demand, replicas, limits, check)
    return np.asarray(np.all(np.stack(list(shares.values())) <= 1.0, axis=0))


def least_replicas(
    candidates: Candidates,
    demand: Demand,
    limits: Limits,
    check: PoolCheck = PoolCheck.BOUND,
    max_replicas: int = MAX_REPLICAS,
) -> IntArray:
    """Least replicas per candidate that satisfy every constraint, 0 where ``max_replicas`` do not.

    A lower bound on the exact need with `PoolCheck.BOUND`. Every constraint loosens as the load of a replica falls, so
    feasibility is monotone in the number of replicas and bisection finds the least one.
    """
    size = len(candidates)
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    reachable = feasible(candidates, demand, np.full(size, float(max_replicas)), limits, check)
    low, high = np.zeros(size), np.ones(size)
    hold = feasible(candidates, demand, high, limits, check) | ~reachable
    while not hold.all():
        low = np.where(hold, low, high)
        high = np.where(hold, high, np.minimum(high * 2, max_replicas))
        hold = feasible(candidates, demand, high, limits, check) | ~reachable
    while np.any((high - low > 1) & reachable):
        middle = np.maximum(np.where(reachable, np.floor((low + high) / 2), high), 1.0)
        hold = feasible(candidates, demand, middle, limits, check)
        high, low = np.where(hold, middle, high), np.where(hold, low, middle)
    return np.where(reachable, high, 0).astype(np.int64)
