"""Failure drills of a plan: what each pool's clients see when something goes wrong, and when it is over.

Every drill runs on the replicas of the pool's busiest period at its planning rate all the time, beside a run with the
same requests and no drill. Requests of a lost replica are sent again at once, from scratch, to those that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner import units
from planner.actuals.route import Turns, routing_of
from planner.errors import InputError, Problem
from planner.plan import FleetPlan
from planner.queueing.load import scaled
from planner.replay.drill_cases import losses, warm_up_s
from planner.replay.drill_told import tell
from planner.replay.drill_types import Drill, Drilled, DrillKind, DrillWindow
from planner.replay.engines import PoolEngine
from planner.replay.fleet import MOST_REQUESTS, hash_seed, planning_rate_per_s
from planner.replay.segments import Life, Lived, lost_and_back, replay_lives
from planner.replay.trace import Trace, at_rate
from planner.replay.types import Engine, IntArray, Requests
from planner.report import facts

__all__ = ["Drill", "DrillAsk", "DrillKind", "DrillWindow", "Drilled", "drill_fleet"]

WINDOW_S = units.minutes_to_s(1.0)
EVER = math.inf
NO_WARM_UP = "the plan states no warm-up: replicas serve as soon as they are back"


@dataclass(frozen=True)
class DrillAsk:
    """How drills are run.

    Attributes
    ----------
    minutes
        Length of the replay.
    at_min, for_min
        When replicas are lost, and for how long; their warm-up comes on top.
    kinds, pools
        Empty: every drill that applies, every pool.
    slower
        Factor on every step time of the slow drill.
    burst
        Requests of the burst; 0: as many of the longest as fill every replica's token pool.
    warm_up_min
        ``None``: the plan's.
    hold
        Whether the gateway holds requests while no replica runs; else they are turned away.
    """

    minutes: int = 60
    at_min: int = 20
    for_min: float = 10.0
    kinds: tuple[DrillKind, ...] = ()
    pools: tuple[str, ...] = ()
    repeats: int = 1
    seed: int = 0
    slower: float = 1.2
    burst: int = 0
    warm_up_min: float | None = None
    hold: bool = False


@dataclass(frozen=True)
class _Case:
    drill: Drill
    lives: tuple[Life, ...]
    requests: Requests
    engine: Engine
    notes: tuple[str, ...] = ()


def drill_fleet(
    plan: FleetPlan,
    engines: Sequence[PoolEngine],
    traces: Mapping[str, Trace],
    ask: DrillAsk,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Drilled, ...]:
    """Every drill that is asked for, of every pool whose model has a trace.

    Raises
    ------
    InputError
        If what is asked cannot be replayed, or no drill applies.
    """
    _check(plan, traces, ask)
    worst: dict[tuple[str, str], Drilled] = {}
    for number in range(ask.repeats):
        for model in sorted(traces):
            progress(f"repeat {number + 1} of {ask.repeats}: {model}")
            for found in _model(plan, engines, model, traces[model], ask, number):
                told = replace(found, repeat=number + 1, repeats=ask.repeats)
                key = (told.drill.pool, told.drill.name)
                worst[key] = max(worst.get(key, told), told, key=_badness)
    if not worst:
        raise InputError(Problem("--drill, --pool", "no drill applies: the plan does not place these replicas"))
    order = [pool.name for pool in plan.pools]
    return tuple(sorted(worst.values(), key=lambda told: order.index(told.drill.pool)))


def _model(
    plan: FleetPlan, engines: Sequence[PoolEngine], model: str, trace: Trace, ask: DrillAsk, number: int
) -> Iterator[Drilled]:
    """One repeat of a model: its requests over its pools."""
    # By its place in the plan: a pool's requests are the same whichever others are drilled.
    seed = hash_seed(ask.seed, number, facts.models(plan).index(model))
    drawn = at_rate(trace, planning_rate_per_s(plan, model), ask.minutes * WINDOW_S, seed)
    routing = routing_of(plan, model)
    pools = Turns(routing).pools(drawn.prompt_tokens, np.zeros(len(drawn), dtype=np.int64))
    for index, name in enumerate(routing.pools):
        each = next(e for e in engines if e.pool.name == name)
        if (ask.pools and name not in ask.pools) or not facts.busiest_replicas(each.pool):
            continue
        mine: IntArray = np.flatnonzero(pools == index).astype(np.int64)
        yield from _pool(plan, each, drawn.at(mine), ask)


def _pool(plan: FleetPlan, each: PoolEngine, requests: Requests, ask: DrillAsk) -> Iterator[Drilled]:
    always = tuple(Life(0.0, EVER) for _ in range(facts.busiest_replicas(each.pool)))
    calm = _replayed(_Case(Drill("", each.pool.name, "", 0.0, 0.0), always, requests, each.engine), ask)
    for case in (*_losing(plan, each, requests, ask), *_others(each, requests, always, ask)):
        yield tell(case.drill, each.pool, _replayed(case, ask), calm, (*each.notes, *case.notes))


def _replayed(case: _Case, ask: DrillAsk) -> Lived:
    return replay_lives(case.requests, case.engine, case.lives, WINDOW_S, ask.minutes, ask.hold)


def _losing(plan: FleetPlan, each: PoolEngine, requests: Requests, ask: DrillAsk) -> Iterator[_Case]:
    """Drills that lose replicas; of several that lose the same number the first is run, unless they are asked for."""
    count, seen = facts.busiest_replicas(each.pool), set[int]()
    stated = warm_up_s(plan, each.pool.model)
    warm_s = units.minutes_to_s(ask.warm_up_min) if ask.warm_up_min is not None else stated or 0.0
    notes = (NO_WARM_UP,) if stated is None and ask.warm_up_min is None else ()
    at_s = units.minutes_to_s(ask.at_min)
    back_s = at_s + units.minutes_to_s(ask.for_min) + warm_s
    for loss in losses(plan, each.pool):
        if loss.lost < 1 or (loss.kind not in ask.kinds if ask.kinds else loss.lost in seen):
            continue
        seen.add(loss.lost)
        what = f"{loss.what} for {ask.for_min:g} min" + (f", and warms up for {warm_s / 60:g} min" if warm_s else "")
        drill = Drill(loss.kind.value, each.pool.name, what, at_s, back_s, loss.lost, count)
        yield _Case(drill, tuple(lost_and_back(count, loss.lost, at_s, back_s)), requests, each.engine, notes)


def _others(each: PoolEngine, requests: Requests, always: tuple[Life, ...], ask: DrillAsk) -> Iterator[_Case]:
    """The burst and the slow drill."""
    at_s, end_s = units.minutes_to_s(ask.at_min), ask.minutes * WINDOW_S
    if len(requests) and (not ask.kinds or DrillKind.BURST in ask.kinds):
        more, n = _with_burst(requests, each.engine, len(always), ask)
        what = f"a burst of the {n:,} longest requests within a minute"
        drill = Drill(DrillKind.BURST.value, each.pool.name, what, at_s, at_s + WINDOW_S, 0, len(always))
        yield _Case(drill, always, more, each.engine)
    if not ask.kinds or DrillKind.SLOW in ask.kinds:
        engine = replace(each.engine, coefficients=scaled(each.engine.coefficients, ask.slower))
        what = f"every step takes {ask.slower:g} times as long as planned, all the time"
        drill = Drill(DrillKind.SLOW.value, each.pool.name, what, 0.0, end_s, 0, len(always))
        yield _Case(drill, always, requests, engine)


def _with_burst(requests: Requests, engine: Engine, replicas: int, ask: DrillAsk) -> tuple[Requests, int]:
    """The longest requests that the pool takes, evenly over a minute, among the others.

    Where no number is asked for: replicas x token pool / longest request, rounded up, in plain tokens.
    """
    total = requests.prompt_tokens + requests.output_tokens
    fits = np.flatnonzero(total <= engine.max_model_len)
    if not fits.size:
        return requests, 0
    longest = fits[np.argsort(-total[fits], kind="stable")]
    n = ask.burst or math.ceil(replicas * engine.pool_tokens / float(total[longest[0]]))
    rows = np.concatenate([np.arange(len(requests)), np.resize(longest, n)])
    when = units.minutes_to_s(ask.at_min) + WINDOW_S * np.arange(n) / n
    time = np.concatenate([requests.arrival_s, when])
    order = np.argsort(time, kind="stable")
    return replace(requests.at(rows[order]), arrival_s=time[order]), n


def _badness(told: Drilled) -> tuple[float, float, float]:
    return (told.over_s, np.nan_to_num(told.worst_ttft_ms), np.nan_to_num(told.worst_tpot_ms))


def _check(plan: FleetPlan, traces: Mapping[str, Trace], ask: DrillAsk) -> None:
    names = [pool.name for pool in plan.pools]
    problems = [
        Problem("--pool", f"'{name}' is no pool of the plan", f"One of {', '.join(names)}")
        for name in ask.pools
        if name not in names
    ]
    warm = [ask.warm_up_min] if ask.warm_up_min is not None else [(warm_up_s(plan, m) or 0.0) / 60 for m in traces]
    end = ask.at_min + ask.for_min + max(warm, default=0.0)
    for option, wrong, what in (
        ("--for", not (ask.for_min > 0 and math.isfinite(ask.for_min)), "must be above 0 minutes"),
        ("--at", ask.at_min < 1, "must be at least 1 minute"),
        ("--hours, --at, --for", end >= ask.minutes, f"the outage and warm-up end at minute {end:g} of {ask.minutes}"),
        ("--slower", not (ask.slower > 0 and math.isfinite(ask.slower)), "must be above 0"),
        ("--burst", not 0 <= ask.burst <= MOST_REQUESTS, f"must be 0 to {MOST_REQUESTS:,}"),
        ("--warm-up", not (min(warm, default=0.0) >= 0 and math.isfinite(end)), "must not be below 0"),
        ("--repeat", ask.repeats < 1, "must be at least 1"),
        ("--seed", ask.seed < 0, "must not be below 0"),
    ):
        if wrong:
            problems.append(Problem(option, what))
    for model in traces:
        rate = planning_rate_per_s(plan, model)
        if not (rate > 0 and rate * ask.minutes * WINDOW_S <= MOST_REQUESTS):
            problems.append(Problem(f"model '{model}'", f"{rate:g} requests/s cannot be replayed for so long"))
    if problems:
        raise InputError(problems)
