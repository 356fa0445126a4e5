"""Offers from ``catalogs/offers/<provider>.csv``: one row is one instance type with up to four prices."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from planner.catalog.csv_table import read_table
from planner.catalog.offer import Offer, PriceKind, Purchasable, Term
from planner.errors import Problems

CAPACITY_BLOCK_SUFFIX = "/capacity-block"
"""Marks an instance type whose first price column is a reservation in advance, not an on-demand price."""
MACHINE_SIZES = (1, 2, 4, 8)
"""GPU counts of one machine that a per-GPU price is expanded to: the tensor-parallel sizes in use."""
PRICE_COLUMNS: Mapping[Term, str] = {
    Term.ON_DEMAND: "usd_per_h_on_demand",
    Term.SPOT: "usd_per_h_spot",
    Term.COMMIT_1Y: "usd_per_h_1y",
    Term.COMMIT_3Y: "usd_per_h_3y",
}


class ImportedFrom(StrEnum):
    """Where a row comes from, and so which import may retire it."""

    HAND = ""
    """Written by hand, as all rows of the shipped catalogue."""
    GPUHUNT = "gpuhunt"
    SKYPILOT = "skypilot"
    PRIVATE = "private"
    """A private price list."""
    FOCUS = "focus"
    """A bill."""


class OfferRow(BaseModel):
    """One row of ``catalogs/offers/<provider>.csv``; prices are for the whole instance, USD per hour."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    provider: str = Field(min_length=1)
    instance_type: str = Field(min_length=1)
    region: str = ""
    gpu: str = Field(min_length=1)
    gpu_count: float = Field(gt=0)
    vcpus: float | None = Field(default=None, gt=0)
    memory_gib: float | None = Field(default=None, gt=0)
    usd_per_h_on_demand: float | None = Field(default=None, gt=0)
    usd_per_h_spot: float | None = Field(default=None, gt=0)
    usd_per_h_1y: float | None = Field(default=None, gt=0)
    usd_per_h_3y: float | None = Field(default=None, gt=0)
    price_kind: PriceKind = PriceKind.LIST
    as_of: dt.date
    source_url: str = Field(min_length=1)
    notes: str = ""
    purchasable: Purchasable = Purchasable.ON_DEMAND
    min_billing_s: float | None = Field(default=None, gt=0)
    quota_family: str = ""
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$")
    imported_from: ImportedFrom = ImportedFrom.HAND
    effective_from: dt.date | None = None
    effective_to: dt.date | None = None

    @model_validator(mode="after")
    def _from_before_to(self) -> OfferRow:
        if self.effective_from and self.effective_to and self.effective_from >= self.effective_to:
            raise ValueError("effective_to must be later than effective_from")
        return self

    @property
    def name(self) -> str:
        """The instance type without the mark of a capacity block."""
        return self.instance_type.removesuffix(CAPACITY_BLOCK_SUFFIX)

    def prices(self) -> Iterator[tuple[Term, float]]:
        """The prices that are filled in, each with its term."""
        reserved = self.name != self.instance_type or self.purchasable is Purchasable.CAPACITY_BLOCK
        columns = (
            (Term.CAPACITY_BLOCK if reserved else Term.ON_DEMAND, self.usd_per_h_on_demand),
            (Term.SPOT, self.usd_per_h_spot),
            (Term.COMMIT_1Y, self.usd_per_h_1y),
            (Term.COMMIT_3Y, self.usd_per_h_3y),
        )
        for term, price in columns:
            if price is not None:
                yield term, price


