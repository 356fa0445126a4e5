"""What a signer must know about the supply: what was left out, what is guessed, what leaves during a period."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.offer import Offer, Term
from planner.optimise.supply.power import HOST_POWER_FACTOR, has_cap
from planner.optimise.supply.terms import BLOCK_RULES, COMMITMENT_YEARS, term_hours
from planner.optimise.types import Lot, LotKind, Period
from planner.request import PlanRequest

SHOWN = 5


def caveats_of(
    request: PlanRequest,
    lots: Sequence[Lot],
    periods: Sequence[Period],
    left_out: Mapping[str, Sequence[Offer]],
    gpus: Mapping[str, Gpu],
) -> tuple[str, ...]:
    """Caveats in words, in a fixed order."""
    return (
        *(f"{_count(offers)} left out: {why} ({_few([o.id for o in offers])})" for why, offers in _sorted(left_out)),
        *_spot(request, lots),
        *_contracts(request, lots),
        *_hardware(request),
        *_leaving(request, periods),
        *_power(request, lots, gpus),
        *_regions(request, lots),
    )


def _spot(request: PlanRequest, lots: Sequence[Lot]) -> Iterator[str]:
    spot = [lot for lot in lots if lot.kind is LotKind.SPOT]
    models = [model.name for model in request.model if model.interruptible]
    if models and not spot:
        yield f"{_few(models)} may be interrupted, but no spot offer can be used: name spot among [offers] terms"
    if spot:
        days = sorted({lot.offer.as_of for lot in spot})
        yield (
            f"spot prices move by the hour: those of {days[0]} to {days[-1]} are taken for the whole horizon, and "
            f"{request.policy.spot_reserve:.0%} of spot instances are kept free because some are taken away"
        )


def _contracts(request: PlanRequest, lots: Sequence[Lot]) -> Iterator[str]:
    terms = {lot.offer.term for lot in lots if lot.kind is LotKind.NEW_COMMITMENT}
    if Term.CAPACITY_BLOCK in terms:
        yield BLOCK_RULES
    hours = request.quarter.hours
    for term in sorted(terms & set(COMMITMENT_YEARS)):
        if hours > (term_hours(term, 1.0) or hours):
            yield f"{term.value} ends before the horizon: it is taken to be renewed at the same price"
    for row in request.commitment:
        if row.usd_per_instance_h is None:
            yield f"commitment to {row.offer}: no price of the contract is stated, so the catalogue's is taken"


def _hardware(request: PlanRequest) -> Iterator[str]:
    for row in request.owned:
        site = any(site.region in (row.region, "") for site in request.site)
        if row.usd_per_instance_h is None and (row.power_kw is None or not site):
            yield f"owned '{row.name}': neither an hour's cost nor power with a [[site]] is stated: running it costs 0"
    for bought in request.buying:
        yield f"bought '{bought.name}': taken to be installed and running from {request.quarter.start} on"
        if units.years_to_hours(bought.life_years) < request.quarter.hours:
            yield f"bought '{bought.name}': its life ends before the horizon; it is replaced at the same price"
    for what, rows in (("owned", request.owned), ("bought", request.buying)):
        undated = [f"'{row.name}'" for row in rows if row.source_date is None]
        if undated and request.quarter.stated_on is None:
            yield f"{what} {_few(undated)}: no date of its figures is stated"


def _leaving(request: PlanRequest, periods: Sequence[Period]) -> Iterator[str]:
    """Instances that leave on a day inside a period count as gone for all of it, though they are paid until then."""
    quarter = request.quarter
    ends = [(f"commitment to {row.offer}", row.until) for row in request.commitment]
    ends += [(f"owned '{row.name}'", row.until) for row in request.owned if row.until is not None]
    for what, until in sorted(ends):
        inside = [
            period.name
            for period in periods
            if (period.first_day or quarter.start) < until <= (period.last_day or quarter.end - dt.timedelta(days=1))
        ]
        if inside:
            yield f"{what} ends on {until}, inside {_few(inside)}: it is planned as gone from the period's first day"


def _power(request: PlanRequest, lots: Sequence[Lot], gpus: Mapping[str, Gpu]) -> Iterator[str]:
    if not has_cap(request.policy):
        return
    guessed = sorted({lot.offer.gpu for lot in lots if lot.kind not in (LotKind.OWNED, LotKind.BOUGHT)})
    if guessed:
        figures = _few([f"{gpu} {gpus[gpu].tdp_w:g} W" for gpu in guessed])
        yield (
            f"power of rented instances is a guess: {HOST_POWER_FACTOR} x the TDP of their GPUs ({figures}), "
            "times the PUE of the region's [[site]] row"
        )


def _regions(request: PlanRequest, lots: Sequence[Lot]) -> Iterator[str]:
    models = sorted(model.name for model in request.model if model.regions)
    unnamed = [lot.id for lot in lots if not lot.offer.region]
    if models and unnamed:
        yield (
            f"{_few(models)}: {len(unnamed)} lots name no region and are of no use to models with a list of regions "
            f"({_few(unnamed)})"
        )
    spread = sorted(model.name for model in request.model if model.survives_region_loss)
    if spread and unnamed:
        yield f"{_few(spread)}: lots that name no region are taken to be lost together ({_few(unnamed)})"


def _count(offers: Sequence[Offer]) -> str:
    return f"{len(offers)} offer{'s' if len(offers) > 1 else ''}"


def _few(names: Sequence[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


def _sorted(left_out: Mapping[str, Sequence[Offer]]) -> list[tuple[str, Sequence[Offer]]]:
    return sorted(left_out.items())
