"""How much a few points are believed: spreads of deployments that are known, written and read again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from planner.speed.curve import GROUPS, Loads, corrected, log_times
from planner.speed.facts import SpeedFacts
from planner.speed.fit.belief import Belief, as_toml, belief_lines, refit_belief
from planner.speed.fit.sample import Sample
from planner.speed.prior import load_prior
from planner.speed.prior_fit import Deployments, fit_spreads
from planner.speed.types import StepCoefficients

SPREAD = {"decode": 0.02, "fixed": 0.1, "weights": 0.3, "sequence": 0.1, "cache": 0.1, "prefill": 0.2, "floor": 0.4}
NOISE = (0.05, 0.2)
GIVEN = (1, 4)
DATE = dt.date(2026, 11, 1)


@pytest.fixture(scope="module")
def data(sample_under: Callable[..., Sample], facts: SpeedFacts) -> Deployments:
    """Thirty deployments whose factors are drawn from the spreads above, and whose points scatter as told."""
    sample = sample_under(facts)
    c = sample.coefficients(facts)
    columns = {f.name: np.tile(np.broadcast_to(getattr(c, f.name), len(sample)), 5) for f in fields(StepCoefficients)}
    loads = Loads(*(np.tile(x, 5) for x in (sample.clients, sample.input_tokens, sample.output_tokens)))
    loads = replace(loads, cached_share=np.zeros(5 * len(sample)), room=np.full(5 * len(sample), np.inf))
    names = np.array([f"{copy} {name}" for copy in range(5) for name in sample.deployment])
    rng = np.random.default_rng(0)
    distinct, place = np.unique(names, return_inverse=True)
    theta = (rng.normal(size=(len(distinct), len(GROUPS))) * list(SPREAD.values()))[place]
    model = StepCoefficients(**columns)
    noise = rng.normal(size=(len(names), 2)) * NOISE
    measured = np.exp(log_times(corrected(model, theta), 0.0, loads) + noise)
    return Deployments(model, loads, measured, names)


def few(data: Deployments) -> Deployments:
    """Twelve of the deployments."""
    return data.at(np.flatnonzero(np.isin(data.deployment, np.unique(data.deployment)[:12])))


@pytest.fixture(scope="module")
def belief(data: Deployments) -> Belief:
    return refit_belief(few(data), DATE, given=GIVEN, seeds=(0,))


def test_spreads_and_scatter_come_out(data: Deployments) -> None:
    found = fit_spreads(data)
    assert found["tpot_noise"] == pytest.approx(NOISE[0], rel=0.3)
    assert found["ttft_noise"] == pytest.approx(NOISE[1], rel=0.3)
    assert found["weights"] == pytest.approx(SPREAD["weights"], rel=0.4)
    assert found["floor"] == pytest.approx(SPREAD["floor"], rel=0.4)


def test_points_help_more_the_more_are_given_and_bands_hold_80_percent(belief: Belief) -> None:
    assert tuple(each.given for each in belief.held_out) == GIVEN
    before = [np.median(np.abs(each.before[:, 0])) for each in belief.held_out]
    after = [np.median(np.abs(each.after[:, 0])) for each in belief.held_out]
    assert after[0] < 0.8 * before[0]
    assert after[-1] < after[0]
    for each in belief.held_out:
        assert ((each.inside > 0.6) & (each.inside < 0.97)).all()


def test_what_is_written_can_be_read(belief: Belief, tmp_path: Path) -> None:
    (tmp_path / "speed").mkdir()
    text = as_toml(belief)
    (tmp_path / "speed" / "measured.toml").write_text(text, encoding="utf-8")
    assert load_prior(tmp_path) == belief.prior
    assert belief.prior.as_of == DATE
    assert belief.prior.cache.points == 12 * 6
    for line in belief_lines(belief):
        assert f"#   {line}\n" in text
