"""What can be rented: one offer is one instance type of one provider in one region on one term."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Term(StrEnum):
    """How an offer is paid."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    COMMIT_1Y = "commit_1y"
    COMMIT_3Y = "commit_3y"
    CAPACITY_BLOCK = "capacity_block"


class Holding(StrEnum):
    """How hardware of the request is had, which no provider offers."""

    OWNED = "owned"
    """It is there already."""
    BOUGHT = "bought"
    """It may be bought."""


class PriceKind(StrEnum):
    """What a printed price is worth."""

    LIST = "list"
    """A provider's price list or price API."""
    MARKETPLACE = "marketplace"
    """The lowest or a typical offer of a market on that day: it moves by the hour."""
    GPU_ONLY = "gpu_only"
    """CPU and memory are billed on top: the whole machine costs more."""
    ESTIMATE = "estimate"
    """The source itself calls the figure approximate, or it is second-hand."""
    CONTRACTED = "contracted"
    """Negotiated: a private price list, or what a bill shows was paid."""
    STATED = "stated"
    """Stated by whoever signs the request."""


class Purchasable(StrEnum):
    """How an instance can be had at the price of its first column."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    """Only while nobody else wants it."""
    RESERVATION_ONLY = "reservation_only"
    """Only with a reservation that the provider grants."""
    CAPACITY_BLOCK = "capacity_block"
    """Only as a block of days paid in advance."""
    CONTACT_SALES = "contact_sales"
    """Only by a contract."""


class Offer(BaseModel):
    """One row of ``catalogs/offers/<provider>.csv``, for one term.

    ``usd_per_h`` is the price of the whole instance with ``gpus_per_instance`` GPUs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    """``provider/instance-type/region/term``; blanks become dashes, and ``any`` stands for an empty region."""
    provider: str
    instance_type: str
    region: str
    """Empty where the provider prints one price for all regions."""
    gpu: str
    gpus_per_instance: float = Field(gt=0)
    """Below 1 for a fraction of a GPU; such offers are listed but never planned with."""
    usd_per_h: float = Field(ge=0)
    """0 only for owned hardware that costs nothing more to run."""
    term: Term | Holding
    as_of: dt.date
    source_url: str = Field(min_length=1)
    notes: str = ""
    price_kind: PriceKind = PriceKind.LIST
    purchasable: Purchasable = Purchasable.ON_DEMAND
    min_billing_s: float | None = Field(default=None, gt=0)
    """The shortest use that is billed, seconds; ``None``: not known."""
    quota_family: str = ""
    """The provider's name of the quota that instances of this type count towards."""
    currency: str = "USD"
    """What the provider bills in; the price is converted."""
    effective_from: dt.date | None = None
    """First day of this price; ``None``: not recorded."""
    effective_to: dt.date | None = None
    """First day on which it does not hold any more; ``None``: it holds."""

    @property
    def usd_per_gpu_h(self) -> float:
        """USD per GPU-hour."""
        return self.usd_per_h / self.gpus_per_instance

    @property
    def can_be_rented(self) -> bool:
        """Whether a plan may rent it on its term without asking the provider first."""
        if self.purchasable is Purchasable.CONTACT_SALES:
            return False
        return self.term is not Term.ON_DEMAND or self.purchasable is Purchasable.ON_DEMAND

    def holds_on(self, day: dt.date | None) -> bool:
        """Whether the price holds on a day; ``None``: whether it has no end that is known."""
        if day is None:
            return self.effective_to is None
        return (self.effective_from is None or self.effective_from <= day) and (
            self.effective_to is None or day < self.effective_to
        )
