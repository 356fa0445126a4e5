"""A model's step coefficients, corrected by the measured points of one deployment.

Coefficients are grouped (`GROUPS`), and each group is multiplied by exp(θ). With y the logarithms of the measured TPOT
and TTFT, f(θ) those of the closed loop at the same loads, Λ the prior variances of θ and N those of the scatter, θ is
the minimum of

    (y − f(θ))ᵀ N⁻¹ (y − f(θ)) + θᵀ Λ⁻¹ θ

within bounds (trust region of `scipy.optimize`), and Σ = (Jᵀ N⁻¹ J + Λ⁻¹)⁻¹ with J = ∂f/∂θ is its covariance
(A. Tarantola, "Inverse Problem Theory", SIAM 2005, eq. 3.51 and 3.53). One point moves the whole model, mostly by the
groups that dominate there; many points at different loads move each group to its own place, and the corrected model is
then the measured curve. Every factor is positive, so a step never gets faster with more sequences or longer contexts.

Prompts that share the steps are part of f: the fit takes their interference out of the measured TPOT.

Points that contradict each other, or the shape of the model, leave residuals larger than N says: the scatter around the
corrected model is then taken as large as they are (R. Birge, Phys. Rev. 40, 207, 1932), which widens the bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from planner.speed.operating import closed_loop
from planner.speed.prior import SpeedPrior
from planner.speed.types import Band, FloatArray, StepCoefficients

GROUPS: Mapping[str, tuple[str, ...]] = {
    "decode": (
        "fixed_s", "dense_read_s", "expert_read_s", "kv_read_s_per_token", "sliding_read_s_per_token", "sequence_s",
        "allreduce_s_per_token", "compute_s_per_token",
    ),
    "fixed": ("fixed_s",),
    "weights": ("dense_read_s", "expert_read_s"),
    "sequence": ("sequence_s", "allreduce_s_per_token", "compute_s_per_token"),
    "cache": ("kv_read_s_per_token", "sliding_read_s_per_token"),
    "prefill": ("prefill_s_per_token", "prefill_s_per_token2"),
    "floor": ("ttft_floor_s", "ttft_client_s", "ttft_wait_steps"),
}  # fmt: skip
"""Coefficients that share a factor; ``decode`` multiplies all of a decode step and the next four refine it."""
EVALUATIONS = 60
TOLERANCE = 1e-6
PROBE = 0.02
"""Step of the numerical derivative, in θ."""
LARGEST = 3.0
"""θ stays within ± this: a factor of 20 either way is no correction any more."""


@dataclass(frozen=True)
class Loads:
    """Closed loops: arrays of equal length, or scalars where all are alike.

    Attributes
    ----------
    clients
        Requests in the replica, those that wait included.
    cached_share
        Share of the prompt tokens that a prefix cache holds.
    room
        Requests that run at once; infinite where the pool is not known.
    """

    clients: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    cached_share: FloatArray = field(default_factory=lambda: np.zeros(()))
    room: FloatArray = field(default_factory=lambda: np.full((), np.inf))

    @property
    def context_tokens(self) -> FloatArray:
        """Mean tokens that a decoding sequence holds: the prompt and half of the output."""
        return self.input_tokens + self.output_tokens / 2


@dataclass(frozen=True)
class Correction:
    """θ by group, its covariance, and the scatter of measured TPOT and TTFT around the corrected model."""

    log_factors: FloatArray
    covariance: FloatArray
    scatter: FloatArray


def corrected(c: StepCoefficients, log_factors: FloatArray) -> StepCoefficients:
    """Coefficients with the factors exp(θ) of their groups; θ has the groups on its last axis."""
    theta = dict(zip(GROUPS, np.moveaxis(np.asarray(log_factors), -1, 0), strict=True))
    names = sorted({name for group in GROUPS.values() for name in group})
    total = {name: sum(theta[g] for g, members in GROUPS.items() if name in members) for name in names}
    return replace(c, **{name: np.asarray(getattr(c, name) * np.exp(power)) for name, power in total.items()})


def fit_correction(c: StepCoefficients, loads: Loads, measured_s: FloatArray, prior: SpeedPrior) -> Correction:
    """θ and Σ from measured points.

    Parameters
    ----------
    c
        The model's coefficients.
    loads
        Where it was measured; repeats of a load share the weight of one point, as they are no independent evidence.
    measured_s
        Shape (points, 2): TPOT and TTFT, seconds; NaN where not measured.
    prior
        Spreads Λ and N.
    """
    spread = np.array([getattr(prior, name).value for name in GROUPS])
    noise = np.array([prior.tpot_noise.value, prior.ttft_noise.value])
    known = np.isfinite(measured_s)
    weight = 1.0 / np.sqrt(_repeats(loads, known) * noise**2)[known]
    logs = np.log(measured_s[known])

    def residuals(theta: FloatArray) -> FloatArray:
        return np.concatenate([(log_times(c, theta, loads)[known] - logs) * weight, theta / spread])

    def jacobian(theta: FloatArray) -> FloatArray:
        return np.vstack([linearised(c, theta, loads)[1][known] * weight[:, np.newaxis], np.diag(1.0 / spread)])

    start = np.zeros(len(GROUPS))
    bounds = (-LARGEST, LARGEST)
    found = least_squares(
        residuals, start, jacobian, bounds, x_scale=spread, ftol=TOLERANCE, xtol=TOLERANCE, max_nfev=EVALUATIONS
    )
    theta, slope = np.asarray(found.x), jacobian(found.x)
    covariance = np.asarray(np.linalg.inv(slope.T @ slope))
    left = np.where(known, np.log(measured_s) - log_times(c, theta, loads), 0.0)
    misfit = np.sqrt((left**2).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return Correction(theta, covariance, np.maximum(noise, misfit))


def _repeats(loads: Loads, known: npt.NDArray[np.bool_]) -> FloatArray:
    """How often each time was measured at its load, shape (points, 2)."""
    columns = np.broadcast_arrays(loads.clients, loads.input_tokens, loads.output_tokens, loads.cached_share)
    _, place = np.unique(np.stack(columns, axis=-1), axis=0, return_inverse=True)
    counts = np.zeros((len(known), 2))
    np.add.at(counts, place.reshape(-1), known)
    return np.asarray(counts[place.reshape(-1)])


def bands_at(
    c: StepCoefficients, correction: Correction, loads: Loads, prior: SpeedPrior
) -> tuple[tuple[Band, Band], ...]:
    """Bands of TPOT and TTFT at each load that hold 80 % of measurements.

    The logarithm of a measurement has the variance j Σ jᵀ + scatter² around the corrected model, j = ∂f/∂θ there:
    little where points are near, the prior's where they say nothing.
    """
    _, slope = linearised(c, correction.log_factors, loads)
    variance = np.einsum("nfi,ij,nfj->nf", slope, correction.covariance, slope)
    edges = np.array([prior.tpot_edge.value, prior.ttft_edge.value])
    widths = np.minimum(edges * np.sqrt(variance + correction.scatter**2), LARGEST)
    return tuple((_band(tpot), _band(ttft)) for tpot, ttft in widths.tolist())


def _band(width: float) -> Band:
    return Band(float(np.exp(-width)), float(np.exp(width)))


def log_times(c: StepCoefficients, theta: npt.ArrayLike, loads: Loads) -> FloatArray:
    """f(θ): logarithms of TPOT and TTFT, shape (points, 2)."""
    theta = np.broadcast_to(np.asarray(theta, dtype=np.float64), len(GROUPS))
    return _log_times(corrected(c, theta), loads)


def linearised(c: StepCoefficients, theta: FloatArray, loads: Loads) -> tuple[FloatArray, FloatArray]:
    """f(θ), shape (points, 2), and ∂f/∂θ, shape (points, 2, groups)."""
    probes = np.vstack([theta, theta + PROBE * np.eye(len(theta))])
    logs = _log_times(corrected(c, probes[:, np.newaxis, :]), loads)
    return logs[0], np.moveaxis((logs[1:] - logs[0]) / PROBE, 0, -1)


def _log_times(c: StepCoefficients, loads: Loads) -> FloatArray:
    found = closed_loop(
        c, loads.clients, loads.input_tokens, loads.output_tokens, room=loads.room, cached_share=loads.cached_share
    )
    return np.asarray(np.log(np.stack(np.broadcast_arrays(found.tpot_s, found.ttft_s), axis=-1)))
