"""A fleet by the rule of means beside the plan's: why the plan buys more than 1.5 times the mean.

Many sizing guides count replicas from means: mean requests in the system by Little's law, times what a mean request
holds, times a head-room factor. Bursts and long requests are left out of it; what that does is replayed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Pool
from planner.queueing.live_tokens import MEAN_FACTOR
from planner.replay.engines import PoolEngine
from planner.replay.fleet import Ask, replay_fleet
from planner.replay.promises import Promise
from planner.replay.trace import Trace
from planner.report import facts


@dataclass(frozen=True)
class MeanFleet:
    """One pool with the replicas of the rule of means, replayed at the planning rate all the time.

    Attributes
    ----------
    pool
        Pool of the plan.
    planned_replicas
        Of the plan, in the pool's busiest period.
    mean_replicas
        By the rule.
    promises
        The plan's promises with ``mean_replicas``; empty where the rule asks for no fewer than the plan, and nothing
        was replayed.
    planned_promises
        The same with ``planned_replicas``, of the same requests.
    """

    pool: str
    planned_replicas: int
    mean_replicas: int
    promises: tuple[Promise, ...]
    planned_promises: tuple[Promise, ...] = ()


def mean_replicas(pool: Pool) -> int:
    """Replicas by the rule of means, for the pool's busiest period: at least 1.

    ceil(1.5 x max(live requests x what a mean request holds / token pool, live requests / max_num_seqs)), both of the
    whole pool, by Little's law at the decode rate that the plan settles at. The rule of thumb is that of
    `planner.optimise.explain.baselines`, which settles the decode rate of fewer replicas anew.

    Raises
    ------
    InputError
        If the plan's pool lacks the margin of its token pool.
    """
    limit = facts.margin(pool, "token pool")
    if limit is None or limit.limit <= 0:
        raise InputError(Problem(f"pool {pool.name}", "the plan states no token pool", "Plan it again"))
    load = pool.load
    parts = load.planning_rate_per_s / load.rate_per_replica_per_s
    held, live = parts * load.mean_formula_tokens, parts * load.mean_live_requests
    return max(1, math.ceil(MEAN_FACTOR * max(held / limit.limit, live / pool.max_num_seqs) * (1 - 1e-9)))


def mean_fleets(
    plan: FleetPlan,
    engines: Sequence[PoolEngine],
    traces: Mapping[str, Trace],
    ask: Ask,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[MeanFleet, ...]:
    """Every pool with the replicas of the rule of means and with those of the plan, on the same requests.

    The planning rate is kept all the time: what both are sized for. Replicas that the ask takes away are not taken.

    Raises
    ------
    InputError
        As `mean_replicas` and `planner.replay.fleet.replay_fleet`.
    """
    known = [each.pool for each in engines if each.pool.model in traces]
    planned = {pool.name: facts.busiest_replicas(pool) for pool in known}
    means = {pool.name: mean_replicas(pool) for pool in known}
    fewer = {name: planned[name] - count for name, count in means.items() if count < planned[name]}
    some = {pool.model: traces[pool.model] for pool in known if pool.name in fewer}
    found: list[dict[str, tuple[Promise, ...]]] = []
    for gone in (fewer, {}):
        result = replay_fleet(plan, engines, some, replace(ask, sustained=True, fewer=gone), progress) if some else None
        found.append({each.pool.name: each.promises for each in (result.pools if result else ())})
    by_means, as_planned = found
    return tuple(
        MeanFleet(
            pool.name, planned[pool.name], means[pool.name],
            by_means[pool.name] if pool.name in fewer else (), as_planned[pool.name] if pool.name in fewer else (),
        )
        for pool in known
    )  # fmt: skip
