"""Synthetic programs with the structure of real ones: real GPUs and prices, needs from a formula instead of queueing.

Needs follow  n = ceil(a + 0.9 * sqrt(a)),  a = rate / rate that one replica holds:  linear in the load, with the gain
of pooling. What a replica holds grows with the bandwidth of its GPUs and with the room that the weights leave.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np

from planner.catalog.gpu import Gpu
from planner.catalog.load import load_catalog
from planner.catalog.offer import Offer, Term
from planner.optimise.types import (
    Column,
    Lot,
    LotKind,
    Need,
    Part,
    Period,
    Placement,
    ProgramData,
    Supply,
)
from planner.request import Quota

GPUS = (
    "H100-SXM", "H200-SXM", "A100-80GB-SXM", "L40S", "L4", "B200", "A10G", "MI300X", "A100-40GB-SXM", "H100-PCIe",
    "RTXPRO6000-Server", "H100-NVL", "A100-80GB-PCIe", "L40", "B300",
)  # fmt: skip
WHOLE_NODES = ("H100-SXM", "H200-SXM", "A100-80GB-SXM", "B200", "B300", "MI300X", "A100-40GB-SXM")
DAY = dt.date(2026, 11, 1)


@dataclass(frozen=True)
class Size:
    """How large an instance is."""

    models: int
    bands: int
    """Bands of prompts; a model has bands * (bands + 1) / 2 slices."""
    lots: int
    periods: int
    configs: int = 2
    """Configurations of each tp degree and GPU type that no other dominates."""
    gpus: int = 10
    largest_rate_per_s: float = 200.0


def synthetic(size: Size, seed: int) -> ProgramData:
    """A program's data of a size; the same for the same seed."""
    rng = np.random.default_rng(seed)
    gpus = [load_catalog().gpu(name) for name in GPUS[: size.gpus]]
    hours = np.array([2184.0 * share for share in rng.dirichlet(np.full(size.periods, 8.0))])
    periods = tuple(Period(f"p{t:02d}", float(h)) for t, h in enumerate(hours))
    supplies, lots = _market(gpus, size.lots)
    models = tuple(f"m{i:03d}" for i in range(size.models))
    columns = [c for name in models for c in _columns(name, size, gpus, rng)]
    dear = sum(lot.gpus_per_instance for lot in lots)
    quotas = tuple(
        Quota(name=f"q{i}", gpu=gpu.id, max_gpus=int(40 * size.models / size.gpus + dear))
        for i, gpu in enumerate(gpus[:4])
    )
    return ProgramData(
        models=models,
        end_node=dict.fromkeys(models, size.bands),
        max_pools=dict.fromkeys(models, 3),
        periods=periods,
        supplies=supplies,
        lots=lots,
        columns=tuple(sorted(columns, key=lambda c: c.key)),
        quotas=quotas,
    )


