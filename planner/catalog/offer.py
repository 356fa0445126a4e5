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
    STATED = "stated"
    """Stated by whoever signs the request."""


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

    @property
    def usd_per_gpu_h(self) -> float:
        """USD per GPU-hour."""
        return self.usd_per_h / self.gpus_per_instance
