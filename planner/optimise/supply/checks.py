"""Checks of what the request says about hardware, contracts, sites and links; every problem is reported at once."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from planner.catalog.load import Catalog
from planner.catalog.offer import Offer, Term
from planner.errors import Problems
from planner.optimise.program import quota_covers
from planner.optimise.supply.lots import guessed_draw
from planner.optimise.supply.power import draw_of, has_cap, site_of
from planner.request import Buying, ExistingCommitment, Owned, PlanRequest


@dataclass(frozen=True)
class _Check:
    """What every check needs."""

    request: PlanRequest
    catalog: Catalog
    where: str
    problems: Problems

    def add(self, row: str, field: str, message: str, fix: str) -> None:
        """Note a problem of one table of the request."""
        self.problems.add(self.where, message, fix, row=row, field=field)

    def name(self, row: str, field: str, name: str, known: Iterable[str], what: str) -> bool:
        """Whether a name is known; notes it with the closest ones where it is not."""
        names = sorted(set(known))
        if name in names:
            return True
        close = difflib.get_close_matches(name, names, n=3)
        fix = f"Did you mean {' or '.join(close)}?" if close else f"See the catalogue's {what}s"
        self.add(row, field, f"'{name}' is no known {what}", fix)
        return False


def check_supply(request: PlanRequest, catalog: Catalog, where: str) -> None:
    """Check owned and bought hardware, sites, commitments, links between instances and regions of models.

    Raises
    ------
    InputError
        Listing everything that is wrong.
    """
    check = _Check(request, catalog, where, Problems())
    _check_doubles(check)
    for row in request.owned:
        _check_owned(check, row)
    for wanted in request.buying:
        _check_buying(check, wanted)
    held = [_check_commitment(check, number, row) for number, row in enumerate(request.commitment, start=1)]
    _check_quotas(check, [(o, row.instances) for o, row in zip(held, request.commitment, strict=True) if o is not None])
    _check_links(check)
    _check_regions(check)
    check.problems.raise_if_any()


def _check_doubles(check: _Check) -> None:
    request = check.request
    for what, names in (
        ("owned", [row.name for row in request.owned]),
        ("buying", [row.name for row in request.buying]),
        ("site", [row.region for row in request.site]),
    ):
        for name in sorted(name for name, count in Counter(names).items() if count > 1):
            field = "region" if what == "site" else "name"
            check.add(what, field, f"'{name}' is given more than once", "Keep one of them")


def _check_owned(check: _Check, row: Owned) -> None:
    place, start = f"owned '{row.name}'", check.request.quarter.start
    check.name(place, "gpu", row.gpu, check.catalog.gpus, "GPU")
    if row.until is not None and row.until <= start:
        check.add(place, "until", f"{row.until} is not after the start of the horizon, {start}", "Remove the table")
    if has_cap(check.request.policy) and row.power_kw is None:
        check.add(place, "power_kw", "a cap on power or carbon needs it", "State the power of a running instance")
    _check_site(check, place, row)


def _check_buying(check: _Check, row: Buying) -> None:
    place = f"buying '{row.name}'"
    check.name(place, "gpu", row.gpu, check.catalog.gpus, "GPU")
    site = site_of(check.request.site, row.region)
    if site is None or "usd_per_kwh" not in site.model_fields_set:
        fix = f'Add usd_per_kwh to a [[site]] with region = "{row.region}" (0 where the room\'s price includes it)'
        check.add(place, "region", "no price of electricity is stated for its region", fix)
    _check_site(check, place, row)


def _check_site(check: _Check, place: str, row: Owned | Buying) -> None:
    """Hardware of the request cannot be left out, so under a cap its figures must be there."""
    site = site_of(check.request.site, row.region)
    if row.power_kw is not None and draw_of(row.power_kw, site).lacks(check.request.policy):
        fix = f'Add a [[site]] with region = "{row.region}", pue and carbon_kg_per_kwh'
        check.add(place, "region", "a cap on power or carbon is asked for, and its region has no such figures", fix)


def _check_commitment(check: _Check, number: int, row: ExistingCommitment) -> Offer | None:
    """The catalogue's offer of a commitment, where it can be used."""
    place, request = f"commitment number {number}", check.request
    offers = check.catalog.known_offers
    if row.until <= request.quarter.start:
        fix = "Remove the table"
        check.add(place, "until", f"{row.until} is not after the start of the horizon, {request.quarter.start}", fix)
    if not check.name(place, "offer", row.offer, offers, "offer"):
        return None
    offer = offers[row.offer]
    if offer.term is Term.SPOT:
        check.add(place, "offer", "spot instances cannot be committed", "Name the offer's other term")
    if not float(offer.gpus_per_instance).is_integer():
        check.add(place, "offer", "a part of a GPU cannot be planned with", "Remove the table")
    elif guessed_draw(offer, request, check.catalog.gpus).lacks(request.policy):
        fix = f'Add a [[site]] with region = "{offer.region}", pue and carbon_kg_per_kwh, and the GPU\'s tdp_w'
        check.add(place, "offer", "a cap on power or carbon is asked for, and figures for it are missing", fix)
    return offer


def _check_quotas(check: _Check, held: list[tuple[Offer, int]]) -> None:
    """What is committed already counts towards quotas, and cannot be given back."""
    for quota in check.request.quota:
        gpus = sum(int(offer.gpus_per_instance) * count for offer, count in held if quota_covers(quota, offer))
        if gpus > quota.max_gpus:
            message = f"existing commitments already hold {gpus} GPUs, more than {quota.max_gpus}"
            check.add(f"quota '{quota.name}'", "max_gpus", message, "Raise it, or correct the commitments")


def _check_links(check: _Check) -> None:
    request, offers = check.request, check.catalog.offers
    stated = ("owned",) * bool(request.owned) + ("bought",) * bool(request.buying)
    own = [*(f"owned/{row.name}" for row in request.owned), *(f"bought/{row.name}" for row in request.buying)]
    for number, row in enumerate(request.multi_node, start=1):
        place = f"multi_node number {number}"
        for field, name, known in (
            ("provider", row.provider, [*(offer.provider for offer in offers), *stated]),
            ("gpu", row.gpu, list(check.catalog.gpus)),
            ("offer", row.offer, [*(offer.id for offer in offers), *own]),
        ):
            if name:
                check.name(place, field, name, known, "GPU" if field == "gpu" else field)


def _check_regions(check: _Check) -> None:
    request = check.request
    known = {offer.region for offer in check.catalog.offers}
    known |= {row.region for row in request.owned} | {row.region for row in request.buying}
    for model in request.model:
        for region in model.regions:
            check.name(f"model '{model.name}'", "regions", region, known - {""}, "region")
