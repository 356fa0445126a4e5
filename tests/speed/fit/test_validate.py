from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.speed.facts import SpeedFacts
from planner.speed.fit import validate
from planner.speed.fit.parameters import Parameter
from planner.speed.fit.sample import Sample
from planner.speed.fit.solve import Fit, fit
from planner.speed.fit.validate import band_of, by_deployment, held_out, one_by_one, ratios_of, score

Free = Callable[..., tuple[Parameter, ...]]


@pytest.fixture(scope="module")
def sample(facts: SpeedFacts, sample_under: Callable[..., Sample]) -> Sample:
    return sample_under(facts)


def test_score_by_hand() -> None:
    """Measured over predicted 0.8, 1, 1.25 and 2: predictions are off by +25, 0, -20 and -50 %; NaN counts nowhere."""
    found = score(np.array([0.8, 1.0, np.nan, 1.25, 2.0]))
    assert found.points == 4
    assert found.median == pytest.approx(22.5)
    assert found.p90 == pytest.approx(25 + 0.7 * 25)
    assert found.bias == pytest.approx(1.125)


def test_score_of_nothing_is_nothing() -> None:
    found = score(np.array([np.nan]))
    assert found.points == 0
    assert np.isnan([found.median, found.p90, found.bias]).all()


def test_band_holds_eighty_per_cent() -> None:
    ratio = np.concatenate([np.linspace(0.5, 1.5, 101), [np.nan]])
    assert band_of(ratio) == pytest.approx((0.6, 1.4))
    known = ratio[np.isfinite(ratio)]
    assert np.mean((known >= 0.6 - 1e-9) & (known <= 1.4 + 1e-9)) == pytest.approx(0.8, abs=0.01)


def test_ratios_are_measured_over_predicted(sample: Sample, facts: SpeedFacts) -> None:
    found = ratios_of(sample, sample.operating(facts))
    np.testing.assert_allclose(found.tpot, 1.0)
    np.testing.assert_allclose(found.ttft, 1.0)


def test_no_fold_sees_what_it_predicts(
    monkeypatch: pytest.MonkeyPatch, sample: Sample, facts: SpeedFacts, free: Free
) -> None:
    """The fit of each fold is given every other deployment, and none of the fold's own."""
    fitted = free()
    seen: list[set[str]] = []

    def watched(part: Sample, *arguments: Any, **options: Any) -> Fit:
        seen.append(set(part.deployment.tolist()))
        return fit(part, *arguments, **options)

    whole = fit(sample, facts, fitted)
    fold = by_deployment(sample, seed=0)
    monkeypatch.setattr(validate, "fit", watched)
    found = held_out(sample, facts, fitted, whole, fold)
    everything = set(sample.deployment.tolist())
    assert len(seen) == validate.FOLDS
    for number, inside in enumerate(seen):
        outside = set(sample.deployment[fold == number].tolist())
        assert inside == everything - outside
        assert outside
    assert len(found.tpot) == len(found.ttft) == len(sample)
    np.testing.assert_allclose(found.tpot, 1.0, rtol=0.01)  # first tokens are fitted anew, a little off


def test_one_fold_for_each_name() -> None:
    np.testing.assert_array_equal(one_by_one(np.array(["b", "a", "b", "c"])), [1, 0, 1, 2])


def test_chosen_points_keep_their_columns(sample: Sample, facts: SpeedFacts) -> None:
    chosen = sample.gpu == "H200-SXM"
    part = sample.at(chosen)
    assert len(part) == chosen.sum() < len(sample)
    assert {point.served.gpu for point in part.points} == {"H200-SXM"}
    np.testing.assert_array_equal(part.operating(facts).tpot_s, sample.operating(facts).tpot_s[chosen])
