"""Which hours the periods are, and the timetable that autoscalers take."""

from __future__ import annotations

import csv
import datetime as dt
import io
from dataclasses import replace

import numpy as np
import pytest

from planner.assemble import Reasons, assemble
from planner.optimise.periods.horizon import ModelWeek, horizon_of
from planner.plan import FleetPlan
from planner.report.schedule import COLUMNS, schedule_csv
from planner.request import Quarter, TimeChoice
from planner.traffic.demand import DemandRates
from planner.traffic.season import SLOTS
from planner.traffic.week import shape_of
from tests.assemble.test_assemble import Solved, solved
from tests.optimise.world import offer, workload


@pytest.fixture(scope="module")
def decided() -> Solved:
    """Eight busy hours a day, Monday to Friday, at three times the rate of the others: 40 of 168 hours."""
    rate = np.ones(SLOTS)
    for day in range(5):
        rate[day * 24 + 8 : day * 24 + 16] = 3.0
    quarter = Quarter(title="t", start=dt.date(2027, 1, 4), end=dt.date(2027, 3, 29), owner="o")
    model = ModelWeek("a", DemandRates(20.0), shape_of(rate, rate, "made"))
    horizon = horizon_of(quarter, TimeChoice(week_periods=2), [model])
    level = horizon.planning_rate_per_s[:, 0] / horizon.mean_rate_per_s.mean()
    context, decision = solved([workload("a", rate=20.0, rates=tuple(level))], [offer("L4", 1, 0.8)])
    periods = tuple(replace(p, hours=h.hours) for p, h in zip(context.data.periods, horizon.periods, strict=True))
    named = tuple(replace(p, name=h.name) for p, h in zip(periods, horizon.periods, strict=True))
    assert [p.hours for p in named] == pytest.approx([12 * 128.0, 12 * 40.0])
    same_hours = replace(horizon, periods=context.data.periods)
    return replace(context, horizon=same_hours), decision


@pytest.fixture(scope="module")
def plan(decided: Solved) -> FleetPlan:
    return assemble(*decided, Reasons({}, {}))


def test_periods_say_which_hours_they_are(plan: FleetPlan) -> None:
    assert plan.periods[1].when == "Mon-Fri 08-16"
    assert "Sat-Sun 00-24" in plan.periods[0].when or "Sat,Sun 00-24" in plan.periods[0].when


def test_the_timetable_has_every_hour_of_the_week_once(plan: FleetPlan) -> None:
    assert sum(row.hours_a_week for row in plan.schedule) == pytest.approx(168)
    busy = next(row for row in plan.schedule if row.when == "Mon-Fri 08-16")
    assert busy.replicas == plan.pools[0].periods[1].replicas > plan.pools[0].periods[0].replicas
    assert busy.hours_a_week == pytest.approx(40)


def test_the_table_for_autoscalers_has_their_bounds(plan: FleetPlan) -> None:
    rows = list(csv.DictReader(io.StringIO(schedule_csv(plan))))
    counts = [period.replicas for period in plan.pools[0].periods]
    assert tuple(rows[0]) == COLUMNS
    assert {(row["min_replicas"], row["max_replicas"]) for row in rows} == {(str(min(counts)), str(max(counts)))}
    assert {row["replicas"] for row in rows} == {str(count) for count in counts}


def test_without_a_week_a_pool_runs_the_same_in_all_hours(decided: Solved) -> None:
    context, decision = decided
    flat = assemble(replace(context, horizon=None), decision, Reasons({}, {}))
    assert flat.schedule == ()
    rows = list(csv.DictReader(io.StringIO(schedule_csv(flat))))
    assert [row["hours"] for row in rows] == ["all hours"]
    assert rows[0]["replicas"] == str(max(period.replicas for period in flat.pools[0].periods))
