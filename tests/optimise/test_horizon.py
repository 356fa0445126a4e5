from __future__ import annotations

import itertools
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.optimise.periods.horizon import Horizon, ModelWeek, horizon_of
from planner.optimise.periods.week_rates import warmed
from planner.request import Quarter, Scaling, TimeChoice, TrafficSource
from planner.traffic.demand import DemandRates
from planner.traffic.growth import Growth, Range, Step
from planner.traffic.season import SLOTS, WEEK_SLOTS
from planner.traffic.week import FLAT, WeekShape, shape_of, week_of

EXAMPLE = Path(__file__).parents[2] / "catalogs" / "example"
QUARTER = Quarter(title="t", start=date(2027, 1, 1), end=date(2027, 4, 1), owner="o")
FOUR_WEEKS = Quarter(title="t", start=date(2027, 2, 1), end=date(2027, 3, 1), owner="o")
"""From a Monday, 28 days, one month: every hour of the week comes four times."""


def _office(quiet: float = 1.0, busy: float = 3.0, peak: float = 1.0) -> WeekShape:
    """Busy on working days from 8 to 18 h; peaks lie ``peak`` times higher."""
    rate = np.full((8, 24), quiet)
    rate[:5, 8:18] = busy
    return shape_of(rate.ravel(), rate.ravel() * peak, "office")


def _model(name: str = "m", rate: float = 10.0, peak: float = 1.0, week: WeekShape = FLAT, **more: object) -> ModelWeek:
    return ModelWeek(name, DemandRates(rate, peak_factor=peak), week, **more)  # type: ignore[arg-type]


def _mean(found: Horizon, rates: np.ndarray) -> np.ndarray:
    hours = np.array([period.hours for period in found.periods])
    return hours @ rates / hours.sum()


def test_without_periods_the_whole_horizon_is_at_the_planning_rate() -> None:
    rates = DemandRates(7.0, growth=1.1, peak_factor=1.3)
    found = horizon_of(QUARTER, None, [ModelWeek("m", rates, _office(), weight=3.0)])
    assert [(p.name, p.hours) for p in found.periods] == [("whole horizon", QUARTER.hours)]
    assert found.planning_rate_per_s.tolist() == [[rates.planning_rate_per_s]]
    assert found.mean_rate_per_s.tolist() == [[rates.mean_rate_per_s]]


def test_flat_weeks_are_one_period_at_the_planning_rate() -> None:
    model = _model(rate=7.0, peak=1.3)
    found = horizon_of(QUARTER, TimeChoice(week_periods=4), [model])
    assert [p.hours for p in found.periods] == [QUARTER.hours]
    assert found.planning_rate_per_s.tolist() == [[model.rates.planning_rate_per_s]]
    assert found.mean_rate_per_s[0, 0] == pytest.approx(7.0, rel=1e-15)
    assert not found.notes


def test_two_levels_by_hand() -> None:
    """Of 168 hours 50 are busy at 3 and 118 quiet at 1: mean 268/168, so 10 x 168/268 and 3 times it."""
    unit = 10 * 168 / 268
    found = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [_model(week=_office(peak=1.2))])
    assert [p.hours for p in found.periods] == [118 * 4, 50 * 4]
    assert found.mean_rate_per_s.ravel() == pytest.approx([unit, 3 * unit])
    assert found.planning_rate_per_s.ravel() == pytest.approx([1.2 * unit, 3.6 * unit])
    assert found.overstatement[0] == pytest.approx(0.0, abs=1e-12)
    assert found.flat_overstatement[0] == pytest.approx(3 * 168 / 268 - 1)
    assert found.changes_a_week == 10
    assert [p.name for p in found.periods] == ["1 of 2 (lightest)", "2 of 2 (busiest)"]
    assert (found.periods[0].first_day, found.periods[0].last_day) == (date(2027, 2, 1), date(2027, 2, 28))


