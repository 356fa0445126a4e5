"""From lower bounds on a need to the exact one, in every period.

The program is solved with lower bounds; the chosen configurations are then sized exactly and, where one needs more, the
program is solved again. When every chosen need is exact, the plan is optimal: all other columns were offered at no more
than their true need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.optimise.needs.candidate_table import stacked
from planner.optimise.types import Config, Need
from planner.queueing.live_tokens import SMALLEST_OVERFLOW, LiveTokens, live_tokens
from planner.queueing.load import PoolCheck, ReplicaLoad, settle
from planner.queueing.replicas import least_replicas
from planner.queueing.residence import Residence
from planner.queueing.screen import screen_of

CAPACITY_STEP = 0.01
LEAST_TAIL = 1e-6
"""A pool that overflows less often is said to overflow at most so often."""


@dataclass(frozen=True)
class ReplicaState:
    """One replica of a need at a number of replicas: its settled load and the exact law of its live tokens."""

    load: ReplicaLoad
    tokens: LiveTokens


def replica_state(need: Need, replicas: int, period: int | None = None) -> ReplicaState | None:
    """The settled state of one replica of a need in a period, by default the busiest.

    ``None`` when it has no steady state, or no requests.
    """
    return _state(at_rate(need, need.rate_per_s[need.busiest if period is None else period]), replicas)


def at_rate(need: Need, rate_per_s: float) -> Need:
    """A need whose demand is at another rate."""
    return replace(need, demand=replace(need.demand, rate_per_s=rate_per_s))


def _state(need: Need, replicas: int) -> ReplicaState | None:
    if need.demand.rate_per_s <= 0:
        return None
    load = settle(stacked([need.config]), need.demand, np.array([float(replicas)]))
    if not np.isfinite(load.token_s[0]):
        return None
    return ReplicaState(load, _tokens(need.config, load, min(need.limits.overflow_probability, SMALLEST_OVERFLOW)))


def pool_overflow(config: Config, state: ReplicaState) -> float:
    """P(live tokens > pool); below `LEAST_TAIL`, that bound."""
    return _tokens(config, state.load, LEAST_TAIL).overflow(config.pool_token_equivalents)


def _tokens(config: Config, load: ReplicaLoad, smallest_overflow: float) -> LiveTokens:
    stay = Residence(*(np.asarray(getattr(load.stay, name)[0]) for name in ("s0", "s1", "s2", "token_s")))
    rate, idc = float(load.rate_per_s[0]), float(load.token_idc[0])
    return live_tokens(rate, idc, config.marks, config.moments, stay, smallest_overflow=smallest_overflow)


def holds_exactly(need: Need, replicas: int, period: int | None = None) -> bool:
    """Whether a number of replicas holds every constraint in a period, the token pool by its exact quantile.

    The default is the busiest period.
    """
    return _holds(at_rate(need, need.rate_per_s[need.busiest if period is None else period]), replicas)


def _holds(need: Need, replicas: int) -> bool:
    """At the rate of the need's demand; the law of the live tokens is made only where bounds do not decide."""
    if need.demand.rate_per_s <= 0:
        return True
    screen = screen_of(stacked([need.config]), need.demand, need.limits)
    first = np.zeros(1, dtype=np.int64)
    can, sure = screen.holds(first, first, np.array([replicas]), (PoolCheck.BOUND, PoolCheck.SURE))
    if not can[0] or sure[0]:
        return bool(can[0])
    state = _state(need, replicas)
    overflow = need.limits.overflow_probability
    return state is not None and state.tokens.quantile(overflow) <= need.config.pool_token_equivalents


def exact_need(need: Need) -> Need:
    """Least replicas in every period by the exact quantile, each at least the bound.

    From the busiest period down: in a quieter one, the load of ``n r / R`` replicas or fewer is at least that of n in
    the busiest, where n failed, and what held at a higher rate holds.
    """
    order = sorted(range(len(need.rate_per_s)), key=lambda period: -need.rate_per_s[period])
    found: dict[float, int] = {}
    peak = at_rate(need, need.rate_per_s[order[0]])
    if peak.demand.rate_per_s <= 0:
        return replace(need, exact=True)
    fails, high, peak_rate = 0, 0, peak.demand.rate_per_s
    for period in order:
        rate = need.rate_per_s[period]
        if rate in found:
            continue
        low = need.replicas[period] - 1
        if not found:
            guess = int(least_replicas(stacked([need.config]), peak.demand, need.limits, PoolCheck.GUESS)[0])
            found[rate] = high = _least(peak, low, max(guess, low + 1))
            fails = high - 1
        else:
            low = max(low, int(fails * (rate / peak_rate) * (1.0 - 1e-9)))
            low = min(low, high - 1)
            found[rate] = high = _least(at_rate(need, rate), low, low + 1, high)
    return replace(need, replicas=tuple(found[rate] for rate in need.rate_per_s), exact=True)


def _least(need: Need, low: int, guess: int, high: int | None = None) -> int:
    """Least replicas that hold exactly: more than ``low``, at most ``high``, looked for around a guess."""
    step = 1
    if high is None or guess < high:
        while not _holds(need, guess):
            low, guess, step = guess, guess + step, step * 2
            if high is not None and guess >= high:
                guess = high
                break
    high, step = guess, 1
    while high - low > 1:
        probe = max(high - step, low + 1)
        if _holds(need, probe):
            high, step = probe, step * 2
        else:
            low, step = probe, max((high - probe) // 2, 1)
    return high


def capacity_per_s(need: Need, replicas: int) -> float:
    """Highest rate that the replicas of a pool hold under every constraint, at most `CAPACITY_STEP` too low, per s.

    Looked for around the rate at which so many replicas carry as much each as in the busiest period.
    """

    def holds(rate: float) -> bool:
        return _holds(at_rate(need, rate), replicas)

    low = need.demand.rate_per_s * min(1.0, replicas / need.replicas[need.busiest])
    high = low * 2.0
    if holds(low):
        low, high = _doubled(holds, low, high)
    else:
        low, high = _halved(holds, low)
    while high / low > 1.0 + CAPACITY_STEP:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _doubled(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """A rate that holds and one that does not, upwards from one that holds."""
    while holds(high):
        low, high = high, high * 2.0
    return low, high


def _halved(holds: Callable[[float], bool], high: float) -> tuple[float, float]:
    """A rate that holds and one that does not, downwards from one that does not."""
    low = high / 2.0
    while not holds(low):
        low, high = low / 2.0, low
    return low, high
