"""What changed from one plan to the next, in words, each change with its effect on the cost.

The effect of a model is the difference of what it bears; what no model bears is a line of its own. These lines add up
to the difference of the plans. Prices and contracts are said apart: their money is in the lines of the models.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from planner.assemble.money import pool_gpu_hours
from planner.compare.contracts import contract_words, price_words
from planner.compare.model_words import fleet_words, model_words, offered_per_h
from planner.plan import FleetPlan, Pool, Purchase

UNSERVED = "supplies that no pool uses"


class ChangeKind(StrEnum):
    """What a change is about."""

    NEW = "new model"
    DROPPED = "dropped model"
    MODEL = "model"
    UNSERVED = UNSERVED
    PRICE = "price"
    CONTRACT = "contract"
    HORIZON = "horizon"


@dataclass(frozen=True)
class Change:
    """One change."""

    kind: ChangeKind
    subject: str
    """The model, offer or contract."""
    lead: str
    details: tuple[str, ...] = ()
    usd: float | None = None
    """Effect on the cost; ``None`` where it is in the lines of the models."""

    @property
    def text(self) -> str:
        """In words, without money."""
        return f"{self.lead}: {'; '.join(self.details)}" if self.details else self.lead

    @property
    def sentence(self) -> str:
        """In words, with the effect on the cost where it has one of its own."""
        if self.usd is None:
            return self.text
        return f"{self.lead}: {'; '.join([*self.details, f'cost {signed_usd(self.usd)}'])}"


def signed_usd(usd: float) -> str:
    """A difference of money in words; one that rounds to nothing has no sign."""
    return f"{usd:+,.0f} USD" if round(usd) else "unchanged"


def changes(last: FleetPlan, now: FleetPlan) -> tuple[Change, ...]:
    """All changes: models by the size of their effect, what no model bears, prices, contracts."""
    said = [change for name in _names(last, now) if (change := _model(name, last, now)) is not None]
    said.sort(key=lambda change: (-abs(change.usd or 0.0), change.subject))
    prices = (Change(ChangeKind.PRICE, offer, lead) for offer, lead in price_words(last, now))
    contracts = (Change(ChangeKind.CONTRACT, root, lead) for root, lead in contract_words(last, now))
    return (*said, *_unserved(last, now), *_horizon(last, now), *prices, *contracts)


def _horizon(last: FleetPlan, now: FleetPlan) -> Iterable[Change]:
    """Another number of hours, in which the same replicas cost more or less."""
    before, after = last.horizon_hours, now.horizon_hours
    if before != after:
        more, longer = ("more", "longer") if after > before else ("fewer", "shorter")
        lead = (
            f"the horizon has {after:,.0f} h, {abs(after - before):,.0f} {more} than last quarter's "
            f"({after / before - 1:+.1%}): what always runs is paid for that much {longer}"
        )
        yield Change(ChangeKind.HORIZON, "horizon", lead)


def model_usd(plan: FleetPlan) -> dict[str, float]:
    """What each model bears of the cost, USD."""
    return {name: math.fsum(pool.usd for pool in _pools(plan, name)) for name in _names(plan)}


def unserved(plan: FleetPlan) -> tuple[Purchase, ...]:
    """Purchases of supplies on which no replica runs."""
    used = {
        supply for pool in plan.pools for supply, hours in pool_gpu_hours(pool, plan.periods).items() if hours > 0
    }  # fmt: skip
    return tuple(purchase for purchase in plan.purchases if purchase.supply not in used)


def unserved_usd(plan: FleetPlan) -> float:
    """What no model bears, USD."""
    return math.fsum(purchase.usd for purchase in unserved(plan))


def _names(*plans: FleetPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pool.model for plan in plans for pool in plan.pools))


def _pools(plan: FleetPlan, model: str) -> tuple[Pool, ...]:
    return tuple(pool for pool in plan.pools if pool.model == model)


def _model(name: str, last: FleetPlan, now: FleetPlan) -> Change | None:
    """What changed for one model; ``None`` where nothing did."""
    before, after = _pools(last, name), _pools(now, name)
    usd = model_usd(now).get(name, 0.0) - model_usd(last).get(name, 0.0)
    if not before:
        traffic = f"traffic {offered_per_h(after, now):,.0f} requests/h"
        return Change(ChangeKind.NEW, name, f"{name} is new, on {fleet_words(after)}", (traffic,), usd)
    if not after:
        return Change(
            ChangeKind.DROPPED, name, f"{name} is not planned any more, was on {fleet_words(before)}", (), usd
        )
    lead, details = model_words(name, (before, last), (after, now))
    if not details and not usd and fleet_words(before) == fleet_words(after):
        return None
    return Change(ChangeKind.MODEL, name, lead, details, usd)


def _unserved(last: FleetPlan, now: FleetPlan) -> tuple[Change, ...]:
    before, after = unserved(last), unserved(now)
    usd = unserved_usd(now) - unserved_usd(last)
    if not usd and _lots(before) == _lots(after):
        return ()
    details = tuple(f"{word} {_lots(lots)}" for word, lots in (("now", after), ("last quarter", before)) if lots)
    return (Change(ChangeKind.UNSERVED, UNSERVED, "Supplies that no pool uses", details, usd),)


def _lots(purchases: Iterable[Purchase]) -> str:
    return ", ".join(f"{p.instances:,} x {p.offer_id}" for p in purchases)