def test_the_mean_is_that_of_the_horizon_and_not_of_a_week() -> None:
    """Monday and Tuesday: 20 of 48 hours are busy, mean 88/48; so 10 a second are 10 x 48/88 in a quiet hour."""
    unit = 10 * 48 / 88
    days = Quarter(title="t", start=date(2027, 2, 1), end=date(2027, 2, 3), owner="o")
    found = horizon_of(days, TimeChoice(week_periods=2), [_model(week=_office(peak=1.5))])
    assert found.mean_rate_per_s.ravel() == pytest.approx([unit, 3 * unit])
    assert found.planning_rate_per_s.ravel() == pytest.approx([1.5 * unit, 4.5 * unit])


def test_of_a_stated_peak_and_that_of_the_week_the_larger_one_holds() -> None:
    """The week's own peak is 3 x 168/268 = 1.881 x the mean."""
    own = 3 * 168 / 268
    low = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [_model(peak=1.5, week=_office())])
    assert low.planning_rate_per_s.max() == pytest.approx(10 * own)
    assert "is held; it lies above the planning rate of 1.5 x" in low.notes[-1]
    high = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [_model(peak=2.5, week=_office())])
    assert high.planning_rate_per_s.max() == pytest.approx(25.0), "mean rate x peak factor"
    assert high.planning_rate_per_s.min() == pytest.approx(25.0 / 3), "the quiet hours in proportion"
    assert high.mean_rate_per_s.ravel() == pytest.approx(low.mean_rate_per_s.ravel()), "a margin is not paid for"
    assert f"raised by {2.5 / own:.4g}" in high.notes[-1]
    unstated = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [_model(week=_office())])
    assert not unstated.notes


GROWING = Growth(
    steps=(Step(date(2027, 2, 1), Range(2.0, 2.0, 2.0), "launch"), Step(date(2027, 3, 11), Range(1.5, 1.5, 1.5), "x"))
)


def test_months_with_growth_by_hand() -> None:
    """Factors: 31 days at 1, 28 at 2, 10 at 2, 21 at 3: mean (31 + 56 + 20 + 63) / 90 = 170/90.

    March has the mean (20 + 63) / 31 and holds 3 on its largest day.
    """
    rates = DemandRates(9.0, growth=170 / 90, peak_factor=3 / (170 / 90))
    found = horizon_of(
        QUARTER, TimeChoice(week_periods=4), [ModelWeek("m", rates, growth=GROWING, growth_base=date(2026, 12, 1))]
    )
    assert found.planning_rate_per_s.ravel() == pytest.approx([9.0, 18.0, 27.0])
    assert found.mean_rate_per_s.ravel() == pytest.approx([9.0, 18.0, 9 * 83 / 31])
    assert [p.hours for p in found.periods] == [31 * 24, 28 * 24, 31 * 24], "more periods are not needed"
    assert [s.name for s in found.stretches] == ["2027-01", "2027-02", "2027-03"]
    assert found.periods[1].name == "2 of 3, 2027-02"
    assert (found.periods[2].first_day, found.periods[2].last_day) == (date(2027, 3, 1), date(2027, 3, 31))
    assert _mean(found, found.mean_rate_per_s)[0] == pytest.approx(rates.mean_rate_per_s, rel=1e-14)


def test_months_are_told_apart_only_where_growth_makes_them_differ() -> None:
    grown = ModelWeek("g", DemandRates(1.0, 170 / 90, 3 / (170 / 90)), growth=GROWING, growth_base=date(2026, 12, 1))
    assert len(horizon_of(QUARTER, TimeChoice(), [_model(week=_office())]).stretches) == 1
    joint = horizon_of(QUARTER, TimeChoice(by_month=False), [grown])
    assert len(joint.stretches) == 1
    assert joint.planning_rate_per_s.ravel() == pytest.approx([3.0]), "the largest day of all"
    settled = ModelWeek("s", DemandRates(1.0), growth=GROWING, growth_base=date(2027, 4, 1))
    assert len(horizon_of(QUARTER, TimeChoice(), [settled]).stretches) == 1, "steps before the base are in the rate"


def test_growth_needs_a_day_to_count_from() -> None:
    with pytest.raises(ValueError, match="needs a day"):
        horizon_of(QUARTER, TimeChoice(), [_model(growth=GROWING)])


