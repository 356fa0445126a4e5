"""The least cost of a tiny program by trying everything: paths, places, exact packing, instance counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

import numpy as np

from planner.optimise.program import quota_covers
from planner.optimise.types import Column, LotKind, Placement, ProgramData, Supply

MOST = 5
"""Instances of a lot that are tried."""


def least_cost(d: ProgramData, theta: float) -> float:
    """Least spend and worth of lost tokens (USD), sunk cost aside; infinite where nothing is feasible."""
    best = np.inf
    served_most = sum(max((sum(c.served_tokens for c in p) for p in paths(d, m, 99)), default=0.0) for m in d.models)
    for choice in product(*(paths(d, m, d.max_pools[m]) for m in d.models)):
        columns = [c for path in choice for c in path]
        if not _moves_allowed(d, columns):
            continue
        lost = served_most - sum(c.served_tokens for c in columns)
        spend = _least_spend(d, columns)
        if spend + sum(lot.sunk_usd for lot in d.lots) <= (d.caps.budget_usd or np.inf) * (1 + 1e-9):
            best = min(best, spend + theta * lost)
    return best


def paths(d: ProgramData, model: str, max_pools: int) -> list[tuple[Column, ...]]:
    def onward(at: int) -> Iterator[tuple[Column, ...]]:
        if at == d.end_node[model]:
            yield ()
        for c in d.columns:
            if c.model == model and c.start == at:
                yield from ((c, *rest) for rest in onward(c.end))

    return [p for p in onward(0) if sum(len(c.parts) for c in p) <= max_pools]


def _moves_allowed(d: ProgramData, columns: Sequence[Column]) -> bool:
    if d.movement is None:
        return True
    moved = 0
    for key in {(c.model, p.placement.gpu) for c in columns for p in c.parts}:
        gpus = [
            sum(
                p.running[t] * p.placement.gpus_per_replica
                for c in columns
                for p in c.parts
                if (c.model, p.placement.gpu) == key
            )
            for t in range(len(d.periods))
        ]
        moved += max(0, max(gpus) - d.movement.last_gpus.get(key, 0))
    return moved <= d.movement.max_moved_gpus


def _least_spend(d: ProgramData, columns: Sequence[Column]) -> float:
    """Reserved counts one by one; then each period by itself, over all running counts at once."""
    needs = []
    for t in range(len(d.periods)):
        need: dict[Placement, int] = {}
        for c in columns:
            for p in c.parts:
                need[p.placement] = need.get(p.placement, 0) + p.running[t]
        needs.append(tuple(sorted(need.items())))
    reserved = [o for o, lot in enumerate(d.lots) if lot.reserved_usd_per_h > 0]
    best = np.inf
    for counts in product(range(MOST + 1), repeat=len(reserved)):
        bought = dict(zip(reserved, counts, strict=True))
        fixed = sum(d.lots[o].reserved_usd_per_h * d.hours * n for o, n in bought.items())
        if sum(d.lots[o].liability_after_usd * n for o, n in bought.items()) > (d.caps.liability_usd or np.inf):
            continue
        if any(n > max(d.lots[o].available or (MOST,)) for o, n in bought.items()):
            continue
        each = [_period_cost(d, needs[t], t, bought) for t in range(len(d.periods))]
        best = min(best, fixed + sum(each))
    return best


def _period_cost(d: ProgramData, need: tuple[tuple[Placement, int], ...], t: int, bought: dict[int, int]) -> float:
    tops = [
        min(bought.get(o, MOST), MOST if lot.available is None else lot.available[t], MOST)
        for o, lot in enumerate(d.lots)
    ]
    x = np.stack([a.ravel() for a in np.meshgrid(*(np.arange(n + 1) for n in tops), indexing="ij")], axis=1)
    good = np.ones(len(x), dtype=bool)
    for quota in d.quotas:
        used = np.zeros(len(x))
        for o, lot in enumerate(d.lots):
            if quota_covers(quota, lot.offer):
                if lot.kind is LotKind.EXISTING_COMMITMENT:
                    count = lot.available[t]
                else:
                    count = bought[o] if o in bought else x[:, o]
                used = used + count * lot.gpus_per_instance
        good &= used <= quota.max_gpus
    if d.caps.power_kw is not None:
        good &= x @ np.array([lot.power_kw for lot in d.lots]) <= d.caps.power_kw + 1e-9
    x = x[good]
    cost = x @ np.array([lot.used_usd_per_h for lot in d.lots]) * d.periods[t].hours
    for row in np.argsort(cost, kind="stable"):
        counts = tuple(
            sum(int(n) for n, lot in zip(x[row], d.lots, strict=True) if lot.supply == s.id) for s in d.supplies
        )
        if _holds(d.supplies, need, counts):
            return float(cost[row])
    return np.inf


@cache
def _holds(supplies: tuple[Supply, ...], need: tuple[tuple[Placement, int], ...], instances: tuple[int, ...]) -> bool:
    """Whether some way to place the replicas packs exactly and keeps spread and reserve."""

    def place(rest: tuple[tuple[Placement, int], ...], held: tuple[tuple[tuple[int, int], ...], ...]) -> bool:
        if not rest:
            return all(_packs(s, h, n) for s, h, n in zip(supplies, held, instances, strict=True))
        (placement, count), *others = rest
        may = [g for g, s in enumerate(supplies) if _may_stand(placement, s)]
        top = 2 * count if placement.spread else count
        for split in product(range(count + 1), repeat=len(may)):
            if not count <= sum(split) <= top:
                continue
            if placement.spread and any(
                sum(n for g, n in zip(may, split, strict=True) if supplies[g].region != lost) < count
                for lost in {s.region for s in supplies}
            ):
                continue
            more = list(held)
            for g, n in zip(may, split, strict=True):
                if n:
                    more[g] = (*more[g], (placement.gpus_per_replica, n))
            if place(tuple(others), tuple(more)):
                return True
        return False

    return place(need, ((),) * len(supplies))


def _may_stand(placement: Placement, supply: Supply) -> bool:
    if placement.gpu != supply.gpu or (supply.spot and not placement.interruptible):
        return False
    if placement.regions and supply.region not in placement.regions:
        return False
    if placement.gpus_per_replica > supply.gpus_per_instance:
        return supply.multi_node and placement.gpus_per_replica % supply.gpus_per_instance == 0
    return placement.gpus_per_replica <= _domains(supply)[0]


def _domains(supply: Supply) -> list[int]:
    size, domain = supply.gpus_per_instance, supply.nvlink_domain or supply.gpus_per_instance
    return [domain] * (size // domain) + ([size % domain] if size % domain else [])


@cache
def _packs(supply: Supply, held: tuple[tuple[int, int], ...], instances: int) -> bool:
    """Exact: every item into every domain in turn."""
    size = supply.gpus_per_instance
    whole = instances - sum(n * (degree // size) for degree, n in held if degree > size)
    if whole < 0:
        return False
    items = sorted((degree for degree, n in held if degree <= size for _ in range(n)), reverse=True)
    if supply.usable_share < 1:
        used = sum(items) + size * (instances - whole)
        if used > supply.usable_share * size * instances + 1e-9:
            return False
    return _fits(tuple(items), tuple(sorted(_domains(supply) * whole)))


@cache
def _fits(items: tuple[int, ...], bins: tuple[int, ...]) -> bool:
    if not items:
        return True
    if sum(items) > sum(bins):
        return False
    return any(
        _fits(items[1:], tuple(sorted((*bins[:i], bins[i] - items[0], *bins[i + 1 :]))))
        for i in range(len(bins))
        if bins[i] >= items[0] and (i == 0 or bins[i] != bins[i - 1])
    )
