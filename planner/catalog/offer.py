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


class Offer(BaseModel):
    """One row of ``catalogs/offers/<provider>.csv``, for one term.

    ``usd_per_h`` is the price of the whole instance with ``gpus_per_instance`` GPUs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """``provider/instance_type/region/term``, with the GPU count where the provider reuses a name."""
    provider: str
    instance_type: str
    region: str
    """Empty where the provider prints one price for all regions."""
    gpu: str
    gpus_per_instance: float = Field(gt=0)
    """Below 1 for a fraction of a GPU; such offers are listed but never planned with."""
    usd_per_h: float = Field(gt=0)
    term: Term
    as_of: dt.date
    source_url: str = Field(min_length=1)
    notes: str = ""

    @property
    def usd_per_gpu_h(self) -> float:
        """USD per GPU-hour."""
        return self.usd_per_h / self.gpus_per_instance
