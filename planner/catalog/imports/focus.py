"""A cloud bill in FOCUS 1.x columns: list, contracted and effective rate of each instance type, region and commitment.

Columns by the FinOps Open Cost and Usage Specification; the instance type stands in ``SkuPriceDetails`` (JSON, from 1.1
on), else it is the one instance type of the catalogue that ``SkuMeter``, ``SkuId`` or ``ChargeDescription`` names.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner import units
from planner.catalog.imports.instances import Instances
from planner.catalog.imports.private_csv import Rate
from planner.catalog.imports.shared import Imported, SourceFile, Tally, number, priced, table
from planner.catalog.load import Catalog
from planner.catalog.offer import PriceKind, Term
from planner.catalog.offers import ImportedFrom, OfferRow
from planner.errors import InputError, Problem

REQUIRED = ("ProviderName", "RegionId", "ChargeCategory", "ConsumedQuantity", "ConsumedUnit", "EffectiveCost")
PROVIDERS = {
    "aws": "aws", "amazon web services": "aws", "microsoft": "azure", "microsoft azure": "azure", "azure": "azure",
    "google cloud": "gcp", "google cloud platform": "gcp", "gcp": "gcp", "oracle": "oci",
}  # fmt: skip
_HOURS_PER = {"hour": 1.0, "hr": 1.0, "minute": 1 / 60, "second": 1 / units.SECONDS_PER_HOUR}
_UNIT = re.compile(r"^(?:1 )?(hour|hr|minute|second)s?$", re.IGNORECASE)
_YEARS = re.compile(r"\b([13])[ -]?y(?:ea)?r?s?\b", re.IGNORECASE)
TERMS = {"1": Term.COMMIT_1Y, "3": Term.COMMIT_3Y}
COSTS = ("ListCost", "ContractedCost", "EffectiveCost")
LEAST_HOURS = 1.0
"""Hours of use that a rate needs."""


@dataclass
class Rates:
    """Costs and hours of one instance type in a region on one commitment, and what an hour cost.

    ``rate = sum of cost / sum of hours``, USD per hour of the instance.
    """

    provider: str
    instance_type: str
    region: str
    commitment: str
    """Type of the commitment; empty on demand, ``spot`` at dynamic prices."""
    term: Term | None
    hours: float = 0.0
    usd: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COSTS, 0.0))
    last_day: dt.date = dt.date.min

    def rate(self, cost: str) -> float:
        """USD per hour by one of `COSTS`."""
        return self.usd[cost] / self.hours


@dataclass(frozen=True)
class Bill:
    """What a bill says: rates by use, and the prices that a plan may take from them."""

    rates: tuple[Rates, ...]
    imported: tuple[Imported, ...]


def read_focus(file: SourceFile, catalog: Catalog, rates: Sequence[Rate] = ()) -> Bill:
    """Effective rates of GPU instances.

    Corrections, purchases, unused commitments, and what is no GPU instance of the catalogue are left out and counted.

    Raises
    ------
    InputError
        If the file cannot be used, or bills in a currency without a stated rate.
    """
    instances, tally = Instances(catalog, ImportedFrom.FOCUS), Tally()
    by_currency = {"USD": 1.0} | {rate.currency: rate.usd for rate in rates}
    known = _known_types(catalog)
    found: dict[tuple[str, ...], Rates] = {}
    for line, cells in table(file, REQUIRED):
        currency = cells.get("BillingCurrency") or "USD"
        if currency not in by_currency:
            fix = f"Add --rate {currency:.10}=USD@DAY"
            raise InputError(
                Problem(file.where, f"no rate of {currency:.10} is stated", fix, row=str(line), field="BillingCurrency")
            )
        try:
            _take(cells, by_currency[currency], known, found, tally)
        except ValueError as error:
            tally.add(f"row {line}", str(error))
    told = tuple(rate for _, rate in sorted(found.items()) if rate.hours >= LEAST_HOURS)
    providers = sorted({rate.provider for rate in told})
    imported = tuple(_imported(p, [r for r in told if r.provider == p], file, instances, tally) for p in providers)
    return Bill(told, imported)


def _known_types(catalog: Catalog) -> Mapping[str, Mapping[str, str]]:
    """Instance types of each provider, by their names in lower case."""
    found: dict[str, dict[str, str]] = {}
    for offer in (*catalog.retired, *catalog.offers):
        found.setdefault(offer.provider, {})[offer.instance_type.casefold()] = offer.instance_type
    return found


def _take(
    cells: Mapping[str, str], usd: float, known: Mapping[str, Mapping[str, str]], found: dict[tuple[str, ...], Rates],
    tally: Tally,
) -> None:  # fmt: skip
    left_out = _left_out(cells)
    if left_out:
        tally.add(cells["ChargeCategory"] or "charge", left_out)
        return
    provider = PROVIDERS.get(cells["ProviderName"].casefold(), cells["ProviderName"].casefold())
    instance = _instance(cells, known.get(provider, {}))
    unit = _UNIT.fullmatch(cells["ConsumedUnit"])
    if not instance or unit is None:
        tally.add(provider, "no use by the hour of an instance type of the catalogue")
        return
    hours = (number(cells["ConsumedQuantity"]) or 0.0) * _HOURS_PER[unit.group(1).casefold()]
    costs = {name: number(cells.get(name, "")) for name in COSTS}
    if hours <= 0 or costs["EffectiveCost"] is None or costs["EffectiveCost"] < 0:
        raise ValueError("no hours, or no cost of them")
    commitment, term = _commitment(cells)
    key = (provider, instance, cells["RegionId"], commitment, term.value if term else "")
    rates = found.setdefault(key, Rates(provider, instance, cells["RegionId"], commitment, term))
    rates.hours += hours
    for name in COSTS:
        value = costs[name]
        rates.usd[name] += usd * (costs["EffectiveCost"] if value is None else value)
    rates.last_day = max(rates.last_day, _day(cells))


def _left_out(cells: Mapping[str, str]) -> str:
    if cells["ChargeCategory"].casefold() != "usage":
        return "no use"
    if cells.get("ChargeClass", "").casefold() == "correction":
        return "correction of an earlier bill"
    if cells.get("CommitmentDiscountStatus", "").casefold() == "unused":
        return "unused commitment: paid, but no hour of use"
    return ""


def _instance(cells: Mapping[str, str], known: Mapping[str, str]) -> str:
    try:
        details = json.loads(cells.get("SkuPriceDetails") or "{}")
    except (ValueError, RecursionError):
        details = {}
    named = details.get("InstanceType") if isinstance(details, dict) else None
    if isinstance(named, str) and named.casefold() in known:
        return known[named.casefold()]
    for column in ("SkuMeter", "SkuId", "ChargeDescription"):
        words = re.split(r"[\s,;:()/]+", cells.get(column, "").casefold())
        found = {known[word] for word in words if word in known}
        if len(found) == 1:
            return found.pop()
    return ""


def _commitment(cells: Mapping[str, str]) -> tuple[str, Term | None]:
    if cells.get("CommitmentDiscountId"):
        kind = cells.get("CommitmentDiscountType") or "commitment"
        words = " ".join(cells.get(f"CommitmentDiscount{part}", "") for part in ("Type", "Name"))
        years = {match.group(1) for match in _YEARS.finditer(words)}
        return kind, TERMS[years.pop()] if len(years) == 1 else None
    return ("spot", Term.SPOT) if cells.get("PricingCategory", "").casefold() == "dynamic" else ("", Term.ON_DEMAND)


def _day(cells: Mapping[str, str]) -> dt.date:
    """The last day that a charge is for; its end is exclusive."""
    text = cells.get("ChargePeriodEnd") or cells.get("BillingPeriodEnd") or ""
    try:
        return dt.date.fromisoformat(text[:10]) - dt.timedelta(days=1)
    except ValueError:
        raise ValueError("no ChargePeriodEnd") from None


def _imported(provider: str, rates: Sequence[Rates], file: SourceFile, instances: Instances, tally: Tally) -> Imported:
    """Prices of a provider; a commitment whose years are not named has a rate, but no term to offer it on."""
    rows: list[OfferRow] = []
    seen: set[tuple[str, str, Term]] = set()
    for rate in rates:
        gpus = instances.known_gpus(provider, rate.instance_type)
        if gpus is None or rate.term is None or rate.rate("EffectiveCost") <= 0:
            tally.add(rate.instance_type, f"{rate.commitment or 'on demand'}: rate shown, no price taken")
            continue
        if (rate.instance_type, rate.region, rate.term) in seen:
            tally.add(rate.instance_type, f"{rate.commitment}: a second commitment of the same years: rate shown")
            continue
        seen.add((rate.instance_type, rate.region, rate.term))
        row = {
            "provider": provider, "instance_type": rate.instance_type, "region": rate.region, "gpu": gpus[0],
            "gpu_count": gpus[1], "price_kind": PriceKind.CONTRACTED, "as_of": rate.last_day,
            "source_url": f"bill {file.name}", "imported_from": ImportedFrom.FOCUS,
            "notes": f"EffectiveCost over {rate.hours:g} h; {rate.commitment or 'no commitment'}",
        }  # fmt: skip
        rows.append(priced(row, rate.term, rate.rate("EffectiveCost")))
    day = max(rate.last_day for rate in rates)
    return Imported(provider, ImportedFrom.FOCUS, day, tuple(rows), frozenset(), skipped=tally.skipped())