def test_warm_up_by_hand() -> None:
    rate = np.ones(SLOTS)
    rate[9] = 5.0  # Mon 09:00
    no_holidays = np.where(np.arange(SLOTS) < WEEK_SLOTS, 1.0, 0.0)
    assert warmed(rate, no_holidays, 0.0) is rate
    assert warmed(rate, no_holidays, 0.25)[7:11].tolist() == [1.0, 2.0, 5.0, 1.0], "a quarter of the rise of 4"
    assert warmed(rate, no_holidays, 2.5)[5:11].tolist() == [1.0, 5.0, 5.0, 5.0, 5.0, 1.0]
    first = np.ones(SLOTS)
    first[0] = 3.0
    assert warmed(first, no_holidays, 0.5)[WEEK_SLOTS - 1] == 2.0, "the week is cyclic"


def test_warm_up_into_and_out_of_holidays() -> None:
    rate, hours = np.ones(SLOTS), np.ones(SLOTS)
    rate[WEEK_SLOTS] = 3.0  # 00:00 of a holiday
    rate[4 * 24] = 5.0  # Fri 00:00
    found = warmed(rate, hours, 1.0)
    assert found[SLOTS - 1] == 5.0, "a Friday may follow"
    assert found[23] == 3.0, "a holiday may follow a Monday"
    assert found[4 * 24 - 1] == 5.0
    assert found[22] == 1.0


def test_a_slow_start_is_held_ahead_in_the_plan() -> None:
    """Half an hour of warm-up: the five hours before a working day's start hold 1 + 0.5 x 2 = 2 units."""
    slow = _model(week=_office(), scaling=Scaling(warm_up_min=30))
    found = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=3), [slow])
    unit = 10 * 168 / 268
    assert found.planning_rate_per_s.ravel() == pytest.approx([unit, 2 * unit, 3 * unit])
    assert [p.hours for p in found.periods] == [113 * 4, 5 * 4, 50 * 4]
    assert found.mean_rate_per_s.ravel() == pytest.approx([unit, unit, 3 * unit])


def test_fixed_models_hold_their_largest_rate_and_have_no_say() -> None:
    night = np.full((8, 24), 1.0)
    night[:, :6] = 4.0
    fixed = _model("a", week=shape_of(night.ravel(), night.ravel(), "night"), scaling=Scaling(fixed=True), weight=1e6)
    free = _model("b", week=_office())
    alone = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [free])
    found = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=2), [fixed, free])
    assert (found.label == alone.label).all()
    assert found.planning_rate_per_s[:, 1].tolist() == alone.planning_rate_per_s[:, 0].tolist()
    assert np.ptp(found.planning_rate_per_s[:, 0]) == 0
    assert found.planning_rate_per_s[0, 0] == pytest.approx(10 * 4 / 1.75), "mean (6 x 4 + 18) / 24 = 1.75"
    assert found.overstatement[0] == pytest.approx(4 / 1.75 - 1)
    only = horizon_of(FOUR_WEEKS, TimeChoice(week_periods=5), [fixed])
    assert len(only.periods) == 1


def test_flat_models_have_no_say() -> None:
    flat = [_model(f"f{k}", peak=1.5, weight=100.0) for k in range(5)]
    office = _model("office", week=_office())
    assert (
        horizon_of(QUARTER, TimeChoice(week_periods=3), [*flat, office]).label
        == horizon_of(QUARTER, TimeChoice(week_periods=3), [office]).label
    ).all()


def test_the_hour_that_summer_time_takes_away_is_in_no_period() -> None:
    week = Quarter(title="t", start=date(2027, 3, 23), end=date(2027, 3, 30), owner="o")
    found = horizon_of(week, TimeChoice(zone="Europe/Berlin", week_periods=2), [_model(week=_office())])
    assert found.label[0, 6 * 24 + 2] == -1
    assert sum(p.hours for p in found.periods) == week.hours
    assert _mean(found, found.mean_rate_per_s)[0] == pytest.approx(10.0, rel=1e-14)


