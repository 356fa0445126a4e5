"""Which offers a plan may use: those that the request allows, are fresh, and are not dominated."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from planner.catalog.offer import Offer
from planner.errors import Problems
from planner.optimise.program import quota_covers
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
        If a name in the request is not in the catalogue, or nothing is left.
    """
    problems = Problems()
    _check_names(offers, request.offers, request.quota, problems, where)
    whole = sorted(
        (o for o in offers if _matches(o, request.offers) and float(o.gpus_per_instance).is_integer()),
        key=lambda o: o.id,
    )
    oldest = today - dt.timedelta(days=request.policy.max_price_age_days)
    usable = [o for o in whole if oldest <= o.as_of <= today]
    stale = [o for o in whole if not oldest <= o.as_of <= today]
    if not usable and not problems.found:
        found = f"{len(stale)} are priced before {oldest} or after {today}" if stale else "none matches"
        problems.add(where, f"no offer can be used: {found}", "Widen providers, regions, gpus or terms", field="offers")
    problems.raise_if_any()
    return AllowedOffers(tuple(usable), tuple(stale))


def undominated(offers: Sequence[Offer], quotas: Sequence[Quota]) -> tuple[Offer, ...]:
    """Offers without those that another replaces in every plan.

    One offer replaces another of the same GPU type and instance size when it is not dearer and every quota that
    limits it also limits the other.
    """
    kept: list[Offer] = []
    limits = {o.id: frozenset(q.name for q in quotas if quota_covers(q, o)) for o in offers}
    for offer in sorted(offers, key=lambda o: (o.usd_per_h, len(limits[o.id]), o.id)):
        replaced = any(
            other.gpu == offer.gpu
            and other.gpus_per_instance == offer.gpus_per_instance
            and limits[other.id] <= limits[offer.id]
            for other in kept
        )
        if not replaced:
            kept.append(offer)
    return tuple(sorted(kept, key=lambda o: o.id))


def _matches(offer: Offer, choice: OfferChoice) -> bool:
    return (
        (not choice.providers or offer.provider in choice.providers)
        and (not choice.regions or offer.region in choice.regions)
        and (not choice.gpus or offer.gpu in choice.gpus)
        and offer.term in choice.terms
        and offer.price_kind in choice.price_kinds
        and offer.id not in choice.exclude
    )


def _check_names(
    offers: Sequence[Offer], choice: OfferChoice, quotas: Sequence[Quota], problems: Problems, where: str
) -> None:
    """Names that match no offer at all are mistakes, not restrictions."""
    known = {
        "providers": {o.provider for o in offers},
        "regions": {o.region for o in offers},
        "gpus": {o.gpu for o in offers},
        "exclude": {o.id for o in offers},
    }
    for field, names in known.items():
        for name in getattr(choice, field):
            if name not in names:
                problems.add(
                    where, f"'{name}' matches no offer of the catalogue", _closest(name, names), field=f"offers.{field}"
                )
    for quota in quotas:
        for part, field in (("provider", "providers"), ("region", "regions"), ("gpu", "gpus"), ("offer", "exclude")):
            name = getattr(quota, part)
            if name and name not in known[field]:
                problems.add(
                    where, f"quota '{quota.name}': '{name}' matches no offer of the catalogue",
                    _closest(name, known[field]), field=f"quota.{part}",
                )  # fmt: skip


def _closest(name: str, names: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(names), n=3)
    return f"Did you mean {' or '.join(close)}?" if close else "See `planner catalog list offers`"
