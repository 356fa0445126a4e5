"""Prices of what both plans buy, and contracts that begin, end or change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.compare.model_words import percent
from planner.optimise.types import LotKind
from planner.plan import FleetPlan, Purchase

CONTRACTS = (LotKind.NEW_COMMITMENT, LotKind.EXISTING_COMMITMENT)
_HELD = re.compile(r"held/(?P<offer>.+)/\d{4}-\d{2}-\d{2}(?:/\d+)?")
"""Id of a contract that was signed before: its offer and the day of its end, numbered where several are alike."""


def price_words(last: FleetPlan, now: FleetPlan) -> Iterator[tuple[str, str]]:
    """Offer, and how its price changed; of offers that both plans buy."""
    before = {purchase.offer_id: purchase for purchase in last.purchases}
    for new in now.purchases:
        old = before.get(new.offer_id)
        if old is None:
            continue
        for word, was, price in (
            ("reserved instance-hour", old.reserved_usd_per_h, new.reserved_usd_per_h),
            ("instance-hour in use", old.used_usd_per_h, new.used_usd_per_h),
        ):
            if price != was:
                share = f", {percent(price, was)}" if was > 0 else ""
                text = f"Price of {new.offer_id}, USD per {word}: {price:,.4f} (was {was:,.4f}){share}"
                yield new.offer_id, text


def contract_words(last: FleetPlan, now: FleetPlan) -> Iterator[tuple[str, str]]:
    """Offer of a contract, and what became of it; hardware that is bought belongs to them."""
    before, after = _standing(last), _standing(now)
    for offer in dict.fromkeys((*after, *before)):
        was, is_now = before.get(offer, 0), after.get(offer, 0)
        if not was:
            yield offer, f"Contract {offer} begins with {_instances(is_now)}"
        elif not is_now:
            yield offer, f"Contract {offer} has ended: {_instances(was)} less"
        elif was != is_now:
            yield offer, f"Contract {offer} stands for {_instances(is_now)} (was {was:,})"
    for purchase in now.purchases:
        if purchase.kind == LotKind.BOUGHT and purchase.reserved_instances:
            yield purchase.offer_id, f"{_instances(purchase.reserved_instances)} of {purchase.offer_id} bought"


def _standing(plan: FleetPlan) -> dict[str, int]:
    """Instances under contract by offer: what was new last quarter is held this quarter, under the same offer."""
    found: dict[str, int] = {}
    for purchase in plan.purchases:
        if purchase.kind in CONTRACTS:
            offer = _offer(purchase)
            found[offer] = found.get(offer, 0) + purchase.instances
    return found


def _offer(purchase: Purchase) -> str:
    held = _HELD.fullmatch(purchase.offer_id)
    return held["offer"] if held else purchase.offer_id


def _instances(n: int) -> str:
    return f"{n:,} instance{'s' if n != 1 else ''}"