def test_holidays_that_were_never_seen_are_held_like_the_busiest_day() -> None:
    week = shape_of(
        np.append(_office().mean[:WEEK_SLOTS], [np.nan] * 24),
        np.append(_office().peak[:WEEK_SLOTS], [np.nan] * 24),
        "x",
    )
    found = horizon_of(QUARTER, TimeChoice(week_periods=2, holidays=(date(2027, 1, 6),)), [_model(week=week)])
    assert found.label[0, WEEK_SLOTS + 9] == 1, "the busy period"
    assert found.label[0, WEEK_SLOTS + 3] == 0
    assert _mean(found, found.mean_rate_per_s)[0] == pytest.approx(10.0, rel=1e-14)


def test_no_period_spans_a_day_on_which_hardware_leaves() -> None:
    cut = date(2027, 2, 10)
    found = horizon_of(QUARTER, TimeChoice(week_periods=2), [_model(week=_office())], cuts=[cut, date(2028, 1, 1)])
    spans = [(p.first_day, p.last_day) for p in found.periods]
    before, after = (date(2027, 1, 1), date(2027, 2, 9)), (cut, date(2027, 3, 31))
    assert sorted(spans) == sorted([before, before, after, after])
    assert sum(p.hours for p in found.periods) == QUARTER.hours
    assert found.planning_rate_per_s.ravel().tolist() == sorted(found.planning_rate_per_s.ravel())


def test_weights_say_whose_hours_are_told_apart() -> None:
    rng = np.random.default_rng(5)
    a, b = (shape_of(x, x, "x") for x in rng.gamma(2.0, 1.0, (2, SLOTS)))
    even = horizon_of(QUARTER, TimeChoice(week_periods=3), [_model("a", week=a), _model("b", week=b)])
    heavy = horizon_of(QUARTER, TimeChoice(week_periods=3), [_model("a", week=a, weight=500.0), _model("b", week=b)])
    assert heavy.overstatement[0] < even.overstatement[0]


@pytest.mark.parametrize("names", [[], ["m", "m"]])
def test_models_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ValueError, match="names of their own"):
        horizon_of(QUARTER, TimeChoice(), [_model(name) for name in names])


def test_an_unknown_zone_is_bad_input() -> None:
    """The table of a request refuses it; one that comes past the table is refused where hours are counted."""
    with pytest.raises(ValueError, match="no time zone of the IANA database"):
        TimeChoice(zone="Mars")
    with pytest.raises(InputError, match="not a time zone"):
        horizon_of(QUARTER, TimeChoice.model_construct(zone="Mars"), [_model()])


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[Quarter, TimeChoice, list[ModelWeek]]:
    start = date(2027, 1, 1)
    end = start.replace(month=draw(st.sampled_from([2, 4])), day=draw(st.integers(1, 28)))
    time = TimeChoice(
        zone=draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])),
        week_periods=draw(st.integers(1, 5)),
        holidays=tuple(draw(st.lists(st.dates(start, end), max_size=2))),
        by_month=draw(st.booleans()),
    )
    models = []
    for k in range(draw(st.integers(1, 4))):
        rng = np.random.default_rng(draw(st.integers(0, 10**6)))
        mean = np.round(rng.gamma(1.0, 1.0, SLOTS), 1) + 0.1
        week = draw(st.sampled_from([FLAT, shape_of(mean, mean * rng.uniform(1, 2, SLOTS), "w")]))
        growth = Growth(Range(0, draw(st.sampled_from([0.0, 0.2])), 1))
        rates = DemandRates(draw(st.floats(0.1, 100.0)), 1.2, draw(st.sampled_from([1.0, 1.5, 20.0])))
        scaling = Scaling(fixed=draw(st.booleans()), warm_up_min=draw(st.sampled_from([0.0, 10.0, 100.0])))
        models.append(ModelWeek(f"m{k}", rates, week, growth, date(2026, 11, 1), scaling, draw(st.floats(0.1, 10.0))))
    return Quarter(title="t", start=start, end=end, owner="o"), time, models


