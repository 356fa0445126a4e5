"""What a signer asks about a purchase and no decision needs: its GPU, list price, contract, and the cost of owning."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from planner import units
from planner.catalog.load import Catalog
from planner.catalog.offer import PriceKind, Term
from planner.optimise.supply.lots import held_names
from planner.optimise.supply.ownership import owning_cost
from planner.optimise.supply.power import site_of
from planner.optimise.supply.terms import term_hours
from planner.optimise.types import LotKind
from planner.plan import Contract, ListPrice, Owning, Purchase
from planner.request import Buying, ExistingCommitment, Owned, PlanRequest, Quarter

_RESERVED = frozenset({LotKind.NEW_COMMITMENT.value, LotKind.BOUGHT.value})


def described(purchases: Sequence[Purchase], request: PlanRequest, catalog: Catalog | None) -> tuple[Purchase, ...]:
    """The purchases with what is known about them.

    Parameters
    ----------
    purchases
        As they were counted from the decision.
    request
        Whose contracts and hardware they are.
    catalog
        Of GPUs and offers; ``None``: neither figures of GPUs nor list prices are added.
    """
    contracts, bought = _contracts(request), {f"bought/{row.name}": row for row in request.buying}
    listed = _listed(catalog) if catalog is not None else {}
    return tuple(
        p.model_copy(
            update={
                **(_gpu(p, catalog) if catalog is not None else {}),
                "list_price": listed.get((p.provider, p.instance_type, p.region)),
                "contract": contracts.get(p.offer_id) or _new_contract(p, request),
                "owning": _owning(bought[p.offer_id], request) if p.offer_id in bought else None,
            }
        )
        for p in purchases
    )


def _gpu(purchase: Purchase, catalog: Catalog) -> dict[str, float | None]:
    gpu = catalog.gpus.get(purchase.gpu)
    return {} if gpu is None else {"memory_gb": gpu.memory_nominal_gb, "tdp_w": gpu.tdp_w}


def _listed(catalog: Catalog) -> Mapping[tuple[str, str, str], ListPrice]:
    """On-demand prices of providers' lists; the newest where an instance has several."""
    found: dict[tuple[str, str, str], ListPrice] = {}
    for offer in catalog.offers:
        key = (offer.provider, offer.instance_type, offer.region)
        if offer.term is not Term.ON_DEMAND or offer.price_kind is not PriceKind.LIST:
            continue
        if key not in found or found[key].as_of < offer.as_of:
            found[key] = ListPrice(usd_per_h=offer.usd_per_h, as_of=offer.as_of, source_url=offer.source_url)
    return found


def _contracts(request: PlanRequest) -> dict[str, Contract]:
    """Contracts that stand and hardware that is there, by lot."""
    quarter = request.quarter
    held = {name: _held(row, quarter) for name, row in held_names(request.commitment)}
    return held | {f"owned/{row.name}": _owned(row, quarter) for row in request.owned}


def _held(row: ExistingCommitment, quarter: Quarter) -> Contract:
    return Contract(instances=row.instances, hours=_hours_until(row.until, quarter), end=row.until)


def _owned(row: Owned, quarter: Quarter) -> Contract:
    return Contract(instances=row.instances, hours=_hours_until(row.until, quarter), end=row.until)


def _hours_until(until: dt.date | None, quarter: Quarter) -> float:
    """Hours of the horizon before a day; all of them where there is none."""
    if until is None or until >= quarter.end:
        return quarter.hours
    return max(0.0, units.days_to_hours((until - quarter.start).days))


def _new_contract(purchase: Purchase, request: PlanRequest) -> Contract | None:
    """A contract that this plan signs, from the first day of the horizon; ``None`` where nothing is reserved."""
    if purchase.kind not in _RESERVED or not purchase.reserved_instances:
        return None
    quarter = request.quarter
    hours = _term_hours(purchase, request)
    return Contract(
        instances=purchase.reserved_instances,
        hours=quarter.hours,
        start=quarter.start,
        end=None if hours is None else quarter.start + dt.timedelta(hours=hours),
        paid_at_start=purchase.term == Term.CAPACITY_BLOCK.value,
    )


def _term_hours(purchase: Purchase, request: PlanRequest) -> float | None:
    """Hours from the first day of the horizon to the end of the contract, or of a bought machine's life."""
    for row in request.buying:
        if purchase.offer_id == f"bought/{row.name}":
            return units.years_to_hours(row.life_years)
    known = {term.value: term for term in Term}
    return term_hours(known[purchase.term], request.quarter.hours) if purchase.term in known else None


def _owning(row: Buying, request: PlanRequest) -> Owning | None:
    site = site_of(request.site, row.region)
    if site is None:
        return None
    cost = owning_cost(row, site)
    return Owning(
        capex_usd=row.capex_usd,
        life_years=row.life_years,
        residual_share=row.residual_share,
        capital_usd_per_h=cost.capital_usd_per_h,
        maintenance_usd_per_h=cost.maintenance_usd_per_h,
        hosting_usd_per_h=cost.colocation_usd_per_h,
        energy_usd_per_h=cost.energy_usd_per_h,
    )
