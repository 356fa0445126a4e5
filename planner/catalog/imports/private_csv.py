"""A private price list: our columns, in any currency with a stated rate, or a discount on what is listed.

Columns: ``provider, instance_type`` and ``region, gpu, gpu_count, vcpus, memory_gib, purchasable, min_billing_s,
quota_family, as_of, source_url, notes, currency, effective_from``; prices per hour of the instance as
``per_h_on_demand, per_h_spot, per_h_1y, per_h_3y`` in that currency, or shares off the list price of the same term as
``discount_on_demand`` to ``discount_3y``. ``*`` as the instance type stands for all that the provider lists.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from planner.catalog.imports.instances import Instances
from planner.catalog.imports.shared import Imported, SourceFile, number, priced, table
from planner.catalog.load import Catalog
from planner.catalog.offer import Offer, PriceKind, Term
from planner.catalog.offers import ImportedFrom, OfferRow
from planner.errors import InputError, Problem, Problems

COLUMNS = {Term.ON_DEMAND: "on_demand", Term.SPOT: "spot", Term.COMMIT_1Y: "1y", Term.COMMIT_3Y: "3y"}
PLAIN = (
    "provider", "instance_type", "region", "gpu", "gpu_count", "vcpus", "memory_gib", "purchasable", "min_billing_s",
    "quota_family", "as_of", "source_url", "notes", "currency", "effective_from",
)  # fmt: skip
KNOWN = frozenset(PLAIN) | {f"{kind}_{name}" for kind in ("per_h", "discount") for name in COLUMNS.values()}
ALL = "*"


@dataclass(frozen=True)
class Rate:
    """What one unit of a currency is worth, and when that was stated."""

    currency: str
    usd: float
    day: dt.date


@dataclass(frozen=True)
class _List:
    file: SourceFile
    catalog: Catalog
    rates: Mapping[str, Rate]
    as_of: dt.date
    source: str
    problems: Problems

    def wrong(self, line: int, field: str, message: str, fix: str = "") -> None:
        self.problems.add(self.file.where, message, fix, row=str(line), field=field)


def read_private(
    file: SourceFile, catalog: Catalog, today: dt.date, rates: Sequence[Rate] = (), source: str = "",
    as_of: dt.date | None = None,
) -> tuple[Imported, ...]:  # fmt: skip
    """Contracted prices of every provider in the list.

    Raises
    ------
    InputError
        Listing every cell that cannot be used.
    """
    by_currency = {rate.currency: rate for rate in rates}
    asked = _List(file, catalog, by_currency, as_of or today, source, Problems())
    found: dict[str, list[OfferRow]] = defaultdict(list)
    for line, cells in table(file, ("provider", "instance_type")):
        for name in sorted(set(cells) - KNOWN):
            asked.wrong(1, name, "unknown column", f"Known: {', '.join(sorted(KNOWN))}")
        asked.problems.raise_if_any()
        rows = list(_rows(line, cells, asked))
        if not rows and not any(problem.row == str(line) for problem in asked.problems.found):
            asked.wrong(line, "per_h_on_demand", "no price and no discount", "Fill at least one")
        found[cells["provider"]] += rows
    asked.problems.raise_if_any()
    if not found:
        raise InputError(Problem(file.where, "holds no row"))
    return tuple(
        Imported(provider, ImportedFrom.PRIVATE, asked.as_of, tuple(rows), frozenset(COLUMNS))
        for provider, rows in sorted(found.items())
    )


def _rows(line: int, cells: Mapping[str, str], asked: _List) -> Iterator[OfferRow]:
    for term, name in COLUMNS.items():
        price = _number(line, f"per_h_{name}", cells, asked)
        share = _number(line, f"discount_{name}", cells, asked)
        if price is not None and share is not None:
            asked.wrong(line, f"discount_{name}", "a price and a discount for the same term", "Keep one of them")
        elif price is not None:
            yield from _stated(line, name, price, term, cells, asked)
        elif share is not None:
            yield from _discounted(line, name, share, term, cells, asked)


def _number(line: int, name: str, cells: Mapping[str, str], asked: _List) -> float | None:
    try:
        return number(cells.get(name, ""))
    except ValueError as error:
        asked.wrong(line, name, f"{error} (given: {cells[name]!r:.40})", "Write it with a point, such as 12.5")
        return None


def _stated(
    line: int, name: str, price: float, term: Term, cells: Mapping[str, str], asked: _List
) -> Iterator[OfferRow]:
    """``USD price = price * rate``."""
    currency = cells.get("currency") or "USD"
    rate = 1.0 if currency == "USD" else asked.rates[currency].usd if currency in asked.rates else None
    if rate is None:
        asked.wrong(line, "currency", f"no rate of {currency:.10} is stated", f"Add --rate {currency:.10}=USD@DAY")
        return
    if price <= 0:
        asked.wrong(line, f"per_h_{name}", "price must be above 0", "Leave the cell empty where there is no price")
        return
    row = _common(cells, asked)
    if currency != "USD":
        stated = asked.rates[currency]
        row["notes"] = _joined(row["notes"], f"{price:g} {currency} at {stated.usd:g} USD of {stated.day}")
    yield from _valid(line, row, term, price * rate, asked)


def _common(cells: Mapping[str, str], asked: _List) -> dict[str, object]:
    filled: dict[str, object] = {name: cells[name] for name in PLAIN if cells.get(name)}
    instances = Instances(asked.catalog, ImportedFrom.PRIVATE)
    known = instances.known_gpus(cells["provider"], cells["instance_type"])
    if known is not None:
        filled = {"gpu": known[0], "gpu_count": known[1], **filled}
    return {
        "as_of": asked.as_of,
        "source_url": asked.source,
        "notes": "",
        **filled,
        "price_kind": PriceKind.CONTRACTED,
        "imported_from": ImportedFrom.PRIVATE,
    }


def _discounted(
    line: int, name: str, share: float, term: Term, cells: Mapping[str, str], asked: _List
) -> Iterator[OfferRow]:
    """``contracted = (1 - discount) * list`` for every listed offer of the row; the date is the list price's."""
    field = f"discount_{name}"
    if not 0 < share < 1:
        asked.wrong(line, field, f"{share:g} is no share between 0 and 1", "Write 0.12 for 12 %")
        return
    offers = [offer for offer in asked.catalog.offers if _covers(cells, offer) and offer.term is term]
    if not offers:
        asked.wrong(line, field, "no list price of this term to take the discount from", "State the price instead")
    for offer in offers:
        row = _common({**cells, "instance_type": offer.instance_type}, asked)
        row |= {
            "region": offer.region,
            "gpu": offer.gpu,
            "gpu_count": offer.gpus_per_instance,
            "as_of": offer.as_of,
            "notes": _joined(row["notes"], f"{share:.4g} off the list price {offer.usd_per_h:g} of {offer.as_of}"),
        }
        yield from _valid(line, row, term, (1 - share) * offer.usd_per_h, asked)


def _covers(cells: Mapping[str, str], offer: Offer) -> bool:
    return (
        offer.provider == cells["provider"]
        and offer.price_kind is PriceKind.LIST
        and cells["instance_type"] in (ALL, offer.instance_type)
        and cells.get("region", "") in ("", offer.region)
        and cells.get("gpu", "") in ("", offer.gpu)
    )


def _valid(line: int, row: dict[str, object], term: Term, usd_per_h: float, asked: _List) -> Iterator[OfferRow]:
    try:
        made = priced(row, term, usd_per_h)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name = str(item["loc"][0]) if item["loc"] else ""
            fix = "Fill the cell, or give --source" if name == "source_url" else ""
            asked.wrong(line, name, str(item["msg"]), fix)
        return
    if made.gpu not in asked.catalog.gpus:
        asked.wrong(line, "gpu", f"unknown GPU {made.gpu!r:.40}", "See `planner catalog list gpus`")
        return
    yield made


def _joined(*texts: object) -> str:
    return "; ".join(str(text) for text in texts if text)
