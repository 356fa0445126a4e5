"""How many tokens are live at once: mean, dispersion, and the quantile that the pool must hold.

Arrivals are batch-Poisson: batches of geometric size with mean b = (IDC + 1) / 2 arrive as a Poisson process, so that
counts over the life of a request have the measured index of dispersion IDC; IDC = 1 is the Poisson process. Requests
of a batch have independent lengths. Nothing waits for memory (the pool is to be large enough for that to be rare).

The exact law is a compound of footprints over ages (M^[X]/G/infinity): with psi_a(t) the characteristic function of
what a request of age a holds (0 after it has left) and G the generating function of the batch size,

    log phi(t) = (rate / b) * integral over a of [G(psi_a(t)) − 1] da = rate * K(t)

(the generating functional of a Poisson process of batches). The rate itself may be uncertain: where it is gamma with
squared coefficient of variation c, phi = (1 − c rate K)^(−1/c). Both are inverted by FFT (`planner.queueing.lattice`).

Two figures are vectorised over candidates: a bound that the quantile cannot fall below, which decides what may be
skipped, and the three-moment gamma, close but no bound, which only says where to look first. Only the lattice law is
claimed by a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from planner.queueing.footprint import Marks, Moments
from planner.queueing.lattice import POINTS, Ages, ages_of, density_of, exponent_of, span_at_least
from planner.queueing.residence import (
    Residence,
    footprint_integral,
    mean_live_tokens,
    squared_mean_integral,
)
from planner.traffic.types import FloatArray

SMALLEST_OVERFLOW = 1e-3
"""Least overflow whose quantile a law must hold, where the caller asks for none smaller."""
BEYOND = 0.9
"""Share of that overflow that may lie beyond the lattice."""
WIDEST = 2.5
"""A lattice that reaches further beyond the smallest quantile than this many times is made again, narrower."""


MEAN_FACTOR = 1.5
"""Head-room of the rule of means: replicas that 1.5 times the figures of `MeanFormula` fill."""


class MeanFormula(NamedTuple):
    """The product-of-means figures of a load: a cross-check only."""

    time_in_system_s: float
    live_requests: float
    live_tokens: float


def mean_formula(
    rate_per_s: float, mean_prompt: float, mean_output: float, decode_tokens_per_s: float, prefill_s: float
) -> MeanFormula:
    """Little's law on means: time s + O/v, live requests rate x time, live tokens live requests x (P + O/2).

    The token figure drops Var(O)/(2v) and Cov(P, O)/v, and is therefore biased for real traffic.
    """
    time_s = prefill_s + mean_output / decode_tokens_per_s
    live = rate_per_s * time_s
    return MeanFormula(time_s, live, live * (mean_prompt + mean_output / 2))


def batch_mean(idc: FloatArray | float) -> FloatArray:
    """Mean of the geometric batch that gives counts the index of dispersion ``idc``: (idc + 1) / 2, at least 1."""
    return np.maximum(1.0, (np.asarray(idc, dtype=np.float64) + 1.0) / 2.0)


def thinned_idc(idc: FloatArray | float, replicas: FloatArray | float) -> FloatArray:
    """Index of dispersion of one of ``replicas`` equal parts under random routing: 1 + (idc − 1) / replicas."""
    return 1.0 + (np.maximum(np.asarray(idc, dtype=np.float64), 1.0) - 1.0) / np.asarray(replicas, dtype=np.float64)


def gamma_quantile(mean: FloatArray, variance: FloatArray, skewness: FloatArray, overflow: float) -> FloatArray:
    """Quantile at 1 − ``overflow`` of the shifted gamma with three given moments."""
    skew = np.maximum(skewness, 1e-6)
    sd = np.sqrt(variance)
    shape = 4.0 / skew**2
    return np.asarray(mean + sd * (gammaincinv(shape, 1.0 - overflow) * skew / 2.0 - 2.0 / skew))


def request_quantile(live_requests: FloatArray | float, dispersion: FloatArray | float, overflow: float) -> FloatArray:
    """Whole live requests that are exceeded with probability at most ``overflow``: gamma with variance over mean."""
    shape = np.maximum(live_requests, 1e-9) / dispersion
    return np.asarray(np.ceil(gammaincinv(shape, 1.0 - overflow) * dispersion))


def screened_quantile(
    rate_per_s: FloatArray, idc: FloatArray, moments: Moments, stay: Residence, overflow: float
) -> FloatArray:
    """Live-token quantile by the three-moment gamma, vectorised over candidates, token-equivalents."""
    return gamma_quantile(*_cumulants(rate_per_s, idc, moments, stay), overflow)


def quantile_lower_bound(
    rate_per_s: FloatArray, idc: FloatArray, moments: Moments, stay: Residence, overflow: float
) -> FloatArray:
    """A figure that the live-token quantile cannot fall below, whatever the law: mean − sd * sqrt(eps / (1 − eps)).

    Cantelli's inequality P(X <= mean − k) <= var / (var + k^2), with P(X <= quantile) >= 1 − eps.
    """
    mean, variance, _ = _cumulants(rate_per_s, idc, moments, stay)
    return np.asarray(mean - np.sqrt(variance * overflow / (1.0 - overflow)))


def quantile_upper_bound(
    rate_per_s: FloatArray, idc: FloatArray, moments: Moments, stay: Residence, overflow: float
) -> FloatArray:
    """A figure that the live-token quantile cannot exceed, whatever the law: mean + sd * sqrt((1 − eps) / eps).

    Cantelli's inequality P(X >= mean + k) <= var / (var + k^2): exceeded with probability at most eps.
    """
    mean, variance, _ = _cumulants(rate_per_s, idc, moments, stay)
    return np.asarray(mean + np.sqrt(variance * (1.0 - overflow) / overflow))


def _cumulants(
    rate_per_s: FloatArray, idc: FloatArray, moments: Moments, stay: Residence
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, variance and skewness of the live tokens.

    Variance = rate x [integral of E f^2 + (idc − 1) x integral of (E f)^2]; the third cumulant of the Poisson case is
    scaled by the square of the variance ratio, as the cumulants of a batch process scale.
    """
    mean = mean_live_tokens(rate_per_s, moments, stay)
    poisson_variance = rate_per_s * footprint_integral(moments, stay, 2)
    variance = poisson_variance + rate_per_s * (idc - 1.0) * squared_mean_integral(moments, stay)
    third = rate_per_s * footprint_integral(moments, stay, 3) * (variance / poisson_variance) ** 2
    return mean, variance, np.asarray(third / variance**1.5)


