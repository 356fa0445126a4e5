"""A plan's figures by the hour as PromQL: which hour of the plan's week it is, and step functions of that hour.

Hours of the week are those of the plan's zone, summer time included. Where a plan tells months or holidays apart, one
week does not say it all: steps then stand at moments of the horizon. Which form is right is found by trying the week on
every quarter of an hour of the horizon.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from planner import units
from planner.actuals.timetable import EPOCH, STEP_US, ZONE, Timetable, timetable_of
from planner.observe.promql import number
from planner.plan import FleetPlan, Pool
from planner.traffic.season import WEEK_SLOTS
from planner.traffic.types import FloatArray, IntArray

EPOCH_HOUR = 72
"""Hour of the week of 1970-01-01 00:00, a Thursday; Monday 00:00 is 0."""
NOW = "vector(time())"
HOUR_RECORD = "planner:hour_of_week"


@dataclass(frozen=True)
class Calendar:
    """The quarters of an hour of a horizon: when each begins, what the zone's clock adds, and its period."""

    start_s: int
    end_s: int
    offset_s: IntArray
    label: IntArray | None
    note: str

    @property
    def time_s(self) -> IntArray:
        """Start of every quarter, seconds since 1970."""
        return np.asarray(self.start_s + np.arange(self.offset_s.size) * (STEP_US // 10**6))

    @property
    def hour(self) -> IntArray:
        """Hour of the week of every quarter by the zone's clock."""
        local = self.time_s + self.offset_s
        return np.asarray((local // units.SECONDS_PER_HOUR + EPOCH_HOUR) % WEEK_SLOTS)

    def hour_expression(self) -> str:
        """Hour of the week as PromQL."""
        first = int(self.offset_s[0]) if self.offset_s.size else 0
        steps = _steps(self.offset_s, self.time_s, NOW)
        return f"floor(({NOW} + {first}{steps}) / {units.SECONDS_PER_HOUR} + {EPOCH_HOUR}) % {WEEK_SLOTS}"

    def within(self, expression: str) -> str:
        """The expression while the horizon lasts, and nothing outside of it."""
        return f"{expression} and on() {NOW} >= {self.start_s} and on() {NOW} < {self.end_s}"

    def expression(self, by_period: Sequence[float], plan_id: str) -> str:
        """A figure that each period has one of; where the plan does not tell hours, the least of them."""
        values = np.asarray(by_period, dtype=np.float64)
        if self.label is None or np.ptp(values) == 0 or (self.label < 0).any():
            return self.within(f"vector({number(float(values.min()))})")
        each = values[self.label]
        week = self._week(each)
        if week is None:
            return self.within(f"vector({number(float(each[0]))}){_steps(each, self.time_s, NOW)}")
        hour = f'{HOUR_RECORD}{{plan="{plan_id}"}}'
        steps = _steps(week, np.arange(week.size), hour)
        return self.within(f"sum without (plan) (0 * {hour} + {number(float(week[0]))}{steps})")

    def _week(self, each: FloatArray) -> FloatArray | None:
        """The value of every hour of the week; ``None`` where one has several."""
        low, high = np.full(WEEK_SLOTS, np.inf), np.full(WEEK_SLOTS, -np.inf)
        np.minimum.at(low, self.hour, each)
        np.maximum.at(high, self.hour, each)
        seen = high >= low
        if not np.array_equal(low[seen], high[seen]):
            return None
        return np.where(seen, high, values_before(high, seen))


def values_before(values: FloatArray, seen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FloatArray:
    """Hours that a short horizon lacks take the value of the hour before, so that no step stands there."""
    place = np.maximum.accumulate(np.where(seen, np.arange(values.size), -1))
    first = int(np.flatnonzero(seen)[0])
    return np.asarray(values[np.where(place < 0, first, place)])


def _steps(values: FloatArray | IntArray, at: IntArray, now: str) -> str:
    """Changes of a step function as terms: ``+ 2 * (now >= bool 5)``."""
    jumps = np.flatnonzero(np.diff(values)) + 1
    terms = []
    for place in jumps.tolist():
        rise = float(values[place] - values[place - 1])
        terms.append(f" {'+' if rise > 0 else '-'} {number(abs(rise))} * ({now} >= bool {int(at[place])})")
    return "".join(terms)


def calendar_of(plan: FleetPlan) -> Calendar:
    """The calendar of a plan's horizon."""
    table: Timetable = timetable_of(plan)
    start_s, end_s = table.horizon.start_us // 10**6, table.horizon.end_us // 10**6
    zone = _zone(plan)
    count = (table.horizon.end_us - table.horizon.start_us) // STEP_US
    offsets = [_offset_s(zone, start_s + n * (STEP_US // 10**6)) for n in range(count)]
    return Calendar(start_s, end_s, np.asarray(offsets, dtype=np.int64), table.label, table.note)


def _zone(plan: FleetPlan) -> zoneinfo.ZoneInfo:
    """Where it is none, UTC: the labels are then tried against that."""
    row = next((row for row in plan.assumptions if row.id == ZONE), None)
    try:
        return zoneinfo.ZoneInfo(str(row.value) if row else "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo("UTC")


def _offset_s(zone: zoneinfo.ZoneInfo, time_s: int) -> int:
    local = (EPOCH + timedelta(seconds=time_s)).astimezone(zone)
    offset = local.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def replicas_by_period(pool: Pool) -> tuple[float, ...]:
    """Replicas that the plan keeps running, by period."""
    return tuple(float(run.replicas) for run in pool.periods) or (float(pool.replicas),)


def rates_by_period(pool: Pool) -> tuple[float, ...]:
    """Accepted requests per second that the pool must hold, by period."""
    return tuple(run.planning_rate_per_s for run in pool.periods) or (pool.load.planning_rate_per_s,)
