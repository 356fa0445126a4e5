"""The second stage of the fit: what each engine adds to a first token, once the step times are known.

Step times hardly depend on these constants, so they are fitted after them, on the TTFT of the same points. The share of
prompts that arrive together is set by the benchmark and by the engine's scheduler, not fitted (`planner.speed.ttft`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from planner import units
from planner.speed.facts import EraFacts, FirstTokenFacts, SpeedFacts
from planner.speed.fit.parameters import Parameter, era_name, rounded, values_of
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import softened, weights
from planner.speed.ttft import running_ttft_s
from planner.speed.types import FloatArray, StepCoefficients

SCALE = 0.2
"""Logarithm of an error at which a point begins to count less than squared."""
ROOMY = 0.9
"""Points with more clients than this share of the room tell about the token pool, not about the engine."""
START_TOGETHER = 0.1
"""Of a benchmark that sends ten requests for each client, which all start at once."""
EVALUATIONS = 100
FIELDS = ("floor_ms", "client_ms", "wait_steps")
PRIORS = {"floor_ms": (50.0, 0.7), "client_ms": (1.0, 0.8), "wait_steps": (4.0, 0.7)}
"""Value and standard deviation of the logarithm."""
SGLANG_PRIORS = PRIORS | {"floor_ms": (50.0, 0.3), "wait_steps": (15.0, 0.2)}
"""The benchmarks behind the points start SGLang with ``--scheduler-recv-interval`` 10, or 30 from 16 clients on; its
steps and its time per client grow alike with the clients, and points alone cannot tell them apart."""


def fit_first_token(sample: Sample, facts: SpeedFacts) -> SpeedFacts:
    """Facts with the constants that explain the measured TTFT of points that find room, step times as they are.

    Robust least squares on the logarithm of predicted over measured, as in `planner.speed.fit.solve`; an era without
    such points keeps what it has.
    """
    roomy = np.isfinite(sample.ttft_s) & (sample.clients <= ROOMY * sample.room)
    chosen, eras = sample.at(roomy), eras_of(sample, facts)[roomy]
    present, place = np.unique(eras, return_inverse=True)
    fitted = tuple(p for index in present.tolist() for p in _parameters(facts.engine[index]))
    c, step_s = chosen.coefficients(facts), chosen.operating(facts).tpot_s
    weight = weights(chosen) / SCALE

    def residuals(theta: FloatArray) -> FloatArray:
        values = np.array(list(values_of(fitted, theta).values())).reshape(-1, len(FIELDS))[place]
        predicted = running_ttft_s(_with_values(c, values), chosen.clients, chosen.input_tokens, step_s)
        ratio = np.log(predicted / chosen.ttft_s) * weight
        return np.concatenate([softened(ratio), theta])

    found = least_squares(residuals, np.zeros(len(fitted)), max_nfev=EVALUATIONS)
    values, counts = values_of(fitted, found.x), np.bincount(eras, minlength=len(facts.engine)).tolist()
    engine = tuple(_stated(era, values, count) for era, count in zip(facts.engine, counts, strict=True))
    return facts.model_copy(update={"engine": engine})


def without_first_token(facts: SpeedFacts) -> SpeedFacts:
    """Facts whose first tokens are at their priors; the share of prompts that arrive together stays."""

    def at_prior(era: EraFacts) -> EraFacts:
        if era.first_token is None:
            return era
        values = {p.place[-1]: p.prior for p in _parameters(era)}
        return era.model_copy(update={"first_token": era.first_token.model_copy(update=values)})

    return facts.model_copy(update={"engine": tuple(at_prior(era) for era in facts.engine)})


def eras_of(sample: Sample, facts: SpeedFacts) -> npt.NDArray[np.int64]:
    """Position in ``facts.engine`` of each point's era."""
    found = [facts.era(kind.engine, kind.version) for kind in sample.kinds]
    return np.array([facts.engine.index(era) for era in found if era is not None])[sample.kind_index]


def _parameters(era: EraFacts) -> tuple[Parameter, ...]:
    priors = SGLANG_PRIORS if era.engine == "sglang" and not era.before_version else PRIORS
    return tuple(Parameter(("engine", era_name(era), field), *priors[field]) for field in FIELDS)


def _with_values(c: StepCoefficients, values: FloatArray) -> StepCoefficients:
    """Coefficients with a row of `FIELDS` for each point."""
    return replace(
        c,
        ttft_floor_s=values[:, 0] / units.MS_PER_S,
        ttft_client_s=values[:, 1] / units.MS_PER_S,
        ttft_wait_steps=values[:, 2],
    )


def _stated(era: EraFacts, values: Mapping[str, float], points: int) -> EraFacts:
    if not points:
        return era
    together = era.first_token.together_share if era.first_token else START_TOGETHER
    fitted = {field: rounded(values[f"engine.{era_name(era)}.{field}"]) for field in FIELDS}
    source = f"fitted on {points:,} closed-loop points that find room"
    first = FirstTokenFacts(**fitted, together_share=together, points=points, source=source)
    return era.model_copy(update={"first_token": first})
