"""Rows of limits of a decision: quotas and stock, budget, liability, power, carbon, and movement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.assemble.rows import (
    BUDGET,
    CARBON,
    GPUS,
    KG,
    KW,
    LIABILITY,
    MOVED,
    MOVEMENT,
    POWER,
    USD,
    USD_AFTER,
    used_of,
)
from planner.assemble.stands import Standing
from planner.optimise.program import quota_covers
from planner.optimise.types import Caps, Movement, ProgramData
from planner.plan import Purchase, QuotaUse


def limits_of(
    data: ProgramData, purchases: Sequence[Purchase], pools: Sequence[Standing], worth: Mapping[str, float]
) -> tuple[QuotaUse, ...]:
    """A row for each limit of the request, in its order; ``worth`` by the row's name."""
    rows = (*_quotas(data, purchases), *_caps(data.caps, purchases), *_moved(data.movement, pools))
    return tuple(row.model_copy(update={"worth_usd": worth.get(row.name)}) for row in rows)


def _quotas(data: ProgramData, purchases: Sequence[Purchase]) -> Iterator[QuotaUse]:
    offers = {lot.id: lot.offer for lot in data.lots}
    for quota in data.quotas:
        covered = [p for p in purchases if quota_covers(quota, offers[p.offer_id])]
        yield _row(quota.name, covered, float(quota.max_gpus), GPUS)


def _caps(caps: Caps, purchases: Sequence[Purchase]) -> Iterator[QuotaUse]:
    for name, limit, unit in (
        (BUDGET, caps.budget_usd, USD),
        (LIABILITY, caps.liability_usd, USD_AFTER),
        (POWER, caps.power_kw, KW),
        (CARBON, caps.carbon_kg, KG),
    ):
        if limit is not None:
            yield _row(name, purchases, limit, unit)


def _row(name: str, covered: Sequence[Purchase], limit: float, unit: str) -> QuotaUse:
    used = used_of(covered, unit) or 0.0
    return QuotaUse(name=name, offers=tuple(p.offer_id for p in covered), used=used, limit=limit, unit=unit)


def _moved(movement: Movement | None, pools: Sequence[Standing]) -> Iterator[QuotaUse]:
    """GPUs of a model on a GPU type, at their largest over the periods, beyond last quarter's."""
    if movement is None:
        return
    counts: dict[tuple[str, str], list[int]] = {}
    for pool in pools:
        key, each = (pool.model, pool.part.placement.gpu), pool.part.placement.gpus_per_replica
        gpus = [each * n for n in pool.part.running]
        counts[key] = [a + b for a, b in zip(counts.get(key, [0] * len(gpus)), gpus, strict=True)]
    moved = sum(max(0, max(gpus) - movement.last_gpus.get(key, 0)) for key, gpus in counts.items())
    yield QuotaUse(name=MOVEMENT, offers=(), used=float(moved), limit=float(movement.max_moved_gpus), unit=MOVED)
