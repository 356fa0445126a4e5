"""The cost of a plan as charges: each lot in each period, by pool, idle and unused; they add up to the cost.

The plan says on which supply a pool stands, not on which of its lots. Pools are taken to stand on the lots that run in
a period in proportion to their GPUs:

    GPU-hours of pool p on lot l in period t  =  GPU-hours[p, supply of l, t] * running[l, t] / running[supply, t]
    idle                                      =  running[l, t] - sum over pools
    unused                                    =  paid[l, t] - running[l, t]
    cost of a charge                          =  GPU-hours * cost[l] / paid GPU-hours[l]

all of them in GPU-hours. A lot that is paid and counted in no period (its contract ends within the first one) is one
charge of its own. What is bought in advance also has a charge for the purchase, as FOCUS 1.2 asks: its effective cost
is 0, since the charges for its use carry it; its billed cost is what is paid within the horizon, and theirs is 0
(https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, columns BilledCost and EffectiveCost).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from planner.assemble.money import paid_gpu_hours, pool_gpu_hours, supply_usd
from planner.plan import FleetPlan, Pool, Purchase
from planner.report.commitments import billed_usd, held_lots
from planner.report.unit_prices import list_usd_per_gpu_h

WHOLE_HORIZON = "(whole horizon)"


class Part(StrEnum):
    """What a charge is for."""

    USED = "used"
    IDLE = "idle"
    """It runs, and no replica stands on it."""
    UNUSED = "unused"
    """It is paid and does not run."""
    UNCOUNTED = "ended"
    """It is paid, and is there in no whole period."""
    PURCHASE = "purchase"


@dataclass(frozen=True)
class Charge:
    """One line of a bill: keys, and figures in GPU-hours and USD."""

    purchase: Purchase
    part: Part
    period: str
    pool: Pool | None
    gpu_hours: float
    """Of use; 0 for a purchase."""
    committed_gpu_hours: float
    """That a purchase commits to; 0 for all others."""
    effective_usd: float
    billed_usd: float
    list_usd: float
    showback_usd: float
    """Charged to the pool, idle GPUs of its supply included."""
    billed_by_use: bool
    """Whether what is used is what is billed."""
    borne: bool
    """Whether any pool stands on the supply."""

    @property
    def priced_gpu_hours(self) -> float:
        """PricingQuantity."""
        return self.gpu_hours + self.committed_gpu_hours


def charges_of(plan: FleetPlan) -> tuple[Charge, ...]:
    """All charges, lot by lot."""
    books = _Books.of(plan)
    held = {lot.purchase.offer_id: lot for lot in held_lots(plan) if lot.is_commitment or lot.purchase.owning}
    made: list[Charge] = []
    for p in plan.purchases:
        contract = held.get(p.offer_id)
        made += (_use(p, part, period, pool, hours, books, contract is None)
                 for part, period, pool, hours in _uses(p, plan))  # fmt: skip
        if contract is not None:
            hours = contract.instances * contract.hours_each * p.gpus_per_instance
            made.append(_bought(p, hours, billed_usd(contract), books.borne(p)))
    return tuple(made)


@dataclass(frozen=True)
class _Books:
    """Totals that every charge is a part of."""

    used: dict[str, float]
    """GPU-hours of pools by supply."""
    usd: dict[str, float]
    """Cost by supply."""
    paid: dict[str, float]
    """GPU-hours by lot."""
    listed: dict[str, float]
    """List price by lot, USD per GPU-hour."""

    @classmethod
    def of(cls, plan: FleetPlan) -> _Books:
        """Of a plan."""
        used: dict[str, float] = {}
        for pool in plan.pools:
            for supply, hours in pool_gpu_hours(pool, plan.periods).items():
                used[supply] = used.get(supply, 0.0) + hours
        paid = {p.offer_id: paid_gpu_hours(p, plan.periods) for p in plan.purchases}
        listed = {p.offer_id: list_usd_per_gpu_h(p, plan) for p in plan.purchases}
        return cls(used, supply_usd(plan.purchases), paid, listed)

    def borne(self, purchase: Purchase) -> bool:
        """Whether any pool stands on the lot's supply."""
        return self.used.get(purchase.supply, 0.0) > 0


_Use = tuple[Part, str, Pool | None, float]


def _uses(p: Purchase, plan: FleetPlan) -> Iterator[_Use]:
    """What is used, idle and unused of a lot; GPU-hours."""
    if not any(p.paid_by_period):
        yield Part.UNCOUNTED, WHOLE_HORIZON, None, 0.0
        return
    mates = [q for q in plan.purchases if q.supply == p.supply]
    for t, period in enumerate(plan.periods):
        running = p.instances_by_period[t] * p.gpus_per_instance
        of_supply = sum(q.instances_by_period[t] * q.gpus_per_instance for q in mates)
        taken = 0
        for pool in plan.pools:
            gpus = sum(g.replicas[t] * pool.tp for g in pool.placements if g.supply == p.supply)
            taken += gpus
            if gpus and running:
                yield Part.USED, period.name, pool, gpus * running / of_supply * period.hours
        if running and taken < of_supply:
            yield Part.IDLE, period.name, None, (of_supply - taken) * running / of_supply * period.hours
        unused = p.paid_by_period[t] * p.gpus_per_instance - running
        if unused > 0:
            yield Part.UNUSED, period.name, None, unused * period.hours


def _use(
    p: Purchase, part: Part, period: str, pool: Pool | None, hours: float, books: _Books, billed_by_use: bool
) -> Charge:
    paid = books.paid[p.offer_id]
    usd = p.usd if part is Part.UNCOUNTED else hours * p.usd / paid
    borne = books.borne(p)
    nobodys = 0.0 if borne else usd
    showback = nobodys if pool is None else hours * books.usd[p.supply] / books.used[p.supply]
    listed = hours * books.listed[p.offer_id]
    return Charge(p, part, period, pool, hours, 0.0, usd, usd if billed_by_use else 0.0, listed, showback,
                  billed_by_use, borne)  # fmt: skip


def _bought(p: Purchase, hours: float, billed: float, borne: bool) -> Charge:
    return Charge(p, Part.PURCHASE, WHOLE_HORIZON, None, 0.0, hours, 0.0, billed, billed, 0.0, False, borne)
