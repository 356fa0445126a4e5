"""A week of a plan: its replicas come and go by period, its rates follow, and hours are replayed one by one.

Each hour is replayed by itself, after `LEAD` minutes of the period before it and with `TAIL` minutes after it, in which
its requests may end; neither is counted. So memory holds one hour of one model. The cut is not exact: what an hour
finds on its replicas is that of the lead, not of all hours before it. Hours of the same pair of periods (that of the
hour before, its own) are planned alike: one of each pair is replayed and stands for all of them, unless all are asked.

**Warm-up.** The plan lets the load run from one hour's rate to the next along a straight line, and the hour before a
rise also holds the share min(1, w) of it, w the warm-up in hours (`planner.optimise.periods.week_rates.warmed`): its
planning rate is that of the moment when replicas asked for at the border are ready. So the replay keeps the planning
rate of the period before until border + w, in which the replicas that the new period adds take no requests, and then
runs along a straight line to the new period's rate at the end of the hour. A warm-up of an hour or more is replayed
as one hour, since the hours before then hold all of the rise. Where the rate falls it does so at the border, as the
plan's hours have it; replicas that are taken away drain from there.

A period's planning rate is that of its busiest ten minutes, as in `planner.replay.trace.at_peak`: here those of the
counted hour. While the rate changes, two such streams are mixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner import units
from planner.actuals.route import Turns, routing_of
from planner.actuals.timetable import timetable_of
from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Pool
from planner.replay.drill_cases import warm_up_s
from planner.replay.engines import PoolEngine
from planner.replay.fleet import MOST_REQUESTS, hash_seed
from planner.replay.segments import Life, replay_lives
from planner.replay.trace import PEAK_CORRECTIONS, PEAK_TOLERANCE, Trace, at_rate, busiest_per_s
from planner.replay.types import IntArray, Requests
from planner.replay.week_told import HourSeen, WeekPool, hour_seen, pool_of_week
from planner.report import facts

WINDOW_S = units.minutes_to_s(1.0)
LEAD, CORE, TAIL = 15, 60, 10
"""Minutes of a replayed hour that come before it, are counted, and come after it."""
MINUTES = LEAD + CORE + TAIL
WEEK = 7 * units.HOURS_PER_DAY
QUARTERS = 4
MONDAY = 0
TINY_S = 1e-6


@dataclass(frozen=True)
class WeekAsk:
    """How a week is replayed.

    Attributes
    ----------
    first, last
        Hours of the week, [first, last), from Monday 00:00 UTC.
    pools
        Empty: every pool.
    full
        Whether every hour is replayed; else one of each pair of periods.
    share
        Factor on all rates.
    """

    first: int = 0
    last: int = WEEK
    pools: tuple[str, ...] = ()
    full: bool = False
    share: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Hour:
    """An hour to be replayed: number in the week, periods of the hour before and its own, hours it stands for."""

    number: int
    before: int
    period: int
    weight: int


@dataclass(frozen=True)
class Week:
    """A replayed week."""

    pools: tuple[WeekPool, ...]
    hours: tuple[Hour, ...]
    ask: WeekAsk
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no promise of a pool is refuted in any period."""
        return all(pool.passed for pool in self.pools)


def week_of(plan: FleetPlan) -> tuple[int, ...]:
    """Period of each hour of the first whole week of the horizon, from Monday 00:00 UTC.

    Raises
    ------
    InputError
        If the horizon holds no such week, the plan does not say which hours its periods have, or a period begins
        within an hour of UTC.
    """
    table = timetable_of(plan)
    if table.label is None:
        raise InputError(Problem("plan", table.note, "Plan again with this version"))
    days = (MONDAY - plan.horizon_start.weekday()) % 7
    start = days * units.HOURS_PER_DAY * QUARTERS
    label = table.label[start : start + WEEK * QUARTERS]
    if len(label) < WEEK * QUARTERS:
        raise InputError(Problem("plan", "its horizon holds no week from Monday to Sunday", "Plan a longer horizon"))
    hours = label.reshape(WEEK, QUARTERS)
    if (hours != hours[:, :1]).any():
        raise InputError(Problem("plan", "a period begins within an hour of UTC", "Take a zone of whole hours"))
    return tuple(int(period) for period in hours[:, 0])


