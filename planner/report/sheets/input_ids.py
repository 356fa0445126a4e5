"""Ids of the rows of sheet Inputs, by which formulas of other sheets find them."""

from __future__ import annotations

from planner.plan import Margin, Pool, Purchase, QuotaUse

CREATED = "plan/created"
HOURS = "plan/horizon_hours"
GAP_TARGET = "solver/gap_target"
PRICE_AGE = "limit/max_price_age_days"
TOLERANCE_USD = "constant/tolerance_usd"
TOLERANCE = "constant/tolerance"
EXACT = "constant/exact"
SECONDS_PER_HOUR = "constant/seconds_per_hour"
TOKENS_PER_MTOK = "constant/tokens_per_mtok"


def price_id(purchase: Purchase) -> str:
    """Input id of the price of an hour in which an instance runs."""
    return f"price/{purchase.offer_id}"


def reserved_id(purchase: Purchase) -> str:
    """Input id of the price of an hour for which an instance is reserved."""
    return f"reserved/{purchase.offer_id}"


def sunk_id(purchase: Purchase) -> str:
    """Input id of what a lot costs whatever is planned."""
    return f"sunk/{purchase.offer_id}"


def liability_id(purchase: Purchase) -> str:
    """Input id of what a reserved instance still costs after the horizon."""
    return f"liability/{purchase.offer_id}"


def size_id(purchase: Purchase) -> str:
    """Input id of the GPUs of one instance."""
    return f"gpus/{purchase.offer_id}"


def demand_id(name: str, item: str) -> str:
    """Input id of a figure of demand: of a model (``rate``, ``growth``) or of a pool (``share``, ``refused_input``)."""
    return f"demand/{name}/{item}"


def target_id(pool: Pool, word: str) -> str:
    """Input id of a pool's latency target (``tpot`` or ``ttft``)."""
    return f"target/{pool.name}/{word}"


def work_id(limit: float) -> str:
    """Input id of the largest work share; one row for each distinct limit."""
    return f"limit/work_share/{limit:g}"


def tail_id(pool: Pool) -> str:
    """Input id of the tail budget of a pool's requests."""
    return f"tail/{pool.name}"


def quota_id(quota: QuotaUse) -> str:
    """Input id of a quota's limit."""
    return f"quota/{quota.name}"


def limit_id(pool: Pool, margin: Margin) -> str | None:
    """Input id of the limit of a margin; ``None`` where the optimiser decided it (pool of tokens, sequences)."""
    name = margin.constraint.casefold()
    for word in ("tpot", "ttft"):
        if word in name:
            return target_id(pool, word)
    if "work share" in name:
        return work_id(margin.limit)
    return tail_id(pool) if "tail" in name else None
