"""How much to believe of measured points: the spreads of `planner.speed.prior`, fitted over many deployments.

With f linearised at the model, y − f(0) of a deployment's points is normal with covariance J Λ Jᵀ + N: the spreads Λ of
the factors and the scatter N are those under which what was measured is most likely (marginal likelihood: C. Rasmussen
and C. Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, section 5.4.1). Coefficients should
come from a fit that has not seen the deployment, or the spreads come out too small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from planner.speed.curve import GROUPS, Loads, bands_at, fit_correction, linearised, log_times
from planner.speed.prior import SpeedPrior
from planner.speed.types import FloatArray, StepCoefficients

Columns = TypeVar("Columns", StepCoefficients, Loads)

SPREADS = (*GROUPS, "tpot_noise", "ttft_noise")
START = (0.2, 0.3, 0.2, 0.6, 0.6, 0.5, 1.0, 0.1, 0.4)
LEAST, MOST = 0.02, 1.5
LARGEST_ERROR = 1.0
"""A mislabelled row counts as wrong by a factor of e, not more."""
INSIDE = 0.8
"""Share of held-out points that the bands hold."""


@dataclass(frozen=True)
class Deployments:
    """Measured points in columns: stacked coefficients, loads, times in seconds, and the deployment of each."""

    coefficients: StepCoefficients
    loads: Loads
    measured_s: FloatArray
    deployment: npt.NDArray[np.str_]

    def at(self, rows: npt.NDArray[np.int64]) -> Deployments:
        """Some of the points."""
        return Deployments(
            _rows(self.coefficients, rows), _rows(self.loads, rows), self.measured_s[rows], self.deployment[rows]
        )

    def rows(self) -> list[npt.NDArray[np.int64]]:
        """Rows of each deployment."""
        return [np.flatnonzero(self.deployment == name) for name in np.unique(self.deployment)]


@dataclass(frozen=True)
class HeldOut:
    """Points that were predicted from others of their deployment: logarithms of measured over predicted."""

    given: int
    before: FloatArray
    """Of the model alone; shape (points, 2), TPOT and TTFT."""
    after: FloatArray
    deviations: FloatArray
    """Half widths of the 80 % band, same shape."""

    @property
    def inside(self) -> FloatArray:
        """Share of TPOT and TTFT within the band."""
        known = np.isfinite(self.after)
        return np.asarray(((np.abs(self.after) <= self.deviations) & known).sum(axis=0) / known.sum(axis=0))


def fit_spreads(data: Deployments) -> Mapping[str, float]:
    """Spreads and scatters by name, deterministic."""
    at, slope = linearised(data.coefficients, np.zeros(len(GROUPS)), data.loads)
    error = np.clip(np.log(data.measured_s) - at, -LARGEST_ERROR, LARGEST_ERROR)
    parts = [(error[rows], slope[rows]) for rows in data.rows()]
    bounds = [(np.log(LEAST), np.log(MOST))] * len(SPREADS)
    options = {"maxiter": 100}
    found = minimize(_minus_log_likelihood, np.log(START), (parts,), method="L-BFGS-B", bounds=bounds, options=options)
    return dict(zip(SPREADS, np.exp(found.x).tolist(), strict=True))


def _minus_log_likelihood(logs: FloatArray, parts: Sequence[tuple[FloatArray, FloatArray]]) -> float:
    spread, scatter = np.exp(logs[: len(GROUPS)]), np.exp(logs[len(GROUPS) :])
    total, count = 0.0, 0
    for error, slope in parts:
        known = np.isfinite(error)
        jacobian = slope[known] * spread
        covariance = jacobian @ jacobian.T + np.diag(np.broadcast_to(scatter**2, error.shape)[known])
        lower = np.linalg.cholesky(covariance)
        whitened = np.linalg.solve(lower, error[known])
        total += 0.5 * float(whitened @ whitened) + float(np.log(np.diag(lower)).sum())
        count += int(known.sum())
    return total / count


def held_out(data: Deployments, prior: SpeedPrior, given: int, seed: int) -> HeldOut:
    """Predict the points of every deployment from ``given`` of them, drawn at random."""
    rng = np.random.default_rng(seed)
    found = []
    for rows in data.rows():
        if len(rows) > given:
            chosen = rng.permutation(rows)
            found.append(_predicted(data.at(np.sort(chosen[:given])), data.at(np.sort(chosen[given:])), prior))
    before, after, widths = (np.concatenate(column) for column in zip(*found, strict=True))
    return HeldOut(given, before, after, widths)


def _predicted(given: Deployments, wanted: Deployments, prior: SpeedPrior) -> tuple[FloatArray, FloatArray, FloatArray]:
    c = _rows(given.coefficients, np.zeros(1, dtype=np.int64))
    correction = fit_correction(c, given.loads, given.measured_s, prior)
    measured = np.log(wanted.measured_s)
    bands = bands_at(c, correction, wanted.loads, prior)
    widths = np.log([[tpot.high, ttft.high] for tpot, ttft in bands])
    after = measured - log_times(c, correction.log_factors, wanted.loads)
    return measured - log_times(c, 0.0, wanted.loads), after, widths


def edges_of(found: Sequence[HeldOut], prior: SpeedPrior) -> Mapping[str, float]:
    """Standard deviations from the middle to the edges that hold 80 % of held-out TPOT and TTFT."""
    edges = {}
    for column, name in enumerate(("tpot_edge", "ttft_edge")):
        ratio = np.concatenate([np.abs(each.after[:, column]) / each.deviations[:, column] for each in found])
        edges[name] = float(np.nanquantile(ratio, INSIDE)) * float(getattr(prior, name).value)
    return edges


def _rows(columns: Columns, rows: npt.NDArray[np.int64]) -> Columns:
    values = {item.name: np.asarray(getattr(columns, item.name)) for item in fields(columns)}
    return type(columns)(**{name: value[rows] if value.ndim else value for name, value in values.items()})
