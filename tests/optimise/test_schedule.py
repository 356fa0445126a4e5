from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from planner.optimise.periods.horizon import Horizon, ModelWeek, horizon_of
from planner.optimise.periods.schedule import autoscaler_rows, describe, hour_rows, hours_text, schedule_rows
from planner.request import Quarter, TimeChoice
from planner.traffic.demand import DemandRates
from planner.traffic.growth import Growth, Range, Step
from planner.traffic.season import SLOTS, WEEK_SLOTS
from planner.traffic.week import FLAT, shape_of

FOUR_WEEKS = Quarter(title="t", start=date(2027, 2, 1), end=date(2027, 3, 1), owner="o")


def _office() -> Horizon:
    """Working days from 8 to 18 h are busy (50 hours), Saturdays from 10 to 14 h half as busy, the rest is quiet."""
    rate = np.full((8, 24), 1.0)
    rate[:5, 8:18], rate[5, 10:14] = 4.0, 2.0
    week = shape_of(rate.ravel(), rate.ravel(), "office")
    return horizon_of(FOUR_WEEKS, TimeChoice(week_periods=3), [ModelWeek("m", DemandRates(10.0), week)])


def test_periods_in_words() -> None:
    rows = describe(_office())
    assert [(row.which, row.hours, row.hours_a_week) for row in rows] == [
        ("Mon-Fri 00-08+18-24; Sat 00-10+14-24; Sun 00-24", 4 * 114, pytest.approx(114)),
        ("Sat 10-14", 4 * 4, pytest.approx(4)),
        ("Mon-Fri 08-18", 4 * 50, pytest.approx(50)),
    ]
    assert [row.period for row in rows] == ["1 of 3 (lightest)", "2 of 3", "3 of 3 (busiest)"]
    assert {row.days for row in rows} == {()}


def test_months_with_the_same_hours_are_one_row() -> None:
    """January and February are alike, March is twice as large: two periods of all hours."""
    quarter = Quarter(title="t", start=date(2027, 1, 1), end=date(2027, 4, 1), owner="o")
    growth = Growth(steps=(Step(date(2027, 3, 1), Range(2.0, 2.0, 2.0), "launch"),))
    model = ModelWeek("m", DemandRates(10.0), FLAT, growth, date(2026, 12, 1))
    first, second = describe(horizon_of(quarter, TimeChoice(), [model]))
    assert (first.days, first.which, first.hours_a_week) == (("2027-01", "2027-02"), "all hours", 168.0)
    assert (second.days, second.hours) == (("2027-03",), 31 * 24)


def test_bounds_of_an_autoscaler() -> None:
    """Mean of b: (114 x 2 + 4 x 3 + 50 x 8) / 168 = 640/168. Ten changes on working days, two on Saturday."""
    a, b = autoscaler_rows(_office(), {"b": (2, 3, 8), "a": [5, 5, 5]})
    assert (a.pool, a.min_replicas, a.max_replicas, a.mean_replicas, a.changes_a_week) == ("a", 5, 5, 5.0, 0)
    assert (b.pool, b.min_replicas, b.max_replicas, b.changes_a_week) == ("b", 2, 8, 12)
    assert b.mean_replicas == pytest.approx(640 / 168)


def test_the_timetable_of_a_pool() -> None:
    rows = schedule_rows(_office(), {"p": (2, 8, 8)})
    assert [(row.pool, row.replicas, row.which) for row in rows] == [
        ("p", 2, "Mon-Fri 00-08+18-24; Sat 00-10+14-24; Sun 00-24"),
        ("p", 8, "Mon-Fri 08-18; Sat 10-14"),
    ]
    assert sum(row.hours_a_week for row in rows) == pytest.approx(168)


def test_every_hour_of_the_week() -> None:
    rows = hour_rows(_office(), {"b": (2, 3, 8), "a": (1, 1, 2)})
    assert len(rows) == WEEK_SLOTS
    by_hour = {row.hour: row for row in rows}
    assert by_hour["Mon 08:00"].replicas == (2, 8)
    assert by_hour["Sat 10:00"].replicas == (1, 3)
    assert by_hour["Sat 10:00"].period == "2 of 3"
    assert by_hour["Sun 10:00"].replicas == (1, 2)


def test_a_count_for_every_period_is_needed() -> None:
    for rows in (autoscaler_rows, schedule_rows, hour_rows):
        with pytest.raises(ValueError, match="3 periods: p"):
            rows(_office(), {"p": (1, 2)})


def test_text_of_hours() -> None:
    there, mine = np.ones(SLOTS, dtype=bool), np.zeros(SLOTS, dtype=bool)
    mine[[0, 24, 24 + 1, 3 * 24, 4 * 24, 5 * 24, WEEK_SLOTS, WEEK_SLOTS + 23]] = True
    assert hours_text(mine, there) == "Mon,Thu-Sat 00-01; Tue 00-02; holidays 00-01+23-24"
    assert hours_text(there, there) == "all hours"
    there[WEEK_SLOTS:] = False
    assert hours_text(there, there) == "all hours"
