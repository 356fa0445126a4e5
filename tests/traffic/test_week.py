from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.request import TimeChoice, TrafficSource
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock, season_of
from planner.traffic.types import Tail, Traffic
from planner.traffic.week import FLAT, shape_of, week_of
from planner.traffic.week_table import is_week_table, read_week, write_week
from tests.queueing.laws import burst_of, law_of

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
EXAMPLE = Path(__file__).parents[2] / "catalogs" / "example"


def _traffic(minute_counts: np.ndarray, *, dated: bool = True) -> Traffic:
    one = np.array([1])
    return Traffic(
        model="m",
        law=law_of(one, one),
        tail=Tail(one, one, one),
        burst=burst_of(1.0),
        minute_counts=minute_counts,
        window_s=len(minute_counts) * 60.0,
        source="",
        sha256="",
        window_start_us=int(MONDAY.timestamp()) * 1_000_000 if dated else 0,
        calendar_time=dated,
    )


def _source(week: str, **more: object) -> TrafficSource:
    return TrafficSource(path="log.csv", week=week, **more)  # type: ignore[arg-type]


def _day(busy: int = 5) -> np.ndarray:
    """Minute counts of a day: one a minute; from 9 to 10 h ``busy``, in ten minutes of it twice as many."""
    counts = np.ones(1440, dtype=np.int64)
    counts[540:600] = busy
    counts[550:560] = 2 * busy
    return counts


def test_no_week_is_the_flat_one(tmp_path: Path) -> None:
    found = week_of(_source(""), _traffic(_day()), TimeChoice(), tmp_path)
    assert found is FLAT
    assert found.flat
    assert found.peak_factor == 1.0


def test_the_week_of_the_log_by_hand(tmp_path: Path) -> None:
    """Two weeks: 23 hours of 1 a minute, one of (50 x 5 + 10 x 10) / 60 = 35/6; mean (23 + 35/6) / 24 = 173/144."""
    log = _traffic(np.tile(_day(), 14))
    found = week_of(_source("log"), log, TimeChoice(), tmp_path)
    level = 173 / 144
    assert found.mean[8] == pytest.approx(1 / level)
    assert found.mean[9] == pytest.approx(35 / 6 / level)
    assert found.peak[9] == pytest.approx(10 / level), "the busiest ten minutes"
    assert found.mean[:WEEK_SLOTS].mean() == pytest.approx(1.0)
    assert found.mean[WEEK_SLOTS:].tolist() == found.mean[:24].tolist(), "a holiday is like the mean day"
    assert found.busiest_slot == 9
    assert "2 times at least" in found.notes[0]
    berlin = week_of(_source("log"), log, TimeChoice(zone="Europe/Berlin"), tmp_path)
    assert berlin.busiest_slot == 10


def test_quantile_and_holidays_come_from_the_request(tmp_path: Path) -> None:
    """The second week is twice the first; of two observations the quantile 0.5 takes the higher one, 0 the lower."""
    log = _traffic(np.concatenate([np.tile(_day(), 7), 2 * np.tile(_day(), 7)]))
    low = week_of(_source("log", peak_quantile=0.0), log, TimeChoice(), tmp_path)
    high = week_of(_source("log"), log, TimeChoice(), tmp_path)
    assert high.peak[9] / low.peak[9] == pytest.approx(20 / 10)
    assert high.peak[8] / low.peak[8] == pytest.approx(2 / 1.5), "a peak of 1 is raised to the mean of 1 and 2"
    assert "quantile 0.95" in high.source
    both = TimeChoice(holidays=(date(2026, 3, 3),))
    feast = week_of(_source("log", holidays=(date(2026, 3, 11),)), log, both, tmp_path)
    assert feast.mean[WEEK_SLOTS + 5] / feast.mean[0] == pytest.approx(1.0), "one of each week, as on any day"
    assert feast.mean[24 + 5] / feast.mean[0] == pytest.approx(2 / 1.5), "Tuesday is left with the second week"


