from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from pydantic import ValidationError

from planner.errors import InputError
from planner.request import TrafficSource
from planner.traffic.demand import demand_of
from tests.traffic.test_season import _traffic, _weeks

START, END = date(2027, 1, 1), date(2027, 4, 1)


def test_stated_rates_are_taken_as_they_are() -> None:
    source = TrafficSource(path="x", rate_per_s=40, peak_factor=1.4, growth=1.1)
    rates = demand_of(source, _traffic(_weeks(1)), START, END)
    assert (rates.mean_rate_per_s, rates.planning_rate_per_s) == pytest.approx((44.0, 61.6))
    assert (rates.rate_measured, rates.peak_measured, rates.notes) == (False, False, ())


def test_rates_of_the_log_itself() -> None:
    counts = np.full(168 * 60 * 2, 6, dtype=np.int64)
    counts[600:660] = 60
    rates = demand_of(TrafficSource(path="x", peak_quantile=0.9), _traffic(counts), START, END)
    assert rates.stated_rate_per_s == pytest.approx(counts.sum() / (2 * 604800))
    assert rates.planning_rate_per_s == pytest.approx(1.0)
    assert (rates.rate_measured, rates.peak_measured) == (True, True)
    assert "Mon 10:00" in rates.notes[1]
    assert "fewer than 8 weeks" in rates.notes[2]


def test_a_stated_rate_with_the_peak_of_the_log() -> None:
    counts = np.full(168 * 60, 6, dtype=np.int64)
    counts[600:660] = 60
    traffic = _traffic(counts)
    rates = demand_of(TrafficSource(path="x", rate_per_s=7, peak_quantile=0.9), traffic, START, END)
    assert rates.planning_rate_per_s == pytest.approx(7 * 1.0 / traffic.offered_rate_per_s)


def test_growth_is_paid_at_the_mean_and_held_at_the_largest() -> None:
    source = TrafficSource(
        path="x",
        rate_per_s=10,
        source_date=date(2026, 12, 1),
        steps=[{"on": "2027-02-15", "factor": 2, "why": "launch"}],
    )
    rates = demand_of(source, _traffic(_weeks(1)), START, END)
    assert rates.mean_rate_per_s == pytest.approx(10 * (45 * 1 + 45 * 2) / 90)
    assert rates.planning_rate_per_s == pytest.approx(20)
    assert "launch" in rates.notes[-1]


def test_growth_starts_in_the_middle_of_the_log() -> None:
    source = TrafficSource(path="x", growth_per_quarter={"low": 0.0, "expected": 0.1, "high": 0.3})
    rates = demand_of(source, _traffic(_weeks(1)), START, END)
    assert "growth since 2026-03-05" in rates.notes[-1]
    assert rates.growth > 1.1**3
    assert "low case x1 " in rates.notes[-1].replace(",", " ")


def test_growth_without_a_day_to_start_from_is_refused() -> None:
    relative = replace(_traffic(_weeks(1)), calendar_time=False)
    for source in (
        TrafficSource(path="x", growth_per_quarter=0.1),
        TrafficSource(path="x", rate_per_s=1, growth_per_quarter=0.1),
    ):
        with pytest.raises(InputError, match="source_date"):
            demand_of(source, relative, START, END)
    with pytest.raises(InputError, match="not positive"):
        demand_of(TrafficSource(path="x", steps=[{"on": START, "factor": 0, "why": "?"}]), relative, START, END)


@pytest.mark.parametrize(
    "fields",
    [
        {"peak_factor": 1.5, "peak_quantile": 0.9},
        {"growth_per_quarter": -1.0},
        {"growth_per_quarter": {"low": 0.2, "expected": 0.1, "high": 0.3}},
    ],
)
def test_contradictions_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrafficSource(path="x", rate_per_s=1, **fields)