def _market(gpus: list[Gpu], count: int) -> tuple[tuple[Supply, ...], tuple[Lot, ...]]:
    """One supply per GPU type and size, with the cheapest offers on it: on demand, and reserved for a year at 0.62."""
    catalog = load_catalog()
    lots: list[Lot] = []
    supplies: dict[str, Supply] = {}
    for round_ in range(count):
        gpu = gpus[round_ % len(gpus)]
        offers = sorted(
            (o for o in catalog.offers if o.gpu == gpu.id and o.term is Term.ON_DEMAND), key=lambda o: o.usd_per_gpu_h
        )
        kind = round_ // len(gpus)
        offer = offers[min(2 * (kind // 2), len(offers) - 1)]
        gpus_each = (8 if gpu.id in WHOLE_NODES else 1) if kind < 2 else (4, 2, 1, 8)[kind % 4]
        supply = Supply(f"{gpu.id}/{gpus_each}", gpu.id, gpus_each)
        supplies[supply.id] = supply
        lots.append(_lot(offer, supply, reserved=kind % 2 == 1, number=round_))
    return tuple(sorted(supplies.values(), key=lambda s: s.id)), tuple(sorted(lots, key=lambda lot: lot.id))


def _lot(offer: Offer, supply: Supply, *, reserved: bool, number: int) -> Lot:
    usd = offer.usd_per_gpu_h * supply.gpus_per_instance
    kind = LotKind.NEW_COMMITMENT if reserved else LotKind.ON_DEMAND
    return Lot(
        id=f"{supply.id}/{kind}/{number:03d}",
        supply=supply.id,
        kind=kind,
        offer=offer,
        gpus_per_instance=supply.gpus_per_instance,
        reserved_usd_per_h=0.62 * usd if reserved else 0.0,
        used_usd_per_h=0.0 if reserved else usd,
    )


def _columns(name: str, size: Size, gpus: list[Gpu], rng: np.random.Generator) -> list[Column]:
    """All columns of one model."""
    weights_gib = float(np.exp(rng.uniform(np.log(1.0), np.log(300.0))))
    rate = float(np.exp(rng.uniform(np.log(0.3), np.log(size.largest_rate_per_s)))) / weights_gib**0.5
    curve = rng.uniform(0.25, 1.0, size.periods)
    share = rng.dirichlet(np.full(size.bands, 2.0))
    tokens = np.geomspace(300.0, 12_000.0, size.bands) * float(rng.uniform(0.6, 1.6))
    speed = {gpu.id: float(rng.uniform(0.8, 1.25)) for gpu in gpus}
    columns = []
    for first in range(size.bands):
        for last in range(first + 1, size.bands + 1):
            part = share[first:last].sum()
            mean = float(share[first:last] @ tokens[first:last] / part)
            worst = float(tokens[last - 1])
            served = rate * part * mean * 2184.0 * 3600.0
            for gpu in gpus:
                group: list[Column] = []
                for tp in (1, 2, 4, 8):
                    if tp > (8 if gpu.id in WHOLE_NODES else 1):
                        continue
                    room = gpu.visible_memory_gib * tp * 0.88 - weights_gib
                    if room < 1.0 or room < worst * weights_gib * 2e-5 or tp > gpu.max_gpus_per_node:
                        continue
                    for choice in range(size.configs):
                        efficiency = tp**-0.08 * speed[gpu.id] * (1.0 - 0.03 * choice)
                        by_speed = gpu.memory_bandwidth_gb_s * tp * efficiency / (weights_gib * 0.35 + mean * 0.012)
                        by_room = room / (weights_gib**0.5 * mean * 2e-4)
                        holds = min(by_speed / 12.0, by_room) * (1.0 + 0.04 * (1 - choice)) / 10.0
                        load = rate * part * curve / holds
                        running = np.ceil(load + 0.9 * np.sqrt(load))
                        key = f"{name}|{first:02d}-{last:02d}|{gpu.id}|tp{tp}|{choice}"
                        lost = 0.001 if choice == 0 and last == size.bands else 0.0
                        kept = float(served * (1.0 - lost))
                        group.append(column(key, name, (first, last), gpu.id, tp, running, kept))
                columns += undominated(group)
    return columns


def undominated(columns: list[Column]) -> list[Column]:
    """Columns of one slice and GPU type without those that another of no larger tp beats in every period."""

    def gpus(c: Column) -> np.ndarray:
        return np.array(c.parts[0].running) * c.parts[0].placement.gpus_per_replica

    kept: list[Column] = []
    for c in sorted(columns, key=lambda c: (c.parts[0].placement.gpus_per_replica, gpus(c).sum(), -c.served_tokens)):
        if not any((gpus(k) <= gpus(c)).all() and k.served_tokens >= c.served_tokens for k in kept):
            kept.append(c)
    return kept


def column(key: str, model: str, arc: tuple[int, int], gpu: str, tp: int, running: np.ndarray, served: float) -> Column:
    """A column of one part whose need is a stand-in that is exact."""
    counts = tuple(int(n) for n in running)
    need = cast(Need, SimpleNamespace(exact=True, replicas=counts, config=SimpleNamespace(model=model, tp=tp)))
    return Column(key, model, arc[0], arc[1], (Part(Placement(gpu, tp), need, counts),), served)


SIZES = {
    "small": Size(20, 6, 12, 6),
    "medium": Size(60, 6, 20, 12),
    "large": Size(200, 8, 25, 12, gpus=15),
}
