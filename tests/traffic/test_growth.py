from __future__ import annotations

from datetime import date

import pytest

from planner.errors import InputError
from planner.traffic.growth import Case, Growth, Range, Step, check_steps, over_horizon

BASE = date(2026, 8, 15)


def _same(value: float) -> Range:
    return Range(value, value, value)


def test_steady_growth_compounds_by_the_quarter() -> None:
    growth = Growth(Range(0.0, 0.1, 0.2))
    year = date(2027, 8, 15)
    assert growth.factor(BASE, year) == pytest.approx(1.1 ** (365 / (365.25 / 4)))
    assert growth.factor(BASE, year, Case.LOW) == 1.0
    assert growth.factor(BASE, year, Case.HIGH) > growth.factor(BASE, year)


def test_a_step_counts_from_its_day_on_and_not_when_the_log_has_it_already() -> None:
    growth = Growth(steps=(Step(date(2027, 2, 1), _same(1.5), "launch"), Step(date(2026, 8, 1), _same(9.0), "old")))
    assert growth.factor(BASE, date(2027, 1, 31)) == 1.0
    assert growth.factor(BASE, date(2027, 2, 1)) == 1.5


def test_the_horizon_is_paid_at_the_mean_and_held_at_the_largest() -> None:
    growth = Growth(
        steps=(Step(date(2027, 1, 11), _same(2.0), "launch"), Step(date(2027, 1, 21), _same(0.5), "leaves"))
    )
    found = over_horizon(growth, BASE, date(2027, 1, 1), date(2027, 2, 10))
    assert found.mean == pytest.approx((10 * 1 + 10 * 2 + 20 * 1) / 40)
    assert found.largest == 2.0


def test_a_horizon_without_a_day_is_refused() -> None:
    with pytest.raises(ValueError, match="no day"):
        over_horizon(Growth(), BASE, date(2027, 1, 1), date(2027, 1, 1))


def test_impossible_steps_are_listed_together() -> None:
    bad = Step(date(2027, 1, 1), Range(2.0, 1.0, 3.0), "launch")
    with pytest.raises(InputError) as caught:
        check_steps("growth", [bad, bad, Step(date(2027, 1, 2), _same(0.0), "gone")])
    assert len(caught.value.problems) == 4
