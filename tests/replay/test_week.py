"""A replayed week: a change and a drain by hand, which hours stand for which, what cutting the week costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.plan import PlanPeriod
from planner.replay.segments import Life, replay_lives
from planner.replay.trace import Source, Trace, at_rate, busiest_per_s, read_trace
from planner.replay.types import Fate
from planner.replay.week import (
    LEAD,
    MINUTES,
    WEEK,
    WeekAsk,
    drawn,
    hours_of,
    lives_of,
    model_rate_per_s,
    replay_week,
    week_of,
)  # fmt: skip
from planner.replay.week_told import hour_seen, usd_per_replica_h
from tests.replay.test_segments import engine, requests

ROOT = Path(__file__).parents[2]
MODEL = "chat-large"
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"
BORDER = 60.0 * LEAD
CORE = (LEAD, LEAD + 60)


@pytest.fixture(scope="module")
def trace():
    return read_trace(Source(LOG, "azure")).part(0.5, 1.0)


def of(plan, percentile: float):
    pool = next(pool for pool in plan.pools if pool.name == MODEL)
    return pool.model_copy(update={"speed": pool.speed.model_copy(update={"ttft_percentile": percentile})})


def test_one_to_two_replicas_with_warm_up_by_hand(plan):
    """A request every 10 s takes 12 s: the k-th waits 12 + 2 k until the second replica is ready, 10 min after the
    border. Then every other request finds it free, and those of the first wait 8 s less each. The worst minute is the
    last of the warm-up: 120, 122, ... 130 s, median 125 s."""
    lives = lives_of(1, 2, 600.0)
    assert lives == (Life(0.0, float("inf")), Life(BORDER + 600.0, float("inf")))
    lived = replay_lives(requests(BORDER + 10.0 * np.arange(120)), engine(fixed_s=12.0), lives, 60.0, MINUTES)
    wait = lived.end_s - lived.requests.arrival_s
    assert wait[:60] == pytest.approx(12.0 + 2.0 * np.arange(60))
    assert wait[61:120:2] == pytest.approx(12.0)
    assert wait[60:76:2] == pytest.approx(132.0 - 8.0 * np.arange(8))
    seen, turned_away, worst_ms, minute = hour_seen(of(plan, 0.5), lived, CORE)
    assert (turned_away, minute, worst_ms) == (0, 9, pytest.approx(125_000.0))
    assert (seen.requests, seen.served, seen.unfinished) == (120, 120, 0)


def test_replicas_taken_away_drain_from_the_border():
    arrival = [BORDER - 2.0, BORDER - 1.0, BORDER, BORDER + 40.0]
    lived = replay_lives(requests(arrival), engine(fixed_s=30.0), lives_of(2, 1, 600.0), 60.0, MINUTES)
    assert lived.life.tolist() == [0, 1, 0, 0]
    assert lived.end_s.tolist() == pytest.approx([BORDER + 28, BORDER + 29, BORDER + 58, BORDER + 88])
    assert lived.up_s[LEAD] == pytest.approx(60.0 + 29.0)


def test_a_warm_up_of_more_than_an_hour_is_one_hour():
    assert lives_of(0, 1, 9000.0)[0].up_s == BORDER + 3600.0


def test_hours_stand_for_those_of_the_same_pair():
    """Mon-Fri 8 to 18 h: 5 rises, 5 falls, 45 more hours of work, 113 others."""
    week = tuple(int(day < 5 and 8 <= hour < 18) for day in range(7) for hour in range(24))
    found = {(hour.before, hour.period): (hour.number, hour.weight) for hour in hours_of(week, WeekAsk())}
    assert found == {(0, 0): (0, 113), (0, 1): (8, 5), (1, 1): (9, 45), (1, 0): (18, 5)}
    every = hours_of(week, WeekAsk(first=7, last=10, full=True))
    assert [(h.number, h.before, h.period, h.weight) for h in every] == [(7, 0, 0, 1), (8, 0, 1, 1), (9, 1, 1, 1)]


def with_office_hours(plan, when: str, elsewhere: str, work_h: int):
    days = [plan.horizon_start.toordinal() + n for n in range(int(plan.horizon_hours / 24))]
    work = work_h * sum((day - 1) % 7 < 5 for day in days)
    periods = (
        PlanPeriod(name="work", hours=work, when=when),
        PlanPeriod(name="rest", hours=plan.horizon_hours - work, when=elsewhere),
    )
    others = tuple(row for row in plan.assumptions if row.id != "periods_zone")
    return plan.model_copy(update={"periods": periods, "assumptions": others})


def test_the_week_of_two_periods(plan):
    office = with_office_hours(plan, "Mon-Fri 08-18", "Mon-Fri 00-08+18-24; Sat-holidays 00-24", 10)
    expected = [int(not (day < 5 and 8 <= hour < 18)) for day in range(7) for hour in range(24)]
    assert week_of(office) == tuple(expected)
    with pytest.raises(InputError, match="are not the hours that it counts"):
        week_of(with_office_hours(plan, "Mon-Fri 08-18", "Sat,Sun 00-24", 10))


def test_the_week_of_the_example(plan):
    week = week_of(plan)
    assert len(week) == WEEK
    assert set(week) <= set(range(len(plan.periods)))


def test_rates_rise_after_the_warm_up_and_fall_at_the_border():
    """Evenly spaced requests: 10/s until 10 min after the border, 20/s halfway up the 50 min that follow, then 30/s."""
    one = np.ones(1000, dtype=np.int64)
    even = Trace(np.arange(1000.0), one, one, 1000.0)
    rise, fall, long = (
        drawn(even, *rates, warm_s, 1).arrival_s
        for rates, warm_s in (((10.0, 30.0), 600.0), ((30.0, 10.0), 600.0), ((10.0, 30.0), 7200.0))
    )

    def rate(arrival, low_min, high_min):
        return np.sum((arrival >= 60 * low_min) & (arrival < 60 * high_min)) / (60 * (high_min - low_min))

    assert rate(rise, 0, LEAD + 10) == pytest.approx(10.0, rel=0.01)
    assert rate(rise, LEAD + 30, LEAD + 40) == pytest.approx(20.0, rel=0.03)
    assert rate(rise, LEAD + 60, MINUTES) == pytest.approx(30.0, rel=0.01)
    assert rate(fall, 0, LEAD) == pytest.approx(30.0, rel=0.01)
    assert rate(fall, LEAD, MINUTES) == pytest.approx(10.0, rel=0.01)
    assert rate(long, 0, LEAD + 60) == pytest.approx(10.0, rel=0.01)
    assert rate(long, LEAD + 60, MINUTES) == pytest.approx(30.0, rel=0.01)
    assert np.all(np.diff(rise) >= 0)


@pytest.mark.parametrize("peak_per_s", [5.0, 28.0, 300.0])
def test_the_busiest_ten_minutes_of_the_counted_hour_have_the_rate(trace, peak_per_s):
    since = drawn(trace, peak_per_s, peak_per_s, 0.0, 7).arrival_s - BORDER
    found = busiest_per_s(since[(since >= 0) & (since < 3600)], 3600.0)
    assert found == pytest.approx(peak_per_s, rel=0.03)


def test_rates_of_the_busiest_period_are_the_planning_rate(plan):
    busiest = max(range(len(plan.periods)), key=lambda k: model_rate_per_s(plan, MODEL, k))
    pool = of(plan, 0.95)
    stated = pool.stated_rate_per_s * pool.growth * pool.peak_factor
    assert model_rate_per_s(plan, MODEL, busiest) == pytest.approx(stated, rel=1e-6)


def test_cost_of_a_replica_and_hour_adds_up(plan):
    hours = [period.hours for period in plan.periods]
    for pool in plan.pools:
        each = usd_per_replica_h(pool, hours)
        assert sum(each * p.replicas * h for p, h in zip(pool.periods, hours, strict=True)) == pytest.approx(pool.usd)


def test_a_lead_stands_for_the_hours_before(plan, engines, trace):
    """The same requests uncut over three hours: TTFT and TPOT of the cut hour lie within 2 %."""
    pool, each = of(plan, 0.95), next(e for e in engines if e.pool.name == MODEL)
    start, hours = 60.0 * (120 - LEAD), 60 * 3 + 10
    asked = at_rate(trace, 20.0, 60.0 * hours, 3)
    later = np.flatnonzero(asked.arrival_s >= start)
    cut = asked.at(later)
    cut = replace(cut, arrival_s=cut.arrival_s - start)
    always = [Life(0.0, float("inf"))] * pool.replicas
    whole, *_ = hour_seen(pool, replay_lives(asked, each.engine, always, 60.0, hours), (120, 180))
    part, *_ = hour_seen(pool, replay_lives(cut, each.engine, always, 60.0, MINUTES), CORE)
    assert (part.requests, part.served_tokens) == (whole.requests, whole.served_tokens)
    assert part.tpot_ms == pytest.approx(whole.tpot_ms, rel=0.02)
    assert part.ttft_ms == pytest.approx(whole.ttft_ms, rel=0.02)
    assert part.busy_share == pytest.approx(whole.busy_share, rel=0.02)


def test_a_request_that_is_sent_twice_or_has_no_end_is_told(plan):
    lived = replay_lives(requests([BORDER, BORDER + 1.0]), engine(fixed_s=1.0), lives_of(1, 1, 0.0), 60.0, MINUTES)
    for wrong in ({"sent": lived.sent * 2}, {"fate": 0 * lived.fate}, {"end_s": np.full(2, np.nan)}):
        with pytest.raises(AssertionError, match="was lost"):
            hour_seen(of(plan, 0.9), replace(lived, **wrong), CORE)


@settings(max_examples=30, deadline=None)
@given(
    arrival=st.lists(st.floats(0.0, 60.0 * MINUTES - 1), max_size=40),
    before=st.integers(0, 3), after=st.integers(0, 3), warm_s=st.floats(0.0, 5000.0), step_s=st.floats(1.0, 900.0),
)  # fmt: skip
def test_every_request_ends_once(plan, arrival, before, after, warm_s, step_s):
    lived = replay_lives(
        requests(sorted(arrival)), engine(fixed_s=step_s), lives_of(before, after, warm_s), 60.0, MINUTES
    )
    seen, turned_away, _, _ = hour_seen(of(plan, 0.9), lived, CORE)
    assert seen.served + seen.refused + seen.unfinished + turned_away == seen.requests
    assert seen.requests == sum(60 * CORE[0] <= t < 60 * CORE[1] for t in arrival)
    assert (turned_away == 0) or min(before, after) == 0
    assert np.all((lived.fate == Fate.UNROUTED) == (lived.sent == 0))


def test_a_week_of_one_model(plan, engines, trace):
    ask = WeekAsk(pools=(MODEL,), share=0.05)
    first = replay_week(plan, engines, {MODEL: trace}, ask)
    assert first.passed
    assert repr(first) == repr(replay_week(plan, engines, {MODEL: trace}, ask))  # NaN is not itself
    (told,) = first.pools
    assert sum(period.hours for period in told.periods) == WEEK
    for row in told.periods:
        assert row.served + row.refused + row.turned_away + row.unfinished == row.requests
    assert all(hour.replicas != hour.replicas_before for hour in told.changes)


def test_hours_after_a_change_are_judged_apart(plan, engines, trace):
    (told,) = replay_week(plan, engines, {MODEL: trace}, WeekAsk(pools=(MODEL,), share=0.05)).pools
    for row in told.periods:
        mine = [hour for hour in told.hours if told.pool.periods[hour.period].period == row.period]
        steady = [hour for hour in mine if hour.before == hour.period]
        (alone,) = steady
        figures = {p.constraint: p.observed.value for p in row.promises}
        assert figures["TTFT target"] == pytest.approx(alone.seen.ttft_ms)
        after = [hour for hour in mine if hour not in steady]
        weights = [hour.weight for hour in after]
        mean = np.average([hour.seen.ttft_ms for hour in after], weights=weights)
        assert figures["TTFT target after a change"] == pytest.approx(mean)


def test_too_much_traffic_is_refuted(plan, engines, trace):
    week = replay_week(plan, engines, {MODEL: trace}, WeekAsk(first=0, last=1, share=2.5))
    assert not week.passed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pools": ("nobody",)}, "is no pool of the plan"),
        ({"share": 0.0}, "--share: must be above 0"),
        ({"share": float("nan")}, "--share: must be above 0"),
        ({"share": 1e9}, "cannot be replayed"),
        ({"seed": -1}, "--seed"),
        ({"first": 5, "last": 5}, "--hours"),
        ({"last": WEEK + 1}, "--hours"),
        ({"pools": ("code-complete",)}, "no log is of a model"),
    ],
)
def test_what_cannot_be_replayed(plan, engines, trace, changes, words):
    with pytest.raises(InputError, match=words):
        replay_week(plan, engines, {MODEL: trace}, replace(WeekAsk(), **changes))
