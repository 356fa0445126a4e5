"""The least number of replicas for a load, by bisection over all candidates at once."""

from __future__ import annotations

import numpy as np

from planner.queueing.load import Candidates, Constraint, Demand, Limits, used_shares
from planner.traffic.types import FloatArray, IntArray

MAX_REPLICAS = 1 << 14


def feasible(
    candidates: Candidates, demand: Demand, replicas: FloatArray, limits: Limits, *, token_pool: bool = True
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each candidate holds every constraint with its number of replicas.

    Without ``token_pool`` the pool is left out, for callers that check it exactly.
    """
    shares = used_shares(candidates, demand, replicas, limits)
    if not token_pool:
        del shares[Constraint.TOKEN_POOL]
    return np.asarray(np.all(np.stack(list(shares.values())) <= 1.0, axis=0))


def least_replicas(
    candidates: Candidates,
    demand: Demand,
    limits: Limits,
    *,
    max_replicas: int = MAX_REPLICAS,
) -> IntArray:
    """Least replicas per candidate that satisfy every constraint, 0 where ``max_replicas`` do not: a lower bound.

    Every constraint loosens as the load of a replica falls, so feasibility is monotone in the number of replicas and
    bisection finds the least one.
    """
    size = len(candidates)
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    high = np.ones(size)
    low = np.zeros(size)
    hold = feasible(candidates, demand, high, limits)
    while not hold.all() and high.max() < max_replicas:
        low = np.where(hold, low, high)
        high = np.where(hold, high, np.minimum(high * 2, max_replicas))
        hold = feasible(candidates, demand, high, limits)
    never = ~hold
    while np.any((high - low > 1) & ~never):
        middle = np.where(never, high, np.floor((low + high) / 2))
        middle = np.maximum(middle, 1.0)
        hold = feasible(candidates, demand, middle, limits)
        high, low = np.where(hold, middle, high), np.where(hold, low, middle)
    return np.where(never, 0, high).astype(np.int64)
