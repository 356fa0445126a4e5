"""How far the fit is from points that it has not seen: by deployment, by architecture, by GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.speed.facts import SpeedFacts
from planner.speed.fit.first_token import fit_first_token
from planner.speed.fit.parameters import Parameter
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import Fit, fit, folds
from planner.speed.operating import Operating
from planner.speed.types import FloatArray

FOLDS = 4
REFIT_EVALUATIONS = 10
"""From the fit on everything, a fold needs few steps."""


@dataclass(frozen=True)
class Ratios:
    """Measured over predicted of points that were held out."""

    tpot: FloatArray
    ttft: FloatArray
    throughput: FloatArray
    """Of full loads; NaN for closed loops, as the other two are for full loads."""


@dataclass(frozen=True)
class Score:
    """Errors of a group of points, % of the measurement."""

    points: int
    median: float
    p90: float
    bias: float
    """Median of measured over predicted."""


def held_out(
    sample: Sample, facts: SpeedFacts, fitted: Sequence[Parameter], whole: Fit, fold: npt.NDArray[np.int64]
) -> Ratios:
    """Each fold predicted by a fit on the others."""
    tpot, ttft, throughput = (np.zeros(len(sample)) for _ in range(3))
    for each in np.unique(fold):
        out = fold == each
        refitted = fit(sample.at(~out), facts, fitted, start=whole.theta, evaluations=REFIT_EVALUATIONS)
        ratios = ratios_of(sample.at(out), sample.at(out).operating(fit_first_token(sample.at(~out), refitted.facts)))
        tpot[out], ttft[out], throughput[out] = ratios.tpot, ratios.ttft, ratios.throughput
    return Ratios(tpot, ttft, throughput)


def ratios_of(sample: Sample, predicted: Operating) -> Ratios:
    """Measured over predicted."""
    throughput = np.where(sample.full, sample.output_tok_s / predicted.output_tok_s, np.nan)
    return Ratios(sample.tpot_s / predicted.tpot_s, sample.ttft_s / predicted.ttft_s, throughput)


def by_deployment(sample: Sample, seed: int) -> npt.NDArray[np.int64]:
    """Folds that never split a deployment."""
    return folds(sample.deployment, FOLDS, seed)


def one_by_one(names: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
    """A fold for each name."""
    return np.asarray(np.unique(names, return_inverse=True)[1], dtype=np.int64)


def score(ratio: FloatArray) -> Score:
    """Median and 90th percentile of the absolute error of the prediction, relative to the measurement; NaN of none."""
    known = ratio[np.isfinite(ratio)]
    if not len(known):
        return Score(0, np.nan, np.nan, np.nan)
    error = 100.0 * np.abs(1.0 / known - 1.0)
    return Score(len(known), float(np.median(error)), float(np.quantile(error, 0.9)), float(np.median(known)))


def band_of(ratio: FloatArray) -> tuple[float, float]:
    """10th and 90th percentile of measured over predicted: what holds 80 % of the points."""
    known = ratio[np.isfinite(ratio)]
    return float(np.quantile(known, 0.1)), float(np.quantile(known, 0.9))
