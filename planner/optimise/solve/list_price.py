"""What GPU-hours cost at least: the cheapest that can be had, limits counted for one taker at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.optimise.program import quota_covers
from planner.optimise.supply.supplies import can_stand
from planner.optimise.types import Lot, LotKind, Placement, ProgramData
from planner.traffic.types import FloatArray


@dataclass(frozen=True)
class Curve:
    """Lots that a placement can stand on, from the cheapest; L lots, T periods."""

    usd_per_gpu: FloatArray
    """Least cost of one GPU through each period, shape (L, T)."""
    most_gpus: FloatArray
    """GPUs that can be had, shape (L, T); infinite where nothing limits them."""

    def least_usd(self, gpus: FloatArray) -> FloatArray:
        """Least cost of GPUs by period, shape (N, T) -> (N,); infinite where so many cannot be had."""
        if not len(self.usd_per_gpu):
            return np.where(np.any(gpus > 0, axis=1), np.inf, 0.0)
        usd, left = np.zeros(len(gpus)), gpus.astype(np.float64)
        for price, most in zip(self.usd_per_gpu, self.most_gpus, strict=True):
            taken = np.minimum(left, most)
            usd += taken @ price
            left = left - taken
        return np.where(np.any(left > 0, axis=1), np.inf, usd)


@dataclass(frozen=True)
class ListPrice:
    """Least cost of a column's GPU-hours: no fleet's instances cost less than the sum over its columns.

    Every column is charged as if it alone took the cheapest lots up to their limits (availability, and the quotas that
    cover them); a commitment is charged only for the hours that are used; instances may be taken in parts. Each of
    these is at most what a fleet pays, and costs that rise with the quantity are at least the sum of their parts'.
    """

    data: ProgramData
    _curves: dict[Placement, Curve] = field(default_factory=dict, repr=False)

    def curve(self, placement: Placement) -> Curve:
        """The lots that a placement can stand on."""
        if placement not in self._curves:
            self._curves[placement] = _curve_of(placement, self.data)
        return self._curves[placement]

    def least_usd(self, placement: Placement, running: FloatArray) -> FloatArray:
        """Least cost of replicas of one placement by period, shape (N, T) -> (N,), USD."""
        return self.curve(placement).least_usd(running * float(placement.gpus_per_replica))


def limited_gpus(data: ProgramData) -> frozenset[str]:
    """GPU types of which some lot can be had only so often, or is covered by a quota."""
    quoted = (lot for lot in data.lots if any(quota_covers(quota, lot.offer) for quota in data.quotas))
    counted = (lot for lot in data.lots if lot.available is not None)
    return frozenset(lot.offer.gpu for lots in (quoted, counted) for lot in lots)


def _curve_of(placement: Placement, data: ProgramData) -> Curve:
    shares = {supply.id: supply.usable_share for supply in data.supplies if can_stand(placement, supply)}
    lots = [lot for lot in data.lots if lot.supply in shares]
    hours = np.array([period.hours for period in data.periods])

    def usd(lot: Lot) -> float:
        return (lot.used_usd_per_h + lot.reserved_usd_per_h) / (lot.gpus_per_instance * shares[lot.supply])

    ranked = sorted(lots, key=lambda lot: (usd(lot), lot.id))
    prices = np.array([usd(lot) * hours for lot in ranked]).reshape(len(ranked), hours.size)
    most = np.array([_most_gpus(lot, data) * shares[lot.supply] for lot in ranked]).reshape(len(ranked), hours.size)
    return Curve(prices, most)


def _most_gpus(lot: Lot, data: ProgramData) -> FloatArray:
    """GPUs of a lot that can be had in each period."""
    count = len(data.periods)
    most = np.full(count, np.inf) if lot.available is None else np.array(lot.available) * float(lot.gpus_per_instance)
    # What is held already may be more than a quota allows to be had anew.
    if lot.kind is not LotKind.EXISTING_COMMITMENT:
        for quota in data.quotas:
            if quota_covers(quota, lot.offer):
                most = np.minimum(most, float(quota.max_gpus))
    return most
