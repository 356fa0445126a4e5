"""How many tokens are live at once: mean, dispersion, and the quantile that the pool must hold.

Arrivals are batch-Poisson: batches of geometric size with mean b = (IDC + 1) / 2 arrive as a Poisson process, so that
counts over the life of a request have the measured index of dispersion IDC; IDC = 1 is the Poisson process. Requests
of a batch have independent lengths. Nothing waits for memory (the pool is to be large enough for that to be rare).

The exact law is a compound of footprints over ages (M^[X]/G/infinity): with psi_a(t) the characteristic function of
what a request of age a holds (0 after it has left) and G the generating function of the batch size,

    log phi(t) = (rate / b) * integral over a of [G(psi_a(t)) − 1] da

(the generating functional of a Poisson process of batches), inverted by FFT on a lattice. Two figures are vectorised
over candidates: a bound that the quantile cannot fall below, which decides what may be skipped, and the three-moment
gamma, close but no bound, which only says where to look first. Only the lattice law is claimed by a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from planner.queueing.footprint import Marks, Moments
from planner.traffic.types import FloatArray

LATTICE_POINTS = 2**14
AGE_CELLS = 192


@dataclass(frozen=True)
class Residence:
    """How long a request stays: ``s0 + s1 P + s2 P^2`` seconds in prefill, then ``token_s`` for each output token."""

    s0: FloatArray
    s1: FloatArray
    s2: FloatArray
    token_s: FloatArray

    def mean_s(self, moments: Moments) -> FloatArray:
        """Mean time in system, s."""
        prefill = self.s0 + self.s1 * moments.mean_prompt + self.s2 * moments.mean_prompt2
        return prefill + self.token_s * moments.mean_output

    def occupied_s(self, prompt: FloatArray) -> FloatArray:
        """Time that prompts keep others waiting, s: all of their prefill but ``s0``, the last step that they share.

        With candidates along the first axis of the residence, the result has shape (candidates, prompts).
        """
        return np.asarray(self.s1[..., None] * prompt + self.s2[..., None] * prompt**2)

    def resident_s(self, prompt: FloatArray) -> FloatArray:
        """Time from admission to the first token, s, shaped as `occupied_s`."""
        return np.asarray(self.s0[..., None] + self.occupied_s(prompt))


def footprint_integral(moments: Moments, stay: Residence, power: int) -> FloatArray:
    """E of the integral over a request's life of its footprint to ``power``, token-equivalents^power x s."""
    c = moments.prefill[power]
    return np.asarray(stay.s0 * c[0] + stay.s1 * c[1] + stay.s2 * c[2] + stay.token_s * moments.decode[power])


def squared_mean_integral(moments: Moments, stay: Residence) -> FloatArray:
    """Integral over age of E[footprint at that age]^2, token-equivalents^2 x s: what bursts add to the variance.

    The two phases are taken one after the other: decode of one request beside prefill of another is left out.
    """
    p = moments.prefill_overlap
    prefill = stay.s0 * p[0] + stay.s1 * p[1] + stay.s2 * p[2]
    return np.asarray(prefill + stay.token_s * moments.decode_overlap)


def dispersion_scale_s(moments: Moments, stay: Residence) -> FloatArray:
    """Time scale at which the burstiness of arrivals reaches the live tokens, s.

    The width of the rectangle with the integral and the squared integral of the mean footprint h(a) over age,
    (integral h)^2 / integral h^2: the lifetime itself when all requests live equally long, twice its mean when
    lifetimes are exponential.
    """
    return np.asarray(footprint_integral(moments, stay, 1) ** 2 / squared_mean_integral(moments, stay))


