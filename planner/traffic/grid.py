"""The grid that arrivals are counted on: whole minutes since 1970, and hours of the week."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.types import FloatArray, IntArray, Traffic

HOUR_US = 60 * MINUTE_US
HOURS_A_WEEK = 168
_THURSDAY_HOURS = 72
"""1970 began on a Thursday: hours from Monday 00:00 to then."""


class Span(NamedTuple):
    """A stretch of time in microseconds, the end exclusive."""

    start_us: int
    end_us: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_us - self.start_us) / 1e6

    @property
    def whole_minutes(self) -> tuple[int, int]:
        """Number since 1970 of the first minute that lies inside, and of the first after it that does not."""
        first = -(-self.start_us // MINUTE_US)
        return first, max(self.end_us // MINUTE_US, first)


def counts_by_minute(rates: pa.Table, spans: Sequence[Span]) -> list[IntArray]:
    """Arrivals of the whole minutes of each stretch, zeros included.

    Parameters
    ----------
    rates
        Rows of one model of the ``rates`` table.
    """
    minute = rates["minute_utc"].cast(pa.int64()).to_numpy() // MINUTE_US
    n = rates["n"].to_numpy()
    found = []
    for span in spans:
        first, end = span.whole_minutes
        counts = np.zeros(end - first, dtype=np.int64)
        inside = (minute >= first) & (minute < end)
        counts[minute[inside] - first] = n[inside]
        found.append(counts)
    return found


def whole_minutes(traffic: Traffic) -> tuple[int, IntArray]:
    """Number since 1970 of the first wholly observed minute, and the counts of all of them, zeros included."""
    span = Span(traffic.window_start_us, traffic.window_start_us + round(traffic.window_s * 1e6))
    first, end = span.whole_minutes
    at = span.start_us // MINUTE_US
    return first, traffic.minute_counts[first - at : end - at]


def whole_growth(values: FloatArray) -> FloatArray:
    """Steps of a cumulative function as whole numbers: rounded where it stands, so that no sum is off by more than 1/2.

    Rounding every step by itself would lose the total, and dealing out what is left over by the largest remainders
    would bunch it where rates are even.
    """
    return np.diff(np.floor(values + 0.5))


def hour_of_week(ts_us: IntArray | np.int64) -> IntArray:
    """UTC hour of the week of each moment; 0 is Monday 00:00."""
    return np.asarray((ts_us // HOUR_US + _THURSDAY_HOURS) % HOURS_A_WEEK)