def hours_of(periods: Sequence[int], ask: WeekAsk) -> tuple[Hour, ...]:
    """Hours to be replayed: all, or the first of each pair of periods with the number of such hours as its weight.

    The week is cyclic: the hour before the first is the last.
    """
    pairs = [(periods[n - 1], periods[n]) for n in range(ask.first, ask.last)]
    if ask.full:
        return tuple(Hour(ask.first + k, *pair, weight=1) for k, pair in enumerate(pairs))
    count = Counter(pairs)
    return tuple(Hour(ask.first + pairs.index(pair), *pair, weight=n) for pair, n in count.items())


def model_rate_per_s(plan: FleetPlan, model: str, period: int) -> float:
    """Arrivals of a model that a period must hold: sum over its pools of accepted rate / (1 − refused share)."""
    return sum(
        pool.periods[period].planning_rate_per_s / (1.0 - pool.refused_request_share)
        for pool in plan.pools
        if pool.model == model and pool.refused_request_share < 1
    )


def replay_week(
    plan: FleetPlan,
    engines: Sequence[PoolEngine],
    traces: Mapping[str, Trace],
    ask: WeekAsk,
    progress: Callable[[int, int], None] = lambda done, all_of_them: None,
) -> Week:
    """Replay the week of every pool that is asked for and whose model has a trace.

    Parameters
    ----------
    progress
        Told how many hours of models are done, and how many there are.

    Raises
    ------
    InputError
        If the plan or what is asked cannot be replayed.
    """
    hours = _checked(plan, traces, ask)
    wanted = [e for e in engines if e.pool.model in traces and (not ask.pools or e.pool.name in ask.pools)]
    models = [model for model in facts.models(plan) if any(e.pool.model == model for e in wanted)]
    found: dict[str, list[HourSeen]] = {each.pool.name: [] for each in wanted}
    for place, model in enumerate(models):
        mine = [each for each in wanted if each.pool.model == model]
        for done, hour in enumerate(hours):
            progress(place * len(hours) + done, len(models) * len(hours))
            for each, seen in _hour(plan, mine, model, traces[model], hour, ask):
                found[each.pool.name].append(seen)
    length = [period.hours for period in plan.periods]
    told = tuple(pool_of_week(e.pool, length, found[e.pool.name], ask.full, e.notes) for e in wanted)
    return Week(told, hours, ask, tuple(_notes(plan, models)))


def drawn(trace: Trace, before_per_s: float, after_per_s: float, warm_s: float, seed: int) -> Requests:
    """Requests of an hour with its lead and tail.

    The rate is the first one until the border, and beyond it until the warm-up has passed if it rises; then requests
    of a stream at each rate are mixed, the share of the second rising along a straight line to 1 at the hour's end.
    """
    border = LEAD * WINDOW_S
    end = border + CORE * WINDOW_S
    old = _stream(trace, before_per_s, seed)
    if before_per_s == after_per_s:
        return old
    new = _stream(trace, after_per_s, hash_seed(seed, 1, 0))
    rng = np.random.default_rng(hash_seed(seed, 2, 0))
    falls = after_per_s < before_per_s
    start = border if falls else border + min(warm_s, end - border)
    parts = []
    for stream, is_new in ((old, False), (new, True)):
        # A ramp of no length is a step.
        length = max(0.0 if falls else end - start, TINY_S)
        share = np.clip((stream.arrival_s - start) / length, 0.0, 1.0)
        taken = (rng.uniform(size=len(stream)) < share) == is_new
        parts.append(stream.at(np.flatnonzero(taken).astype(np.int64)))
    return _merged(parts)


def _stream(trace: Trace, peak_per_s: float, seed: int) -> Requests:
    """Requests of an hour with its lead and tail; the busiest ten minutes of the hour come at the rate."""
    rate = peak_per_s
    for _ in range(PEAK_CORRECTIONS):
        found = at_rate(trace, rate, MINUTES * WINDOW_S, seed)
        since = found.arrival_s - LEAD * WINDOW_S
        inside = (since >= 0.0) & (since < CORE * WINDOW_S)
        ratio = busiest_per_s(since[inside], CORE * WINDOW_S) / peak_per_s
        if not ratio or abs(ratio - 1.0) <= PEAK_TOLERANCE:
            break
        rate /= ratio
    return found


