"""The whole refit: coefficients on all points, bands from points held out, facts with their counts and sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from planner.speed.fact_files import Fact
from planner.speed.facts import BandFact, Bands, SpeedFacts
from planner.speed.fit.first_token import fit_first_token, without_first_token
from planner.speed.fit.parameters import Parameter, era_name, facts_with, parameters, rounded, values_of
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import fit
from planner.speed.fit.validate import Ratios, band_of, by_deployment, held_out, one_by_one, ratios_of
from planner.speed.types import FloatArray

SEEDS = (0, 1, 2)
FEWEST_POINTS = 20
"""Of a GPU or an era that is fitted, and of an architecture that counts as measured."""
BUMP = 1.1
MOVED = 0.005
"""Logarithm of a prediction beyond which it moved: half a per cent, for a coefficient that moved by a tenth."""
HEADER = """\
# Coefficients of the built-in roofline and the bands of its predictions.
# Written by `planner speed fit`; `planner speed fit --check` tells whether they are still what the points say.
"""


@dataclass(frozen=True)
class Refit:
    """Facts, and how far they were from the points that each fit had not seen."""

    facts: SpeedFacts
    inside: Ratios
    """Every point under the fit on all of them."""
    deployments: tuple[Ratios, ...]
    """Deployments held out in folds, once for each seed."""
    models: Ratios
    gpus: Ratios


def refit(sample: Sample, base: SpeedFacts, as_of: dt.date, step: Callable[[str], None] = lambda _: None) -> Refit:
    """Fit the coefficients, hold points out for the bands, and state where each figure comes from.

    TPOT depends a little on TTFT, so step times are fitted with first tokens at their priors, and once more with those
    fitted. What the facts said of fitted coefficients before has no influence.

    Parameters
    ----------
    sample
        Closed-loop points with a measured TPOT.
    base
        Facts that say which GPUs and eras are fitted, and hold what is not.
    as_of
        Date of the refit.
    step
        Told the name of each part when it begins.
    """
    fitted = parameters(*spoken_for(sample, base))
    step("coefficients")
    first = fit(sample, without_first_token(base), fitted)
    begun = fit_first_token(sample, first.facts)
    whole = fit(sample, begun, fitted, start=first.theta)

    def out(name: str, fold: Any) -> Ratios:
        step(f"held out by {name}")
        return held_out(sample, begun, fitted, whole, fold)

    deployments = tuple(out(f"deployment, seed {seed}", by_deployment(sample, seed)) for seed in SEEDS)
    models, gpus = out("model", one_by_one(sample.model)), out("gpu", one_by_one(sample.gpu))
    values = {name: rounded(value) for name, value in values_of(fitted, whole.theta).items()}
    known = fit_first_token(sample, facts_with(begun, values))
    facts = _stated(known, sample, speaking(sample, begun, fitted, whole.theta), as_of)
    facts = facts.model_copy(
        update={
            "tpot_bands": _bands(base.tpot_bands, [r.tpot for r in deployments], models.tpot, gpus.tpot),
            "ttft_bands": _bands(base.ttft_bands, [r.ttft for r in deployments], models.ttft, gpus.ttft),
        }
    )
    inside = ratios_of(sample, sample.operating(facts))
    return Refit(facts, inside, deployments, models, gpus)


def spoken_for(sample: Sample, base: SpeedFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Families of GPUs and eras of engines that have points enough; the others keep what they say of themselves."""
    gpus = tuple(name for name, fit in base.gpu.items() if np.isin(sample.gpu, fit.gpus).sum() >= FEWEST_POINTS)
    eras = (era_name(era) for era in base.engine)
    return gpus, tuple(era for era in eras if _of_era(sample, base, era).sum() >= FEWEST_POINTS)


def fittable(sample: Sample, base: SpeedFacts) -> Sample:
    """The points whose GPU and era are both fitted."""
    gpus, eras = spoken_for(sample, base)
    of_gpus = np.isin(sample.gpu, [gpu for name in gpus for gpu in base.gpu[name].gpus])
    of_eras = np.any([_of_era(sample, base, era) for era in eras], axis=0)
    return sample.at(of_gpus & of_eras)


