"""Who bears the cost: supplies' cost on pools by GPU-hours, pools' cost on input and output by a replica's time.

    cost of pool p      =  sum over supplies g of  cost[g] * gpu_hours[p, g] / sum over pools of gpu_hours[., g]
    held by pool p      =  sum over supplies g of  cost[g] * gpu_hours[p, g] / paid gpu_hours[g]
    by use              =  sum over pools of held[p] * served[p] / capacity[p]
    input's cost        =  all that is paid * (sum over pools of cost[p] * prefill work[p] / work[p]) / (sum of cost[p])

All of a supply's cost is borne by its pools, idle instances and the unused hours of commitments included. A supply on
which nothing runs (a commitment that nobody needs any more) is borne by no pool: it stays visible as a line of its
own, and is in the totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.errors import PlannerError
from planner.plan import PlanPeriod, PlanTotals, Pool, Purchase


def supply_usd(purchases: Iterable[Purchase]) -> dict[str, float]:
    """Cost of the horizon of each supply, USD."""
    usd: dict[str, float] = {}
    for p in purchases:
        usd[p.supply] = usd.get(p.supply, 0.0) + p.usd
    return usd


def paid_gpu_hours(purchase: Purchase, periods: Sequence[PlanPeriod]) -> float:
    """GPU-hours of a purchase that are paid, running or not."""
    paid = zip(purchase.paid_by_period, periods, strict=True)
    return purchase.gpus_per_instance * sum(n * period.hours for n, period in paid)


def pool_gpu_hours(pool: Pool, periods: Sequence[PlanPeriod]) -> dict[str, float]:
    """GPU-hours of a pool's running replicas by supply."""
    return {
        place.supply: pool.tp * sum(n * period.hours for n, period in zip(place.replicas, periods, strict=True))
        for place in pool.placements
    }


def pool_costs(pools: Sequence[Mapping[str, float]], cost: Mapping[str, float]) -> tuple[float, ...]:
    """Cost of each pool from its GPU-hours by supply and the cost of each supply, USD.

    Raises
    ------
    PlannerError
        If a pool stands on a supply that nothing is bought of: a bug.
    """
    total: dict[str, float] = {}
    for pool in pools:
        for supply, hours in pool.items():
            total[supply] = total.get(supply, 0.0) + hours
    missing = sorted(set(total) - set(cost))
    if missing:
        raise PlannerError(f"replicas stand on {', '.join(missing)}, of which nothing is bought")
    return tuple(sum(cost[g] * hours / total[g] for g, hours in pool.items()) for pool in pools)


def held_usd(pools: Sequence[Pool], purchases: Sequence[Purchase], periods: Sequence[PlanPeriod]) -> tuple[float, ...]:
    """Cost of the GPU-hours that each pool's own replicas take, idle ones not charged, USD."""
    cost = supply_usd(purchases)
    paid: dict[str, float] = {}
    for p in purchases:
        paid[p.supply] = paid.get(p.supply, 0.0) + paid_gpu_hours(p, periods)
    return tuple(
        sum(cost[supply] * hours / paid[supply] for supply, hours in pool_gpu_hours(pool, periods).items())
        for pool in pools
    )


def input_usd(pools: Sequence[Pool], usd: float) -> float:
    """The part of all that is paid that prompts bear: each pool's cost by the work of prompts over all work, USD."""
    borne = sum(pool.usd for pool in pools)
    prompts = sum(pool.usd * input_work_share(pool) for pool in pools)
    return usd * prompts / borne if borne > 0 else 0.0


def input_work_share(pool: Pool) -> float:
    """Share of a replica's own work that prompts take at the planning rate; it does not depend on the rate."""
    return pool.load.prefill_work_share / pool.load.work_share


def totals_of(pools: Sequence[Pool], purchases: Sequence[Purchase], periods: Sequence[PlanPeriod]) -> PlanTotals:
    """The fleet in a few numbers."""
    usd = sum(p.usd for p in purchases)
    served_in, served_out = sum(p.served_input_mtok for p in pools), sum(p.served_output_mtok for p in pools)
    served = served_in + served_out
    held = held_usd(pools, purchases, periods)
    used = sum(cost * pool.served_mtok / pool.capacity_mtok for cost, pool in zip(held, pools, strict=True))
    for_input = input_usd(pools, usd)
    return PlanTotals(
        usd=usd,
        gpus=sum(p.gpus_bought for p in purchases),
        gpu_hours=sum(paid_gpu_hours(p, periods) for p in purchases),
        served_input_mtok=served_in,
        served_output_mtok=served_out,
        usd_per_mtok_by_reservation=usd / served,
        usd_per_mtok_by_use=used / served,
        usd_per_mtok_input=for_input / served_in if served_in > 0 else 0.0,
        usd_per_mtok_output=(usd - for_input) / served_out if served_out > 0 else 0.0,
        sunk_usd=sum(p.sunk_usd for p in purchases),
        liability_after_usd=sum(p.liability_after_usd for p in purchases),
    )