def test_a_log_of_a_day_makes_a_week_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    found = week_of(_source("log"), _traffic(_day()), TimeChoice(), tmp_path)
    assert found.mean.reshape(8, 24) == pytest.approx(np.tile(found.mean[:24], (8, 1)))
    assert "144 of the 168 hours were not seen" in found.notes[-1]
    with pytest.raises(InputError, match="no day shows the hours 23:"):
        week_of(_source("log"), _traffic(_day()[: 23 * 60]), TimeChoice(), tmp_path)


def test_a_log_without_dates_starts_on_monday(tmp_path: Path) -> None:
    found = week_of(_source("log"), _traffic(_day(), dated=False), TimeChoice(zone="Asia/Tokyo"), tmp_path)
    assert found.busiest_slot == 9
    assert "its own start is taken as Monday 00:00 of Asia/Tokyo" in found.notes[0]
    week = np.concatenate([_day(), _day(20), np.tile(_day(), 5)])
    tuesday = week_of(_source("log"), _traffic(week, dated=False), TimeChoice(), tmp_path)
    assert tuesday.busiest_slot == 24 + 9


def test_hours_that_were_not_seen_take_the_mean_and_the_highest_peak_of_other_days() -> None:
    mean, peak = np.full(SLOTS, np.nan), np.full(SLOTS, np.nan)
    mean[:24], peak[:24] = 1.0, 2.0
    mean[24:48], peak[24:48] = 3.0, 7.0
    found = shape_of(mean, peak, "x")
    # Monday 1, Tuesday 3, the other five days 2 each: mean 14/7 = 2.
    assert found.mean[[0, 24, 48]] == pytest.approx([0.5, 1.5, 1.0])
    assert found.peak[[0, 24, 48, WEEK_SLOTS]] == pytest.approx([1.0, 3.5, 3.5, 3.5])


def test_a_peak_below_the_mean_is_raised_to_it() -> None:
    found = shape_of(np.full(SLOTS, 2.0), np.ones(SLOTS), "x")
    assert found.peak.tolist() == found.mean.tolist()


def test_a_week_without_requests_is_refused() -> None:
    with pytest.raises(InputError, match="nothing arrives"):
        shape_of(np.zeros(SLOTS), np.zeros(SLOTS), "x")


def test_servegen_weeks_are_taken_from_the_published_rates(tmp_path: Path) -> None:
    """Two clients over a day; in the second ten minutes of 00:00 both publish 1 a second more."""
    for client, rate in (("a", 1.0), ("b", 2.0)):
        rows = [f"{600 * k},{rate + (k == 1)},1,Gamma,1,1" for k in range(144)]
        (tmp_path / f"{client}_trace.csv").write_text("\n".join(rows) + "\n")
        (tmp_path / f"{client}_lengths.json").write_text("{}")
    for asked in ("servegen", "auto"):
        source = TrafficSource(path=".", format=asked, week="log", options={"window_start_s": 600, "window_s": 600})
        found = week_of(source, _traffic(_day()), TimeChoice(), tmp_path)
        level = (3 * 144 + 2) / 144
        assert found.mean[0] == pytest.approx((3 + 2 / 6) / level)
        assert found.peak[0] == pytest.approx(5 / level)
        assert found.peak[1] == pytest.approx(3 / level)
        assert "2 clients" in found.notes[0]


def test_servegen_rates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a_trace.csv").write_text("0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n")
    source = TrafficSource(path=".", format="servegen", week="log")
    with pytest.raises(InputError, match="row 2"):
        week_of(source, _traffic(_day()), TimeChoice(), tmp_path)


