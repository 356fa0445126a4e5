"""The stretch of a log that a load is sized for, and how sure its rate is.

*Stretch.* A log of at most an hour is one stretch, and so is a longer one whose half hours differ no more than Poisson
counts of one rate would (chi-square, 5 %): its busiest hour would be busy by chance alone. Of any other log, every hour
that starts on a multiple of five minutes is looked at; one is stationary when its twelve five-minute counts show
neither slope nor hump: a parabola explains no more of them than chance would, given their own scatter about it (F test,
5 %), so that bursty traffic is allowed the scatter that it has. The busiest stationary hour is taken; the busiest hour,
said to be none, where no hour passes.

*Wander.* Bursts up to the length of a request's life are in the index of dispersion. What is slower moves the level of
the rate, and a stretch shows only one piece of it. With level variance v between sixths of the stretch, beyond what a
Poisson process would show, as a share of the squared mean (0 where chance would often show as much, by the same test),
the next stretch's mean is taken to differ by

    cv^2 = WANDER * v

WANDER = 4 is what a rate that wanders like a random walk does: within a stretch of length T its level has variance
s T / 6, and the means of neighbouring stretches differ with variance 2 s T / 3. Traffic without memory would need 1/3,
a steady trend 12. Measured on public traces the rule errs on neither side by much; tests/benchmarks has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, fdtrc

from planner.traffic.grid import whole_minutes
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.types import FloatArray, IntArray, Traffic

STRETCH_MINUTES = 60
STEP_MINUTES = 5
TREND_P = 0.05
"""A slope or hump that chance would show less often than this is a trend."""
CHANCE_P = 0.05
"""Counts whose scatter Poisson counts of one rate would exceed less often than this do not have one rate."""
SIXTHS = 6
WANDER = 4.0


@dataclass(frozen=True)
class Stretch:
    """A part of the log that is sized for.

    Attributes
    ----------
    start_us, end_us
        In the time of the log, microseconds.
    rate_per_s
        Arrivals per second, failed ones included, scaled up where the log is a sample.
    arrivals
        Arrivals that the log holds of it.
    level_cv2
        Variance of the level of the rate between sixths of the stretch, beyond Poisson, over its squared mean; NaN
        where the stretch has fewer than six whole minutes.
    trend_p
        How often chance would show such a slope or hump of the five-minute counts; NaN where there are fewer than six.
    whole
        Whether it is the whole log.
    """

    start_us: int
    end_us: int
    rate_per_s: float
    arrivals: float
    level_cv2: float
    trend_p: float
    whole: bool

    @property
    def stationary(self) -> bool:
        """Whether no trend shows."""
        return not self.trend_p < TREND_P

    @property
    def wander_cv2(self) -> float:
        """Squared coefficient of variation of the next stretch's mean rate about this one's."""
        return WANDER * self.level_cv2 if np.isfinite(self.level_cv2) else 0.0


def busiest_stretch(traffic: Traffic) -> Stretch:
    """The busiest stationary hour of a log, or the whole log when it is no longer than an hour or of one rate."""
    first, counts = whole_minutes(traffic)
    if traffic.window_s <= STRETCH_MINUTES * 60 or counts.size < STRETCH_MINUTES:
        return _whole(traffic, counts)
    half = STRETCH_MINUTES // 2
    half_hours = counts[: counts.size // half * half].reshape(-1, half).sum(axis=1)
    if _is_chance(half_hours, traffic.sampling_fraction):
        return _whole(traffic, counts)
    sums = np.concatenate([[0], np.cumsum(counts)])
    starts = np.arange(-first % STEP_MINUTES, counts.size - STRETCH_MINUTES + 1, STEP_MINUTES)
    if not starts.size:
        starts = np.array([0])
    parts = STRETCH_MINUTES // STEP_MINUTES
    edges = starts[:, None] + STEP_MINUTES * np.arange(parts + 1)
    trend = _trend_p(np.diff(sums[edges], axis=1).astype(np.float64))
    totals = sums[starts + STRETCH_MINUTES] - sums[starts]
    calm = trend >= TREND_P
    chosen = int(np.argmax(np.where(calm, totals, -1) if calm.any() else totals))
    start = int(starts[chosen])
    inside = counts[start : start + STRETCH_MINUTES]
    return Stretch(
        start_us=(first + start) * MINUTE_US,
        end_us=(first + start + STRETCH_MINUTES) * MINUTE_US,
        rate_per_s=float(inside.sum() / (STRETCH_MINUTES * 60)),
        arrivals=float(inside.sum() * traffic.sampling_fraction),
        level_cv2=_level_cv2(inside, traffic.sampling_fraction),
        trend_p=float(trend[chosen]),
        whole=False,
    )


def _whole(traffic: Traffic, counts: IntArray) -> Stretch:
    parts = counts.size // STEP_MINUTES
    fives = counts[: parts * STEP_MINUTES].reshape(parts, STEP_MINUTES).sum(axis=1).astype(np.float64)
    total = float(traffic.minute_counts.sum())
    return Stretch(
        start_us=traffic.window_start_us,
        end_us=traffic.window_start_us + round(traffic.window_s * 1e6),
        rate_per_s=total / traffic.window_s,
        arrivals=total * traffic.sampling_fraction,
        level_cv2=_level_cv2(counts, traffic.sampling_fraction),
        trend_p=float(_trend_p(fives[None, :])[0]) if parts >= SIXTHS else float("nan"),
        whole=True,
    )


def _trend_p(counts: FloatArray) -> FloatArray:
    """How often chance would let a parabola explain so much of the counts of each row."""
    size = counts.shape[1]
    place = np.linspace(-1.0, 1.0, size)
    shapes = np.linalg.qr(np.stack([np.ones(size), place, place**2], axis=1))[0][:, 1:]
    explained = ((counts @ shapes) ** 2).sum(axis=1)
    total = ((counts - counts.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    left = np.maximum(total - explained, 1e-9 * (1.0 + total))
    ratio = np.where(total < 1e-9, 0.0, explained / 2.0 / (left / (size - 3)))
    return np.asarray(fdtrc(2, size - 3, ratio))


def _level_cv2(minutes: IntArray, share: float) -> float:
    """See `Stretch.level_cv2`; a sample's own scatter is 1 / share times that of all requests."""
    width = minutes.size // SIXTHS
    if width < 1 or minutes.sum() == 0:
        return float("nan")
    parts = minutes.size // width
    counts = minutes[: parts * width].reshape(parts, width).sum(axis=1).astype(np.float64)
    if _is_chance(counts, share):
        return 0.0
    mean = float(counts.mean())
    return (float(counts.var(ddof=1)) - mean / share) / mean**2


def _is_chance(counts: FloatArray | IntArray, share: float) -> bool:
    """Whether Poisson counts of one rate would scatter as much, often enough to take these for such; true of one count.

    The sum of (n − mean)^2 over the mean is chi-square with one degree of freedom less than there are counts.
    """
    mean = float(counts.mean())
    if counts.size < 2 or mean <= 0:
        return True
    scatter = float(((counts - mean) ** 2).sum()) * share / mean
    return bool(chdtrc(counts.size - 1, scatter) >= CHANCE_P)
