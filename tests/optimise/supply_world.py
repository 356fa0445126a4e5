"""Requests, offers and periods for tests of supply; GPUs and a few offers come from the real catalogue."""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Any

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.offer import Offer, Term
from planner.optimise.types import Period
from planner.request import PlanRequest

QUARTER = {"title": "t", "start": "2027-01-01", "end": "2027-04-01", "owner": "o", "stated_on": "2026-11-29"}
HOURS = 90 * 24.0
MONTHS = (
    Period("January", 31 * 24.0, dt.date(2027, 1, 1), dt.date(2027, 1, 31)),
    Period("February", 28 * 24.0, dt.date(2027, 2, 1), dt.date(2027, 2, 28)),
    Period("March", 31 * 24.0, dt.date(2027, 3, 1), dt.date(2027, 3, 31)),
)
WHOLE = (Period("all", HOURS),)
H100 = "aws/p5.48xlarge/us-east-1/on_demand"


@cache
def catalog() -> Catalog:
    return load_catalog()


def model(name: str = "chat", **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "weights": "meta-llama/Llama-3.1-8B-Instruct", "traffic": {"path": "none"},
        "weight_dtypes": ["bf16"], "kv_dtypes": ["bf16"],
    } | changes  # fmt: skip


def request(**changes: Any) -> PlanRequest:
    values = {"quarter": QUARTER, "engine": {"name": "vllm", "version": "0.19.0"}, "model": [model()]} | changes
    return PlanRequest.model_validate(values)


def offer(
    usd_per_h: float, gpu: str = "H100-SXM", size: int = 8, term: Term = Term.ON_DEMAND, provider: str = "p",
    region: str = "r",
) -> Offer:  # fmt: skip
    return Offer(
        id=f"{provider}/{size}x-{gpu}/{region}/{term.value}", provider=provider, instance_type=f"{size}x-{gpu}",
        region=region, gpu=gpu, gpus_per_instance=size, usd_per_h=usd_per_h, term=term, as_of=dt.date(2026, 11, 1),
        source_url="https://example.org/prices",
    )  # fmt: skip


OWNED = {"name": "rack", "gpu": "H100-SXM", "gpus_per_instance": 8, "instances": 3, "source": "asset register"}
BUYING = {
    "name": "new rack", "gpu": "H100-SXM", "gpus_per_instance": 8, "max_instances": 4, "capex_usd": 50_000,
    "life_years": 5, "residual_share": 0.1, "cost_of_capital": 0.1, "power_kw": 10, "source": "quote 17",
    "colocation_usd_per_month": 730, "maintenance_share_per_year": 0.0438,
}  # fmt: skip
SITE = {"region": "", "pue": 1.5, "usd_per_kwh": 0.2, "carbon_kg_per_kwh": 0.3, "source": "contract"}
