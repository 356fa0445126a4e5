"""What a plan costs in some hours of its horizon, and which part of it a model bears."""

from __future__ import annotations

from planner.assemble.money import pool_gpu_hours
from planner.plan import FleetPlan, PlanPeriod, Purchase
from planner.traffic.types import FloatArray


def purchase_usd(purchase: Purchase, hours: FloatArray, horizon_hours: float) -> float:
    """Cost of a purchase in some hours, USD.

        (reserved_usd_per_h x reserved instances x purchase hours + sunk_usd) x hours / horizon hours
        + used_usd_per_h x sum over periods of running instances x hours of the period

    Over the whole horizon that is what the plan says.

    Parameters
    ----------
    hours
        By period.
    """
    share = float(hours.sum()) / horizon_hours
    bound = purchase.reserved_usd_per_h * purchase.reserved_instances * purchase.hours + purchase.sunk_usd
    return bound * share + purchase.used_usd_per_h * float(hours @ purchase.instances_by_period)


def model_usd(plan: FleetPlan, model: str, hours: FloatArray) -> float:
    """What a model's pools bear of the cost of some hours, USD.

    Each supply's cost is split by the GPU-hours of running replicas in these hours, as the plan splits the horizon's;
    where none runs on it then, by those of the horizon.
    """
    cost: dict[str, float] = {}
    for purchase in plan.purchases:
        usd = purchase_usd(purchase, hours, plan.horizon_hours)
        cost[purchase.supply] = cost.get(purchase.supply, 0.0) + usd
    covered = [period.model_copy(update={"hours": h}) for period, h in zip(plan.periods, hours.tolist(), strict=True)]
    return sum(usd * _share(plan, model, supply, covered) for supply, usd in cost.items())


def _share(plan: FleetPlan, model: str, supply: str, covered: list[PlanPeriod]) -> float:
    for periods in (covered, plan.periods):
        gpu_hours = [(pool.model, pool_gpu_hours(pool, periods).get(supply, 0.0)) for pool in plan.pools]
        total = sum(hours for _, hours in gpu_hours)
        if total > 0:
            return sum(hours for name, hours in gpu_hours if name == model) / total
    return 0.0
