"""Which period of a plan each quarter of an hour of its horizon belongs to.

A plan says in words which hours a period has (`planner.optimise.periods.schedule.hours_text`), in the zone and with the
holidays of its assumptions. The words are read back and the hours of every period counted again: where they are not
those of the plan, the plan cannot tell, and nothing is guessed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import zoneinfo
from dataclasses import dataclass

import numpy as np

from planner import units
from planner.actuals.spans import HOUR_US
from planner.optimise.periods.schedule import ALL_HOURS
from planner.plan import FleetPlan
from planner.traffic.calendar import STEP
from planner.traffic.grid import Span
from planner.traffic.season import SLOTS, slot_of
from planner.traffic.types import FloatArray, IntArray

STEP_US = STEP // dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONE = "periods_zone"
"""Assumption that names the zone; its note lists the holidays."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "holidays")
_MONTH = re.compile(r"(\d{4})-(\d\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATES = re.compile(rf"({_DATE.pattern}) to ({_DATE.pattern})")
_SPAN = re.compile(r"(\d\d)-(\d\d)")
_SLACK_H = 1e-6


@dataclass(frozen=True)
class Timetable:
    """The periods of a horizon on the calendar."""

    horizon: Span
    period_hours: tuple[float, ...]
    label: IntArray | None
    """Period of every quarter of an hour; ``None`` where the plan cannot tell."""
    note: str = ""
    """Why not, or what was assumed."""


@dataclass(frozen=True)
class Piece:
    """A stretch of time in one period; ``None`` where the plan cannot tell which."""

    span: Span
    period: int | None


def horizon_of(plan: FleetPlan) -> Span:
    """The horizon: whole days of UTC."""
    return Span(_midnight_us(plan.horizon_start), _midnight_us(plan.horizon_end))


def timetable_of(plan: FleetPlan) -> Timetable:
    """The periods of a plan on the calendar, as far as its words tell."""
    horizon = horizon_of(plan)
    hours = tuple(period.hours for period in plan.periods)
    steps = (horizon.end_us - horizon.start_us) // STEP_US
    if len(plan.periods) == 1:
        return Timetable(horizon, hours, np.zeros(steps, dtype=np.int64))
    if not all(period.when for period in plan.periods):
        return Timetable(horizon, hours, None, "the plan does not say which hours its periods have")
    zone, holidays, note = _clock(plan)
    try:
        label = _labels(plan, zone, holidays)
    except ValueError as error:
        return Timetable(horizon, hours, None, f"the hours of the plan's periods cannot be read: {error}")
    found = np.bincount(label[label >= 0], minlength=len(hours)) * (STEP_US / HOUR_US)
    if (label < 0).any() or np.abs(found - np.array(hours)).max() > _SLACK_H:
        why = "the hours that the plan's words give to its periods are not the hours that it counts"
        return Timetable(horizon, hours, None, why)
    return Timetable(horizon, hours, label, note)


def hours_by_period(table: Timetable, spans: tuple[Span, ...]) -> FloatArray:
    """Hours of each period in some stretches of the horizon.

    Where the plan cannot tell, in proportion to the periods' hours in the horizon.
    """
    found = np.zeros(len(table.period_hours))
    for piece in pieces_of(table, spans):
        hours = (piece.span.end_us - piece.span.start_us) / HOUR_US
        if piece.period is None:
            found += hours * np.array(table.period_hours) / sum(table.period_hours)
        else:
            found[piece.period] += hours
    return found


def pieces_of(table: Timetable, spans: tuple[Span, ...]) -> tuple[Piece, ...]:
    """Stretches of the horizon, cut where the period changes."""
    if table.label is None:
        return tuple(Piece(span, None) for span in spans)
    change = np.flatnonzero(np.diff(table.label)) + 1
    edges = table.horizon.start_us + change * STEP_US
    found = []
    for span in spans:
        inside = edges[(edges > span.start_us) & (edges < span.end_us)].tolist()
        borders = [span.start_us, *inside, span.end_us]
        for start, end in itertools.pairwise(borders):
            found.append(Piece(Span(start, end), int(table.label[(start - table.horizon.start_us) // STEP_US])))
    return tuple(found)


def _midnight_us(day: dt.date) -> int:
    return (day - EPOCH.date()) // dt.timedelta(microseconds=1)


def _clock(plan: FleetPlan) -> tuple[zoneinfo.ZoneInfo, frozenset[dt.date], str]:
    """The zone and holidays of the plan's week, and what had to be assumed."""
    row = next((row for row in plan.assumptions if row.id == ZONE), None)
    if row is None:
        return zoneinfo.ZoneInfo("UTC"), frozenset(), "the plan names no time zone: its hours are taken as UTC"
    try:
        zone = zoneinfo.ZoneInfo(str(row.value))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo("UTC"), frozenset(), f"'{row.value}' is no time zone: hours are taken as UTC"
    return zone, frozenset(dt.date.fromisoformat(day) for day in _DATE.findall(row.note)), ""


def _labels(plan: FleetPlan, zone: zoneinfo.ZoneInfo, holidays: frozenset[dt.date]) -> IntArray:
    """Period of every quarter of an hour; -1 where none claims it.

    Days that are told apart are those of UTC, hours those of the zone's clock, as in `planner.traffic.calendar`.

    Raises
    ------
    ValueError
        If the words of a period are not those that a plan writes, or two periods claim the same hour.
    """
    start = dt.datetime.combine(plan.horizon_start, dt.time(), tzinfo=dt.UTC)
    days = (plan.horizon_end - plan.horizon_start).days
    per_day = units.HOURS_PER_DAY * (HOUR_US // STEP_US)
    slots = np.array([slot_of((start + n * STEP).astimezone(zone), holidays) for n in range(days * per_day)])
    label = np.full(slots.size, -1, dtype=np.int64)
    for k, period in enumerate(plan.periods):
        for part in period.when.split(" | "):
            first, colon, rest = part.rpartition(": ")
            mine = _slots(rest)[slots]
            if colon:
                mine = mine & np.repeat(_days(first, plan), per_day)
            if (mine & (label >= 0)).any():
                raise ValueError(f"'{part}' claims hours of another period")
            label[mine] = k
    return label


def _days(text: str, plan: FleetPlan) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Days of the horizon that ``2027-01, 2027-02-01 to 2027-02-14`` names."""
    days = [plan.horizon_start + dt.timedelta(days=n) for n in range((plan.horizon_end - plan.horizon_start).days)]
    named: set[dt.date] = set()
    for part in text.split(", "):
        if month := _MONTH.fullmatch(part):
            named |= {day for day in days if (day.year, day.month) == (int(month[1]), int(month[2]))}
        elif dates := _DATES.fullmatch(part):
            first, last = (dt.date.fromisoformat(date) for date in dates.groups())
            named |= {day for day in days if first <= day <= last}
        else:
            raise ValueError(f"'{part}' names no days")
    return np.array([day in named for day in days])


def _slots(text: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Slots that ``Mon-Fri 08-18; Sat,holidays 10-12+20-24`` names."""
    found = np.zeros((SLOTS // units.HOURS_PER_DAY, units.HOURS_PER_DAY), dtype=np.bool_)
    if text == ALL_HOURS:
        return ~found.ravel()
    for part in text.split("; "):
        days, space, spans = part.partition(" ")
        if not space:
            raise ValueError(f"'{part}' names no hours")
        for span in spans.split("+"):
            ends = _SPAN.fullmatch(span)
            if ends is None:
                raise ValueError(f"'{span}' names no hours")
            found[_day_numbers(days), int(ends[1]) : int(ends[2])] = True
    return found.ravel()


def _day_numbers(text: str) -> list[int]:
    """Days of the week that ``Mon-Wed,Fri,holidays`` names; 7 is a holiday."""
    found: list[int] = []
    for part in text.split(","):
        ends = part.split("-")
        if not all(end in _DAYS for end in ends) or len(ends) > 2:
            raise ValueError(f"'{part}' names no day")
        found += range(_DAYS.index(ends[0]), _DAYS.index(ends[-1]) + 1)
    return found
