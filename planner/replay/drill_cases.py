"""Which drills apply to a pool: what is lost with a replica, an instance, a region, a lot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner import units
from planner.plan import FleetPlan, Pool, Purchase
from planner.replay.drill_types import DrillKind
from planner.report import facts


@dataclass(frozen=True)
class Loss:
    """Replicas of a pool that go together."""

    kind: DrillKind
    lost: int
    what: str


def busiest_period(pool: Pool) -> int:
    """Position of the period with the most replicas, the first of them."""
    counts = [period.replicas for period in pool.periods] or [pool.replicas]
    return counts.index(max(counts))


def warm_up_s(plan: FleetPlan, model: str) -> float | None:
    """From the decision until a replica serves, as the plan's assumptions state it; ``None``: not stated."""
    row = next((row for row in plan.assumptions if row.id == f"warm_up_{model}"), None)
    return None if row is None else units.minutes_to_s(float(row.value))


def losses(plan: FleetPlan, pool: Pool) -> Iterator[Loss]:
    """What may be lost of a pool, from one replica to a whole lot; nothing where the plan does not place replicas."""
    if facts.busiest_replicas(pool) < 1:
        return
    yield Loss(DrillKind.REPLICA, 1, "one replica is lost")
    if not pool.placements or not plan.supplies:
        return
    yield _node(plan, pool)
    yield _together(plan, pool, DrillKind.REGION)
    yield _together(plan, pool, DrillKind.LOT)


def _node(plan: FleetPlan, pool: Pool) -> Loss:
    """The instance with the most replicas of the pool.

    The plan does not say which instance a replica stands on: replicas are packed in the order of the plan's pools, each
    on the first instance that has room.
    """
    period, best = busiest_period(pool), Loss(DrillKind.NODE, 0, "")
    for place in pool.placements:
        supply = next(s for s in plan.supplies if s.id == place.supply)
        for node in packed(plan, place.supply, supply.gpus_per_instance, period):
            if node.count(pool.name) > best.lost:
                others = ", ".join(f"{node.count(n)} of {n}" for n in dict.fromkeys(node) if n != pool.name)
                what = f"one instance of {supply.id} is lost (replicas packed in the plan's order)"
                best = Loss(DrillKind.NODE, node.count(pool.name), f"{what}{', with ' + others if others else ''}")
    return best


def packed(plan: FleetPlan, supply: str, gpus_per_instance: int, period: int) -> list[list[str]]:
    """Pools of the replicas on each instance of a supply; a replica larger than an instance has its own ones."""
    nodes: list[list[str]] = []
    free: list[int] = []
    for pool in plan.pools:
        count = sum(p.replicas[period] for p in pool.placements if p.supply == supply)
        for _ in range(count):
            at = next((n for n, room in enumerate(free) if room >= pool.tp), len(nodes))
            if at == len(nodes):
                nodes.append([])
                free.append(max(gpus_per_instance, pool.tp))
            nodes[at].append(pool.name)
            free[at] -= pool.tp
    return nodes


def _together(plan: FleetPlan, pool: Pool, kind: DrillKind) -> Loss:
    """The region or lot with the most replicas of the pool.

    Which lot of a supply a replica stands on is not planned: it is taken in proportion to the instances that run,
    rounded up. Lots that name no region are taken to be lost together.
    """
    period, share = busiest_period(pool), dict[str, float]()
    for place in pool.placements:
        lots = [p for p in plan.purchases if p.supply == place.supply]
        running = sum(lot.instances_by_period[period] for lot in lots)
        for lot in lots:
            name = _name(lot, kind)
            part = place.replicas[period] * lot.instances_by_period[period] / max(running, 1)
            share[name] = share.get(name, 0.0) + part
    if not share:
        return Loss(kind, 0, "")
    name = max(share, key=lambda key: share[key])
    lost = min(math.ceil(share[name] - 1e-9), facts.busiest_replicas(pool))
    where = f"{kind} {name}" if name else "all lots that name no region"
    return Loss(kind, lost, f"{where} is lost" if name else f"{where} are lost together")


def _name(lot: Purchase, kind: DrillKind) -> str:
    return lot.region if kind is DrillKind.REGION else lot.offer_id
