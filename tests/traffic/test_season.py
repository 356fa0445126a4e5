from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock, season_of, slot_name
from planner.traffic.types import Tail, Traffic
from tests.queueing.laws import burst_of, law_of

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def _traffic(minute_counts: np.ndarray, start: datetime = MONDAY, skip_us: int = 0) -> Traffic:
    one = np.array([1])
    start_us = int(start.timestamp()) * 1_000_000 + skip_us
    return Traffic(
        model="m",
        law=law_of(one, one),
        tail=Tail(one, one, one),
        burst=burst_of(1.0),
        minute_counts=minute_counts,
        window_s=len(minute_counts) * 60.0 - skip_us / 1e6,
        source="",
        sha256="",
        window_start_us=start_us,
        calendar_time=True,
    )


def _weeks(n: int) -> np.ndarray:
    """Minute counts: ``h`` arrivals a minute in hour ``h`` of the week, times w + 1 in week ``w``."""
    hours = np.repeat(np.arange(168), 60)
    return np.concatenate([hours * (w + 1) for w in range(n)])


def test_quantiles_over_weeks_by_hand() -> None:
    found = season_of(_traffic(_weeks(4)), Clock(), quantile=0.5)
    assert found.weeks == 4
    assert found.mean_per_s[10] == pytest.approx(10 * 2.5 / 60)
    assert found.quantile_per_s[10] == pytest.approx(10 * 3 / 60), "of 1, 2, 3, 4 the median is the higher one"
    assert found.busiest_slot == 167
    assert season_of(_traffic(_weeks(4)), Clock(), 0.95).planning_rate_per_s == pytest.approx(167 * 4 / 60)
    assert "4 times" in found.caution
    assert "chance" not in found.caution
    assert not season_of(_traffic(_weeks(8)), Clock()).caution


def test_peaks_of_few_requests_are_called_chance() -> None:
    found = season_of(_traffic(np.ones(8 * 168 * 60, dtype=np.int64)), Clock())
    assert "hold 10 requests" in found.caution


def test_the_busiest_ten_minutes_lie_above_the_mean_of_the_hour() -> None:
    counts = np.zeros(168 * 60, dtype=np.int64)
    counts[9 * 60 + 20 : 9 * 60 + 30] = 6
    found = season_of(_traffic(counts), Clock())
    assert found.mean_per_s[9] == pytest.approx(1 / 60)
    assert found.peak_per_s[9] == pytest.approx(6 / 60)


def test_hours_seen_in_part_are_left_out() -> None:
    found = season_of(_traffic(np.ones(180, dtype=np.int64), skip_us=1), Clock())
    assert found.seen[:3].tolist() == [0, 1, 1], "the first minute was not seen whole"
    with pytest.raises(InputError, match="no whole hour"):
        season_of(_traffic(np.ones(59, dtype=np.int64)), Clock())


def test_zones_shift_the_week_and_half_hours_are_no_trouble() -> None:
    counts = _weeks(1)
    berlin = season_of(_traffic(counts), Clock("Europe/Berlin"))
    assert berlin.mean_per_s[11] == pytest.approx(10 / 60), "10:00 UTC is 11:00 in Berlin in winter"
    kolkata = season_of(_traffic(counts), Clock("Asia/Kolkata"))
    assert kolkata.mean_per_s[16] == pytest.approx(10.5 / 60), "10:30 to 11:30 UTC"
    assert kolkata.seen.sum() == 167, "the hours at both ends were seen in part"


def test_the_change_to_summer_time() -> None:
    around = datetime(2026, 3, 28, tzinfo=UTC)
    found = season_of(_traffic(np.ones(3 * 1440, dtype=np.int64), around), Clock("Europe/Berlin"))
    sunday = 6 * 24
    assert found.seen[sunday + 1] == 1
    assert found.seen[sunday + 2] == 0, "02:00 does not exist"
    back = datetime(2026, 10, 24, tzinfo=UTC)
    found = season_of(_traffic(np.ones(3 * 1440, dtype=np.int64), back), Clock("Europe/Berlin"))
    assert found.seen[sunday + 2] == 2, "02:00 comes twice"


def test_a_zone_whose_change_is_half_an_hour() -> None:
    around = datetime(2026, 4, 4, tzinfo=UTC)  # Lord Howe falls back by 30 minutes on 5 April 2026
    found = season_of(_traffic(np.ones(3 * 1440, dtype=np.int64), around), Clock("Australia/Lord_Howe"))
    assert 68 <= found.seen.sum() <= 71
    assert found.quantile_per_s[found.seen > 0] == pytest.approx(1 / 60)


def test_holidays_are_a_class_of_their_own() -> None:
    found = season_of(_traffic(_weeks(2)), Clock(holidays=frozenset({date(2026, 3, 3)})))
    assert found.seen[24:48].tolist() == [1] * 24
    assert found.seen[WEEK_SLOTS:].tolist() == [1] * 24
    assert found.mean_per_s[WEEK_SLOTS + 5] == pytest.approx(29 / 60)
    assert found.weeks == 1


def test_slots_have_names() -> None:
    assert (slot_name(0), slot_name(57), slot_name(SLOTS - 1)) == ("Mon 00:00", "Wed 09:00", "holiday 23:00")
    with pytest.raises(ValueError, match="slot"):
        slot_name(SLOTS)


@pytest.mark.parametrize(
    ("change", "clock", "quantile", "match"),
    [
        ({"calendar_time": False}, Clock(), 0.9, "hours of the week"),
        ({}, Clock("Mars/Olympus"), 0.9, "not a time zone"),
        ({}, Clock(), 1.5, "not in"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object], clock: Clock, quantile: float, match: str) -> None:
    with pytest.raises(InputError, match=match):
        season_of(replace(_traffic(_weeks(1)), **change), clock, quantile)
