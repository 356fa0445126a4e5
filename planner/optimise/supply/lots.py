"""Lots: what instances of each offer, contract, owned and bought machine cost, and how many there are.

Cost with x[t] running and X reserved instances:  reserved * horizon * X + sum of used * hours[t] * x[t] + sunk.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.offer import Holding, Offer, PriceKind, Term
from planner.optimise.supply.ownership import energy_usd_per_h, owning_cost
from planner.optimise.supply.power import NO_DRAW, Draw, draw_of, has_cap, host_power_kw, site_of
from planner.optimise.supply.terms import BLOCK_MAX_INSTANCES, liability_after_usd, term_hours
from planner.optimise.types import Lot, LotKind, Period
from planner.request import Buying, ExistingCommitment, Owned, PlanRequest, Quarter

RENTED = frozenset({LotKind.ON_DEMAND, LotKind.SPOT, LotKind.NEW_COMMITMENT})
"""Kinds that the catalogue's offers make: the request may leave any of them out."""

KIND_OF_TERM: Mapping[Term | Holding, LotKind] = {
    Term.ON_DEMAND: LotKind.ON_DEMAND,
    Term.SPOT: LotKind.SPOT,
    Term.COMMIT_1Y: LotKind.NEW_COMMITMENT,
    Term.COMMIT_3Y: LotKind.NEW_COMMITMENT,
    Term.CAPACITY_BLOCK: LotKind.NEW_COMMITMENT,
}


def rented_lot(offer: Offer, supply: str, request: PlanRequest, gpus: Mapping[str, Gpu], periods: int) -> Lot | None:
    """An offer of the catalogue as a lot; ``None`` where its contract cannot cover the horizon.

    On-demand and spot are paid in the hours used. A commitment, and a capacity block, is paid every hour of the
    horizon, and the rest of its term is a liability.
    """
    kind = KIND_OF_TERM[offer.term]
    committed = kind is LotKind.NEW_COMMITMENT
    hours = request.quarter.hours
    paid = term_hours(offer.term, hours)
    if committed and paid is None:
        return None
    draw = guessed_draw(offer, request, gpus)
    return Lot(
        id=offer.id,
        supply=supply,
        kind=kind,
        offer=offer,
        gpus_per_instance=int(offer.gpus_per_instance),
        reserved_usd_per_h=offer.usd_per_h if committed else 0.0,
        used_usd_per_h=0.0 if committed else offer.usd_per_h,
        available=(BLOCK_MAX_INSTANCES,) * periods if offer.term is Term.CAPACITY_BLOCK else None,
        power_kw=draw.power_kw or 0.0,
        carbon_kg_per_h=draw.carbon_kg_per_h or 0.0,
        liability_after_usd=0.0 if paid is None else liability_after_usd(offer.usd_per_h, paid, hours),
    )


def held_lot(
    row: ExistingCommitment, name: str, offer: Offer, supply: str, request: PlanRequest, gpus: Mapping[str, Gpu],
    periods: Sequence[Period],
) -> Lot:  # fmt: skip
    """A commitment that exists: paid until its end whatever is planned, free to run until then.

    ``sunk = price * instances * hours of the horizon before its end``.
    """
    quarter = request.quarter
    price = offer.usd_per_h if row.usd_per_instance_h is None else row.usd_per_instance_h
    days = (min(row.until, quarter.end) - quarter.start).days
    draw = guessed_draw(offer, request, gpus)
    return Lot(
        id=name,
        supply=supply,
        kind=LotKind.EXISTING_COMMITMENT,
        offer=offer,
        gpus_per_instance=int(offer.gpus_per_instance),
        sunk_usd=price * row.instances * units.days_to_hours(days),
        available=available(row.instances, row.until, periods, quarter),
        power_kw=draw.power_kw or 0.0,
        carbon_kg_per_h=draw.carbon_kg_per_h or 0.0,
    )


def owned_lot(row: Owned, supply: str, request: PlanRequest, periods: Sequence[Period]) -> Lot:
    """Hardware that is there: an hour costs what its owner states, else its electricity, else 0."""
    offer = owned_offer(row, request)
    draw = draw_of(row.power_kw, site_of(request.site, row.region))
    return Lot(
        id=offer.id,
        supply=supply,
        kind=LotKind.OWNED,
        offer=offer,
        gpus_per_instance=row.gpus_per_instance,
        used_usd_per_h=offer.usd_per_h,
        available=available(row.instances, row.until, periods, request.quarter),
        power_kw=draw.power_kw or 0.0,
        carbon_kg_per_h=draw.carbon_kg_per_h or 0.0,
    )


