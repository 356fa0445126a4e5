"""Refit of ``measured.toml``: how much to believe of a few measured points, from deployments that the roofline had not
seen, and how near such a correction came to points that it had not seen either.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import tomli_w

from planner.speed.curve import Loads
from planner.speed.fact_files import Fact
from planner.speed.facts import SpeedFacts
from planner.speed.fit.first_token import fit_first_token, without_first_token
from planner.speed.fit.parameters import parameters
from planner.speed.fit.refit import spoken_for
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import fit, folds
from planner.speed.fit.validate import by_deployment
from planner.speed.points import Served
from planner.speed.prior import SpeedPrior
from planner.speed.prior_fit import Deployments, HeldOut, edges_of, fit_spreads, held_out
from planner.speed.types import StepCoefficients

GIVEN = (1, 2, 3, 5)
"""Points that a deployment is said to have measured, of those that it has."""
FEWEST_POINTS = 4
"""Of a deployment, for some to be given and some left to predict."""
SEEDS = (0, 1, 2)
NORMAL_EDGE = 1.2816
"""Standard deviations to the edges that hold 80 % of a normal law: where the search for the edges begins."""
DIGITS = 3
MEANING = {
    "decode": "spread of the factor on all of a decode step",
    "fixed": "further spread of the fixed time of a step",
    "weights": "further spread of the weight read",
    "sequence": "further spread of the time for each sequence (sampling, exchange between GPUs, compute)",
    "cache": "further spread of the cache read",
    "prefill": "spread of the compute time of prompts",
    "floor": "spread of what TTFT holds beside the prompt (front end, steps until the scheduler takes it)",
    "tpot_noise": "scatter of TPOT around the corrected roofline",
    "ttft_noise": "scatter of TTFT around the corrected roofline",
    "tpot_edge": "80 % of held-out TPOT lie within so many predicted standard deviations",
    "ttft_edge": "80 % of held-out TTFT lie within so many predicted standard deviations",
}
HEADER = """\
# How much to believe of a few measured points of a deployment: how far deployments lie from the roofline, group of
# coefficients by group, and how far measurements scatter around the corrected roofline. Natural logarithms. Fitted by
# maximum likelihood on published closed-loop points of {count} deployments (engine, version, model, GPU, tp, ep,
# formats) with {fewest} points or more, each load once, against a roofline that was fitted without the deployment.
# Written by `planner speed fit-measured -o catalogs/speed/measured.toml`.
# Held out: half of the deployments gave the spreads, points of the other half were predicted from so many of their own,
# drawn at random {draws} times. Errors are median / 90th percentile; the last figure is the share inside the 80 % band.
"""


@dataclass(frozen=True)
class Belief:
    """The spreads, and what they did on deployments that had no part in them."""

    prior: SpeedPrior
    deployments: int
    held_out: tuple[HeldOut, ...]
    """One for each number of `GIVEN` points."""


def unseen_deployments(sample: Sample, base: SpeedFacts, step: Callable[[str], None] = lambda _: None) -> Deployments:
    """Closed loops of deployments with points enough, each with coefficients of a fit that has not seen any of it."""
    fitted = parameters(*spoken_for(sample, base))
    fold = by_deployment(sample, 0)
    columns = {item.name: np.zeros(len(sample)) for item in fields(StepCoefficients)}
    for each in np.unique(fold).tolist():
        step(f"roofline without part {each + 1}")
        out = fold == each
        rest = sample.at(~out)
        found = fit_first_token(rest, fit(rest, without_first_token(base), fitted).facts)
        c = sample.at(out).coefficients(found)
        for name, column in columns.items():
            column[out] = getattr(c, name)
    return _closed_loops(sample, StepCoefficients(**columns))


def refit_belief(
    data: Deployments,
    as_of: dt.date,
    step: Callable[[str], None] = lambda _: None,
    given: Sequence[int] = GIVEN,
    seeds: Sequence[int] = SEEDS,
) -> Belief:
    """Spreads from all deployments; errors from halves of them that do not know of each other. Deterministic."""
    half = folds(data.deployment, 2, 1)
    found: dict[int, list[HeldOut]] = {count: [] for count in given}
    for each in (0, 1):
        step(f"spreads of half {each + 1}")
        prior = _prior(data.at(np.flatnonzero(half == each)), as_of, given)
        others = data.at(np.flatnonzero(half != each))
        for count, parts in found.items():
            parts += [held_out(others, prior, count, seed) for seed in seeds]
    step("spreads")
    return Belief(_prior(data, as_of, given), len(data.rows()), tuple(_joined(each) for each in found.values()))


def as_toml(found: Belief) -> str:
    """The spreads as ``measured.toml``, under the errors."""
    header = HEADER.format(count=found.deployments, fewest=FEWEST_POINTS, draws=len(SEEDS))
    table = "".join(f"#   {line}\n" for line in belief_lines(found))
    return header + table + "\n" + tomli_w.dumps(found.prior.model_dump())


def belief_lines(found: Belief) -> list[str]:
    """Errors and band coverage by the number of given points, in columns."""
    figures = ("before", "after", "in band")
    lines = [f"{'given':<7}{'points':<8}" + "".join(f"{f'{n} {f}':<17}" for n in ("TPOT", "TTFT") for f in figures)]
    for each in found.held_out:
        cells = [
            text
            for column in (0, 1)
            for text in (
                _error(each.before[:, column]),
                _error(each.after[:, column]),
                f"{each.inside[column]:.0%}",
            )
        ]
        lines.append(f"{each.given:<7}{len(each.after):<8,}" + "".join(f"{cell:<17}" for cell in cells))
    return [line.rstrip() for line in lines]


def _error(logs: npt.NDArray[np.float64]) -> str:
    """Median and 90th percentile of the absolute error, % of the measurement."""
    error = np.abs(np.expm1(-logs))
    return f"{np.nanmedian(error):.1%} / {np.nanquantile(error, 0.9):.1%}"


def _closed_loops(sample: Sample, c: StepCoefficients) -> Deployments:
    names = np.array([_name(point.served) for point in sample.points])
    _, place, count = np.unique(names[~sample.full], return_inverse=True, return_counts=True)
    rows = np.flatnonzero(~sample.full)[count[place] >= FEWEST_POINTS]
    loads = Loads(sample.clients, sample.input_tokens, sample.output_tokens, np.zeros(len(sample)), sample.room)
    measured_s = np.stack([sample.tpot_s, sample.ttft_s], axis=-1)
    return Deployments(c, loads, measured_s, names).at(rows)


def _name(served: Served) -> str:
    parts = (served.engine, served.version, served.model, served.gpu, f"tp{served.tp}", f"ep{served.ep}")
    return " ".join((*parts, served.weight_dtype, served.kv_dtype))


def _prior(data: Deployments, as_of: dt.date, given: Sequence[int]) -> SpeedPrior:
    """Spreads by likelihood, then the edges that hold 80 % of points that were left out."""
    first = {**fit_spreads(data), "tpot_edge": NORMAL_EDGE, "ttft_edge": NORMAL_EDGE}
    begun = _stated(first, len(data.deployment), as_of)
    edges = edges_of([held_out(data, begun, count, SEEDS[0]) for count in given], begun)
    return _stated({**first, **edges}, len(data.deployment), as_of)


def _stated(values: Mapping[str, float], points: int, as_of: dt.date) -> SpeedPrior:
    facts = {
        name: Fact(value=float(f"{values[name]:.{DIGITS}g}"), points=points, source=source)
        for name, source in MEANING.items()
    }
    return SpeedPrior.model_validate({"as_of": as_of, **{name: fact.model_dump() for name, fact in facts.items()}})


def _joined(parts: Sequence[HeldOut]) -> HeldOut:
    columns = (np.concatenate([getattr(each, name) for each in parts]) for name in ("before", "after", "deviations"))
    return HeldOut(parts[0].given, *columns)
