"""Replicas by the hour: the triggers, run as KEDA runs them, give the plan's replicas in every hour of the horizon."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.actuals.timetable import ZONE, timetable_of
from planner.deploy.autoscale import Span, Week, scaling_of, week_of
from planner.deploy.targets import Target
from planner.plan import Assumption, FleetPlan, PlanPeriod, Pool, PoolPeriod
from planner.traffic.calendar import STEP
from planner.traffic.season import WEEK_SLOTS
from tests.deploy.plans import example, files_of, plan_of

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def week_hour(cron: str) -> int:
    """Hour of the week that ``0 10 * * mon`` names."""
    minute, hour, day, month, weekday = cron.split()
    assert (minute, day, month) == ("0", "*", "*")
    return DAYS.index(weekday) * 24 + int(hour)


def active(trigger: dict[str, Any], local: dt.datetime) -> bool:
    """Whether a cron trigger is between its start and its end at a moment."""
    start, end = trigger["metadata"]["start"], trigger["metadata"]["end"]
    if start.endswith("*"):
        times = []
        for text in (start, end):
            _, hour, day, month, _ = text.split()
            times.append(local.replace(month=int(month), day=int(day), hour=int(hour), minute=0))
        return times[0] <= local < times[1]
    first, last, now = week_hour(start), week_hour(end), local.weekday() * 24 + local.hour
    return first <= now < last if first < last else now >= first or now < last


def replicas_at(scaled: dict[str, Any], moment: dt.datetime) -> int:
    """What KEDA asks for: the largest of the triggers, and never fewer than the least."""
    spec = scaled["spec"]
    zone = {trigger["metadata"]["timezone"] for trigger in spec["triggers"]}
    assert len(zone) == 1
    local = moment.astimezone(zoneinfo.ZoneInfo(zone.pop()))
    asked = [int(t["metadata"]["desiredReplicas"]) for t in spec["triggers"] if active(t, local)]
    found = max([spec["minReplicaCount"], *asked])
    assert found <= spec["maxReplicaCount"]
    return found


def scaled_objects(plan: FleetPlan) -> dict[dt.date, dict[str, dict[str, Any]]]:
    """Objects by pool, by the day from which they hold."""
    files = files_of(plan, Target.KUBERNETES)
    found = {}
    for name, text in files.items():
        if name.startswith("autoscaling/"):
            day = dt.date.fromisoformat(name.removeprefix("autoscaling/").removesuffix(".yaml"))
            objects = {o["metadata"]["annotations"]["planner/pool"]: o for o in yaml.safe_load_all(text)}
            found[day] = objects
    return found


def check_every_hour(plan: FleetPlan, least: bool = False) -> None:
    """Every quarter of an hour of the horizon has the plan's replicas (``least``: at least them)."""
    table, by_day = timetable_of(plan), scaled_objects(plan)
    assert table.label is not None
    start = dt.datetime.combine(plan.horizon_start, dt.time(), tzinfo=dt.UTC)
    for n in range(0, len(table.label), 4):
        moment, period = start + n * STEP, int(table.label[n])
        day = max(day for day in by_day if day <= moment.date())
        for pool in plan.pools:
            planned = pool.periods[period].replicas
            found = by_day[day].get(pool.name)
            running = replicas_at(found, moment) if found else pool.replicas
            assert running >= planned if least else running == planned, (pool.name, moment)


def test_the_example_runs_its_plan_in_every_hour_of_the_quarter() -> None:
    """With the change to summer time in it: triggers follow the clock of the zone."""
    check_every_hour(example())


def with_periods(
    names: tuple[tuple[str, str], ...], counts: tuple[int, ...], hours: tuple[float, ...], holidays: str = "none"
) -> FleetPlan:
    """A plan of one pool for January and February 2027, with these periods."""
    periods = tuple(PlanPeriod(name=n, when=w, hours=h) for (n, w), h in zip(names, hours, strict=True))
    own = tuple(
        PoolPeriod(
            period=period.name, planning_rate_per_s=1.0, mean_rate_per_s=1.0, replicas_needed=count,
            replicas_asked=count, replicas=count,
        )
        for period, count in zip(periods, counts, strict=True)
    )  # fmt: skip
    pool: Pool = example().pools[0].model_copy(update={"periods": own, "replicas": max(counts)})
    zone = next(row for row in example().assumptions if row.id == ZONE)
    row: Assumption = zone.model_copy(update={"value": "UTC", "note": f"holidays: {holidays}"})
    return plan_of(
        pool,
        periods=periods,
        assumptions=(row,),
        horizon_start=dt.date(2027, 1, 1),
        horizon_end=dt.date(2027, 3, 1),
        horizon_hours=sum(hours),
    )


