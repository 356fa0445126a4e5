"""What an import changes: new, gone, dearer, cheaper, suspicious."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from planner.catalog.imports.shared import Imported, Key, Skipped, key_of, price_of
from planner.catalog.load import Catalog
from planner.catalog.offer import Offer, PriceKind, Term
from planner.catalog.offers import OfferRow, offer_id

FAR_BELOW = 1 / 3
"""Of the median price per GPU-hour on demand: below it a price is suspicious. The shipped list prices of all providers
are above 0.38 of it but for one; a minimum bid that stood for a price was 0.26 of it."""
FAR_BELOW_SPOT = 0.1
"""The same for spot prices, against the median on demand."""
FAR_ABOVE = 10.0
"""Times the median: the dearest region of a large cloud is at 6."""
LEAST_PROVIDERS = 2
"""Other providers that a median needs."""
CUT_OFF = 0.5
"""A file with fewer prices than this share of the catalogue's may be cut off."""


class Change(StrEnum):
    """What happens to a price."""

    NEW = "new"
    GONE = "gone"
    DEARER = "dearer"
    CHEAPER = "cheaper"
    OTHER = "other"
    """The same price for other GPUs."""


@dataclass(frozen=True)
class Line:
    """One price that changes; ``suspicious`` says why it is not applied unless it is accepted."""

    offer_id: str
    change: Change
    old_usd_per_h: float | None
    new_usd_per_h: float | None
    suspicious: str = ""

    @property
    def percent(self) -> float | None:
        """Change of the price in percent of the old one."""
        if self.old_usd_per_h is None or self.new_usd_per_h is None:
            return None
        return 100 * (self.new_usd_per_h / self.old_usd_per_h - 1)


@dataclass(frozen=True)
class Diff:
    """What the import of one provider changes, and what it leaves out."""

    provider: str
    as_of: dt.date
    lines: tuple[Line, ...]
    unchanged: int
    older: int
    """Prices of the file that are older than the catalogue's: the catalogue's stay."""
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """Prices by what happens to them."""
        found = Counter(line.change.value for line in self.lines)
        suspicious = sum(bool(line.suspicious) for line in self.lines)
        return {change.value: found[change.value] for change in Change} | {
            "suspicious": suspicious,
            "unchanged": self.unchanged,
            "older": self.older,
        }


def id_of(row: OfferRow) -> str:
    """The offer of a row with one price."""
    return offer_id(row, key_of(row)[2], row.name)


def suspicions(imported: Imported, catalog: Catalog) -> Mapping[Key, str]:
    """Why prices are not believed, by key; a spot price beside a suspicious price on demand is not either."""
    medians = gpu_medians(catalog.offers, imported.provider)
    found = {key_of(row): why for row in imported.prices if (why := _why(row, medians))}
    for row in imported.prices:
        name, region, term, contracted = key_of(row)
        if term is Term.SPOT and (name, region, Term.ON_DEMAND, contracted) in found:
            found.setdefault((name, region, term, contracted), "its price on demand is suspicious")
    return found


def gpu_medians(offers: Iterable[Offer], but: str) -> Mapping[str, float]:
    """USD per GPU-hour on demand by GPU: the median over providers, other than one, of each provider's median."""
    found: dict[str, dict[str, list[float]]] = {}
    for offer in offers:
        listed = offer.term is Term.ON_DEMAND and offer.price_kind is PriceKind.LIST
        if listed and offer.gpus_per_instance >= 1 and offer.provider != but:
            found.setdefault(offer.gpu, {}).setdefault(offer.provider, []).append(offer.usd_per_gpu_h)
    return {
        gpu: median(median(prices) for prices in providers.values())
        for gpu, providers in found.items()
        if len(providers) >= LEAST_PROVIDERS
    }


def _why(row: OfferRow, medians: Mapping[str, float]) -> str:
    usual = medians.get(row.gpu)
    term = key_of(row)[2]
    if usual is None or row.price_kind is PriceKind.CONTRACTED:
        return ""
    share = price_of(row) / row.gpu_count / usual
    least = FAR_BELOW_SPOT if term is Term.SPOT else FAR_BELOW
    if least <= share <= FAR_ABOVE:
        return ""
    return f"{share:.2g} of the {usual:.2f} USD per GPU-hour that other providers ask on demand"


def cut_off(imported: Imported, standing: Sequence[OfferRow]) -> str:
    """A remark where the file has far fewer prices than the catalogue has of what it speaks for."""
    if not standing or len(imported.prices) >= CUT_OFF * len(standing):
        return ""
    return f"the file has {len(imported.prices)} prices where the catalogue has {len(standing)}: it may be cut off"
