"""The week of a model: its rate by hour of the week, as a high quantile over the weeks of the log.

Means over weeks are not what a fleet must hold: the busiest ten minutes of an hour lie above its mean, and the same
hour of two weeks differs. So every hour of every week gives two figures, its mean rate and the rate of its busiest ten
minutes, and a slot (an hour of the week; or an hour of a holiday, which is a day of its own kind) takes the quantile of
each over the weeks that saw it whole.

Hours are those of the clock of ``zone``. In the week of a change to summer time one local hour is missing and has one
observation fewer; in the week of the change back one comes twice and counts as two.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np

from planner import units
from planner.errors import InputError, Problem
from planner.traffic.grid import whole_minutes
from planner.traffic.types import FloatArray, IntArray, Traffic

BLOCK_MINUTES = 10
"""Traffic within ten minutes is taken as stationary; what happens faster is a burst."""
WEEK_SLOTS = 168
SLOTS = WEEK_SLOTS + 24
"""168 hours of an ordinary week from Monday 00:00, then the 24 hours of a holiday."""
ENOUGH_WEEKS = 8
"""Fewer weeks do not give an hour-of-week profile: between single weeks the same hour differs by a factor of up to 4
(ServeGen, 14 days: the ratio of the same hour in two weeks spans 0.4 to 1.7, arXiv 2505.09999)."""
FEW_ARRIVALS = 100
"""At 100 arrivals in ten minutes the largest of six Poisson counts lies 13 % above their mean (1.27 standard
deviations, the mean of the largest of six normals)."""


@dataclass(frozen=True)
class Clock:
    """Whose hours and days count."""

    zone: str = "UTC"
    holidays: frozenset[date] = frozenset()
    """Local dates that are a class of their own."""


@dataclass(frozen=True)
class Season:
    """The profile of one model; arrays have `SLOTS` entries and are NaN where no hour was seen whole.

    Attributes
    ----------
    quantile
        Over the weeks.
    seen
        Whole hours that each slot was seen.
    mean_per_s, quantile_per_s
        Mean over the weeks of the hour's mean rate, and its quantile.
    peak_per_s
        Quantile over the weeks of the rate in the hour's busiest ten minutes.
    """

    model: str
    clock: Clock
    quantile: float
    seen: IntArray
    mean_per_s: FloatArray
    quantile_per_s: FloatArray
    peak_per_s: FloatArray

    @property
    def weeks(self) -> int:
        """Weeks that every ordinary slot was seen at least."""
        return int(self.seen[:WEEK_SLOTS].min())

    @property
    def busiest_slot(self) -> int:
        """The slot of the highest `peak_per_s`."""
        return int(np.nanargmax(self.peak_per_s))

    @property
    def planning_rate_per_s(self) -> float:
        """The highest `peak_per_s`: what the fleet must hold."""
        return float(self.peak_per_s[self.busiest_slot])

    @property
    def caution(self) -> str:
        """What the reader of the profile must know about its base; empty when nothing."""
        said = []
        if self.weeks < ENOUGH_WEEKS:
            said.append(
                f"every hour of the week was seen {self.weeks} times at least; fewer than {ENOUGH_WEEKS} weeks give no "
                "dependable profile, and the quantile is the largest"
            )
        busiest = self.planning_rate_per_s * units.minutes_to_s(BLOCK_MINUTES)
        if busiest < FEW_ARRIVALS:
            said.append(
                f"the busiest ten minutes hold {busiest:.0f} requests: chance alone makes such peaks, so the planning "
                "rate is rather too high"
            )
        return "; ".join(said)


def slot_name(slot: int) -> str:
    """``Mon 09:00`` or ``holiday 09:00``.

    Raises
    ------
    ValueError
        If there is no such slot.
    """
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} is not in 0..{SLOTS - 1}")
    day = "holiday" if slot >= WEEK_SLOTS else ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[slot // 24]
    return f"{day} {slot % 24:02d}:00"


def season_of(traffic: Traffic, clock: Clock, quantile: float = 0.95) -> Season:
    """The profile of a model's week.

    Parameters
    ----------
    traffic
        With real time stamps: a log that counts time from its own start knows no Mondays.
    clock
        Zone and holidays.
    quantile
        Over weeks, in [0, 1]; between two observations the higher one holds.

    Raises
    ------
    InputError
        If the zone is unknown, the log has no calendar time, or it holds no whole hour.
    """
    if not traffic.calendar_time:
        what = "counts time from its own start: it has no hours of the week"
        fix = "Give a log with dates (or planner traffic season --starts TIME), or state the rates"
        raise InputError(Problem(traffic.model, what, fix))
    return season_of_counts(traffic.model, *whole_minutes(traffic), clock, quantile)


def season_of_counts(model: str, first_minute: int, counts: IntArray, clock: Clock, quantile: float = 0.95) -> Season:
    """The profile of counts that begin ``first_minute`` whole minutes after 1970, each minute seen whole.

    Raises
    ------
    InputError
        If the zone or the quantile is none, or the counts hold no whole hour.
    """
    if not 0 <= quantile <= 1:
        raise InputError(Problem("quantile", f"{quantile} is not in [0, 1]"))
    hours = _whole_hours(model, first_minute, counts, clock)
    shape = (SLOTS,)
    seen = np.bincount(hours.slot, minlength=SLOTS).astype(np.int64)
    mean, high, peak = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for slot in np.flatnonzero(seen):
        mine = hours.slot == slot
        mean[slot] = hours.mean_per_s[mine].mean()
        high[slot] = np.quantile(hours.mean_per_s[mine], quantile, method="higher")
        peak[slot] = np.quantile(hours.peak_per_s[mine], quantile, method="higher")
    return Season(model, clock, quantile, seen, mean, high, peak)


@dataclass(frozen=True)
class _Hours:
    slot: IntArray
    mean_per_s: FloatArray
    peak_per_s: FloatArray


def _whole_hours(model: str, first_minute: int, counts: IntArray, clock: Clock) -> _Hours:
    """Hours of the local clock that the log saw from end to end: those that lie inside its whole minutes."""
    starts = _local_hours(first_minute, first_minute + counts.size, clock)
    blocks = [counts[at : at + 60].reshape(6, BLOCK_MINUTES).sum(axis=1) for at, _ in starts]
    if not blocks:
        what = f"the log holds no whole hour ({counts.size} whole minutes)"
        raise InputError(Problem(model, what, "Give a longer log, or state the rates"))
    per_block = np.stack(blocks)
    seconds = units.minutes_to_s(BLOCK_MINUTES)
    return _Hours(
        slot=np.array([slot for _, slot in starts], dtype=np.int64),
        mean_per_s=per_block.mean(axis=1) / seconds,
        peak_per_s=per_block.max(axis=1) / seconds,
    )


def _local_hours(first_minute: int, last_minute: int, clock: Clock) -> list[tuple[int, int]]:
    """Offset in minutes and slot of every local hour inside the minutes; zones differ by quarters of an hour."""
    zone = zone_of(clock)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    # Every offset in use since 1970 is a whole number of minutes, and changes happen at whole local hours.
    shift = (epoch + timedelta(minutes=first_minute)).astimezone(zone).utcoffset() or timedelta()
    at = -(-(first_minute * 60 + int(shift.total_seconds())) // 3600) * 60 - int(shift.total_seconds()) // 60
    found = []
    while at + 60 <= last_minute:
        local = (epoch + timedelta(minutes=at)).astimezone(zone)
        if local.minute:  # a zone whose change is no whole hour: start again at the next local hour
            at += 60 - local.minute
            continue
        found.append((at - first_minute, slot_of(local, clock.holidays)))
        at += 60
    return found


def zone_of(clock: Clock) -> zoneinfo.ZoneInfo:
    """The zone of a clock.

    Raises
    ------
    InputError
        If there is no such zone.
    """
    try:
        return zoneinfo.ZoneInfo(clock.zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        what = f"'{clock.zone}' is not a time zone"
        raise InputError(Problem("zone", what, "Use a name such as UTC or Europe/Berlin")) from None


def slot_of(local: datetime, holidays: Collection[date]) -> int:
    """Slot of a moment of the local clock."""
    if local.date() in holidays:
        return WEEK_SLOTS + local.hour
    return local.weekday() * 24 + local.hour
