"""Which offers a plan may use, and which lots another one replaces in every plan."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog.offer import Holding, Offer
from planner.errors import Problems
from planner.optimise.program import quota_covers
from planner.optimise.supply.lots import RENTED
from planner.optimise.types import Caps, Lot
from planner.request import OfferChoice, PlanRequest, Quota


@dataclass(frozen=True)
class AllowedOffers:
    """Offers that a plan may use, and those left out because their price is too old, or later than the plan."""

    usable: tuple[Offer, ...]
    stale: tuple[Offer, ...]


def allowed_offers(offers: Sequence[Offer], request: PlanRequest, today: dt.date, where: str) -> AllowedOffers:
    """Offers that the request allows, whole GPUs only, sorted by id; stale ones apart.

    Raises
    ------
    InputError
        If a name in the request is not in the catalogue, or nothing is left and the request has no hardware or
        contract of its own.
    """
    problems = Problems()
    _check_names(offers, request, problems, where)
    whole = sorted(
        (o for o in offers if _matches(o, request.offers) and float(o.gpus_per_instance).is_integer()),
        key=lambda o: o.id,
    )
    oldest = today - dt.timedelta(days=request.policy.max_price_age_days)
    usable = [o for o in whole if oldest <= o.as_of <= today]
    stale = [o for o in whole if not oldest <= o.as_of <= today]
    own = request.owned or request.buying or request.commitment
    if not usable and not own and not problems.found:
        found = f"{len(stale)} are priced before {oldest} or after {today}" if stale else "none matches"
        problems.add(where, f"no offer can be used: {found}", "Widen providers, regions, gpus or terms", field="offers")
    problems.raise_if_any()
    return AllowedOffers(tuple(usable), tuple(stale))


def undominated(lots: Sequence[Lot], quotas: Sequence[Quota], caps: Caps) -> tuple[Lot, ...]:
    """Lots without those that another one replaces in every plan, sorted by id.

    Lot a replaces rented lot b of the same supply when a is without limit, every quota that covers a covers b too, a
    takes no more power or emits no more where that is capped, and a is never dearer. With x[t] running, X >= x[t]
    reserved and H hours, ``r H X + sum of u h[t] x[t]`` is never more for a than for b exactly when

        r_a <= r_b   and   r_a + u_a <= r_b + u_b,

    since the hours in use are anything between none and all of H X. So on-demand can replace a commitment that costs
    as much, and a commitment never replaces on-demand: it is paid when it does not run. What is owned, bought or
    already committed is never left out. Of two equal lots the one with fewer quotas, then the first id, stays. What a
    contract costs after the horizon is reported, not weighed: longer terms are chosen only where `[offers]` names them.
    """
    covered = {lot.id: frozenset(q.name for q in quotas if quota_covers(q, lot.offer)) for lot in lots}
    kept: dict[str, list[Lot]] = {}
    for lot in sorted(lots, key=lambda o: (o.reserved_usd_per_h + o.used_usd_per_h, *_rank(o, covered[o.id], caps))):
        others = kept.setdefault(lot.supply, [])
        replaced = lot.kind in RENTED and any(
            covered[other.id] <= covered[lot.id] and _replaces(other, lot, caps) for other in others
        )
        if not replaced:
            others.append(lot)
    return tuple(sorted((lot for group in kept.values() for lot in group), key=lambda o: o.id))


def _rank(lot: Lot, quotas: frozenset[str], caps: Caps) -> tuple[float, float, float, int, str]:
    """Order in which equally dear lots are looked at: a lot that may replace another one comes first."""
    power = 0.0 if caps.power_kw is None else lot.power_kw
    carbon = 0.0 if caps.carbon_kg is None else lot.carbon_kg_per_h
    return (lot.reserved_usd_per_h, power, carbon, len(quotas), lot.id)


def _replaces(other: Lot, lot: Lot, caps: Caps) -> bool:
    """Whether ``other`` is without limit, never dearer, and no worse under the caps that are asked for."""
    return (
        other.available is None
        and other.reserved_usd_per_h <= lot.reserved_usd_per_h
        and other.reserved_usd_per_h + other.used_usd_per_h <= lot.reserved_usd_per_h + lot.used_usd_per_h
        and (caps.power_kw is None or other.power_kw <= lot.power_kw)
        and (caps.carbon_kg is None or other.carbon_kg_per_h <= lot.carbon_kg_per_h)
    )


def _matches(offer: Offer, choice: OfferChoice) -> bool:
    return (
        (not choice.providers or offer.provider in choice.providers)
        and (not choice.regions or offer.region in choice.regions)
        and (not choice.gpus or offer.gpu in choice.gpus)
        and offer.term in choice.terms
        and offer.price_kind in choice.price_kinds
        and offer.id not in choice.exclude
        and offer.can_be_rented
    )


def _check_names(offers: Sequence[Offer], request: PlanRequest, problems: Problems, where: str) -> None:
    """Names that match no offer at all are mistakes, not restrictions; quotas may name the request's own hardware."""
    known = {
        "providers": {o.provider for o in offers},
        "regions": {o.region for o in offers},
        "gpus": {o.gpu for o in offers},
        "exclude": {o.id for o in offers},
    }
    for field, names in known.items():
        for name in getattr(request.offers, field):
            if name not in names:
                problems.add(
                    where, f"'{name}' matches no offer of the catalogue", _closest(name, names), field=f"offers.{field}"
                )
    own = _own_names(request)
    for quota in request.quota:
        for part, field in (("provider", "providers"), ("region", "regions"), ("gpu", "gpus"), ("offer", "exclude")):
            name = getattr(quota, part)
            if name and name not in known[field] | own[field]:
                problems.add(
                    where, f"quota '{quota.name}': '{name}' matches no offer of the catalogue",
                    _closest(name, known[field] | own[field]), field=f"quota.{part}",
                )  # fmt: skip


def _own_names(request: PlanRequest) -> dict[str, set[str]]:
    """Names that a quota may use for owned and bought hardware, as `lots.owned_offer` and `lots.bought_offer` do."""
    kinds = ((Holding.OWNED, request.owned), (Holding.BOUGHT, request.buying))
    return {
        "providers": {kind.value for kind, rows in kinds if rows},
        "regions": {row.region for _, rows in kinds for row in rows},
        "gpus": {row.gpu for _, rows in kinds for row in rows},
        "exclude": {f"{kind.value}/{row.name}" for kind, rows in kinds for row in rows},
    }


def _closest(name: str, names: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(names), n=3)
    return f"Did you mean {' or '.join(close)}?" if close else "See `planner catalog list offers`"