class Provider(BaseModel):
    """One row of ``catalogs/providers.csv``: how a provider's per-GPU prices combine into one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str = Field(min_length=1)
    gpu: str = ""
    """Empty: the row holds for all GPUs of the provider that have no row of their own."""
    sold_as: Literal["instance", "gpu"]
    """``gpu``: a row with one GPU is a price per GPU; ``instance``: every row is one whole machine."""
    max_gpus_per_instance: int | None = Field(default=None, ge=1)
    source_url: str = Field(min_length=1)
    as_of: dt.date
    note: str = ""


def read_providers(path: Path, problems: Problems) -> dict[tuple[str, str], Provider]:
    """The providers that sell by the GPU, by (provider, GPU or empty)."""
    found: dict[tuple[str, str], Provider] = {}
    for number, row in read_table(path, Provider, problems):
        if (row.provider, row.gpu) in found:
            problems.add(str(path), f"{row.provider} {row.gpu}: second row", "Keep one of them", row=str(number))
        if row.sold_as == "gpu" and row.max_gpus_per_instance is None:
            fix = "Say how many GPUs one machine can hold"
            problems.add(
                str(path), "sold by the GPU without a limit", fix, row=str(number), field="max_gpus_per_instance"
            )
        found[row.provider, row.gpu] = row
    return found


def read_offers(
    files: Iterable[Path], gpus: Collection[str], providers: Mapping[tuple[str, str], Provider], problems: Problems
) -> tuple[Offer, ...]:
    """All offers of all providers, ordered by file and row; retired prices are among them.

    Parameters
    ----------
    files
        One file a provider.
    gpus
        Known GPU ids; a name without form factor (``H100``) is unknown on purpose.
    providers
        From `read_providers`.
    problems
        Receives everything that is wrong.
    """
    offers: list[Offer] = []
    known: dict[str, list[Offer]] = {}
    for path in files:
        for number, row in read_table(path, OfferRow, problems):
            if not _row_is_usable(row, gpus, path, number, problems):
                continue
            for offer in _expand(row, providers):
                others = known.setdefault(offer.id, [])
                if any(_overlap(offer, other) for other in others):
                    fix = "Keep the newest row, or tell the instance types apart"
                    problems.add(str(path), f"duplicate offer {offer.id}", fix, row=str(number), field="instance_type")
                    continue
                others.append(offer)
                offers.append(offer)
    return tuple(offers)


def _overlap(one: Offer, other: Offer) -> bool:
    """Whether there is a day on which both prices would hold."""
    starts = max(one.effective_from or dt.date.min, other.effective_from or dt.date.min)
    return starts < min(one.effective_to or dt.date.max, other.effective_to or dt.date.max)


def _row_is_usable(row: OfferRow, gpus: Collection[str], path: Path, number: int, problems: Problems) -> bool:
    before = len(problems.found)
    place = str(number)
    if row.provider != path.stem:
        problems.add(str(path), f"provider {row.provider!r} in the file of {path.stem!r}", row=place, field="provider")
    if row.gpu not in gpus:
        close = difflib.get_close_matches(row.gpu, list(gpus), n=4, cutoff=0.5)
        hint = f"Known names that are close: {', '.join(close)}. " if close else ""
        fix = f"{hint}Add the GPU to gpus.csv, or name the form factor if the source states it"
        problems.add(str(path), f"unknown GPU {row.gpu!r}", fix, row=place, field="gpu")
    if not any(True for _ in row.prices()):
        problems.add(str(path), "no price", "Fill at least one price column", row=place, field="usd_per_h_on_demand")
    if row.gpu_count > 1 and not row.gpu_count.is_integer():
        problems.add(
            str(path), f"{row.gpu_count} GPUs", "A whole number, or a fraction below 1", row=place, field="gpu_count"
        )
    return len(problems.found) == before


def _expand(row: OfferRow, providers: Mapping[tuple[str, str], Provider]) -> Iterator[Offer]:
    """One offer per filled price, and per machine size where the provider sells by the GPU."""
    seller = providers.get((row.provider, row.gpu)) or providers.get((row.provider, ""))
    sizes: tuple[int, ...] = (1,)
    whole = row.imported_from is not ImportedFrom.HAND  # imports name every size of machine
    if seller is not None and seller.sold_as == "gpu" and row.gpu_count == 1 and not whole:
        sizes = tuple(size for size in MACHINE_SIZES if size <= (seller.max_gpus_per_instance or 1))
    for size in sizes:
        for term, price in row.prices():
            yield _offer(row, term, price, size)


def _offer(row: OfferRow, term: Term, price: float, size: int) -> Offer:
    name, notes = row.name, row.notes
    if size > 1:
        name = f"{size}x {name}"
        notes = f"{size} GPUs at the price of one GPU each; {notes}"
    return Offer(
        id=offer_id(row, term, name),
        provider=row.provider,
        instance_type=name,
        region=row.region,
        gpu=row.gpu,
        gpus_per_instance=row.gpu_count * size,
        usd_per_h=price * size,
        term=term,
        as_of=row.as_of,
        source_url=row.source_url,
        notes=notes,
        price_kind=row.price_kind,
        purchasable=row.purchasable,
        min_billing_s=row.min_billing_s,
        quota_family=row.quota_family,
        currency=row.currency,
        effective_from=row.effective_from,
        effective_to=row.effective_to,
    )


def offer_id(row: OfferRow, term: Term, name: str) -> str:
    """``provider/instance-type/region/term``; a contracted price stands beside the list price of the same instance."""
    parts = [row.provider, name.replace(" ", "-"), row.region.replace(" ", "-") or "any", term.value]
    if row.price_kind is PriceKind.CONTRACTED:
        parts.append(row.price_kind.value)
    return "/".join(parts)
