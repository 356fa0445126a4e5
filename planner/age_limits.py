"""Whether what a plan takes as given is young enough for the request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from planner.catalog.engine import EngineFacts
from planner.catalog.engine_ages import dated_facts
from planner.catalog.load import Catalog
from planner.errors import Problems
from planner.request import PlanRequest


def check_ages(
    request: PlanRequest, catalog: Catalog, facts: EngineFacts, architectures: Iterable[str], today: dt.date, where: str
) -> None:
    """Refuse prices of contracts and hardware, and engine facts, that are older than the request allows.

    An offer of the market that is too old is left out instead, as another one can take its place.

    Parameters
    ----------
    facts
        Of the release that is planned with.
    architectures
        Of the models, as their configs name them.
    today
        Day of planning.
    where
        The request, for messages.

    Raises
    ------
    InputError
        Listing every price and fact that is too old, with what to do about it.
    """
    problems = Problems()
    _prices(request, catalog, today, where, problems)
    _engine_facts(request, catalog, facts, architectures, today, problems)
    problems.raise_if_any()


def _prices(request: PlanRequest, catalog: Catalog, today: dt.date, where: str, problems: Problems) -> None:
    """Prices that no offer of the market can replace: contracts at the catalogue's price, hardware at its owner's."""
    most = request.policy.max_price_age_days
    oldest = today - dt.timedelta(days=most)
    renew = "raise policy.max_price_age_days"
    for number, held in enumerate(request.commitment, start=1):
        offer = catalog.known_offers.get(held.offer)
        if held.usd_per_instance_h is None and offer is not None and offer.as_of < oldest:
            message = f"the catalogue's price of {held.offer} is of {offer.as_of}: {_older(offer.as_of, today, most)}"
            fix = f"State the contract's price, or {renew}"
            problems.add(where, message, fix, row=f"commitment number {number}", field="usd_per_instance_h")
    stated = (
        *(("owned", row.name, row.source_date) for row in request.owned if row.usd_per_instance_h is not None),
        *(("buying", row.name, row.source_date) for row in request.buying),
    )
    for kind, name, day in stated:
        if day is not None and day < oldest:
            message = f"the price is of {day}: {_older(day, today, most)}"
            fix = f"Ask for the price again and date it, or {renew}"
            problems.add(where, message, fix, row=f"{kind} '{name}'", field="source_date")


def _engine_facts(
    request: PlanRequest,
    catalog: Catalog,
    facts: EngineFacts,
    architectures: Iterable[str],
    today: dt.date,
    problems: Problems,
) -> None:
    most = request.policy.max_engine_fact_age_days
    if most is None:
        return
    oldest = today - dt.timedelta(days=most)
    for fact in dated_facts(facts, architectures):
        if fact.as_of < oldest:
            message = (
                f"holds for {facts.name} {facts.version} and is of {fact.as_of}: {_older(fact.as_of, today, most)}"
            )
            fix = "Read it again in the release and date it, or raise policy.max_engine_fact_age_days"
            problems.add(str(catalog.root / fact.file), message, fix, row=fact.entry, field="as_of")


def _older(day: dt.date, today: dt.date, most: int) -> str:
    return f"{(today - day).days:,} days before {today}, at most {most:,} are allowed"