def lives_of(before: int, after: int, warm_s: float) -> tuple[Life, ...]:
    """Lives over one hour: those that stay, those added at the border plus warm-up, those that drain from it."""
    border = LEAD * WINDOW_S
    ready = border + min(warm_s, CORE * WINDOW_S)
    return (
        *(Life(0.0, math.inf) for _ in range(min(before, after))),
        *(Life(ready, math.inf) for _ in range(after - before)),
        *(Life(0.0, border) for _ in range(before - after)),
    )


def _hour(
    plan: FleetPlan, wanted: Sequence[PoolEngine], model: str, trace: Trace, hour: Hour, ask: WeekAsk
) -> Iterator[tuple[PoolEngine, HourSeen]]:
    """One hour of a model: its requests over its pools."""
    seed = hash_seed(ask.seed, hour.number, facts.models(plan).index(model))
    warm_s = warm_up_s(plan, model) or 0.0
    before, after = (ask.share * model_rate_per_s(plan, model, k) for k in (hour.before, hour.period))
    requests = drawn(trace, before, after, warm_s, seed)
    routing = routing_of(plan, model)
    pools = Turns(routing).pools(requests.prompt_tokens, np.zeros(len(requests), dtype=np.int64))
    for each in wanted:
        rows: IntArray = np.flatnonzero(pools == routing.pools.index(each.pool.name)).astype(np.int64)
        counts = _replicas(each.pool, hour)
        lived = replay_lives(requests.at(rows), each.engine, lives_of(*counts, warm_s), WINDOW_S, MINUTES)
        seen, turned_away, worst_ms, minute = hour_seen(each.pool, lived, (LEAD, LEAD + CORE))
        place = (hour.number, hour.before, hour.period, hour.weight)
        yield each, HourSeen(*place, *counts, seen, turned_away, worst_ms, minute)


def _replicas(pool: Pool, hour: Hour) -> tuple[int, int]:
    return pool.periods[hour.before].replicas, pool.periods[hour.period].replicas


def _merged(parts: Sequence[Requests]) -> Requests:
    names = ("arrival_s", "prompt_tokens", "output_tokens", "cached_tokens")
    together = Requests(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return together.at(np.argsort(together.arrival_s, kind="stable"))


def _notes(plan: FleetPlan, models: Sequence[str]) -> Iterator[str]:
    if note := timetable_of(plan).note:
        yield note
    for model in models:
        if warm_up_s(plan, model) is None:
            yield f"{model}: the plan states no warm-up: added replicas serve from the border on"


def _checked(plan: FleetPlan, traces: Mapping[str, Trace], ask: WeekAsk) -> tuple[Hour, ...]:
    """The hours to be replayed, where all can be."""
    names = [pool.name for pool in plan.pools]
    problems = [
        Problem("--pool", f"'{name}' is no pool of the plan", f"One of {', '.join(names)}")
        for name in ask.pools
        if name not in names
    ]
    for option, wrong, what in (
        ("--share", not (ask.share > 0 and math.isfinite(ask.share)), "must be above 0"),
        ("--seed", ask.seed < 0, "must not be below 0"),
        ("--hours", not 0 <= ask.first < ask.last <= WEEK, f"must be FROM:TO of the week's hours, 0 to {WEEK}"),
    ):
        if wrong:
            problems.append(Problem(option, what))
    if not all(len(pool.periods) == len(plan.periods) for pool in plan.pools):
        problems.append(Problem("plan", "its pools have no periods", "Plan again with this version"))
    if problems:
        raise InputError(problems)
    if not any(pool.model in traces and (not ask.pools or pool.name in ask.pools) for pool in plan.pools):
        raise InputError(Problem("--pool, --traffic", "no log is of a model whose pools are asked for"))
    hours = hours_of(week_of(plan), ask)
    for model in traces:
        for period in sorted({p for hour in hours for p in (hour.before, hour.period)}):
            rate = ask.share * model_rate_per_s(plan, model, period)
            if not (rate > 0 and rate * MINUTES * WINDOW_S <= MOST_REQUESTS):
                what = f"{rate:g} requests/s in {plan.periods[period].name} cannot be replayed"
                raise InputError(Problem(f"model '{model}'", what))
    return hours
