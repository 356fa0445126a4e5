from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.traffic import periods
from planner.traffic.periods import periods_of


def _overstatement(rate: np.ndarray, hours: np.ndarray, label: np.ndarray) -> float:
    """Shares of the busiest hour, summed over models and hours."""
    load = rate / rate.max(axis=0)
    return sum(
        float((hours[label == k, None] * (load[label == k].max(axis=0) - load[label == k])).sum()) for k in set(label)
    )


def test_two_levels_of_load_are_found_exactly() -> None:
    rate = np.array([1.0, 5.0, 1.0, 5.0])[:, None]
    found = periods_of(rate, np.array([10.0, 2.0, 20.0, 4.0]), 2, cyclic=4)
    assert found.label.tolist() == [0, 1, 0, 1]
    assert found.hours.tolist() == [30.0, 6.0]
    assert found.rate_per_s.ravel().tolist() == [1.0, 5.0]
    assert found.overstatement[0] == pytest.approx(0.0)
    assert found.flat_overstatement[0] == pytest.approx(36 * 5 / (30 + 30) - 1)
    assert found.changes_a_week == 4


def test_a_period_holds_each_of_its_hours() -> None:
    rng = np.random.default_rng(3)
    rate = rng.gamma(2.0, 1.0, (192, 5))
    found = periods_of(rate, np.ones(192), 6, cyclic=168)
    assert (found.rate_per_s[found.label] >= rate).all()
    assert found.hours.sum() == 192
    assert (found.overstatement <= found.flat_overstatement).all()
    weighted = (found.hours[:, None] * found.mean_per_s).sum(axis=0)
    assert weighted == pytest.approx(rate.sum(axis=0))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=7), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_one_model_is_cut_exactly(rates: list[int], count: int) -> None:
    rate, hours = np.array(rates, dtype=float)[:, None], np.arange(1.0, len(rates) + 1)
    found = periods_of(rate, hours, count)
    best = min(
        _overstatement(rate, hours, np.array(label)) for label in itertools.product(range(count), repeat=len(rates))
    )
    assert _overstatement(rate, hours, found.label) == pytest.approx(best)


def test_several_models_come_near_the_best_grouping() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(20):
        rate, hours = rng.gamma(1.0, 1.0, (6, 2)), rng.uniform(1, 5, 6)
        best = min(_overstatement(rate, hours, np.array(label)) for label in itertools.product(range(3), repeat=6))
        ratios.append(_overstatement(rate, hours, periods_of(rate, hours, 3).label) / max(best, 1e-9))
    assert np.median(ratios) == pytest.approx(1.0)
    assert max(ratios) < 1.5


def _greedy(rate: np.ndarray, hours: np.ndarray, count: int) -> list[set[int]]:
    """Always the union that costs least, every pair tried anew."""
    load = rate / rate.max(axis=0)

    def cost(group: set[int]) -> float:
        mine = sorted(group)
        return float((hours[mine, None] * (load[mine].max(axis=0) - load[mine])).sum())

    groups = [{slot} for slot in range(len(rate))]
    while len(groups) > count:
        pairs = itertools.combinations(groups, 2)
        one, other = min(pairs, key=lambda pair: cost(pair[0] | pair[1]) - cost(pair[0]) - cost(pair[1]))
        groups = [group for group in groups if group not in (one, other)] + [one | other]
    return groups


@given(st.integers(0, 10**6), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_groups_are_those_of_the_plain_greedy_rule(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rate, hours = rng.gamma(1.0, 1.0, (16, 3)), rng.uniform(1, 5, 16)
    label = periods._merge(rate / rate.max(axis=0), hours, count)
    found = {frozenset(np.flatnonzero(label == k).tolist()) for k in set(label.tolist())}
    assert found == {frozenset(group) for group in _greedy(rate, hours, count)}


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_no_single_move_lowers_the_error(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rate, hours = rng.gamma(1.0, 1.0, (24, 3)), rng.uniform(1, 5, 24)
    label = periods_of(rate, hours, count).label
    least = _overstatement(rate, hours, label)
    for slot, group in itertools.product(range(24), range(int(label.max()) + 1)):
        moved = label.copy()
        moved[slot] = group
        assert _overstatement(rate, hours, moved) >= least - 1e-9


def test_more_periods_never_overstate_more_for_one_model() -> None:
    rate = np.random.default_rng(1).gamma(2.0, 1.0, (168, 1))
    errors = [periods_of(rate, np.ones(168), k).overstatement[0] for k in (1, 2, 4, 8, 168)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(0.0)


def test_order_of_models_does_not_matter_and_weights_do() -> None:
    rate = np.random.default_rng(2).gamma(2.0, 1.0, (48, 3))
    plain, turned = periods_of(rate, np.ones(48), 4), periods_of(rate[:, ::-1], np.ones(48), 4)
    assert plain.overstatement.tolist() == pytest.approx(turned.overstatement[::-1].tolist())
    heavy = periods_of(rate, np.ones(48), 4, weight=np.array([100.0, 1.0, 1.0]))
    assert heavy.overstatement[0] < plain.overstatement[0]


@pytest.mark.parametrize(
    ("rate", "hours", "count"),
    [
        (np.ones(3), np.ones(3), 2),
        (np.ones((3, 1)), np.ones(2), 2),
        (np.full((3, 1), np.nan), np.ones(3), 2),
        (np.ones((3, 1)), np.ones(3), 0),
        (np.ones((3, 1)), np.zeros(3), 2),
    ],
)
def test_impossible_inputs_are_refused(rate: np.ndarray, hours: np.ndarray, count: int) -> None:
    with pytest.raises(ValueError, match=r"finite|at least one"):
        periods_of(rate, hours, count)


def test_models_that_are_never_asked_for_do_not_disturb() -> None:
    found = periods_of(np.array([[1.0, 0.0], [3.0, 0.0]]), np.ones(2), 2)
    assert found.rate_per_s[:, 1].tolist() == [0.0, 0.0]
    assert np.isfinite(found.overstatement).all()