def test_the_week_of_another_log(tmp_path: Path) -> None:
    rows = [
        f"{3600 * hour + 600 * k},100,10" for hour in range(25) for k in range(6) for _ in range(2 if hour == 7 else 1)
    ]
    (tmp_path / "other.csv").write_text("t,prompt,output\n" + "\n".join(rows) + "\n")
    options = {"map": "timestamp=t,prompt=prompt,output=output", "window_s": 600}
    found = week_of(_source("other.csv", options=options), _traffic(_day()), TimeChoice(), tmp_path)
    assert found.busiest_slot % 24 == 7
    assert found.mean[7] / found.mean[8] == pytest.approx(2.0)
    with pytest.raises(InputError, match="absent"):
        week_of(_source("absent.csv"), _traffic(_day()), TimeChoice(), tmp_path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = _traffic(np.tile(_day(), 2))
    season = season_of(log, Clock())
    path = tmp_path / "week.csv"
    write_week(path, [season])
    assert is_week_table(path)
    mean, peak = read_week(path)
    assert np.array_equal(mean, season.mean_per_s, equal_nan=True)
    assert np.array_equal(peak, season.peak_per_s, equal_nan=True)
    direct = week_of(_source("log"), log, TimeChoice(), tmp_path)
    found = week_of(_source("week.csv"), _traffic(_day(99)), TimeChoice(), tmp_path)
    assert found.mean.tolist() == direct.mean.tolist()
    assert found.peak.tolist() == direct.peak.tolist()
    assert "hours of UTC" in found.notes[0]
    with pytest.raises(InputError, match="cannot be written"):
        write_week(tmp_path / "no" / "week.csv", [season])


@pytest.mark.parametrize(
    ("header", "place"),
    [("hour_of_week,Mean,Peak", "{s}"), ("day,hour,mean_per_s,peak_per_s", "{d},{h}"), ("slot,mean,peak", "{s}")],
)
def test_hours_may_be_named_in_three_ways(tmp_path: Path, header: str, place: str) -> None:
    days = ("mon", "Tue", "WED", "Thu", "Fri", "Sat", "Sun")
    rows = [place.format(s=s, d=days[s // 24], h=s % 24) + f",{1 + (s == 30)},3" for s in range(WEEK_SLOTS)]
    path = tmp_path / "w.CSV"
    path.write_text("\ufeff" + header + "\n" + "\n".join(rows) + "\n,,,\n")
    assert is_week_table(path)
    mean, peak = read_week(path)
    assert np.flatnonzero(mean == 2).tolist() == [30]
    assert (peak[:WEEK_SLOTS] == 3).all()
    assert np.isnan(peak[WEEK_SLOTS:]).all()


def test_models_of_a_table_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("model,slot,mean,peak\na,0,1,1\nb,0,2,2\n")
    assert read_week(path, "b")[0][0] == 2.0
    with pytest.raises(InputError, match="several models"):
        read_week(path)
    with pytest.raises(InputError, match="no model 'c'"):
        read_week(path, "c")


def test_every_problem_of_a_table_is_named_with_row_and_field(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    rows = ["Mon,0,1,2", "Mon,0,1,2", "Moon,24,1,2", "Tue,1,-1,x", "Tue,2,3,2", "Tue,3,,2", "Tue,4,nan,inf", "Tue,5,,"]
    path.write_text("day,hour,mean,peak\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError) as caught:
        read_week(path)
    found = {(problem.row, problem.field) for problem in caught.value.problems}
    assert found == {
        ("3", "day"),  # the hour of row 2 again
        ("4", "day"),
        ("4", "hour"),
        ("5", "mean"),
        ("5", "peak"),
        ("6", "peak"),  # below the mean
        ("7", "mean"),  # empty beside a peak
        ("8", "mean"),
        ("8", "peak"),
    }
    assert len(caught.value.problems) == 9


def test_other_files_are_no_table_of_hours(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("slot,mean\n0,1\n")
    assert not is_week_table(path)
    with pytest.raises(InputError, match=r"no columns .* \(it has: slot, mean\)"):
        read_week(path)
    path.write_text("")
    assert not is_week_table(path)
    assert not is_week_table(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_week(path)
