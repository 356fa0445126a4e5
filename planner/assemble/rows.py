"""Rows of limits as a plan shows them: their names and units, and what purchases take of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.plan import Purchase

BUDGET, LIABILITY, POWER, CARBON, MOVEMENT = "budget", "liability", "power", "carbon", "movement"
"""Names of the rows that are no quota."""
GPUS, USD, USD_AFTER, KW, KG, MOVED = "GPUs", "USD", "USD after the horizon", "kW", "kg CO2e", "GPUs moved"
"""Units, which tell the rows apart."""


def counted_gpus(purchase: Purchase) -> tuple[int, ...]:
    """GPUs that a purchase takes of a quota in each period: those paid for, whether they run or not."""
    return tuple(purchase.gpus_per_instance * n for n in purchase.paid_by_period)


def most_in_a_period(counts: Iterable[Sequence[float]]) -> float:
    """Largest sum over the periods."""
    return float(max((sum(column) for column in zip(*counts, strict=True)), default=0.0))


def power_kw(purchases: Iterable[Purchase]) -> float:
    """Largest electric power of running instances in a period, kW."""
    return most_in_a_period([[p.power_kw_per_instance * n for n in p.instances_by_period] for p in purchases])


def used_of(covered: Sequence[Purchase], unit: str) -> float | None:
    """What purchases take of a limit in its unit; ``None`` where purchases do not tell (movement)."""
    if unit == GPUS:
        return most_in_a_period([counted_gpus(p) for p in covered])
    if unit == KW:
        return power_kw(covered)
    totals = {
        USD: sum(p.usd for p in covered),
        USD_AFTER: sum(p.liability_after_usd for p in covered),
        KG: sum(p.carbon_kg for p in covered),
    }
    return totals.get(unit)