@dataclass(frozen=True)
class LiveTokens:
    """The exact law of live token-equivalents on a lattice, up to its end; what lies beyond is one remainder."""

    step_tokens: float
    cumulative: FloatArray
    mean: float

    def quantile(self, overflow: float) -> float:
        """Least amount that is exceeded with probability at most ``overflow``, token-equivalents.

        Raises
        ------
        ValueError
            If it lies beyond the lattice, which was made for larger overflows.
        """
        index = int(np.searchsorted(self.cumulative, 1.0 - overflow))
        if index >= len(self.cumulative):
            raise ValueError(f"the law was made for overflows larger than {overflow}")
        return index * self.step_tokens

    def overflow(self, pool_tokens: float) -> float:
        """P(live tokens > pool); beyond the lattice, the bound at its end."""
        index = int(np.floor(pool_tokens / self.step_tokens * (1 + 1e-12)))
        return max(0.0, 1.0 - float(self.cumulative[min(index, len(self.cumulative) - 1)]))


@dataclass(frozen=True)
class LiveLoad:
    """What one replica is asked to hold.

    Attributes
    ----------
    rate_per_s
        Arrivals at this replica.
    idc
        Index of dispersion of its arrivals at the scale of a request's life.
    marks, moments
        The length law in token-equivalents of the pool.
    stay
        Time in prefill and per token at the planned concurrency (scalars).
    rate_cv2
        Squared coefficient of variation of the rate itself: how sure it is.
    """

    rate_per_s: float
    idc: float
    marks: Marks
    moments: Moments
    stay: Residence
    rate_cv2: float = 0.0

    @property
    def mean(self) -> float:
        """Mean live token-equivalents."""
        return float(mean_live_tokens(np.asarray(self.rate_per_s), self.moments, self.stay))

    @property
    def mean_request(self) -> float:
        """Mean footprint over the time that requests live: what a lattice holds at least, however little is live."""
        return float(footprint_integral(self.moments, self.stay, 1) / self.stay.mean_s(self.moments))


