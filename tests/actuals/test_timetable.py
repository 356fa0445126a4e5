"""Hours of periods read back from a plan's words: against the horizon they were written from, zones and changes too."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.actuals.timetable import STEP_US, horizon_of, hours_by_period, pieces_of, timetable_of
from planner.assemble.week import _hours
from planner.optimise.periods.horizon import Horizon
from planner.optimise.types import Period
from planner.plan import FleetPlan
from planner.traffic.calendar import slot_hours, stretches_of
from planner.traffic.grid import Span
from planner.traffic.season import SLOTS, Clock, slot_of, zone_of
from tests.actuals.plans import Spec, plan_of

HOUR_US = 3_600_000_000
BERLIN = "Europe/Berlin"
START, END = dt.date(2026, 10, 19), dt.date(2026, 11, 16)
"""Four weeks with the change to winter time on October 25."""


def planned(periods: list[tuple[float, str]], zone: str, holidays: str = "none") -> FleetPlan:
    count = len(periods)
    return plan_of(
        [Spec("m", "m", (1.0,) * count, (1,) * count)], START, END, periods=periods, zone=zone, holidays=holidays
    )


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Asia/Kathmandu"]),
    st.booleans(),
    st.sets(st.dates(START - dt.timedelta(days=2), END), max_size=2),
    st.sets(st.dates(START, END), max_size=2),
    st.integers(1, 4),
    st.integers(0, 10_000),
)
def test_what_a_plan_writes(
    zone: str, by_month: bool, cuts: set[dt.date], holidays: set[dt.date], count: int, seed: int
) -> None:
    clock = Clock(zone, frozenset(holidays))
    stretches = stretches_of(START, END, cuts, by_month=by_month)
    hours = slot_hours(stretches, clock)
    label = np.random.default_rng(seed).integers(0, count, hours.shape)
    label = np.where(hours > 0, label, -1)
    used = np.unique(label[label >= 0])
    label = np.where(label >= 0, np.searchsorted(used, label), -1)
    totals = [float(hours[label == k].sum()) for k in range(used.size)]
    horizon = Horizon(
        models=(), periods=tuple(Period(f"period {k}", total) for k, total in enumerate(totals)),
        planning_rate_per_s=np.empty((0, 0)), mean_rate_per_s=np.empty((0, 0)), overstatement=np.empty(0),
        flat_overstatement=np.empty(0), changes_a_week=0, stretches=stretches, label=label, hours=hours,
    )  # fmt: skip
    words = _hours(horizon)
    periods = [(total, words.get(f"period {k}", "")) for k, total in enumerate(totals)]
    found = timetable_of(planned(periods, zone, ", ".join(sorted(map(str, holidays))) or "none"))
    assert found.note == ""
    assert found.label is not None
    moment = dt.datetime.combine(START, dt.time(), tzinfo=dt.UTC)
    for step in np.random.default_rng(seed).integers(0, found.label.size, 200).tolist():
        at = moment + step * dt.timedelta(minutes=15)
        row = next(n for n, stretch in enumerate(stretches) if stretch.start <= at.date() < stretch.end)
        assert found.label[step] == label[row, slot_of(at.astimezone(zone_of(clock)), holidays)]


def test_the_clock_goes_back() -> None:
    """On Sunday 2026-10-25, 03:00 summer time is 02:00 again: hours 02 to 03 of Berlin last two hours.

    28 days: Sundays from 02 to 03 are 4 hours of the clock and 5 in fact.
    """
    plan = planned([(28 * 24 - 5.0, "Mon-Sat 00-24; Sun 00-02+03-24"), (5.0, "Sun 02-03")], BERLIN)
    found = timetable_of(plan)
    midnight = horizon_of(plan).start_us + 6 * 24 * HOUR_US
    sunday = Span(midnight, midnight + 4 * HOUR_US)
    assert hours_by_period(found, (sunday,)).tolist() == [2.0, 2.0]
    pieces = [((p.span.start_us - midnight) // HOUR_US, p.period) for p in pieces_of(found, (sunday,))]
    assert pieces == [(0, 1), (2, 0)]


def test_half_hours() -> None:
    """A stretch that begins and ends inside hours, across a change of period."""
    plan = planned([(28 * 12.0, "Mon-Sun 00-12"), (28 * 12.0, "Mon-Sun 12-24")], "UTC")
    start = horizon_of(plan).start_us
    span = Span(start + 11 * HOUR_US + 1, start + 12 * HOUR_US + HOUR_US // 4)
    assert hours_by_period(timetable_of(plan), (span,)) == pytest.approx([1 - 1 / HOUR_US, 0.25], abs=1e-12)


def test_without_words() -> None:
    plan = planned([(28 * 6.0, ""), (28 * 18.0, "")], BERLIN)
    found = timetable_of(plan)
    assert found.label is None
    assert "does not say which hours" in found.note
    start = found.horizon.start_us
    assert hours_by_period(found, (Span(start, start + 4 * HOUR_US),)).tolist() == [1.0, 3.0]
    assert [piece.period for piece in pieces_of(found, (Span(start, start + 1),))] == [None]


@pytest.mark.parametrize(
    ("periods", "zone", "said"),
    [
        ([(28 * 12.0, "Mon-Sun 00-12"), (28 * 12.0, "Mon-Sun 12-23")], "UTC", "not the hours that it counts"),
        ([(28 * 12.0, "Mon-Sun 00-12"), (28 * 12.0, "Mon-Sun 11-24")], "UTC", "claims hours of another period"),
        ([(28 * 12.0, "mornings"), (28 * 12.0, "Mon-Sun 12-24")], "UTC", "'mornings' names no hours"),
        ([(28 * 12.0, "Mon-Son 00-12"), (28 * 12.0, "Mon-Sun 12-24")], "UTC", "'Mon-Son' names no day"),
        ([(28 * 12.0, "Mon-Sun 0-12"), (28 * 12.0, "Mon-Sun 12-24")], "UTC", "'0-12' names no hours"),
        ([(28 * 12.0, "May: all hours"), (28 * 12.0, "Mon-Sun 12-24")], "UTC", "'May' names no days"),
    ],
)
def test_words_that_no_plan_writes(periods: list[tuple[float, str]], zone: str, said: str) -> None:
    found = timetable_of(planned(periods, zone))
    assert found.label is None
    assert said in found.note


def test_without_a_zone() -> None:
    periods = [(28 * 12.0, "Mon-Sun 00-12"), (28 * 12.0, "Mon-Sun 12-24")]
    assert timetable_of(planned(periods, "")).note == "the plan names no time zone: its hours are taken as UTC"
    found = timetable_of(planned(periods, "Mars/Base"))
    assert found.note == "'Mars/Base' is no time zone: hours are taken as UTC"
    assert found.label is not None
    assert found.label.size == 28 * 24 * HOUR_US // STEP_US


def test_one_period() -> None:
    found = timetable_of(planned([(28 * 24.0, "")], ""))
    assert found.label is not None
    assert (found.note, set(found.label.tolist()), SLOTS) == ("", {0}, 192)
