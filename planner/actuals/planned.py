"""What a plan expected of a model in some hours of its horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import units
from planner.plan import FleetPlan, Pool
from planner.traffic.types import FloatArray


@dataclass(frozen=True)
class Planned:
    """One model in some hours."""

    requests: float
    input_mtok: float
    output_mtok: float
    """Of all requests that arrive."""
    served_mtok: float
    """Input and output of those that fit."""
    served_input_share: float
    """Of the input that arrives."""
    served_output_share: float
    refused_share: float
    peak_per_s: float
    """Planning rate of the busiest period of the horizon, refused requests included."""
    peak_seen: bool
    """Whether some of these hours belong to that period."""


def planned_in(plan: FleetPlan, model: str, hours: FloatArray) -> Planned:
    """The plan for some hours, by period: mean rates times hours, lengths and refusals of each pool."""
    pools = [pool for pool in plan.pools if pool.model == model]
    requests = np.array([pool_requests(pool, hours, plan.horizon_hours) for pool in pools])
    offered = np.array([pool.offered_requests for pool in pools])
    arriving = np.array([[pool.mean_prompt_tokens, pool.mean_output_tokens] for pool in pools])
    served = np.array([[pool.served_input_mtok, pool.served_output_mtok] for pool in pools])
    came = requests @ arriving / units.TOKENS_PER_MTOK
    fitted = requests @ (served / np.where(offered > 0, offered, 1.0)[:, None])
    shares = np.divide(fitted, came, out=np.ones(2), where=came > 0)
    refused = requests @ np.array([pool.refused_request_share for pool in pools])
    rates = _planning_rates(pools)
    busiest = rates >= rates.max() * (1 - 1e-9)
    return Planned(
        requests=float(requests.sum()),
        input_mtok=float(came[0]),
        output_mtok=float(came[1]),
        served_mtok=float(fitted.sum()),
        served_input_share=float(shares[0]),
        served_output_share=float(shares[1]),
        refused_share=float(refused / requests.sum()) if requests.sum() > 0 else 0.0,
        peak_per_s=float(rates.max()),
        peak_seen=bool((hours[busiest] > 0).any()) if rates.size == hours.size else True,
    )


def pool_requests(pool: Pool, hours: FloatArray, horizon_hours: float) -> float:
    """Requests that arrive at a pool in some hours: mean rate of each period times its hours."""
    if not pool.periods:
        return pool.offered_requests * float(hours.sum()) / horizon_hours
    rates = np.array([run.mean_rate_per_s for run in pool.periods])
    return float(rates @ hours) * units.SECONDS_PER_HOUR


def _planning_rates(pools: list[Pool]) -> FloatArray:
    """Arrivals per second that the pools together are planned for, by period; a pool's own rate is what it accepts."""
    rows = [
        np.array([run.planning_rate_per_s for run in pool.periods] or [pool.load.planning_rate_per_s])
        / max(1.0 - pool.refused_request_share, 1e-12)
        for pool in pools
    ]
    return np.asarray(np.sum(rows, axis=0))
