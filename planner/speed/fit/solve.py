"""The fit: robust least squares on the logarithm of predicted over measured TPOT, with priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from planner.speed.facts import SpeedFacts
from planner.speed.fit.parameters import Parameter, facts_with, values_of
from planner.speed.fit.sample import Sample
from planner.speed.types import FloatArray

SCALE = 0.1
"""Logarithm of an error at which a point begins to count less than squared."""
FULL_WEIGHT_POINTS = 15
"""A deployment with more points than this weighs no more: a sweep must not drown the others."""
STEP = 1e-4


@dataclass(frozen=True)
class Fit:
    """Where the search ended."""

    theta: FloatArray
    facts: SpeedFacts


def fit(sample: Sample, facts: SpeedFacts, fitted: Sequence[Parameter], *, start: FloatArray | None = None,
        evaluations: int = 30) -> Fit:  # fmt: skip
    """Coefficients that explain the measured TPOT.

        minimise Σ w² ρ(log(predicted / measured) / 0.1) + Σ θ²,   ρ(r) = 2 (√(1 + r²) − 1)

    ρ is soft L1 (P. Charbonnier et al., ICIP 1994): a mislabelled row pulls with a bounded force. θ counts prior
    standard deviations. Deterministic; Jacobian by forward differences.
    """
    weight = weights(sample)

    def residuals(theta: FloatArray) -> FloatArray:
        ratio = log_ratio(sample, facts_with(facts, values_of(fitted, theta))) * weight / SCALE
        return np.concatenate([softened(ratio), theta])

    begin = np.zeros(len(fitted)) if start is None else start
    found = least_squares(residuals, begin, max_nfev=evaluations, diff_step=STEP, x_scale=1.0)
    return Fit(found.x, facts_with(facts, values_of(fitted, found.x)))


def softened(residual: FloatArray) -> FloatArray:
    """Residuals whose squares are ρ(r) = 2 (√(1 + r²) − 1), the soft L1 of `fit`; with the sign of r."""
    return np.asarray(np.sign(residual) * np.sqrt(2.0 * (np.sqrt(1.0 + residual * residual) - 1.0)))


def log_ratio(sample: Sample, facts: SpeedFacts) -> FloatArray:
    """Logarithm of predicted over measured time of a token."""
    return sample.log_ratio(facts)


def weights(sample: Sample) -> FloatArray:
    """Square root of each point's weight: deployments with many points count as if they had 15."""
    _, inverse, count = np.unique(sample.deployment, return_inverse=True, return_counts=True)
    return np.asarray(np.sqrt(np.minimum(1.0, FULL_WEIGHT_POINTS / count[inverse])))


def folds(names: npt.NDArray[np.str_], count: int, seed: int) -> npt.NDArray[np.int64]:
    """A fold for each point; all points of one name share it."""
    distinct = np.unique(names)
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = dict(zip(distinct[order].tolist(), (np.arange(len(distinct)) % count).tolist(), strict=True))
    return np.array([fold_of[name] for name in names.tolist()], dtype=np.int64)
