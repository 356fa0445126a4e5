from __future__ import annotations

from datetime import date

import pytest

from planner.errors import InputError
from planner.traffic.calendar import slot_hours, stretches_of
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock

JANUARY, APRIL = date(2027, 1, 1), date(2027, 4, 1)
SUNDAY_2 = 6 * 24 + 2


def _hours(start: date, end: date, zone: str, *holidays: date):
    return slot_hours(stretches_of(start, end, by_month=False), Clock(zone, frozenset(holidays)))[0]


def test_every_hour_of_a_quarter_is_counted_once() -> None:
    hours = _hours(JANUARY, APRIL, "UTC")
    assert hours.sum() == 90 * 24
    assert hours[4 * 24] == 13, "13 Fridays from 1 January to 26 March"
    assert hours[3 * 24] == 12, "and 12 Thursdays but for 31 December and 1 April: 7 January to 25 March"


def test_the_hour_that_summer_time_takes_away_and_the_one_it_gives_back() -> None:
    """28 March 2027 has no 02:00 in Berlin; on 31 October it comes twice."""
    week = _hours(date(2027, 3, 22), date(2027, 3, 30), "Europe/Berlin")
    assert week[SUNDAY_2] == 0
    assert week[SUNDAY_2 - 1] == week[SUNDAY_2 + 1] == 1
    assert week.sum() == 8 * 24
    assert _hours(date(2027, 10, 25), date(2027, 11, 1), "Europe/Berlin")[SUNDAY_2] == 2
    quarter = _hours(JANUARY, APRIL, "Europe/Berlin")
    assert quarter[SUNDAY_2] == 12, "13 Sundays less one"
    assert quarter.sum() == 90 * 24


def test_zones_of_half_and_quarter_hours_share_an_hour_out() -> None:
    """05:45 ahead of UTC: midnight UTC of 1 January, a Friday, is 05:45 there: a quarter of the hour from 05:00."""
    day = _hours(JANUARY, date(2027, 1, 2), "Asia/Kathmandu")
    friday = 4 * 24
    assert day[friday + 5] == 0.25
    assert day[friday + 6] == 1.0
    assert day[friday + 24 + 5] == 0.75
    assert day.sum() == 24


def test_holidays_are_hours_of_their_own() -> None:
    hours = _hours(JANUARY, date(2027, 1, 8), "UTC", JANUARY, date(2027, 6, 1))
    assert hours[WEEK_SLOTS:].tolist() == [1.0] * 24
    assert hours[4 * 24 : 5 * 24].sum() == 0, "the only Friday is the holiday"
    assert hours.size == SLOTS


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InputError, match="not a time zone"):
        _hours(JANUARY, APRIL, "Europe/Atlantis")


def test_months_and_cuts() -> None:
    whole = stretches_of(JANUARY, APRIL, by_month=False)
    assert [(s.name, s.start, s.end) for s in whole] == [("", JANUARY, APRIL)]
    months = stretches_of(date(2027, 1, 15), APRIL, by_month=True)
    assert [s.name for s in months] == ["2027-01", "2027-02", "2027-03"]
    assert months[0].days[0] == date(2027, 1, 15)
    parted = stretches_of(JANUARY, APRIL, [date(2027, 2, 10), date(2027, 3, 1), APRIL, date(2030, 1, 1)], by_month=True)
    assert [s.name for s in parted] == ["2027-01", "2027-02-01 to 2027-02-09", "2027-02-10 to 2027-02-28", "2027-03"]
    two = stretches_of(JANUARY, APRIL, [date(2027, 3, 1)], by_month=False)
    assert [s.name for s in two] == ["2027-01-01 to 2027-02-28", "2027-03-01 to 2027-03-31"]