OFFICE, REST = "Mon-Fri 08-18", "Mon-Fri 00-08+18-24; Sat,Sun 00-24"


def test_months_that_differ_have_a_file_each() -> None:
    """January: 21 working days of 10 hours of 31 x 24; February: 20 of 28 x 24."""
    plan = with_periods(
        (("quiet", f"2027-01: {OFFICE} | 2027-01: {REST} | 2027-02: {REST}"), ("busy", f"2027-02: {OFFICE}")),
        (2, 5),
        (31 * 24 + 28 * 24 - 200, 200),
    )
    assert timetable_of(plan).label is not None
    assert sorted(scaled_objects(plan)) == [dt.date(2027, 1, 1), dt.date(2027, 2, 1)]
    check_every_hour(plan)


def test_a_busier_holiday_gets_its_date_and_a_quieter_one_keeps_the_weekday() -> None:
    """6 January 2027 is a Wednesday: on it the pool needs 7 from 10 to 12, and 1 else."""
    periods = (("quiet", REST), ("busy", OFFICE), ("rush", "holidays 10-12"), ("calm", "holidays 00-10+12-24"))
    plan = with_periods(periods, (2, 5, 7, 1), (59 * 24 - 24 - 400, 400, 2, 22), "2027-01-06")
    assert timetable_of(plan).label is not None
    check_every_hour(plan, least=True)
    [objects] = scaled_objects(plan).values()
    [scaled] = objects.values()
    assert scaled["spec"]["minReplicaCount"] == 2
    for hour, expected in ((9, 5), (10, 7), (11, 7), (12, 5), (20, 2)):
        assert replicas_at(scaled, dt.datetime(2027, 1, 6, hour, tzinfo=dt.UTC)) == expected


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=WEEK_SLOTS, max_size=WEEK_SLOTS))
def test_any_week_runs_as_it_is_planned(week: list[int]) -> None:
    scaling = scaling_of(range(5), Span(dt.date(2027, 1, 4), dict(enumerate(week))), ())
    triggers = [
        {"metadata": {"timezone": "UTC", "start": w.start, "end": w.end, "desiredReplicas": str(w.replicas)}}
        for w in scaling.windows
    ]
    spec = {"minReplicaCount": scaling.least, "maxReplicaCount": scaling.most, "triggers": triggers}
    assert (scaling.least, scaling.most) == (min(week), max(week))
    monday = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)
    for hour, planned in enumerate(week):
        assert replicas_at({"spec": spec}, monday + dt.timedelta(hours=hour)) == planned


def test_windows_are_nested_and_run_across_midnight() -> None:
    """Monday 08-20 needs 3, of it 10-12 5; Sunday 22 to Monday 02 needs 4; else 1."""
    counts = [1, 3, 4, 5]
    slots = dict.fromkeys(range(WEEK_SLOTS), 0)
    slots |= dict.fromkeys(range(8, 20), 1) | dict.fromkeys(range(10, 12), 3)
    slots |= dict.fromkeys((0, 1, 166, 167), 2)
    scaling = scaling_of(counts, Span(dt.date(2027, 1, 1), slots), ())
    assert (scaling.least, scaling.most) == (1, 5)
    assert [(w.replicas, w.start, w.end) for w in scaling.windows] == [
        (3, "0 8 * * mon", "0 20 * * mon"),
        (3, "0 22 * * sun", "0 2 * * mon"),
        (4, "0 10 * * mon", "0 12 * * mon"),
        (4, "0 22 * * sun", "0 2 * * mon"),
        (5, "0 10 * * mon", "0 12 * * mon"),
    ]


@pytest.mark.parametrize(
    ("when", "note"),
    [("", "does not say which hours"), ("Mon-Fri 08-18", "claims hours of another period")],
)
def test_hours_that_the_plan_does_not_tell_are_not_guessed(when: str, note: str) -> None:
    plan = with_periods((("a", when), ("b", when)), (2, 5), (700.0, 716.0))
    week = week_of(plan)
    assert week == Week("UTC", note=week.note)
    assert note in week.note
    files = files_of(plan, Target.KUBERNETES)
    assert not any(name.startswith("autoscaling") for name in files)
    assert "the busiest period's replicas run all the time" in files["README.md"]


def test_pools_that_never_change_are_left_alone() -> None:
    [objects] = scaled_objects(example()).values()
    moving = {pool.name for pool in example().pools if len({period.replicas for period in pool.periods}) > 1}
    assert set(objects) == moving == {"chat-large", "assistant/2", "ticket-triage"}
