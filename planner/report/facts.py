"""Questions about a plan that several readers of it ask."""

from __future__ import annotations

import datetime as dt
import hashlib
import math

from planner.assemble.rows import GPUS, USD
from planner.catalog.offer import PriceKind
from planner.errors import PlannerError
from planner.plan import Age, AgeKind, FleetPlan, Margin, PlanSupply, Pool, PoolPlacement, QuotaUse

CLAIM = "among the offers, dtypes, lengths and pools that the request allows, no fleet serves these tokens for less"
"""What the bound proves, and no more."""


def created_utc(plan: FleetPlan) -> dt.datetime:
    """When the plan was made, UTC; a stamp without zone is read as UTC."""
    stamp = plan.created_at
    return stamp.replace(tzinfo=dt.UTC) if stamp.tzinfo is None else stamp.astimezone(dt.UTC)


def models(plan: FleetPlan) -> tuple[str, ...]:
    """Models in the order of the plan, each once."""
    return tuple(dict.fromkeys(pool.model for pool in plan.pools))


def gpu_types(plan: FleetPlan) -> tuple[str, ...]:
    """GPU types bought, in the order of the plan, each once."""
    return tuple(dict.fromkeys(purchase.gpu for purchase in plan.purchases))


def supplies(plan: FleetPlan) -> tuple[PlanSupply, ...]:
    """Supplies that something is bought of, in the order of the plan.

    Raises
    ------
    PlannerError
        If the plan does not describe a supply that it buys, or that a pool stands on.
    """
    known = {supply.id: supply for supply in plan.supplies}
    bought = dict.fromkeys(purchase.supply for purchase in plan.purchases)
    for what, names in (
        ("is bought and not described", [name for name in bought if name not in known]),
        ("is not bought", [g.supply for pool in plan.pools for g in pool.placements if g.supply not in bought]),
    ):
        if names:
            raise PlannerError(f"the plan cannot be reported: supply {names[0]} {what}")
    return tuple(known[name] for name in bought)


def stands(plan: FleetPlan) -> tuple[tuple[Pool, PoolPlacement], ...]:
    """Every pool with every supply that it stands on, in the order of the plan."""
    return tuple((pool, place) for pool in plan.pools for place in pool.placements)


def margin(pool: Pool, word: str) -> Margin | None:
    """The pool's first margin whose constraint names ``word`` (such as ``tpot``), if there is one."""
    return next((m for m in pool.margins if word in m.constraint.casefold()), None)


def speed_basis(pool: Pool) -> str:
    """Where the pool's step times come from and which edge of their bands the constraints saw."""
    tpot, ttft = pool.speed.tpot_ms.edge, pool.speed.ttft_ms.edge
    edge = tpot if tpot == ttft else f"{tpot} TPOT, {ttft} TTFT"
    return f"{pool.speed.provider}, {edge}"


def token_pool(pool: Pool) -> float:
    """Live tokens that one replica may hold: the limit that the token-pool constraint saw.

    For a hybrid model that is not the engine's pool: windows are charged per request.
    """
    limit = margin(pool, "token pool")
    return limit.limit if limit else float(pool.memory.pool_tokens)


def broken(pool: Pool) -> int:
    """Constraints of the pool that the recomputation found violated."""
    return sum(not m.satisfied for m in pool.margins)


def budget(plan: FleetPlan) -> QuotaUse | None:
    """The budget row, told by its unit; a request has at most one."""
    return next((q for q in plan.quotas if q.unit == USD), None)


def gpu_quotas(plan: FleetPlan) -> tuple[QuotaUse, ...]:
    """Quota and stock rows, which are in GPUs."""
    return tuple(q for q in plan.quotas if q.unit == GPUS)


def limit(plan: FleetPlan, unit: str) -> QuotaUse | None:
    """The row of a limit of the whole fleet, told by its unit (power, carbon, liability)."""
    return next((q for q in plan.quotas if q.unit == unit), None)


def prompt_band(pool: Pool) -> str:
    """The prompt lengths that are routed to the pool, in words."""
    return band(pool.prompt_lo_tokens, pool.prompt_hi_tokens)


def band(low: int, high: int | None) -> str:
    """A half-open stretch of prompt lengths in words."""
    if high is None:
        return "all" if low == 0 else f"{low:,} and more"
    return f"{low:,} to {high - 1:,}"


def places(plan: FleetPlan, pool: Pool) -> str:
    """Providers and regions of the lots that the pool's replicas stand on, the largest first."""
    bought = {p.offer_id: f"{p.provider} {p.region}".strip() for p in plan.purchases}
    return ", ".join(dict.fromkeys(bought[lot] for lot in pool.offers if lot in bought))