def speaking(sample: Sample, base: SpeedFacts, fitted: Sequence[Parameter], theta: FloatArray) -> dict[str, int]:
    """How many points speak for each coefficient: those whose prediction moves when it moves by a tenth."""
    values = values_of(fitted, theta)
    before = sample.log_ratio(facts_with(base, values))
    counts = {}
    for parameter in fitted:
        bumped = facts_with(base, values | {parameter.name: values[parameter.name] * BUMP})
        counts[parameter.name] = int(np.sum(np.abs(sample.log_ratio(bumped) - before) > MOVED))
    return counts


def _stated(facts: SpeedFacts, sample: Sample, counts: Mapping[str, int], as_of: dt.date) -> SpeedFacts:
    """Counts and sources of what was fitted."""
    source = f"fitted; of {len(sample):,} points of engines of 2025-2026 so many move with it"

    def stated(name: str, fact: Fact) -> Fact:
        if name not in counts:
            return fact
        return fact.model_copy(update={"points": counts[name], "source": source})

    names, counted = np.unique(sample.model, return_counts=True)
    tables = {
        table: getattr(facts, table).model_copy(
            update={
                form: stated(f"{table}.{form}", getattr(getattr(facts, table), form)) for form in ("bf16", "fp8", "fp4")
            }
        )
        for table in ("dense_compute", "expert_compute")
    }
    single = {name: stated(name, getattr(facts, name)) for name in counts if name in SpeedFacts.model_fields}
    return facts.model_copy(
        update={
            "as_of": as_of,
            **single,
            **tables,
            "gpu": {name: _counted(fit, np.isin(sample.gpu, fit.gpus)) for name, fit in facts.gpu.items()},
            "engine": tuple(_counted(era, _of_era(sample, facts, era_name(era))) for era in facts.engine),
            "architectures": tuple(names[counted >= FEWEST_POINTS].tolist()),
        }
    )


def _counted(entry: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """An entry with its points; one without points keeps what it says of itself."""
    points = int(chosen.sum())
    if not points:
        return entry
    return entry.model_copy(update={"points": points, "source": "points, engines of 2025-2026"})


def _of_era(sample: Sample, facts: SpeedFacts, name: str) -> npt.NDArray[np.bool_]:
    eras = [facts.era(kind.engine, kind.version) for kind in sample.kinds]
    return np.array([era is not None and era_name(era) == name for era in eras])[sample.kind_index]


def _bands(base: Bands, deployments: list[FloatArray], models: FloatArray, gpus: FloatArray) -> Bands:
    """10th to 90th percentile of measured over predicted; less knowledge never narrows a band."""
    known = _band(np.concatenate(deployments), len(deployments[0]), "deployments held out")
    new_model = _wider(known, _band(models, len(models), "each architecture held out"))
    new_gpu = _wider(_wider(new_model, _band(gpus, len(gpus), "each GPU held out")), base.new_gpu)
    return Bands(known=known, new_model=new_model, new_gpu=new_gpu)


def _band(ratio: FloatArray, points: int, source: str) -> BandFact:
    low, high = band_of(ratio)
    return BandFact(low=rounded(min(low, 1.0)), high=rounded(max(high, 1.0)), points=points, source=source)


def _wider(one: BandFact, other: BandFact) -> BandFact:
    widest = other if other.high / other.low > one.high / one.low else one
    return widest.model_copy(update={"low": min(one.low, other.low), "high": max(one.high, other.high)})


def as_toml(facts: SpeedFacts) -> str:
    """The facts as ``roofline.toml``."""
    return HEADER + "\n" + tomli_w.dumps(_plain(facts.model_dump(exclude_defaults=True)))


def _plain(value: Any) -> Any:
    """Tuples as lists, so that every array is written alike."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


def differences(found: SpeedFacts, known: SpeedFacts, tolerance: float = 0.01) -> list[str]:
    """Coefficients and bands that differ by more than a share, by place."""
    one, other = _leaves(found.model_dump()), _leaves(known.model_dump())
    return sorted(
        name
        for name in one.keys() | other.keys()
        if abs(one.get(name, 0.0) - other.get(name, 0.0)) > tolerance * abs(other.get(name, 0.0))
    )


def _leaves(value: Any, place: str = "") -> dict[str, float]:
    if isinstance(value, Mapping):
        return {k: v for key, each in value.items() for k, v in _leaves(each, f"{place}.{key}".lstrip(".")).items()}
    if isinstance(value, tuple | list):
        return {k: v for i, each in enumerate(value) for k, v in _leaves(each, f"{place}.{i}").items()}
    return {place: float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else {}
