"""Cumulative counters with restarts: what each target counted, as a function of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import InputError, Problem
from planner.traffic.types import FloatArray

Flags = npt.NDArray[np.bool_]

GAP_INTERVALS = 5
"""A pause of more scrape intervals than this is a gap: what was counted in it has no known time."""
RAW = "Export the raw series of every replica: no rate(), no increase(), no sum()"
UNLIKELY = 3.0
"""A restarted counter that shows more than this many times the largest growth seen elsewhere did not start at 0."""
SMALL = 100.0
BUSY = 10
"""With so many requests between two samples that differ, no two scrapes see the same count by chance."""


@dataclass(frozen=True)
class Counted:
    """What a target counted since its first sample: one row per time, one column per counter, restarts undone."""

    time_s: FloatArray
    grown: FloatArray
    """Cumulative; never falls."""
    restarts: int = 0

    def at(self, time_s: FloatArray, column: int) -> FloatArray:
        """One column at any times: linear between samples, constant outside."""
        return np.interp(time_s, self.time_s, self.grown[:, column])

    @property
    def total(self) -> FloatArray:
        """What every counter counted in all."""
        return np.asarray(self.grown[-1], dtype=np.float64)


def undo_restarts(where: str, time_s: FloatArray, values: FloatArray, counter: int = 0) -> Counted:
    """Growth since the first sample: where any counter fell, all of the target began anew from 0.

    Parameters
    ----------
    where
        The target, for messages.
    time_s, values
        Increasing times, and a column for every counter of the target.
    counter
        The column that counts requests.

    Raises
    ------
    InputError
        If the values are no counters: requests that are not whole numbers, or falls that no restart explains, as of
        rates, and of sums over replicas of which one restarted.
    """
    if not np.isfinite(values).all():
        raise InputError(Problem(where, "holds a figure that is infinite", RAW))
    steps = np.diff(values, axis=0)
    fell = np.asarray((steps < 0).any(axis=1), dtype=np.bool_)
    _check(where, time_s, values[:, counter], steps[:, counter], fell)
    grown = np.where(fell[:, None], values[1:], steps)
    return Counted(time_s, np.vstack([np.zeros(values.shape[1]), np.cumsum(grown, axis=0)]), int(fell.sum()))


def _check(where: str, time_s: FloatArray, count: FloatArray, steps: FloatArray, fell: Flags) -> None:
    if (np.abs(count - np.rint(count)) > 1e-6 * np.maximum(np.abs(count), 1.0)).any() or (count < 0).any():
        raise InputError(Problem(where, "its requests are not whole numbers: a rate rather than a counter", RAW))
    if not fell.any() or fell.all():  # nothing to compare a restart with
        return
    seconds = np.diff(time_s)
    usual = (steps[~fell] / seconds[~fell]).max(initial=0.0)
    odd = fell & (count[1:] > SMALL + UNLIKELY * usual * seconds)
    if odd.any():
        at = int(np.flatnonzero(odd)[0])
        what = f"its count of requests falls from {count[at]:,.0f} to {count[at + 1]:,.0f}, which no restart explains"
        raise InputError(Problem(where, what, RAW))


def without_repeats(counted: Counted, counter: int = 0) -> Counted:
    """Only the samples that a scrape made, where a query asked at a finer step than the scrapes.

    Prometheus answers every step with the last scrape's value. On a target that is never idle for long, values that
    repeat show it: the usual time between two changes is the scrape interval, and samples in between are no news.
    """
    grew = np.diff(counted.grown[:, counter]) > 0
    changes = counted.time_s[1:][grew]
    if changes.size < 2 or counted.total[counter] < BUSY * changes.size:
        return counted
    interval = float(np.median(np.diff(changes)))
    if interval < 1.5 * float(np.median(np.diff(counted.time_s))):
        return counted
    kept, last = [0], float(counted.time_s[0])
    for place, time_s in enumerate(counted.time_s[1:].tolist(), start=1):
        if grew[place - 1] or time_s - last >= 0.999 * interval or place == counted.time_s.size - 1:
            kept.append(place)
            last = time_s
    return Counted(counted.time_s[kept], counted.grown[kept], counted.restarts)


def scrape_interval_s(counted: Sequence[Counted]) -> float:
    """The usual time between two samples of a target; infinite where each has but one span."""
    gaps = [np.diff(one.time_s) for one in counted if one.time_s.size > 1]
    return float(np.median(np.concatenate(gaps))) if gaps else float("inf")


def gaps_of(counted: Sequence[Counted], interval_s: float) -> list[tuple[float, float]]:
    """Spans of time in which a target was not scraped for long, as start and end, merged and in order."""
    found: list[tuple[float, float]] = []
    for one in counted:
        long = np.flatnonzero(np.diff(one.time_s) > GAP_INTERVALS * interval_s)
        found += [(float(one.time_s[k]), float(one.time_s[k + 1])) for k in long]
    merged: list[tuple[float, float]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