def tenants(pool: Pool) -> str:
    """Whose requests are routed to the pool, in words."""
    return ", ".join(pool.tenants) or "all"


def stands_on(pool: Pool) -> str:
    """The lots that the pool's replicas stand on, the largest first."""
    return ", ".join(pool.offers)


def replicas_in_words(pool: Pool) -> str:
    """Replicas by period: one number where they never change, else the least and the most."""
    counts = [period.replicas for period in pool.periods] or [pool.replicas]
    low, high = min(counts), max(counts)
    return f"{high}" if low == high else f"{low} to {high}"


def pools_by_cost(plan: FleetPlan) -> tuple[int, ...]:
    """Positions of the pools, dearest model first and its dearest pool first."""
    cost = [pool.usd for pool in plan.pools]
    of_model = {m: sum(c for c, p in zip(cost, plan.pools, strict=True) if p.model == m) for m in models(plan)}
    return tuple(sorted(range(len(cost)), key=lambda i: (-of_model[plan.pools[i].model], -cost[i])))


def models_by_cost(plan: FleetPlan) -> tuple[str, ...]:
    """Models, dearest first."""
    return tuple(dict.fromkeys(plan.pools[i].model for i in pools_by_cost(plan)))


def gpu_types_by_cost(plan: FleetPlan) -> tuple[str, ...]:
    """GPU types bought, dearest first."""
    cost = {gpu: sum(p.usd for p in plan.purchases if p.gpu == gpu) for gpu in gpu_types(plan)}
    return tuple(sorted(cost, key=lambda gpu: -cost[gpu]))


def runner_up(pool: Pool) -> str:
    """The next best configuration."""
    return pool.runner_up.description if pool.runner_up else no_runner_up(pool)


def no_runner_up(pool: Pool) -> str:
    """Why there is no next best: plans of other futures do not look for one."""
    return "not looked for" if pool.why.endswith("not looked for") else "none found"


def reason(pool: Pool) -> str:
    """Why, without the clause on the runner-up: its configuration and extra cost have columns of their own."""
    if pool.runner_up is None:
        return pool.why.removesuffix("; the next best was not looked for")
    clause = f"; next best: {pool.runner_up.description}"
    return pool.why.removesuffix(clause)


def finite(value: float) -> float | str:
    """A number that a cell can hold; words where there is none (a replica that saturates has no latency)."""
    return value if math.isfinite(value) else "no steady state"


def oldest_price(plan: FleetPlan) -> tuple[dt.date, int]:
    """Day of the oldest price that the plan pays, and its age in days when the plan was made."""
    day = min(p.price_as_of for p in plan.purchases)
    return day, (created_utc(plan).date() - day).days


def oldest_engine_fact(plan: FleetPlan) -> Age | None:
    """The oldest engine fact that holds for the plan; ``None`` where the plan does not say."""
    return next((age for age in plan.oldest if age.kind is AgeKind.ENGINE_FACT), None)


def ages(plan: FleetPlan) -> tuple[Age, ...]:
    """The oldest price and engine fact; the price from the purchases where the plan does not say."""
    if any(age.kind is AgeKind.PRICE for age in plan.oldest):
        return plan.oldest
    lot = min(plan.purchases, key=lambda p: (p.price_as_of, p.offer_id))
    day, days = oldest_price(plan)
    price = Age(kind=AgeKind.PRICE, what=lot.offer_id, as_of=day, age_days=days, source=lot.source_url)
    return (price, *plan.oldest)


def inputs_sha256(plan: FleetPlan) -> str:
    """One digest over all files read: sha256 of the lines ``role TAB path TAB sha256`` in the order of the plan."""
    lines = "".join(f"{file.role}\t{file.path}\t{file.sha256}\n" for file in plan.inputs)
    return hashlib.sha256(lines.encode(errors="backslashreplace")).hexdigest()


def busiest_replicas(pool: Pool) -> int:
    """Replicas in the period that has most."""
    return max((period.replicas for period in pool.periods), default=pool.replicas)


def price_kinds(plan: FleetPlan) -> str:
    """Kinds of the prices that are paid, such as ``list`` or ``list and marketplace``."""
    return " and ".join(sorted({p.price_kind for p in plan.purchases}))


def price_terms(plan: FleetPlan) -> str:
    """Those kinds, and whether discounts are in them."""
    contracted = any(p.price_kind == PriceKind.CONTRACTED.value for p in plan.purchases)
    discounts = "contracted ones after their discount" if contracted else "before any discount"
    return f"{price_kinds(plan)} prices, {discounts}"
