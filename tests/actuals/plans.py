"""Plans made by hand for logs of any time: one model a pool, with every figure that a comparison reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.plan import (
    Assumption,
    FleetPlan,
    Margin,
    PlanPeriod,
    PlanSupply,
    Pool,
    PoolPeriod,
    PoolPlacement,
    Purchase,
    Route,
)
from tests.report.sample import sample_plan

SUPPLY = "H100-SXM x8"


@dataclass(frozen=True)
class Spec:
    """One pool; rates, planning rates and replicas by period."""

    name: str
    model: str
    rates: tuple[float, ...]
    replicas: tuple[int, ...]
    planning: tuple[float, ...] = ()
    low: int = 0
    high: int | None = None
    prompt: float = 100.0
    output: float = 50.0
    max_model_len: int = 4096
    pool_tokens: int = 100_000
    ttft_s: float = 1.0
    decode_per_s: float = 50.0
    extra: float = 0.0
    refused: float = 0.0
    stated: float = 1.0
    growth: float = 1.0
    share: float = 1.0
    weights: str = ""
    tenants: tuple[str, ...] = ()


def pool_of(spec: Spec, hours: Sequence[float]) -> Pool:
    """A pool of 8-GPU replicas; what it holds beside its tokens is ``extra`` a request."""
    base = sample_plan().pools[0]
    offered = sum(rate * h * 3600 for rate, h in zip(spec.rates, hours, strict=True))
    served = offered * (1 - spec.refused)
    planning = spec.planning or tuple(2 * rate for rate in spec.rates)
    live, held = 10.0, spec.prompt + spec.output / 2 + spec.extra
    limit = float(spec.pool_tokens)
    return base.model_copy(
        update={
            "name": spec.name, "model": spec.model, "weights": spec.weights or f"org/{spec.model}",
            "prompt_lo_tokens": spec.low, "prompt_hi_tokens": spec.high, "tenants": spec.tenants, "tp": 8,
            "request_share": spec.share, "max_model_len": spec.max_model_len, "replicas": max(spec.replicas),
            "periods": tuple(
                PoolPeriod(
                    period=f"period {t}", planning_rate_per_s=planning[t] * (1 - spec.refused), mean_rate_per_s=rate,
                    replicas_needed=n, replicas_asked=n, replicas=n,
                )
                for t, (rate, n) in enumerate(zip(spec.rates, spec.replicas, strict=True))
            ),
            "placements": (PoolPlacement(supply=SUPPLY, replicas=spec.replicas),),
            "memory": base.memory.model_copy(update={"pool_tokens": spec.pool_tokens}),
            "margins": (
                Margin(
                    constraint="token pool", planned=limit, limit=limit, unit="tokens", used_share=1.0, satisfied=True
                ),
            ),
            "load": base.load.model_copy(
                update={"mean_live_requests": live, "mean_formula_tokens": live * held, "overflow_probability": 0.01}
            ),
            "speed": base.speed.model_copy(
                update={
                    "decode_tokens_per_s": spec.decode_per_s,
                    "ttft_ms": base.speed.ttft_ms.model_copy(update={"used": spec.ttft_s * 1000}),
                }
            ),
            "stated_rate_per_s": spec.stated, "growth": spec.growth,
            "mean_prompt_tokens": spec.prompt, "mean_output_tokens": spec.output, "offered_requests": offered,
            "refused_request_share": spec.refused,
            "served_input_mtok": served * spec.prompt / 1e6, "served_output_mtok": served * spec.output / 1e6,
        }
    )  # fmt: skip


def plan_of(
    specs: Sequence[Spec],
    start: dt.date,
    end: dt.date,
    *,
    periods: Sequence[tuple[float, str]] = (),
    zone: str = "",
    holidays: str = "none",
    routes: Sequence[Route] = (),
    reserved: int = 1,
    reserved_usd_per_h: float = 20.0,
    used_usd_per_h: float = 40.0,
    sunk_usd: float = 0.0,
) -> FleetPlan:
    """A plan whose one lot of 8-GPU instances is partly reserved; a replica takes one instance.

    Parameters
    ----------
    periods
        Hours and words of each; empty: one, the whole horizon.
    """
    total = (end - start).days * 24.0
    known = list(periods) or [(total, "")]
    hours = [h for h, _ in known]
    pools = tuple(pool_of(spec, hours) for spec in specs)
    running = tuple(sum(spec.replicas[t] for spec in specs) for t in range(len(hours)))
    instance_hours = sum(n * h for n, h in zip(running, hours, strict=True))
    usd = reserved * reserved_usd_per_h * total + used_usd_per_h * instance_hours + sunk_usd
    base = sample_plan()
    purchase: dict[str, Any] = base.purchases[0].model_dump() | {
        "supply": SUPPLY, "instances": max(running), "instances_by_period": running, "paid_by_period": running,
        "reserved_instances": reserved, "reserved_usd_per_h": reserved_usd_per_h, "used_usd_per_h": used_usd_per_h,
        "instance_hours": instance_hours, "hours": total, "sunk_usd": sunk_usd, "usd": usd,
        "available_by_period": None,
    }  # fmt: skip
    zones = (
        Assumption(
            id="periods_zone", assumption="Time zone of the week", value=zone, unit="", source="request",
            source_date=None, owner="", note=f"holidays: {holidays}",
        ),
    )  # fmt: skip
    return base.model_copy(
        update={
            "horizon_start": start, "horizon_end": end, "horizon_hours": total, "pools": pools,
            "periods": tuple(PlanPeriod(name=f"period {t}", hours=h, when=when) for t, (h, when) in enumerate(known)),
            "routes": tuple(routes), "schedule": (),
            "supplies": (PlanSupply(id=SUPPLY, gpu="H100-SXM", gpus_per_instance=8),),
            "purchases": (Purchase.model_validate(purchase),), "assumptions": zones if zone else (),
        }
    )  # fmt: skip
