"""The rates that a model is planned for: stated by the request or measured in the log, grown to the horizon.

    mean rate      = stated or observed rate x growth
    planning rate  = mean rate x peak factor

``growth`` is the request's factor times the mean over the horizon of steady growth and dated steps; the peak factor is
the request's, or what the hours of the week show, times the largest growth on any day over its mean: the busiest hour
of the busiest day must be held, the average is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from planner.errors import InputError, Problem
from planner.request import Expected, TrafficSource
from planner.traffic.growth import Case, Growth, HorizonGrowth, Range, Step, check_steps, over_horizon
from planner.traffic.season import Clock, Season, season_of, slot_name
from planner.traffic.types import Traffic


@dataclass(frozen=True)
class DemandRates:
    """Rates of one model over the horizon.

    ``stated_rate_per_s`` is before growth; the measured flags say that a figure comes from the log.
    """

    stated_rate_per_s: float
    growth: float = 1.0
    peak_factor: float = 1.0
    rate_measured: bool = False
    peak_measured: bool = False
    notes: tuple[str, ...] = ()

    @property
    def mean_rate_per_s(self) -> float:
        """What is served and paid for."""
        return self.stated_rate_per_s * self.growth

    @property
    def planning_rate_per_s(self) -> float:
        """What the fleet must hold."""
        return self.mean_rate_per_s * self.peak_factor


def demand_of(source: TrafficSource, traffic: Traffic, start: date, end: date) -> DemandRates:
    """Rates of a model over the horizon from ``start`` to ``end`` (exclusive).

    Raises
    ------
    InputError
        If the log cannot show what the request wants of it, or growth has no date to count from.
    """
    rate = traffic.offered_rate_per_s if source.rate_per_s is None else source.rate_per_s
    notes = []
    if source.rate_per_s is None:
        notes.append(f"mean rate of the log: {rate:.6g} requests/s over {traffic.window_s / 3600:.4g} h")
    peak = source.peak_factor
    if source.peak_quantile is not None:
        season = season_of(traffic, Clock(source.zone, frozenset(source.holidays)), source.peak_quantile)
        peak = season.planning_rate_per_s / traffic.offered_rate_per_s
        notes += _season_notes(season)
    grown = _grown(source, traffic, start, end, Case.EXPECTED)
    if grown is not None:
        notes.append(_growth_note(source, traffic, start, end, grown))
    mean, largest = (1.0, 1.0) if grown is None else (grown.mean, grown.largest)
    return DemandRates(
        stated_rate_per_s=rate,
        growth=source.growth * mean,
        peak_factor=peak * (largest / mean),
        rate_measured=source.rate_per_s is None,
        peak_measured=source.peak_quantile is not None,
        notes=tuple(notes),
    )


def _season_notes(season: Season) -> list[str]:
    busiest = season.busiest_slot
    text = (
        f"peak: {season.planning_rate_per_s:.6g} requests/s, the busiest ten minutes of {slot_name(busiest)} "
        f"({season.clock.zone}), quantile {season.quantile:g} over its {int(season.seen[busiest])} occurrences"
    )
    return [text, *([season.caution] if season.caution else [])]


def growth_of(source: TrafficSource) -> Growth:
    """The growth that a request states.

    Raises
    ------
    InputError
        If a step cannot be meant.
    """
    steps = tuple(Step(step.on, _range(step.factor), step.why) for step in source.steps)
    check_steps("traffic.steps", steps)
    return Growth(_range(source.growth_per_quarter), steps)


def _range(stated: float | Expected) -> Range:
    if isinstance(stated, Expected):
        return Range(stated.low, stated.expected, stated.high)
    return Range(stated, stated, stated)


def _grown(source: TrafficSource, traffic: Traffic, start: date, end: date, case: Case) -> HorizonGrowth | None:
    growth = growth_of(source)
    if growth == Growth():
        return None
    return over_horizon(growth, growth_base(source, traffic), start, end, case)


def growth_base(source: TrafficSource, traffic: Traffic) -> date:
    """The day whose rates are grown from: that of a stated rate, or the middle of the log.

    Raises
    ------
    InputError
        If neither has a date.
    """
    if source.rate_per_s is not None and source.source_date is not None:
        return source.source_date
    if source.rate_per_s is None and traffic.calendar_time:
        middle = timedelta(microseconds=traffic.window_start_us, seconds=traffic.window_s / 2)
        return (datetime(1970, 1, 1, tzinfo=UTC) + middle).date()
    what = "growth needs the day of the rate that it starts from"
    raise InputError(Problem("traffic", what, "State source_date beside rate_per_s, or give a log with dates"))


def _growth_note(source: TrafficSource, traffic: Traffic, start: date, end: date, grown: HorizonGrowth) -> str:
    low, high = (_grown(source, traffic, start, end, case) for case in (Case.LOW, Case.HIGH))
    if low is None or high is None:
        raise AssertionError("growth that is stated has a low and a high case")
    steps = "; ".join(f"{step.on}: x{_range(step.factor).expected:g} {step.why}" for step in source.steps)
    return (
        f"growth since {growth_base(source, traffic)}: mean x{grown.mean:.4g} over the horizon, largest x"
        f"{grown.largest:.4g} (low case x{low.largest:.4g}, high case x{high.largest:.4g})"
        + (f"; steps: {steps}" if steps else "")
    )