def live_tokens(
    rate_per_s: float,
    idc: float,
    marks: Marks,
    moments: Moments,
    stay: Residence,
    *,
    rate_cv2: float = 0.0,
    smallest_overflow: float = SMALLEST_OVERFLOW,
) -> LiveTokens:
    """The exact law of the live tokens of one replica; see `LiveLoad` for the parameters.

    Raises
    ------
    ValueError
        If the rate is not positive or the law holds nothing.
    """
    load = LiveLoad(rate_per_s, idc, marks, moments, stay, rate_cv2)
    return live_tokens_batch([load], smallest_overflow)[0]


def live_tokens_batch(loads: Sequence[LiveLoad], smallest_overflow: float = SMALLEST_OVERFLOW) -> list[LiveTokens]:
    """The exact laws of many loads; those that differ in rate and burstiness alone share the transforms of their ages.

    Each law is the one that `live_tokens` gives for its load, to the last bit.

    Parameters
    ----------
    loads
        In any order; sharing is by identity of ``marks`` and ``moments`` and by the values of ``stay``.
    smallest_overflow
        Least overflow whose quantile will be asked for.

    Raises
    ------
    ValueError
        If a rate is not positive or a law holds nothing.
    """
    if any(load.rate_per_s <= 0 or load.mean <= 0 for load in loads):
        raise ValueError("live tokens need a positive rate and a length law that holds tokens")
    found: list[LiveTokens | None] = [None] * len(loads)
    groups: dict[tuple[object, ...], list[tuple[float, int]]] = {}
    for place, load in enumerate(loads):
        groups.setdefault(_shared_key(load), []).append((_first_span(load, smallest_overflow), place))
    for group in groups.values():
        shared: dict[float, Ages] = {}
        for span, place in sorted(group):
            found[place] = _law(loads[place], span, smallest_overflow, shared)
    return [law for law in found if law is not None]


def _shared_key(load: LiveLoad) -> tuple[object, ...]:
    stay = load.stay
    return (id(load.marks), id(load.moments), *(float(v) for v in (stay.s0, stay.s1, stay.s2, stay.token_s)))


def _first_span(load: LiveLoad, smallest_overflow: float) -> float:
    """Where the lattice is tried first: a little beyond the three-moment gamma's quantile."""
    scalars = np.asarray(load.rate_per_s), np.asarray(load.idc)
    mean, variance, skewness = (float(figure) for figure in _cumulants(*scalars, load.moments, load.stay))
    cv2 = load.rate_cv2
    mixed = variance + cv2 * mean**2
    third = skewness * variance**1.5 + 3.0 * cv2 * mean * variance + 2.0 * cv2**2 * mean**3
    shape = np.asarray(mean), np.asarray(mixed), np.asarray(third / mixed**1.5)
    return span_at_least(max(1.1 * float(gamma_quantile(*shape, smallest_overflow)), load.mean_request))


def _law(load: LiveLoad, span: float, smallest_overflow: float, shared: dict[float, Ages]) -> LiveTokens:
    """The law on a lattice that ends a little beyond the smallest quantile, looked for from ``span`` on."""
    batch = float(batch_mean(load.idc))
    narrowest = 0.0
    while True:
        if span not in shared:
            footprint = float(footprint_integral(load.moments, load.stay, 1))
            shared[span] = ages_of(load.marks, load.stay, footprint, span)
        density = density_of(exponent_of(shared[span], batch), load.rate_per_s, load.rate_cv2, POINTS)
        law = LiveTokens(span / POINTS, np.cumsum(density), load.mean)
        if law.cumulative[-1] < 1.0 - smallest_overflow * BEYOND:
            narrowest = span = span_at_least(span * 1.3)
            continue
        enough = span_at_least(max(1.2 * law.quantile(smallest_overflow), load.mean_request))
        if enough * WIDEST > span or enough <= narrowest:
            return law
        span = enough