def mean_live_tokens(rate_per_s: FloatArray, moments: Moments, stay: Residence) -> FloatArray:
    """Mean live token-equivalents: rate x E[integral of the footprint] (Little's law for work held).

    It is the true mean, rate x E[P (s + O/v) + O^2 / (2 v)], not the product of means.
    """
    return rate_per_s * footprint_integral(moments, stay, 1)


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
    """The exact law of live token-equivalents on a lattice."""

    step_tokens: float
    cumulative: FloatArray
    mean: float

    def quantile(self, overflow: float) -> float:
        """Least amount that is exceeded with probability at most ``overflow``."""
        index = int(np.searchsorted(self.cumulative, 1.0 - overflow))
        return index * self.step_tokens

    def overflow(self, pool_tokens: float) -> float:
        """P(live tokens > pool)."""
        index = int(np.floor(pool_tokens / self.step_tokens * (1 + 1e-12)))
        if index >= len(self.cumulative):
            return 0.0
        return max(0.0, 1.0 - float(self.cumulative[index]))


def live_tokens(rate_per_s: float, idc: float, marks: Marks, moments: Moments, stay: Residence) -> LiveTokens:
    """The exact law of the live tokens of one replica (scalars only), by FFT.

    Parameters
    ----------
    rate_per_s
        Arrivals at this replica.
    idc
        Index of dispersion of its arrivals at the scale of a request's life.
    marks, moments
        The length law in token-equivalents of the pool.
    stay
        Time in prefill and per token at the planned concurrency.

    Raises
    ------
    ValueError
        If the rate is not positive or the law holds nothing.
    """
    exact_mean = float(mean_live_tokens(np.asarray(rate_per_s), moments, stay))
    if rate_per_s <= 0 or exact_mean <= 0:
        raise ValueError("live tokens need a positive rate and a length law that holds tokens")
    batch = float(batch_mean(idc))
    variance = rate_per_s * float(footprint_integral(moments, stay, 2)) * max(idc, 1.0)
    largest = float(max(marks.start.max(), marks.end.max()))
    span = exact_mean + 14.0 * float(np.sqrt(variance)) + 4.0 * batch * largest
    step = span / LATTICE_POINTS
    held, alive_s = _age_distributions(marks, stay, step)
    transform = np.fft.rfft(held, n=LATTICE_POINTS, axis=1)
    psi = transform / (batch - (batch - 1.0) * transform)
    log_phi = rate_per_s / batch * (alive_s @ (psi - 1.0))
    density = np.clip(np.fft.irfft(np.exp(log_phi), n=LATTICE_POINTS), 0.0, None)
    density /= density.sum()
    lattice_mean = float(density @ np.arange(LATTICE_POINTS)) * step
    return LiveTokens(step * exact_mean / lattice_mean, np.cumsum(density), exact_mean)


def _age_distributions(marks: Marks, stay: Residence, step: float) -> tuple[FloatArray, FloatArray]:
    """For each cell of age: the lattice law of what a request holds then (0 after it left), and the cell's length.

    Footprints between two lattice points are split so that their mean is kept.
    """
    prefill = stay.resident_s(marks.prompt)
    life = prefill + stay.token_s * marks.output
    longest = float(life.max())
    edges = np.concatenate([[0.0], np.geomspace(min(longest * 1e-3, float(life.min()) + 1e-9), longest, AGE_CELLS)])
    ages, lengths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    generated = np.clip((ages[:, None] - prefill[None, :]) / stay.token_s, 0.0, None)
    in_prefill = ages[:, None] < prefill[None, :]
    footprint = np.where(in_prefill, marks.start[None, :], marks.held(generated))
    held = np.where(ages[:, None] < life[None, :], footprint, 0.0) / step
    lower = np.minimum(held.astype(np.int64), LATTICE_POINTS - 2)
    share = held - lower
    row = np.arange(len(ages))[:, None] * LATTICE_POINTS
    weight = np.broadcast_to(marks.weight, held.shape)
    size = len(ages) * LATTICE_POINTS
    law: FloatArray = np.bincount((row + lower).ravel(), (weight * (1.0 - share)).ravel(), size).astype(np.float64)
    law += np.bincount((row + lower + 1).ravel(), (weight * share).ravel(), size)
    return law.reshape(len(ages), LATTICE_POINTS), lengths
