"""The shape of a model's week: how far each hour lies from the week's mean, and how far its busiest ten minutes do.

Rates come from elsewhere (a forecast, the log's own volume); the week says how they are spread over the hours. A shape
comes from a log, from a CSV of hours, or is flat.

What an hour that was not seen is given: the mean of that hour of the day over the days that were seen, and the highest
peak of it. So a log of one day gives a week of seven such days, and a holiday that no log has seen is held like the
busiest day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.errors import InputError, Problem
from planner.request import TimeChoice, TrafficSource
from planner.traffic.canonical import is_canonical
from planner.traffic.disk import usable
from planner.traffic.grid import whole_minutes
from planner.traffic.ingest import log_files
from planner.traffic.readers.columns import OptionValue
from planner.traffic.readers.head import read_head
from planner.traffic.readers.servegen import RATE_PERIOD_S, TRACE_NAME, ServeGen, published_counts
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock, Season, season_of, season_of_counts
from planner.traffic.source import load_traffic
from planner.traffic.types import FloatArray, IntArray, Traffic
from planner.traffic.week_table import is_week_table, read_week

QUANTILE = 0.95
"""Over the weeks of a log, where the request names none."""
LOG = "log"
WINDOW_OPTIONS = ("window_start_s", "window_s")
"""A week is taken from the whole log, whatever window the lengths are taken from."""
FIRST_MONDAY_MINUTE = 4 * 24 * 60
"""1970 began on a Thursday."""


@dataclass(frozen=True)
class WeekShape:
    """One model's week, in multiples of its mean over the 168 hours; arrays have `season.SLOTS` entries, no NaN.

    Attributes
    ----------
    mean
        Mean rate of the hour over the week's mean; of the 168 ordinary hours the mean is 1.
    peak
        Rate of the hour's busiest ten minutes, at a quantile over the weeks, over the week's mean; never below `mean`.
    source
        Where it comes from; empty for the flat week.
    """

    mean: FloatArray
    peak: FloatArray
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether every hour is the same."""
        return bool(np.ptp(self.mean) == 0 and np.ptp(self.peak) == 0)

    @property
    def busiest_slot(self) -> int:
        """The slot of the highest peak."""
        return int(np.argmax(self.peak))

    @property
    def peak_factor(self) -> float:
        """The highest peak over the week's mean."""
        return float(self.peak.max())


FLAT = WeekShape(np.ones(SLOTS), np.ones(SLOTS))
"""Every hour is the week's mean."""


def week_of(source: TrafficSource, traffic: Traffic, time: TimeChoice, folder: Path) -> WeekShape:
    """The week that a request names for a model.

    Parameters
    ----------
    source
        ``week`` is ``log``, a path relative to ``folder``, or empty for the flat week.
    traffic
        The model's own log, as it was read.
    time
        Zone and holidays; the holidays of ``source`` count too.

    Raises
    ------
    InputError
        If the log or table cannot be read, or does not hold every hour of the day.
    """
    if not source.week:
        return FLAT
    place = folder / (source.path if source.week == LOG else source.week)
    if source.week != LOG and is_week_table(place):
        mean, peak = read_week(place, source.model)
        note = f"the hours of {place.name} are taken as hours of {time.zone}"
        return shape_of(mean, peak, str(source.week), (note,))
    clock = Clock(time.zone, frozenset({*source.holidays, *time.holidays}))
    quantile = QUANTILE if source.peak_quantile is None else source.peak_quantile
    season, notes = _season(source, traffic, place, clock, quantile)
    text = f"{source.path if source.week == LOG else source.week}, quantile {quantile:g} over its weeks"
    return shape_of(season.mean_per_s, season.peak_per_s, text, (*notes, *([season.caution] if season.caution else [])))


def shape_of(mean: FloatArray, peak: FloatArray, source: str, notes: tuple[str, ...] = ()) -> WeekShape:
    """A week from rates by slot, in any unit; NaN where an hour was not seen.

    Raises
    ------
    InputError
        If an hour of the day was seen on no day, or nothing arrived in the whole week.
    """
    seen = ~(np.isnan(mean) | np.isnan(peak))
    lost = np.flatnonzero(~seen.reshape(-1, 24).any(axis=0))
    if lost.size:
        what = f"no day shows the hours {', '.join(f'{hour:02d}' for hour in lost)}: a week needs every hour of the day"
        raise InputError(Problem(source, what, "Give at least a whole day, better 8 weeks"))
    by_day = np.where(seen, mean, np.nan).reshape(-1, 24), np.where(seen, peak, np.nan).reshape(-1, 24)
    filled = np.where(seen, mean, np.tile(np.nanmean(by_day[0], axis=0), SLOTS // 24))
    high = np.maximum(np.where(seen, peak, np.tile(np.nanmax(by_day[1], axis=0), SLOTS // 24)), filled)
    level = filled[:WEEK_SLOTS].mean()
    if not level > 0:
        raise InputError(Problem(source, "nothing arrives in the whole week", "Give a week with requests, or none"))
    missing = int((~seen[:WEEK_SLOTS]).sum())
    if missing:
        said = f"{missing} of the 168 hours were not seen: each is given the mean of that hour on other days"
        notes = (*notes, f"{said}, and the highest peak of it")
    return WeekShape(filled / level, high / level, source, notes)


def _season(
    source: TrafficSource, traffic: Traffic, place: Path, clock: Clock, quantile: float
) -> tuple[Season, tuple[str, ...]]:
    traces = _servegen_traces(source, place)
    if traces:
        start_s, counts = published_counts(traces)
        minutes = _spread(counts)
        start = FIRST_MONDAY_MINUTE + start_s // 60
        note = f"rates as published for every 10 minutes of {len(traces)} clients, the whole sample"
        return season_of_counts(place.name, start, minutes, Clock(), quantile), (note, _no_calendar(clock))
    log = traffic if source.week == LOG else _other_log(source, place)
    if log.calendar_time:
        return season_of(log, clock, quantile), ()
    first, minutes = whole_minutes(log)
    found = season_of_counts(log.model, FIRST_MONDAY_MINUTE + first, minutes, Clock(), quantile)
    return found, (_no_calendar(clock),)


def _no_calendar(clock: Clock) -> str:
    return f"the log has no dates: its own start is taken as Monday 00:00 of {clock.zone}"


def _other_log(source: TrafficSource, place: Path) -> Traffic:
    """A log beside the model's own, read alike; a canonical folder has neither format nor options."""
    if place.is_dir() and is_canonical(place):
        return load_traffic(place, model=source.model, name="")
    options: Mapping[str, OptionValue] = {k: v for k, v in source.options.items() if k not in WINDOW_OPTIONS}
    return load_traffic(place, log_format=source.format, model=source.model, options=options, name="")


def _servegen_traces(source: TrafficSource, place: Path) -> list[Path]:
    """The files of published rates, where the place is a ServeGen sample, whatever the model's own log is."""
    if place.is_dir() and is_canonical(place):
        return []
    with usable(place):
        files = [file for file in log_files(place) if isinstance(file, Path) and TRACE_NAME.match(file.name)]
        claimed = source.format == "servegen" or all(ServeGen().claims(read_head(file)) for file in files)
    return files if claimed else []


def _spread(counts: IntArray) -> IntArray:
    """Counts of 10 minutes as counts of minutes, as even as whole numbers are, with the same sums."""
    minutes = RATE_PERIOD_S // 60
    base, rest = np.divmod(counts[:, None], minutes)
    return np.asarray((base + (np.arange(minutes) < rest)).ravel(), dtype=np.int64)
