"""Tables of a request that ask for more than one plan: other futures, drivers to vary, currency, last quarter."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from planner.strict import Name, Strict

BASE = "Base"
"""Name of the plan of the request as it stands."""


class Adjustments(Strict):
    """What differs from the request; a factor of 1 leaves it as it is."""

    growth: float = Field(default=1.0, gt=0, le=100)
    """Factor on every model's arrivals."""
    models: tuple[str, ...] = ()
    """Models whose arrivals and targets it holds for; empty: all."""
    price: float = Field(default=1.0, gt=0, le=100)
    """Factor on the prices of what is rented and not signed yet."""
    providers: tuple[str, ...] = ()
    """Providers whose prices it holds for; empty: all."""
    gpus: tuple[str, ...] = ()
    """GPU types whose prices it holds for; empty: all."""
    targets: float = Field(default=1.0, gt=0, le=100)
    """Factor on the TTFT and TPOT targets: below 1 is stricter."""
    tail: float = Field(default=1.0, gt=0, le=1000)
    """Factor on the tail budgets."""
    electricity: float = Field(default=1.0, gt=0, le=100)
    """Factor on USD per kWh."""
    quotas: float = Field(default=1.0, ge=0, le=100)
    """Factor on the GPUs of every quota, rounded down."""
    engine_version: str = ""
    """Another version of the same engine; empty: the request's."""
    speed_edge: str = Field(default="", pattern="^(upper|middle|)$")
    """Another edge of the speed band; empty: the request's."""


class ScenarioRequest(Adjustments):
    """Another future that is planned beside the request as it stands."""

    name: Annotated[Name, Field(max_length=24)]
    why: str = ""
    source: str = ""
    source_date: dt.date | None = None


class Driver(StrEnum):
    """What a sensitivity varies: the key of `Adjustments` with a factor."""

    GROWTH = "growth"
    PRICE = "price"
    TARGETS = "targets"
    TAIL = "tail"
    ELECTRICITY = "electricity"
    QUOTAS = "quotas"


class SensitivityRequest(Strict):
    """One driver, planned again at a low and a high factor."""

    driver: Driver
    name: str = ""
    """What the tornado calls it; empty: the driver."""
    low: float = Field(gt=0, le=100)
    high: float = Field(gt=0, le=100)
    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    owner: str = ""
    source: str = ""
    source_date: dt.date | None = None

    @model_validator(mode="after")
    def _low_below_high(self) -> SensitivityRequest:
        if self.low >= self.high:
            raise ValueError("low must be below high")
        return self


class CurrencyRequest(Strict):
    """The currency in which the plan is reported; prices stay in USD and are converted at one dated rate."""

    reporting: str = Field(pattern="^[A-Z]{3}$")
    per_usd: float = Field(gt=0, le=1e6)
    """Units of the reporting currency for one USD."""
    source: str = Field(min_length=1)
    source_date: dt.date
    owner: str = ""


class LastQuarterRequest(Strict):
    """The plan that was issued last quarter, for the bridge and the change log, and what came of it."""

    plan: str
    """Its plan.json, relative to the request."""
    actuals: str = ""
    """What `planner actuals` wrote about it; empty: none."""
