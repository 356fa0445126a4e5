"""Rows of a price catalogue into one price a provider, instance type, region and term."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.catalog.imports.shared import Key, Tally, key_of, price_of
from planner.catalog.offer import Term
from planner.catalog.offers import OfferRow

_TERM_NAMES = {Term.ON_DEMAND: "on demand", Term.SPOT: "spot", Term.CAPACITY_BLOCK: "capacity block"}


@dataclass
class Found:
    """Prices of one provider while its file is read, with the place (zone) that each was printed for."""

    tally: Tally = field(default_factory=Tally)
    prices: dict[Key, dict[str, list[OfferRow]]] = field(default_factory=dict)
    kept: set[Key] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, row: OfferRow, place: str) -> None:
        """Take one price."""
        self.prices.setdefault(key_of(row), {}).setdefault(place, []).append(row)

    def refuse(self, row_name: str, region: str, term: Term, why: str) -> None:
        """Leave a price out that the file names, without taking it for gone."""
        self.kept.add((row_name, region, term, False))
        self.tally.add(row_name, f"{_TERM_NAMES.get(term, term.value)}: {why}")

    def chosen(self) -> tuple[OfferRow, ...]:
        """One row for each key, sorted; see `one_of`."""
        rows = []
        for key in sorted(self.prices):
            row = one_of(self.prices[key])
            if isinstance(row, str):
                self.refuse(key[0], key[1], key[2], row)
            else:
                rows.append(row)
        return tuple(rows)


def one_of(places: dict[str, list[OfferRow]]) -> OfferRow | str:
    """The price of a region; in words, why there is none.

    Zones of a region may differ: the dearest zone is taken, so that a plan holds in each, and the row says so. Two
    prices for the very same zone contradict each other, and neither is taken.
    """
    for rows in places.values():
        prices = sorted({price_of(row) for row in rows})
        if len(prices) > 1:
            return f"{_listed(prices)} USD/h for the same place: neither is taken"
        if len({(row.gpu, row.gpu_count) for row in rows}) > 1:
            return "two GPUs for the same place: neither is taken"
    zones = [rows[0] for rows in places.values()]
    dearest = max(zones, key=price_of)
    cheapest = min(map(price_of, zones))
    if cheapest == price_of(dearest):
        return dearest
    remark = f"dearest of {len(zones)} zones, the cheapest is {cheapest:g}"
    return dearest.model_copy(update={"notes": "; ".join(filter(None, (dearest.notes, remark)))})


def _listed(prices: Iterable[float]) -> str:
    return " and ".join(f"{price:g}" for price in prices)
