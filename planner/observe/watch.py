"""A running fleet against its plan, from series of metrics and a window of time."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.actuals.timetable import EPOCH, Timetable, timetable_of
from planner.errors import InputError, Problem
from planner.observe.expected import expected_of, period_at
from planner.observe.explain import explained
from planner.observe.live import Window
from planner.observe.metrics import metric_names
from planner.observe.observed import observed_of
from planner.observe.tracks import NO_TIME_S, POOL, assigned, tracks_in, wanted_names
from planner.observe.verdicts import PoolWatch, Watch, missing_names, off_words, rows_of
from planner.plan import FleetPlan, Pool
from planner.prometheus import Series
from planner.traffic.histograms.series import Track

TOLERANCE = 0.1
"""A figure this far outside of what the plan allows is off."""


@dataclass(frozen=True)
class Ask:
    """What is looked at.

    Attributes
    ----------
    pools
        Names; none: all.
    tolerance
        Relative, beyond what the plan allows.
    cached_share
        Share of prompt tokens that the plan takes as cached.
    pool_label
        Label of the series that names the pool.
    """

    pools: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    cached_share: float = 0.0
    pool_label: str = POOL


def watched(plan: FleetPlan, series: Iterable[Series], window: Window, ask: Ask) -> Watch:
    """The pools against the plan of the moment at which the samples in the window end.

    Raises
    ------
    InputError
        If a pool is not in the plan, or no series can be assigned to one.
    """
    wanted = _wanted(plan, ask.pools)
    known = metric_names()
    tracks = tracks_in(series, wanted_names(known), window.start_s, window.end_s)
    if not tracks:
        what = "hold none of the metrics of vLLM or SGLang in this time"
        raise InputError(Problem("metrics", what, "Check the time, and that the engines are scraped"))
    found = assigned(plan, tracks, ask.pool_label)
    times = [float(edge) for track in tracks for edge in (track.time_s[0], track.time_s[-1]) if edge != NO_TIME_S]
    table = timetable_of(plan)
    last_s = max(times, default=math.nan)
    return Watch(
        run_id=plan.run_id,
        title=plan.title,
        start=_moment(min(times, default=math.nan)),
        end=_moment(last_s),
        tolerance=ask.tolerance,
        pools=tuple(_pool(plan, pool, found.pools[pool.name], _at(table, last_s), ask) for pool in wanted),
        notes=(*_time_notes(table, min(times, default=math.nan), last_s), *found.notes),
    )


def _wanted(plan: FleetPlan, pools: Sequence[str]) -> list[Pool]:
    known = {pool.name: pool for pool in plan.pools}
    problems = [
        Problem("--pool", f"'{name}' is no pool of the plan", f"One of {', '.join(known)}")
        for name in pools
        if name not in known
    ]
    if problems:
        raise InputError(problems)
    return [pool for pool in plan.pools if not pools or pool.name in pools]


def _at(table: Timetable, time_s: float) -> int | None:
    return period_at(table, time_s) if math.isfinite(time_s) else None


def _pool(plan: FleetPlan, pool: Pool, tracks: Sequence[Track], period: int | None, ask: Ask) -> PoolWatch:
    planned = expected_of(plan, pool, period)
    seen = observed_of(pool, tracks, metric_names())
    why = explained(planned, seen, ask.cached_share)
    rows = rows_of(pool, planned, seen, why, ask.tolerance)
    return PoolWatch(
        pool=pool.name,
        model=pool.model,
        period=planned.period,
        rows=rows,
        off=off_words(rows),
        missing=missing_names(pool, rows, metric_names(), seen.seconds),
        deviation=why.deviation,
        unexplained=None if why.deviation is None else why.rest,
        notes=seen.notes if tracks else ("no series of this pool was found",),
    )


def _time_notes(table: Timetable, from_s: float, at_s: float) -> tuple[str, ...]:
    busiest = "figures are those of each pool's busiest period"
    if not math.isfinite(at_s):
        return (f"the time of the scrape is not known (give --at): planned {busiest}",)
    if not table.horizon.start_us <= at_s * 1e6 < table.horizon.end_us:
        return (f"the time lies outside of the plan's horizon: planned {busiest}",)
    if table.label is None:
        return (f"{table.note}: planned {busiest}",)
    several = period_at(table, from_s) != period_at(table, at_s)
    notes = (table.note, "the window begins in another period: planned figures are those of its end" if several else "")
    return tuple(note for note in notes if note)


def _moment(time_s: float) -> dt.datetime | None:
    return EPOCH + dt.timedelta(seconds=round(time_s)) if math.isfinite(time_s) else None
