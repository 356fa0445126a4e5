"""What is held whether it runs or not: contracts new and old, hardware owned and bought."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

from planner.catalog.offer import Term
from planner.optimise.types import LotKind
from planner.plan import FleetPlan, Purchase

_TYPES = {
    Term.COMMIT_1Y.value: "1-year commitment",
    Term.COMMIT_3Y.value: "3-year commitment",
    Term.CAPACITY_BLOCK.value: "capacity block",
}
COMMITMENTS = frozenset({LotKind.NEW_COMMITMENT.value, LotKind.EXISTING_COMMITMENT.value})
HARDWARE = frozenset({LotKind.OWNED.value, LotKind.BOUGHT.value})


@dataclass(frozen=True)
class Held:
    """One lot that is held: its contract, and its instances by period."""

    purchase: Purchase
    instances: int
    hours_each: float
    """Of the horizon in which each is held."""
    by_period: tuple[int, ...]
    """Instances that are held in the whole of each period."""
    hours_between: float
    """Instance-hours of periods in whose course the contract ends: paid, and not planned with."""
    start: dt.date | None
    end: dt.date | None
    paid_at_start: bool

    @property
    def type(self) -> str:
        """What it is, in words."""
        kind = self.purchase.kind
        if kind in HARDWARE:
            return f"{kind} hardware"
        return f"{_TYPES.get(self.purchase.term, self.purchase.term)}, {kind.split()[0]}"

    @property
    def is_commitment(self) -> bool:
        """Whether a provider discounts for it; hardware is no such contract."""
        return self.purchase.kind in COMMITMENTS


def held_lots(plan: FleetPlan) -> tuple[Held, ...]:
    """All that is held, in the order of the purchases."""
    return tuple(_held(p, plan) for p in plan.purchases if p.kind in COMMITMENTS | HARDWARE)


def _held(p: Purchase, plan: FleetPlan) -> Held:
    """From the contract that the plan states; a plan without it says what is paid by period, and no dates."""
    reserved = p.kind in {LotKind.NEW_COMMITMENT.value, LotKind.BOUGHT.value}
    there = p.paid_by_period if p.available_by_period is None else p.available_by_period
    by_period = (p.reserved_instances,) * len(plan.periods) if reserved else there
    counted = sum(n * period.hours for n, period in zip(by_period, plan.periods, strict=True))
    contract = p.contract
    instances = max(by_period) if contract is None else contract.instances
    each = contract.hours if contract is not None else counted / instances if instances else 0.0
    between = instances * each - counted
    return Held(
        purchase=p,
        instances=instances,
        hours_each=each,
        by_period=by_period,
        hours_between=0.0 if math.isclose(between, 0.0, abs_tol=1e-6) else between,
        start=contract.start if contract is not None else plan.horizon_start if reserved else None,
        end=contract.end if contract is not None else None,
        paid_at_start=contract is not None and contract.paid_at_start,
    )


def upfront_usd(held: Held) -> float:
    """What is paid on the first day: the whole term of a capacity block, the price of bought hardware."""
    p = held.purchase
    if held.paid_at_start:
        return p.usd + p.liability_after_usd
    return 0.0 if p.owning is None else p.reserved_instances * p.owning.capex_usd


def billed_usd(held: Held) -> float:
    """Paid within the horizon, on a cash basis: ``upfront + cost``, without depreciation and return on capital.

    Of what is paid at the start, nothing more is paid later.
    """
    p = held.purchase
    upfront = upfront_usd(held)
    if held.paid_at_start:
        return upfront
    capital = 0.0 if p.owning is None else p.owning.capital_usd_per_h * p.reserved_instances * p.hours
    return upfront + p.usd - capital
