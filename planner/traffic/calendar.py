"""Hours of a horizon on the calendar: how often each hour of the week comes, by day and by month.

Days are those of UTC, so that every day has 24 hours and a horizon has 24 hours a day; which hour of the week an hour
is, the clock of the zone says. So the missing hour of the change to summer time, and the one that comes twice, are
counted as the clock shows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np

from planner.traffic.season import SLOTS, Clock, slot_of, zone_of
from planner.traffic.types import FloatArray

STEP = timedelta(minutes=15)
"""Zones differ from UTC by whole quarters of an hour."""


@dataclass(frozen=True)
class Stretch:
    """Days of the horizon that are told apart from others: a month of it, or all."""

    name: str
    start: date
    end: date
    """Exclusive."""

    @property
    def days(self) -> tuple[date, ...]:
        """Every day of it."""
        return days_of(self.start, self.end)


def days_of(start: date, end: date) -> tuple[date, ...]:
    """Days from ``start`` to ``end`` (exclusive)."""
    return tuple(start + timedelta(days=n) for n in range((end - start).days))


def stretches_of(start: date, end: date, cuts: Collection[date] = (), *, by_month: bool) -> tuple[Stretch, ...]:
    """A horizon, parted at the first of each month (if ``by_month``) and at ``cuts`` that lie inside it.

    A month is named ``2027-01``, also where the horizon holds a part of it; days between cuts by their first and last;
    the horizon in one piece has no name.
    """
    days = days_of(start, end)
    firsts = {day for day in days if by_month and day.day == 1}
    inside = {cut for cut in cuts if start < cut < end}
    borders = sorted({start, end} | firsts | inside)
    found = []
    for first, stop in itertools.pairwise(borders):
        name = f"{first} to {stop - timedelta(days=1)}"
        if by_month and not {first, stop} & (inside - firsts):
            name = f"{first:%Y-%m}"
        found.append(Stretch(name if by_month or inside else "", first, stop))
    return tuple(found)


def slot_hours(stretches: Sequence[Stretch], clock: Clock) -> FloatArray:
    """Hours of every slot in every stretch, shape (stretches, `SLOTS`).

    Raises
    ------
    InputError
        If the zone is unknown.
    """
    zone = zone_of(clock)
    hours = np.zeros((len(stretches), SLOTS))
    for row, stretch in enumerate(stretches):
        at = datetime(stretch.start.year, stretch.start.month, stretch.start.day, tzinfo=UTC)
        steps = (stretch.end - stretch.start) // STEP
        slots = [slot_of((at + n * STEP).astimezone(zone), clock.holidays) for n in range(steps)]
        hours[row] = np.bincount(slots, minlength=SLOTS) * (STEP / timedelta(hours=1))
    return hours
