"""How finely the time stamps of a log are resolved."""

from __future__ import annotations

import numpy as np

from planner.traffic.tables.definitions import BLOCK_US
from planner.traffic.tables.hours import Hours
from planner.traffic.tables.rows import Column

_MOST_STAMPS = 2_000_000


class BusiestHour:
    """The distinct time stamps of the hour with the most rows, the first of equal ones; a filter by model is no matter.

    Rows of other models count too: leaving them out does not make the clock coarser.
    """

    def __init__(self, start_us: int) -> None:
        self._start_us = start_us
        self._n = 0
        self._stamps: Column = np.empty(0, dtype=np.int64)

    def add(self, hours: Hours) -> None:
        """Look at some whole hours, later than all before."""
        hour = (hours.ts_us - self._start_us) // BLOCK_US
        if not len(hour):
            return
        first = int(hour.min())
        per_hour = np.bincount(hour - first)
        busiest = int(per_hour.argmax())
        if per_hour[busiest] > self._n:
            self._n = int(per_hour[busiest])
            self._stamps = np.unique(hours.ts_us[hour == first + busiest])[:_MOST_STAMPS]

    def resolution(self) -> tuple[int, bool]:
        """Resolution of the time stamps in microseconds, and whether they are exact multiples of it.

        The greatest common divisor of the gaps between distinct stamps; or, where a fifth of the arrivals share a
        stamp and the distinct stamps are evenly spaced, that spacing (a clock that ticks every 3 s with a jitter of
        1 ms has a divisor of 1 ms but a resolution of 3 s).
        """
        gaps = np.diff(self._stamps)
        if not len(gaps):
            return 1, True
        divisor = int(np.gcd.reduce(gaps))
        ties = 1.0 - len(self._stamps) / self._n
        spacing, median = np.percentile(gaps, [10, 50])
        if ties >= 0.2 and spacing >= 0.5 * median and spacing > divisor:
            return round(float(spacing)), False
        return divisor, True
