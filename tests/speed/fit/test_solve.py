from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.speed.facts import SpeedFacts
from planner.speed.fit.parameters import Parameter, values_of
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import Fit, fit, folds, log_ratio, weights

BANDWIDTH_H100 = ("gpu", "H100", "bandwidth_efficiency")
BANDWIDTH_H200 = ("gpu", "H200", "bandwidth_efficiency")
BANDWIDTH_B200 = ("gpu", "B200", "bandwidth_efficiency")
STEP_VLLM = ("engine", "vllm", "step_ms")
SEQUENCE_SGLANG = ("engine", "sglang", "sequence_ms")
ALLREDUCE = ("allreduce_latency_ms",)
PRIORS = (
    (BANDWIDTH_H100, 0.85),
    (BANDWIDTH_H200, 0.85),
    (STEP_VLLM, 0.5),
    (SEQUENCE_SGLANG, 0.02),
    (ALLREDUCE, 0.01),
)
TRUE = {BANDWIDTH_H100: 0.7, BANDWIDTH_H200: 0.6, STEP_VLLM: 1.6, SEQUENCE_SGLANG: 0.06, ALLREDUCE: 0.02}

MakeSample = Callable[..., Sample]
Free = Callable[..., tuple[Parameter, ...]]


def changed(facts: SpeedFacts, truth: dict[tuple[str, ...], float]) -> SpeedFacts:
    gpu = {
        name: each.model_copy(update={field: value for (table, key, field), value in _three(truth) if key == name})
        for name, each in facts.gpu.items()
    }
    engine = tuple(
        era.model_copy(update={field: value for (table, key, field), value in _three(truth) if key == era.engine})
        for era in facts.engine
    )
    single = {
        place[0]: getattr(facts, place[0]).model_copy(update={"value": value})
        for place, value in truth.items()
        if len(place) == 1
    }
    return facts.model_copy(update={"gpu": gpu, "engine": engine, **single})


def _three(truth: dict[tuple[str, ...], float]) -> list[tuple[tuple[str, ...], float]]:
    return [(place, value) for place, value in truth.items() if len(place) == 3]


def values(found: Fit, fitted: tuple[Parameter, ...]) -> dict[tuple[str, ...], float]:
    by_name = values_of(fitted, found.theta)
    return {parameter.place: by_name[parameter.name] for parameter in fitted}


@pytest.fixture(scope="module")
def sample(facts: SpeedFacts, sample_under: MakeSample) -> Sample:
    return sample_under(changed(facts, TRUE))


def test_known_coefficients_are_recovered(sample: Sample, facts: SpeedFacts, free: Free) -> None:
    fitted = free(*PRIORS, spread=5.0)  # so wide a prior hardly pulls
    found = fit(sample, facts, fitted)
    for place, true in TRUE.items():
        assert values(found, fitted)[place] == pytest.approx(true, rel=0.02), place
    assert np.abs(log_ratio(sample, found.facts)).max() < 0.01
    assert np.abs(log_ratio(sample, facts)).max() > 0.3  # before the fit


def test_prior_holds_where_no_point_speaks(sample: Sample, facts: SpeedFacts, free: Free) -> None:
    fitted = free(*PRIORS, (BANDWIDTH_B200, 0.8))
    assert values(fit(sample, facts, fitted), fitted)[BANDWIDTH_B200] == pytest.approx(0.8, rel=1e-9)


def test_narrow_prior_outweighs_the_points(sample: Sample, facts: SpeedFacts, free: Free) -> None:
    fitted = free(*PRIORS, spread=1e-4)
    assert values(fit(sample, facts, fitted), fitted)[BANDWIDTH_H100] == pytest.approx(0.85, rel=5e-3)


def test_bound_holds(facts: SpeedFacts, sample_under: MakeSample, free: Free) -> None:
    """The points want 1.2 of the peak: what a fit may not say."""
    wild = sample_under(changed(facts, {BANDWIDTH_H100: 1.2}))
    fitted = tuple(replace(p, most=0.95) if p.place == BANDWIDTH_H100 else p for p in free((BANDWIDTH_H100, 0.85)))
    assert values(fit(wild, facts, fitted), fitted)[BANDWIDTH_H100] == pytest.approx(0.95, rel=1e-3)


def test_outlier_pulls_with_a_bounded_force(sample: Sample, facts: SpeedFacts, free: Free) -> None:
    fitted, at = free(*PRIORS), 3

    def bandwidth(factor: float) -> float:
        tpot_s = sample.tpot_s.copy()
        tpot_s[at] *= factor
        return values(fit(replace(sample, tpot_s=tpot_s), facts, fitted), fitted)[BANDWIDTH_H100]

    assert bandwidth(30.0) == pytest.approx(bandwidth(1.0), rel=0.03)
    assert bandwidth(900.0) == pytest.approx(bandwidth(30.0), rel=0.01)


def test_same_points_same_coefficients(sample: Sample, facts: SpeedFacts, free: Free) -> None:
    one, other = (fit(sample, facts, free(*PRIORS)) for _ in range(2))
    np.testing.assert_array_equal(one.theta, other.theta)
    assert one.facts == other.facts


def test_sweep_weighs_no_more_than_fifteen_points(sample: Sample) -> None:
    names = np.array(["swept"] * 30 + ["small"] * 6)
    found = weights(replace(sample, deployment=names)) ** 2
    assert found[:30].sum() == pytest.approx(15)
    assert found[30:].tolist() == [1.0] * 6


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 99))
def test_folds_never_split_a_name_and_are_even(names: list[str], count: int, seed: int) -> None:
    found = folds(np.array(names), count, seed)
    by_name = {name: {int(f) for n, f in zip(names, found, strict=True) if n == name} for name in names}
    assert all(len(each) == 1 for each in by_name.values())
    sizes = [sum(each == {fold} for each in by_name.values()) for fold in range(count)]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(found, folds(np.array(names), count, seed))


def test_seeds_fold_differently() -> None:
    names = np.array([f"deployment {i}" for i in range(40)])
    assert (folds(names, 4, 0) != folds(names, 4, 1)).any()
