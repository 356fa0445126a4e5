"""A horizon as people and autoscalers read it: which hours a period has, and bounds and a timetable for each pool.

The bounds are those that a horizontal autoscaler takes (``minReplicas`` and ``maxReplicas`` of a Kubernetes HPA or a
KEDA ScaledObject): the fewest and the most replicas that the plan keeps running in any period. The timetable says how
many it keeps in each hour of the week.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.optimise.periods.horizon import Horizon
from planner.traffic.season import SLOTS, WEEK_SLOTS, slot_name
from planner.traffic.types import IntArray

BoolArray = npt.NDArray[np.bool_]
ALL_HOURS = "all hours"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class PeriodRow:
    """Hours of a period in the days in which they are the same."""

    period: str
    days: tuple[str, ...]
    """Months or days that are told apart; empty: the whole horizon."""
    which: str
    """Such as ``Mon-Fri 08-18; holidays 10-12``; the end of a span is exclusive."""
    hours: float
    """Of the horizon."""
    hours_a_week: float
    """Mean over those days."""


@dataclass(frozen=True)
class AutoscalerRow:
    """Bounds of one pool."""

    pool: str
    min_replicas: int
    max_replicas: int
    mean_replicas: float
    """Over the hours of the horizon."""
    changes_a_week: int
    """How often the count changes over an ordinary week, in the month where it changes most often."""


@dataclass(frozen=True)
class ScheduleRow:
    """Hours of the week in which a pool keeps the same number of replicas."""

    pool: str
    days: tuple[str, ...]
    which: str
    replicas: int
    hours_a_week: float


@dataclass(frozen=True)
class HourRow:
    """One hour of the week."""

    days: str
    """The month or days that are told apart; empty: the whole horizon."""
    hour: str
    """Such as ``Mon 09:00``."""
    period: str
    replicas: tuple[int, ...]
    """By pool, in the order of their names."""


def describe(horizon: Horizon) -> tuple[PeriodRow, ...]:
    """The hours of every period, lightest first."""
    return tuple(
        PeriodRow(period.name, part.days, part.which, part.hours, part.hours_a_week)
        for k, period in enumerate(horizon.periods)
        for part in _parts(horizon, (k,))
    )


def autoscaler_rows(horizon: Horizon, running: Mapping[str, Sequence[int]]) -> tuple[AutoscalerRow, ...]:
    """Bounds of every pool, by name.

    Parameters
    ----------
    running
        Replicas of each pool by period.

    Raises
    ------
    ValueError
        If a pool has not one count for every period.
    """
    hours = np.array([period.hours for period in horizon.periods])
    found = []
    for pool, counts in _checked(horizon, running).items():
        by_slot = [counts[row[:WEEK_SLOTS][row[:WEEK_SLOTS] >= 0]] for row in horizon.label]
        found.append(
            AutoscalerRow(
                pool=pool,
                min_replicas=int(counts.min()),
                max_replicas=int(counts.max()),
                mean_replicas=float(hours @ counts / hours.sum()),
                changes_a_week=max(int(np.count_nonzero(week != np.roll(week, 1))) for week in by_slot),
            )
        )
    return tuple(found)


def schedule_rows(horizon: Horizon, running: Mapping[str, Sequence[int]]) -> tuple[ScheduleRow, ...]:
    """The timetable of every pool, fewest replicas first; periods with the same count are one.

    Raises
    ------
    ValueError
        If a pool has not one count for every period.
    """
    return tuple(
        ScheduleRow(pool, part.days, part.which, int(replicas), part.hours_a_week)
        for pool, counts in _checked(horizon, running).items()
        for replicas in np.unique(counts)
        for part in _parts(horizon, np.flatnonzero(counts == replicas).tolist())
    )


def hour_rows(horizon: Horizon, running: Mapping[str, Sequence[int]]) -> tuple[HourRow, ...]:
    """Every hour of the week that the horizon has, with its period and the replicas of every pool.

    Raises
    ------
    ValueError
        If a pool has not one count for every period.
    """
    counts = _checked(horizon, running)
    return tuple(
        HourRow(
            stretch.name,
            slot_name(slot),
            horizon.periods[row[slot]].name,
            tuple(int(c[row[slot]]) for c in counts.values()),
        )
        for stretch, row in zip(horizon.stretches, horizon.label, strict=True)
        for slot in range(SLOTS)
        if row[slot] >= 0
    )


def _checked(horizon: Horizon, running: Mapping[str, Sequence[int]]) -> dict[str, IntArray]:
    wrong = sorted(pool for pool, counts in running.items() if len(counts) != len(horizon.periods))
    if wrong:
        raise ValueError(f"one count is needed for each of {len(horizon.periods)} periods: {', '.join(wrong)}")
    return {pool: np.asarray(running[pool], dtype=np.int64) for pool in sorted(running)}


@dataclass(frozen=True)
class _Part:
    days: tuple[str, ...]
    which: str
    hours: float
    hours_a_week: float


def _parts(horizon: Horizon, periods: Collection[int]) -> list[_Part]:
    """Hours of some periods taken together; stretches in which they are the same are one."""
    texts: dict[str, list[int]] = {}
    for row, label in enumerate(horizon.label):
        mine = np.isin(label, list(periods))
        if mine.any():
            texts.setdefault(hours_text(mine, label >= 0), []).append(row)
    found = []
    for which, rows in texts.items():
        mine = np.isin(horizon.label[rows], list(periods))
        hours = float(horizon.hours[rows][mine].sum())
        share = hours / float(horizon.hours[rows].sum())
        days = tuple(horizon.stretches[row].name for row in rows if horizon.stretches[row].name)
        found.append(_Part(days, which, hours, share * WEEK_SLOTS))
    return found


def hours_text(mine: BoolArray, there: BoolArray) -> str:
    """Slots as compact text: ``Mon-Fri 08-18; Sat,Sun 10-14``.

    Parameters
    ----------
    mine, there
        Shape (`SLOTS`,): the slots to name, and those that occur at all.
    """
    if mine[there].all():
        return ALL_HOURS
    spans: dict[str, list[int]] = {}
    for day, hours in enumerate(mine.reshape(-1, 24)):
        if hours.any():
            spans.setdefault(_spans(hours.tolist()), []).append(day)
    return "; ".join(f"{_day_names(days)} {text}" for text, days in spans.items())


def _spans(hours: Sequence[bool]) -> str:
    """Runs of hours of one day, such as ``00-06+22-24``."""
    edges = [hour for hour in range(25) if (hour < 24 and hours[hour]) != (hour > 0 and hours[hour - 1])]
    return "+".join(f"{first:02d}-{end:02d}" for first, end in zip(edges[::2], edges[1::2], strict=True))


def _day_names(days: Sequence[int]) -> str:
    """Runs of three days and more as a range; the last day is that of holidays."""
    week = [day for day in days if day < len(DAYS)]
    runs: list[list[int]] = []
    for day in week:
        if runs and day == runs[-1][-1] + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    names = [f"{DAYS[run[0]]}-{DAYS[run[-1]]}" if len(run) > 2 else ",".join(DAYS[day] for day in run) for run in runs]
    return ",".join([*names, *(["holidays"] if len(week) < len(days) else [])])
