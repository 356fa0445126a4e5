"""What is bought: a row for each lot, with its instances by period, its cost, power and carbon."""

from __future__ import annotations

from collections.abc import Sequence

from planner.assemble.stands import Counts, Standing
from planner.optimise.types import Decision, Lot, LotKind, ProgramData
from planner.plan import Purchase

FIRST_FILLED = (
    LotKind.OWNED,
    LotKind.BOUGHT,
    LotKind.EXISTING_COMMITMENT,
    LotKind.NEW_COMMITMENT,
    LotKind.ON_DEMAND,
    LotKind.SPOT,
)
"""Replicas stand on a supply; its lots are said to be filled in this order."""


def purchases_of(data: ProgramData, decision: Decision, pools: Sequence[Standing]) -> tuple[Purchase, ...]:
    """Every lot that runs, is reserved, or costs something whatever is planned."""
    used = _gpus_used(data, decision, pools)
    return tuple(
        _purchase(data, decision, lot, used[lot.id])
        for lot in data.lots
        if any(_paid(data, decision, lot)) or lot.sunk_usd > 0
    )


def running(data: ProgramData, decision: Decision, lot: Lot) -> Counts:
    """Instances of a lot that run, by period."""
    return tuple(decision.running.get(lot.id, (0,) * len(data.periods)))


def _paid(data: ProgramData, decision: Decision, lot: Lot) -> Counts:
    """Instances that are paid, running or not."""
    runs = running(data, decision, lot)
    reserved = decision.reserved.get(lot.id, 0)
    held = lot.available if lot.kind is LotKind.EXISTING_COMMITMENT else None
    stands = held or (0,) * len(runs)
    return tuple(max(n, reserved, there) for n, there in zip(runs, stands, strict=True))


def _gpus_used(data: ProgramData, decision: Decision, pools: Sequence[Standing]) -> dict[str, int]:
    """GPUs of each lot under replicas, in the period with the most."""
    used: dict[str, int] = {}
    for supply in data.supplies:
        lots = sorted(
            (lot for lot in data.lots if lot.supply == supply.id), key=lambda o: (FIRST_FILLED.index(o.kind), o.id)
        )
        left = [sum(gpus) for gpus in zip(*(pool.gpus(supply.id) for pool in pools), strict=True)]
        for lot in lots:
            room = [n * lot.gpus_per_instance for n in running(data, decision, lot)]
            taken = [min(a, b) for a, b in zip(left, room, strict=True)]
            left = [a - b for a, b in zip(left, taken, strict=True)]
            used[lot.id] = max(taken)
    return used


def _purchase(data: ProgramData, decision: Decision, lot: Lot, gpus_used: int) -> Purchase:
    offer, size = lot.offer, lot.gpus_per_instance
    runs, paid = running(data, decision, lot), _paid(data, decision, lot)
    instance_hours = sum(n * period.hours for n, period in zip(runs, data.periods, strict=True))
    reserved = decision.reserved.get(lot.id, 0)
    return Purchase(
        offer_id=lot.id,
        kind=lot.kind.value,
        supply=lot.supply,
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        gpu=offer.gpu,
        term=offer.term.value,
        gpus_per_instance=size,
        instances=max(paid),
        instances_by_period=runs,
        available_by_period=lot.available,
        paid_by_period=paid,
        reserved_instances=reserved,
        instance_hours=instance_hours,
        gpus_bought=max(paid) * size,
        gpus_used=gpus_used,
        reserved_usd_per_h=lot.reserved_usd_per_h,
        used_usd_per_h=lot.used_usd_per_h,
        sunk_usd=lot.sunk_usd,
        hours=data.hours,
        usd=lot.reserved_usd_per_h * reserved * data.hours + lot.used_usd_per_h * instance_hours + lot.sunk_usd,
        liability_after_usd=reserved * lot.liability_after_usd,
        power_kw_per_instance=lot.power_kw,
        power_kw=lot.power_kw * max(runs),
        carbon_kg_per_instance_h=lot.carbon_kg_per_h,
        carbon_kg=lot.carbon_kg_per_h * instance_hours,
        price_as_of=offer.as_of,
        price_kind=offer.price_kind.value,
        source_url=offer.source_url,
        notes=offer.notes,
    )
