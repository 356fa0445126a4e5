"""Places of models and pools on the page: numbers, as names come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.plan import FleetPlan
from planner.report import facts


@dataclass(frozen=True)
class Anchors:
    """Ids of the cards and of the pools in them."""

    models: Mapping[str, str]
    """By name."""
    pools: tuple[str, ...]
    """In the order of the plan."""


def anchors_of(plan: FleetPlan) -> Anchors:
    """Ids in the order of the page: dearest model first, and its dearest pool first."""
    models = {name: f"m{number}" for number, name in enumerate(facts.models_by_cost(plan), start=1)}
    seen = dict.fromkeys(models, 0)
    pools = [""] * len(plan.pools)
    for i in facts.pools_by_cost(plan):
        model = plan.pools[i].model
        seen[model] += 1
        pools[i] = f"{models[model]}p{seen[model]}"
    return Anchors(models, tuple(pools))
