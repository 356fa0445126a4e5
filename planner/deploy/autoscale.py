"""Replicas by the hour of the week as KEDA ScaledObjects with cron triggers.

A plan buys what each hour needs and no more, so the hour decides: between ``start`` and ``end`` of a cron trigger there
are at least ``desiredReplicas``, the largest of all triggers counts, outside of them ``minReplicaCount`` holds
(https://keda.sh/docs/2.17/scalers/cron/, read 2026-12-01). Cron cannot say "but not on holidays": on a holiday that
needs fewer replicas those of the weekday run, one that needs more gets a trigger for its date.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.actuals.timetable import ZONE, timetable_of
from planner.deploy.pods import Json, labels, notes_of
from planner.deploy.replicas import Replica
from planner.plan import FleetPlan
from planner.traffic.calendar import STEP
from planner.traffic.season import WEEK_SLOTS, slot_of
from planner.units import HOURS_PER_DAY

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Span:
    """Days that follow one week.

    Attributes
    ----------
    first
        First day, of UTC.
    period
        Period of each slot that occurs: hour of the week, then hour of a holiday.
    """

    first: dt.date
    period: Mapping[int, int]


@dataclass(frozen=True)
class Week:
    """The hours of a plan.

    Attributes
    ----------
    zone
        Time zone of the hours.
    spans
        Stretches of the horizon; none where the plan cannot tell its hours.
    holidays
        Days of their own kind.
    note
        Why the plan cannot tell, or what was assumed.
    """

    zone: str
    spans: tuple[Span, ...] = ()
    holidays: tuple[dt.date, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Window:
    """Hours with at least so many replicas, as two times of cron."""

    start: str
    end: str
    replicas: int


@dataclass(frozen=True)
class Scaling:
    """The bounds of one pool in one span."""

    least: int
    most: int
    windows: tuple[Window, ...]


def week_of(plan: FleetPlan) -> Week:
    """Which period every hour of the week belongs to; a new span begins where an hour changes its period."""
    row = next((row for row in plan.assumptions if row.id == ZONE), None)
    zone_name = str(row.value) if row is not None else "UTC"
    table = timetable_of(plan)
    if len(plan.periods) == 1:
        return Week(zone_name, note="the plan has one period: replicas do not change by the hour")
    if table.label is None:
        return Week(zone_name, note=table.note)
    zone = zoneinfo.ZoneInfo("UTC") if table.note else zoneinfo.ZoneInfo(zone_name)
    holidays = tuple(dt.date.fromisoformat(day) for day in _DATE.findall(row.note)) if row is not None else ()
    start = dt.datetime.combine(plan.horizon_start, dt.time(), tzinfo=dt.UTC)
    moments = ((start + n * STEP, int(period)) for n, period in enumerate(table.label))
    spans: list[Span] = []
    known: dict[int, int] = {}
    today: dict[int, int] = {}
    day = plan.horizon_start
    for moment, period in moments:
        if moment.date() != day:
            known, today, day = _closed(spans, known, today, day), {}, moment.date()
        today.setdefault(slot_of(moment.astimezone(zone), holidays), period)
    _closed(spans, known, today, day)
    return Week(zone.key, tuple(spans), holidays, table.note)


def _closed(spans: list[Span], known: dict[int, int], today: dict[int, int], day: dt.date) -> dict[int, int]:
    """Add a day to the last span, or begin another one with it; the slots that the span now knows."""
    if spans and all(known.get(slot, period) == period for slot, period in today.items()):
        known = known | today
        spans[-1] = replace(spans[-1], period=known)
    else:
        known = dict(today)
        spans.append(Span(day, known))
    return known


def scaling_of(counts: Sequence[int], span: Span, holidays: Sequence[dt.date]) -> Scaling:
    """The bounds of a pool in a span.

    Parameters
    ----------
    counts
        Replicas by period.

    Where they do not change, one window states them: an object needs a trigger.
    """
    hours = {slot: counts[period] for slot, period in span.period.items()}
    least = min((count for slot, count in hours.items() if slot < WEEK_SLOTS), default=min(hours.values()))
    week = [hours.get(slot, least) for slot in range(WEEK_SLOTS)]
    windows = [window for level in sorted(set(week) - {least}) for window in _windows(week, level)]
    holiday = [hours.get(WEEK_SLOTS + hour, least) for hour in range(HOURS_PER_DAY)]
    for day in holidays:
        usual = week[day.weekday() * HOURS_PER_DAY : (day.weekday() + 1) * HOURS_PER_DAY]
        if any(mine > theirs for mine, theirs in zip(holiday, usual, strict=True)):
            windows += [w for level in sorted(set(holiday) - {least}) for w in _on_day(holiday, level, day)]
    return Scaling(
        least, max(least, *hours.values()), tuple(windows) or (Window(_cron(0), _cron(WEEK_SLOTS - 1), least),)
    )


def _windows(week: Sequence[int], level: int) -> list[Window]:
    """Stretches of the week with at least ``level`` replicas; one across Sunday's midnight is one."""
    starts = [slot for slot in range(WEEK_SLOTS) if week[slot] >= level > week[slot - 1]]
    windows = []
    for start in starts:
        end = next(n for n in range(start + 1, start + WEEK_SLOTS + 1) if week[n % WEEK_SLOTS] < level) % WEEK_SLOTS
        windows.append(Window(_cron(start), _cron(end), level))
    return windows


def _cron(slot: int) -> str:
    day, hour = divmod(slot, HOURS_PER_DAY)
    return f"0 {hour} * * {_DAY_NAMES[day]}"


def _on_day(hours: Sequence[int], level: int, day: dt.date) -> list[Window]:
    windows, padded = [], [*hours, -1]
    for hour in range(HOURS_PER_DAY):
        if padded[hour] >= level > (padded[hour - 1] if hour else -1):
            end = next(n for n in range(hour + 1, HOURS_PER_DAY + 1) if padded[n] < level)
            after = dt.datetime.combine(day, dt.time()) + dt.timedelta(hours=end)
            start = f"0 {hour} {day.day} {day.month} *"
            windows.append(Window(start, f"0 {after.hour} {after.day} {after.month} *", level))
    return windows


def changes(replica: Replica) -> bool:
    """Whether a pool's replicas change in the horizon, and some run."""
    counts = {period.replicas for period in replica.pool.periods}
    return len(counts) > 1


def scaled_object(
    replica: Replica, scaling: Scaling, zone: str, run_id: str, target: Mapping[str, str] | None = None
) -> Json:
    """The object of one pool.

    Parameters
    ----------
    target
        What is scaled, where it is not the pool's own Deployment or LeaderWorkerSet.
    """
    group = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": replica.name}
    own = {"apiVersion": "apps/v1", "kind": "Deployment", "name": replica.name}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": replica.name,
            "labels": labels(replica),
            "annotations": notes_of(replica, run_id),
        },
        "spec": {
            "scaleTargetRef": dict(target) if target else group if replica.nodes > 1 else own,
            "minReplicaCount": scaling.least,
            "maxReplicaCount": scaling.most,
            "triggers": [_trigger(window, zone) for window in scaling.windows],
        },
    }


def _trigger(window: Window, zone: str) -> Json:
    times = {"timezone": zone, "start": window.start, "end": window.end}
    return {"type": "cron", "metadata": {**times, "desiredReplicas": str(window.replicas)}}
