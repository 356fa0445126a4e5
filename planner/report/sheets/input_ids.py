"""Ids of the rows of sheet Inputs, by which formulas of other sheets find them."""

from __future__ import annotations

from planner.plan import Margin, Pool, Purchase, QuotaUse

CREATED = "plan/created"
HOURS = "plan/horizon_hours"
GAP_TARGET = "solver/gap_target"
PRICE_AGE = "limit/max_price_age_days"
FX = "fx/per_usd"
TOLERANCE_USD = "constant/tolerance_usd"
TOLERANCE = "constant/tolerance"
EXACT = "constant/exact"
SECONDS_PER_HOUR = "constant/seconds_per_hour"
TOKENS_PER_MTOK = "constant/tokens_per_mtok"
HOURS_PER_YEAR = "constant/hours_per_year"


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


def list_id(purchase: Purchase) -> str:
    """Input id of the list price of an instance-hour on demand."""
    return f"list/{purchase.offer_id}"


def capex_id(purchase: Purchase) -> str:
    """Input id of the price of a bought instance."""
    return f"capex/{purchase.offer_id}"


def life_id(purchase: Purchase) -> str:
    """Input id of the useful life of a bought instance."""
    return f"life/{purchase.offer_id}"


def residual_id(purchase: Purchase) -> str:
    """Input id of what is left of its price at the end of its life."""
    return f"residual/{purchase.offer_id}"


def capital_id(purchase: Purchase) -> str:
    """Input id of the depreciation and return on capital of an hour."""
    return f"capital/{purchase.offer_id}"


def maintenance_id(purchase: Purchase) -> str:
    """Input id of the maintenance of an hour."""
    return f"maintenance/{purchase.offer_id}"


def hosting_id(purchase: Purchase) -> str:
    """Input id of the hosting of an hour."""
    return f"hosting/{purchase.offer_id}"


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
