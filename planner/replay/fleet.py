"""A fleet: every model's requests through the routing table to its pools, several times over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner import units
from planner.actuals.route import Turns, routing_of
from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Pool
from planner.replay.engines import PoolEngine
from planner.replay.pool import replay_pool
from planner.replay.promises import Promise, Seen, promises, seen
from planner.replay.trace import Trace, at_peak, at_rate
from planner.replay.types import IntArray, Requests
from planner.report import facts

Progress = Callable[[str], None]
SHORTEST_S = 1.0
"""Shortest repeat."""
MOST_REQUESTS = 50_000_000
"""Of one model in one repeat: they are held in memory."""
MOST_TOGETHER = 1_000_000_000
"""In all repeats: hours of work."""


@dataclass(frozen=True)
class Ask:
    """How a fleet is replayed.

    Attributes
    ----------
    horizon_s
        Length of each repeat, s.
    repeats
        Independent repeats, each from other moments of the log.
    seed
        Of the moments.
    stress
        Factor on every model's planning rate.
    fewer
        Replicas fewer than planned, by pool.
    sustained
        Whether the planning rate is the mean of each repeat; else it is that of its busiest ten minutes, as planned.
    """

    horizon_s: float = units.SECONDS_PER_HOUR
    repeats: int = 5
    seed: int = 0
    stress: float = 1.0
    fewer: Mapping[str, int] = field(default_factory=dict)
    sustained: bool = False

    @property
    def hours(self) -> float:
        """Length of each repeat."""
        return self.horizon_s / units.SECONDS_PER_HOUR


@dataclass(frozen=True)
class PoolReplay:
    """One pool over all repeats."""

    pool: Pool
    replicas: int
    repeats: tuple[Seen, ...]
    promises: tuple[Promise, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no promise is refuted."""
        return all(promise.passed for promise in self.promises)


@dataclass(frozen=True)
class Replay:
    """A fleet."""

    pools: tuple[PoolReplay, ...]
    rates_per_s: Mapping[str, float]
    """Planning rate of each model."""
    ask: Ask

    @property
    def passed(self) -> bool:
        """Whether every pool's promises stand."""
        return all(pool.passed for pool in self.pools)


def planning_rate_per_s(plan: FleetPlan, model: str) -> float:
    """Arrivals of a model in its busiest period, before any refusal: stated rate x growth x peak."""
    pool = next(pool for pool in plan.pools if pool.model == model)
    return pool.stated_rate_per_s * pool.growth * pool.peak_factor


def replay_fleet(
    plan: FleetPlan,
    engines: Sequence[PoolEngine],
    traces: Mapping[str, Trace],
    ask: Ask,
    progress: Progress = lambda text: None,
) -> Replay:
    """Replay models of a plan at the planning rate of their busiest period.

    Models without a trace are left out.

    Raises
    ------
    InputError
        If a pool is left without a replica, or what is asked is too little or too much to replay.
    """
    _check(engines, ask)
    rates = {model: ask.stress * planning_rate_per_s(plan, model) for model in traces}
    _check_size(rates, ask)
    found: dict[str, list[Seen]] = {each.pool.name: [] for each in engines}
    for number in range(ask.repeats):
        for place, (model, trace) in enumerate(sorted(traces.items())):
            progress(f"repeat {number + 1} of {ask.repeats}: {model}")
            draw = at_rate if ask.sustained else at_peak
            requests = draw(trace, rates[model], ask.horizon_s, hash_seed(ask.seed, number, place))
            routing = routing_of(plan, model)
            pools = Turns(routing).pools(requests.prompt_tokens, np.zeros(len(requests), dtype=np.int64))
            for index, name in enumerate(routing.pools):
                each = next(e for e in engines if e.pool.name == name)
                outcome = replay_pool(_of(requests, pools == index), each.engine, _replicas(each, ask), ask.horizon_s)
                found[name].append(seen(each.pool, outcome))
    made = tuple(
        PoolReplay(e.pool, _replicas(e, ask), tuple(found[e.pool.name]), promises(e.pool, found[e.pool.name]), e.notes)
        for e in engines
        if found[e.pool.name]
    )
    return Replay(made, rates, ask)


def least_replicas(
    plan: FleetPlan,
    engines: Sequence[PoolEngine],
    traces: Mapping[str, Trace],
    ask: Ask,
    progress: Progress = lambda text: None,
) -> tuple[PoolReplay, ...]:
    """Every pool with one replica fewer than planned, where it has more than one: it should break a promise.

    The planning rate is kept all the time, since a pool is sized for it as a steady rate; where only the busiest ten
    minutes have it, one replica fewer may do.

    Pools of one model are replayed together, since requests are routed over both; those of other models stay as they
    are and are not replayed again.
    """
    found = []
    for each in engines:
        if each.pool.model not in traces or _replicas(each, ask) < 2:
            continue
        fewer = replace(ask, sustained=True, fewer={**ask.fewer, each.pool.name: 1})
        own = {each.pool.model: traces[each.pool.model]}
        result = replay_fleet(plan, engines, own, fewer, progress)
        found.append(next(pool for pool in result.pools if pool.pool.name == each.pool.name))
    return tuple(found)


def hash_seed(seed: int, repeat: int, place: int) -> int:
    """One seed for each repeat and model."""
    return int(np.random.SeedSequence([seed, repeat, place]).generate_state(1)[0])


def _of(requests: Requests, chosen: np.ndarray) -> Requests:
    rows: IntArray = np.flatnonzero(chosen).astype(np.int64)
    return requests.at(rows)


def _replicas(each: PoolEngine, ask: Ask) -> int:
    return facts.busiest_replicas(each.pool) - ask.fewer.get(each.pool.name, 0)


def _check(engines: Sequence[PoolEngine], ask: Ask) -> None:
    problems = [
        Problem(each.pool.name, "no replica is left", "Lose fewer") for each in engines if _replicas(each, ask) < 1
    ]
    if ask.repeats < 1:
        problems.append(Problem("--repeat", "must be at least 1"))
    if ask.horizon_s <= 0 or not np.isfinite(ask.horizon_s):
        problems.append(Problem("--hours", "must be above 0"))
    elif ask.horizon_s < SHORTEST_S:
        problems.append(Problem("--hours", f"must be at least {SHORTEST_S:g} s", "Write 0.1 for six minutes"))
    if ask.stress <= 0 or not np.isfinite(ask.stress):
        problems.append(Problem("--stress", "must be above 0"))
    if ask.seed < 0:
        problems.append(Problem("--seed", "must not be below 0"))
    if problems:
        raise InputError(problems)


def _check_size(rates_per_s: Mapping[str, float], ask: Ask) -> None:
    """Refuse rates that are none, and what would take days or all memory."""
    for model, rate in rates_per_s.items():
        if not (rate > 0 and np.isfinite(rate)):
            raise InputError(Problem(f"model '{model}'", f"the plan's rate is {rate:g} requests/s", "Plan it again"))
    each = max(rates_per_s.values(), default=0.0) * ask.horizon_s
    together = sum(rates_per_s.values()) * ask.horizon_s * ask.repeats
    if each > MOST_REQUESTS:
        what = f"{each:,.0f} requests of one model in a repeat; at most {MOST_REQUESTS:,} are replayed"
        raise InputError(Problem("--hours, --stress", what, "Ask for fewer"))
    if together > MOST_TOGETHER:
        what = f"{together:,.0f} requests in all repeats; at most {MOST_TOGETHER:,} are replayed"
        raise InputError(Problem("--hours, --repeat, --stress", what, "Ask for fewer"))