def bought_lot(row: Buying, supply: str, request: PlanRequest, periods: Sequence[Period]) -> Lot:
    """Hardware that may be bought: capital, maintenance and room every hour, electricity in the hours used.

    The liability after the horizon is the rest of the capital's yearly amounts; maintenance and room can be given up.
    """
    site = site_of(request.site, row.region)
    assert site is not None, "check_supply asks for a site of everything that may be bought"
    cost, draw, hours = owning_cost(row, site), draw_of(row.power_kw, site), request.quarter.hours
    offer = bought_offer(row, request)
    return Lot(
        id=offer.id,
        supply=supply,
        kind=LotKind.BOUGHT,
        offer=offer,
        gpus_per_instance=row.gpus_per_instance,
        reserved_usd_per_h=cost.reserved_usd_per_h,
        used_usd_per_h=cost.energy_usd_per_h,
        available=(row.max_instances,) * len(periods),
        power_kw=draw.power_kw or 0.0,
        carbon_kg_per_h=draw.carbon_kg_per_h or 0.0,
        liability_after_usd=liability_after_usd(cost.capital_usd_per_h, units.years_to_hours(row.life_years), hours),
    )


def owned_offer(row: Owned, request: PlanRequest) -> Offer:
    """The request's owned hardware as an offer of the provider "owned", so that quotas and reports can name it."""
    site = site_of(request.site, row.region)
    price = row.usd_per_instance_h
    if price is None:
        price = energy_usd_per_h(row.power_kw, site) if row.power_kw is not None and site is not None else 0.0
    return _stated_offer(row, Holding.OWNED, price, request)


def bought_offer(row: Buying, request: PlanRequest) -> Offer:
    """Hardware that may be bought as an offer of the provider "bought"; its price is that of an hour in use."""
    site = site_of(request.site, row.region)
    assert site is not None, "check_supply asks for a site of everything that may be bought"
    cost = owning_cost(row, site)
    return _stated_offer(row, Holding.BOUGHT, cost.reserved_usd_per_h + cost.energy_usd_per_h, request)


def held_names(rows: Iterable[ExistingCommitment]) -> Iterator[tuple[str, ExistingCommitment]]:
    """Existing commitments in a fixed order, each with the id of its lot."""
    seen: Counter[str] = Counter()
    for row in sorted(rows, key=lambda r: (r.offer, r.until, r.usd_per_instance_h or 0.0, r.instances)):
        name = f"held/{row.offer}/{row.until}"
        seen[name] += 1
        yield (name if seen[name] == 1 else f"{name}/{seen[name]}"), row


def available(instances: int, until: dt.date | None, periods: Sequence[Period], quarter: Quarter) -> tuple[int, ...]:
    """Instances that are there on every day of each period: none where they leave before its last day is over."""
    last_days = [quarter.end - dt.timedelta(days=1) if p.last_day is None else p.last_day for p in periods]
    return tuple(instances if until is None or until > last_day else 0 for last_day in last_days)


def guessed_draw(offer: Offer, request: PlanRequest, gpus: Mapping[str, Gpu]) -> Draw:
    """Power and emission of a rented instance: no provider states them, so they are guessed, and only under a cap."""
    if not has_cap(request.policy):
        return NO_DRAW
    kw = host_power_kw(gpus[offer.gpu], int(offer.gpus_per_instance))
    return draw_of(kw, site_of(request.site, offer.region))


def _stated_offer(row: Owned | Buying, term: Holding, usd_per_h: float, request: PlanRequest) -> Offer:
    quarter = request.quarter
    return Offer(
        id=f"{term.value}/{row.name}",
        provider=term.value,
        instance_type=row.name,
        region=row.region,
        gpu=row.gpu,
        gpus_per_instance=row.gpus_per_instance,
        usd_per_h=usd_per_h,
        term=term,
        as_of=row.source_date or quarter.stated_on or quarter.start,
        source_url=row.source,
        price_kind=PriceKind.STATED,
    )
