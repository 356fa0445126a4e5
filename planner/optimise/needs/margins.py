"""How close a pool is to each of its limits, and which limit sets the number of replicas."""

from __future__ import annotations

import numpy as np

from planner.optimise.needs.candidate_table import stacked
from planner.optimise.needs.exact import ReplicaState, at_rate, replica_state
from planner.optimise.types import Need
from planner.queueing.load import Constraint, used_shares


def shares_at(need: Need, replicas: int, state: ReplicaState | None, period: int | None = None) -> dict[str, float]:
    """Planned over limit of every constraint at a number of replicas, the token pool by its exact quantile.

    Parameters
    ----------
    state
        That of `replica_state` with the same arguments.
    period
        By default the busiest.
    """
    demand = at_rate(need, need.rate_per_s[need.busiest if period is None else period]).demand
    screened = used_shares(stacked([need.config]), demand, np.array([float(replicas)]), need.limits)
    shares = {str(name): float(values[0]) for name, values in screened.items()}
    if state is not None:
        exact = state.tokens.quantile(need.limits.overflow_probability)
        shares[Constraint.TOKEN_POOL] = exact / need.config.pool_token_equivalents
    return shares


def binding_constraint(need: Need) -> str:
    """The constraint that one replica fewer would break most in the busiest period.

    With one replica, that there must be one.
    """
    replicas = need.replicas[need.busiest]
    if replicas == 1:
        return "at least one replica"
    shares = shares_at(need, replicas - 1, replica_state(need, replicas - 1))
    broken = {name: share for name, share in shares.items() if share > 1.0}
    return max(broken, key=lambda name: (broken[name], name)) if broken else "rounding to whole replicas"
