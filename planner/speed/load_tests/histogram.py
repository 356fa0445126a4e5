"""Cumulative histograms of Prometheus: differences, means, quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner import units
from planner.speed.load_tests.types import Spread


@dataclass(frozen=True)
class Histogram:
    """Observations up to each bound (the last is infinite), and their sum."""

    buckets: Mapping[float, float] = field(default_factory=dict)
    total: float = 0.0

    @property
    def count(self) -> float:
        """All observations."""
        return self.buckets.get(math.inf, 0.0)

    @property
    def mean(self) -> float | None:
        """Sum over count, which needs no buckets."""
        return self.total / self.count if self.count > 0 and self.total > 0 else None

    def __add__(self, other: Histogram) -> Histogram:
        bounds = {*self.buckets, *other.buckets}
        return Histogram(
            {bound: self.buckets.get(bound, 0.0) + other.buckets.get(bound, 0.0) for bound in sorted(bounds)},
            self.total + other.total,
        )

    def since(self, earlier: Histogram) -> Histogram:
        """What was observed after an earlier state."""
        buckets = {bound: value - earlier.buckets.get(bound, 0.0) for bound, value in self.buckets.items()}
        return Histogram(buckets, self.total - earlier.total)

    def quantile(self, share: float) -> float | None:
        """The value below which a share of the observations lies, by linear interpolation within its bucket.

        The first bucket begins at 0, as ``histogram_quantile`` of Prometheus has it. ``None`` if the quantile lies in
        the last bucket, which has no upper bound: it could be anything above the one before.
        """
        rank, below, low = share * self.count, 0.0, 0.0
        for bound, value in sorted(self.buckets.items()):
            if value >= rank and value > below:
                if math.isinf(bound):
                    return None
                return low + (bound - low) * (rank - below) / (value - below)
            below, low = max(below, value), bound
        return None

    def spread_ms(self) -> Spread:
        """Mean and percentiles of seconds, in milliseconds."""
        found = (self.mean, self.quantile(0.5), self.quantile(0.9), self.quantile(0.99))
        return Spread(*(None if value is None else units.s_to_ms(value) for value in found))