@given(_worlds())
@settings(max_examples=30, deadline=None)
def test_laws_of_every_horizon(world: tuple[Quarter, TimeChoice, list[ModelWeek]]) -> None:
    quarter, time, models = world
    found = horizon_of(quarter, time, models)
    assert sum(p.hours for p in found.periods) == pytest.approx(quarter.hours, rel=1e-14)
    assert len(found.periods) <= time.week_periods * len(found.stretches)
    assert len({p.name for p in found.periods}) == len(found.periods)
    rates = np.array([model.rates.mean_rate_per_s for model in models])
    assert _mean(found, found.mean_rate_per_s) == pytest.approx(rates, rel=1e-12)
    assert (found.planning_rate_per_s >= found.mean_rate_per_s * (1 - 1e-12)).all()
    stated = np.array([model.rates.planning_rate_per_s for model in models])
    assert (found.planning_rate_per_s.max(axis=0) >= stated * (1 - 1e-12)).all()
    assert (found.overstatement <= found.flat_overstatement + 1e-12).all()
    turned = horizon_of(quarter, time, models[::-1])
    assert turned.planning_rate_per_s[:, ::-1].tobytes() == found.planning_rate_per_s.tobytes()
    assert (turned.periods, turned.notes) == (found.periods, found.notes)
    assert turned.label.tobytes() == found.label.tobytes()


@given(st.integers(0, 10**6), st.floats(0, 120))
@settings(max_examples=8, deadline=None)
def test_more_periods_never_overstate_more(seed: int, warm_up_min: float) -> None:
    rate = np.random.default_rng(seed).gamma(2.0, 1.0, SLOTS)
    model = _model(week=shape_of(rate, rate * 1.1, "w"), scaling=Scaling(warm_up_min=warm_up_min))
    errors = [horizon_of(QUARTER, TimeChoice(week_periods=k), [model]).overstatement[0] for k in (1, 2, 3, 5, 8, 48)]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(errors))


@pytest.mark.parametrize(
    ("folder", "days", "peak"),
    [("servegen-m-mid", 14, 2.179), ("servegen-m-small", 14, 1.598), ("servegen-deepseek-r1", 1, 5.242)],
)
def test_real_weeks_become_periods(folder: str, days: int, peak: float) -> None:
    source = TrafficSource(path=f"traffic/{folder}", format="servegen", week="log", rate_per_s=10.0)
    week = week_of(source, None, TimeChoice(), EXAMPLE)  # type: ignore[arg-type]
    assert week.peak_factor == pytest.approx(peak, abs=5e-4)
    assert any("were not seen" in note for note in week.notes) == (days < 7)
    errors = []
    for count in (1, 2, 4, 12):
        found = horizon_of(QUARTER, TimeChoice(week_periods=count), [_model(week=week)])
        assert _mean(found, found.mean_rate_per_s)[0] == pytest.approx(10.0, rel=1e-13)
        errors.append(float(found.overstatement[0]))
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.5 * errors[0], "four periods take away more than half of what one overstates"


def test_long_horizons_are_grouped_in_two_steps() -> None:
    """10 months x 168 hours that all differ are more than are grouped at once; each period still holds its hours."""
    rng = np.random.default_rng(4)
    long = Quarter(title="t", start=date(2027, 1, 1), end=date(2027, 11, 1), owner="o")
    growth = Growth(Range(0.1, 0.1, 0.1))
    models = [
        ModelWeek(f"m{k}", DemandRates(5.0), shape_of(r, r, "w"), growth, date(2027, 1, 1))
        for k, r in enumerate(rng.gamma(4.0, 1.0, (2, SLOTS)))
    ]
    found = horizon_of(long, TimeChoice(week_periods=1), models)
    assert len(found.periods) == 10
    assert sum(p.hours for p in found.periods) == long.hours
    assert _mean(found, found.mean_rate_per_s) == pytest.approx([5.0, 5.0])
    assert (found.overstatement < 0.5 * found.flat_overstatement).all()
