"""Whether a routing table serves every request of every model once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from planner.plan import FleetPlan, Route

SHARE_TOLERANCE = 1e-6


def routing_faults(plan: FleetPlan) -> Iterator[str]:
    """Every model's tenants and prompt lengths go to its own pools, each once, and every pool has a row."""
    pools = {pool.name: pool for pool in plan.pools}
    for route in plan.routes:
        pool = pools.get(route.pool)
        if pool is None or pool.model != route.model:
            yield f"routing of {route.model}: {route.pool} is not its pool"
        elif not _is_of_pool(route, pool.tenants, pool.prompt_lo_tokens, pool.prompt_hi_tokens, pool.load_share):
            yield f"routing of {route.model}: a row to {route.pool} is not what that pool serves"
    routed = {route.pool for route in plan.routes}
    yield from (f"{name}: nothing is routed to it" for name in pools if name not in routed)
    for model in plan.models:
        rows = [route for route in plan.routes if route.model == model.name]
        named = {route.tenant for route in rows if route.tenant}
        for tenant in sorted(named - set(model.tenants)):
            yield f"routing of {model.name}: tenant {tenant} is not the model's"
        for tenant in model.tenants or ("",):
            mine = [route for route in rows if route.tenant in ("", tenant)]
            yield from _gaps(mine, f"routing of {model.name}" + (f", tenant {tenant}" if tenant else ""))
    yield from _shares(plan)


def _is_of_pool(route: Route, tenants: Sequence[str], low: int, high: int | None, share: float) -> bool:
    return (
        (route.tenant in tenants if tenants else route.tenant == "")
        and (route.prompt_lo_tokens, route.prompt_hi_tokens) == (low, high)
        and abs(route.share - share) <= SHARE_TOLERANCE
    )


def _gaps(rows: Sequence[Route], where: str) -> Iterator[str]:
    """Stretches of prompt lengths whose shares do not add up to 1."""
    ends = [(row.prompt_lo_tokens, _end(row), row.share) for row in rows]
    edges = sorted({0.0, math.inf, *(low for low, _, _ in ends), *(high for _, high, _ in ends)})
    for low, high in itertools.pairwise(edges):
        share = sum(part for start, end, part in ends if start <= low and high <= end)
        if abs(share - 1.0) > SHARE_TOLERANCE:
            upper = "any length" if math.isinf(high) else f"{high:,.0f} tokens"
            yield f"{where}: prompts of {low:,.0f} to {upper} are served {share:g} times"


def _end(row: Route) -> float:
    return math.inf if row.prompt_hi_tokens is None else float(row.prompt_hi_tokens)


def _shares(plan: FleetPlan) -> Iterator[str]:
    """The pools of a model serve all of its requests."""
    for model in plan.models:
        share = sum(pool.request_share for pool in plan.pools if pool.model == model.name)
        if abs(share - 1.0) > SHARE_TOLERANCE:
            yield f"{model.name}: its pools serve {share:.6%} of its requests"
