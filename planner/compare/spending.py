"""What a plan spends: GPU-hours in use and their effective rate by GPU type, and what is paid for without being used.

All sums are exact (fractions of the plan's binary numbers): a bridge of them closes whatever the figures are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from planner.plan import FleetPlan, Purchase
from planner.report.commitments import held_lots


@dataclass(frozen=True)
class InUse:
    """GPU-hours of one type on instances that run, and their cost."""

    hours: Fraction = Fraction(0)
    usd: Fraction = Fraction(0)

    @property
    def usd_per_h(self) -> Fraction:
        """Effective rate, USD per GPU-hour in use; 0 where none is."""
        return self.usd / self.hours if self.hours else Fraction(0)


@dataclass(frozen=True)
class Spending:
    """Cost of a plan = GPU-hours in use x their rate, over all GPU types, + what is unused."""

    mtok: Fraction
    """Million tokens served, input and output (Q)."""
    in_use: Mapping[str, InUse]
    """By GPU type, in the order of the plan (h_g and p_g)."""
    unused_usd: Fraction
    """Contracts paid for hours in which their instances do not run (U)."""

    @property
    def hours(self) -> Fraction:
        """GPU-hours in use (H)."""
        return sum((use.hours for use in self.in_use.values()), Fraction(0))

    @property
    def in_use_usd(self) -> Fraction:
        """Cost of the GPU-hours in use."""
        return sum((use.usd for use in self.in_use.values()), Fraction(0))

    @property
    def usd_per_h(self) -> Fraction:
        """Mean effective rate, USD per GPU-hour in use; 0 where none is."""
        return self.in_use_usd / self.hours if self.hours else Fraction(0)

    @property
    def usd(self) -> Fraction:
        """All that is paid."""
        return self.in_use_usd + self.unused_usd


def spending_of(plan: FleetPlan) -> Spending:
    """What a plan spends, recomputed from its purchases and pools."""
    in_use: dict[str, InUse] = {}
    unused = Fraction(0)
    held = {h.purchase.offer_id: h.instances * Fraction(h.hours_each) for h in held_lots(plan)}
    for purchase in plan.purchases:
        idle = unused_usd(purchase, held.get(purchase.offer_id, Fraction(0)))
        was = in_use.get(purchase.gpu, InUse())
        used = Fraction(purchase.usd) - idle
        in_use[purchase.gpu] = InUse(was.hours + gpu_hours_in_use(purchase), was.usd + used)
        unused += idle
    return Spending(_sum(pool.served_mtok for pool in plan.pools), in_use, unused)


def gpu_hours_in_use(purchase: Purchase) -> Fraction:
    """GPU-hours of instances that run: ``GPUs per instance * instance-hours in use``.

    Idle GPUs of an instance that runs are in them: it is the packing that wastes those, not the contract.
    """
    return Fraction(purchase.gpus_per_instance) * Fraction(purchase.instance_hours)


def fixed_usd(purchase: Purchase) -> Fraction:
    """What a purchase costs whether it runs or not: ``reserved price * reserved instances * hours + sunk``, USD."""
    reserved = Fraction(purchase.reserved_usd_per_h) * purchase.reserved_instances * Fraction(purchase.hours)
    return reserved + Fraction(purchase.sunk_usd)


def unused_usd(purchase: Purchase, held_hours: Fraction) -> Fraction:
    """What is paid for a contract, or for hardware, in hours in which its instances do not run, USD.

    ``fixed * (1 - instance-hours in use / instance-hours held)``; all of it where no hour is held. What is rented by
    the hour has no fixed cost, and so nothing unused.
    """
    fixed = fixed_usd(purchase)
    return fixed * (1 - Fraction(purchase.instance_hours) / held_hours) if held_hours else fixed


def _sum(values: Iterable[float]) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0))
