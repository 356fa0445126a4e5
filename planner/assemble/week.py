"""Which hours the periods are, and the week of every pool."""

from __future__ import annotations

from collections.abc import Sequence

from planner.assemble.context import Context
from planner.assemble.stands import Standing
from planner.optimise.periods.horizon import Horizon
from planner.optimise.periods.schedule import describe, schedule_rows
from planner.plan import PlanPeriod, ScheduleHours


def periods_of(context: Context) -> tuple[PlanPeriod, ...]:
    """The periods with their hours of the week."""
    when = {} if context.horizon is None else _hours(context.horizon)
    return tuple(PlanPeriod(name=p.name, hours=p.hours, when=when.get(p.name, "")) for p in context.data.periods)


def _hours(horizon: Horizon) -> dict[str, str]:
    if not _follows_week(horizon):
        return {}
    texts: dict[str, list[str]] = {}
    for row in describe(horizon):
        texts.setdefault(row.period, []).append(f"{', '.join(row.days)}: {row.which}" if row.days else row.which)
    return {period: " | ".join(parts) for period, parts in texts.items()}


def _follows_week(horizon: Horizon) -> bool:
    return len(horizon.periods) > 1


def schedule_of(context: Context, pools: Sequence[Standing]) -> tuple[ScheduleHours, ...]:
    """The timetable of every pool; none where there is one period."""
    if context.horizon is None or not _follows_week(context.horizon):
        return ()
    return tuple(
        ScheduleHours(
            pool=row.pool,
            months=", ".join(row.days),
            when=row.which,
            replicas=row.replicas,
            hours_a_week=row.hours_a_week,
        )
        for row in schedule_rows(context.horizon, {pool.name: pool.replicas for pool in pools})
    )
