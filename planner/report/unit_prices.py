"""Unit prices of a purchase, USD per GPU-hour: its provider's list price, its own, and what an hour really costs."""

from __future__ import annotations

from planner.assemble.money import paid_gpu_hours
from planner.catalog.offer import PriceKind, Term
from planner.optimise.types import LotKind
from planner.plan import FleetPlan, Purchase
from planner.report.commitments import held_lots
from planner.report.sheets.input_contracts import has_list

LISTED = "list price of the same instance on demand"
OWN = "its own price: no list price on demand is known"
ON_DEMAND = "list price"
CONTRACTED = "contracted price: its list price is not in the plan"
STATED = "stated by its owner"


def pricing_category(purchase: Purchase) -> str:
    """FOCUS 1.2 PricingCategory: Standard, Committed, Dynamic; Other for hardware, which nobody prices."""
    if purchase.kind in {LotKind.NEW_COMMITMENT.value, LotKind.EXISTING_COMMITMENT.value}:
        return "Committed"
    if purchase.kind in {LotKind.OWNED.value, LotKind.BOUGHT.value}:
        return "Other"
    return "Dynamic" if purchase.term == Term.SPOT.value else "Standard"


def list_basis(purchase: Purchase) -> str:
    """Where the list price comes from, in words."""
    if has_list(purchase):
        return LISTED
    if purchase.kind in {LotKind.OWNED.value, LotKind.BOUGHT.value}:
        return STATED
    if purchase.kind == LotKind.ON_DEMAND.value:
        if purchase.price_kind == PriceKind.CONTRACTED.value:
            return CONTRACTED
        return ON_DEMAND if purchase.price_kind == PriceKind.LIST.value else f"{purchase.price_kind} price"
    return OWN


def own_usd_per_gpu_h(purchase: Purchase, plan: FleetPlan) -> float:
    """Price of an hour in use by the contract itself: ``(reserved + used + sunk / held hours) / GPUs``."""
    held = next((h for h in held_lots(plan) if h.purchase.offer_id == purchase.offer_id), None)
    hours = held.instances * held.hours_each if held is not None else 0.0
    sunk = purchase.sunk_usd / hours if hours else 0.0
    return (purchase.reserved_usd_per_h + purchase.used_usd_per_h + sunk) / purchase.gpus_per_instance


def list_usd_per_gpu_h(purchase: Purchase, plan: FleetPlan) -> float:
    """The provider's list price on demand; the contract's own price where none is known."""
    if has_list(purchase) and purchase.list_price is not None:
        return purchase.list_price.usd_per_h / purchase.gpus_per_instance
    return own_usd_per_gpu_h(purchase, plan)


def effective_usd_per_gpu_h(purchase: Purchase, plan: FleetPlan) -> float:
    """What a GPU-hour that is paid costs: all of the lot's cost over them; 0 where none is counted."""
    paid = paid_gpu_hours(purchase, plan.periods)
    return purchase.usd / paid if paid else 0.0


def last_usd_per_gpu_h(purchase: Purchase, last: FleetPlan) -> float | None:
    """Last quarter's price of the same lot, else of all that was paid of its GPU type; ``None`` where none was."""
    same = [p for p in last.purchases if p.offer_id == purchase.offer_id]
    alike = same or [p for p in last.purchases if p.gpu == purchase.gpu]
    hours = sum(paid_gpu_hours(p, last.periods) for p in alike)
    return sum(p.usd for p in alike) / hours if hours else None
