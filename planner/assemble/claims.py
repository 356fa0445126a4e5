"""What a plan claims of itself: its proof, its horizon, and what each pool refuses and risks."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.plan import FleetPlan, Pool, SolveStatus

RELATIVE = 1e-6
"""Of sums and shares: rounding of binary numbers."""
GAP_TOLERANCE = 1e-9
NEVER_LEFT_OUT = frozenset({"token pool", "concurrent sequences", "work share", "tail budget", "longest request"})
"""Constraints that every pool has, whatever its targets are."""


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > RELATIVE * max(abs(one), abs(other), 1e-12)


def proof_faults(plan: FleetPlan) -> Iterator[str]:
    """The bound lies below the cost, the gap is what they leave, and optimal means within the target."""
    solve = plan.solve
    if solve.bound > solve.objective * (1 + RELATIVE):
        yield f"the bound {solve.bound:.2f} USD lies above the cost {solve.objective:.2f} USD"
    gap = max(0.0, 1.0 - solve.bound / solve.objective) if solve.objective > 0 else 0.0
    if abs(solve.gap - gap) > RELATIVE:
        yield f"gap {solve.gap:.4%} is not what cost and bound leave, {gap:.4%}"
    if solve.status is SolveStatus.OPTIMAL and solve.gap > solve.gap_target + GAP_TOLERANCE:
        yield f"called optimal with gap {solve.gap:.4%} of {solve.gap_target:.4%} allowed"
    served = sum(pool.served_mtok for pool in plan.pools)
    if _differ(solve.usd_per_mtok_bound * served, solve.bound) and solve.bound > 0:
        yield f"{solve.usd_per_mtok_bound:.6f} USD per million tokens is not the bound's"


def horizon_faults(plan: FleetPlan) -> Iterator[str]:
    """Hours are those from the first day to the last."""
    hours = (plan.horizon_end - plan.horizon_start).days * 24.0
    if _differ(hours, plan.horizon_hours):
        yield f"{plan.horizon_start} to {plan.horizon_end} has {hours:g} hours, {plan.horizon_hours:g} are stated"
    yield from (
        f"{p.offer_id}: {p.hours:g} hours are not the horizon's" for p in plan.purchases if _differ(p.hours, hours)
    )


def pool_faults(plan: FleetPlan) -> Iterator[str]:
    """What a pool refuses and risks is within its limits, and follows from what it serves."""
    size = {supply.id: supply.gpus_per_instance for supply in plan.supplies}
    yield from (
        f"{p.offer_id}: {p.gpus_per_instance} GPUs an instance, its supply has {size[p.supply]}"
        for p in plan.purchases
        if p.supply in size and size[p.supply] != p.gpus_per_instance
    )
    for pool in plan.pools:
        yield from (f"{pool.name}: {fault}" for fault in _pool(pool))


def _pool(pool: Pool) -> Iterator[str]:
    if pool.refused_request_share > pool.tail_budget + GAP_TOLERANCE:
        yield f"refuses {pool.refused_request_share:.4%} of requests, {pool.tail_budget:.4%} may be"
    if pool.load.expected_overflow > pool.load.overflow_probability * (1 + RELATIVE):
        yield f"overflows with probability {pool.load.expected_overflow:g}, {pool.load.overflow_probability:g} may be"
    missing = NEVER_LEFT_OUT - {margin.constraint for margin in pool.margins}
    if missing:
        yield f"has no margin of {', '.join(sorted(missing))}"
    for what, mean, share, served in (
        ("input", pool.mean_prompt_tokens, pool.refused_input_share, pool.served_input_mtok),
        ("output", pool.mean_output_tokens, pool.refused_output_share, pool.served_output_mtok),
    ):
        offered = pool.offered_requests * mean / units.TOKENS_PER_MTOK
        if _differ(offered * (1 - share), served):
            yield f"serves {served:g} M {what} tokens, {offered * (1 - share):g} follow from what it refuses"
