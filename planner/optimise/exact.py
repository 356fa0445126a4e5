"""From the screen's lower bounds to needs that are exact wherever the plan relies on them.

The program is solved with lower bounds on the needs; the chosen configurations are then sized exactly and, where one
needs more, the program is solved again. When every chosen need is exact, the plan is optimal: all other columns were
offered at no more than their true need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.errors import PlannerError
from planner.optimise.candidates import columns_of, stacked
from planner.optimise.solve import solve_ratio
from planner.optimise.types import Column, Config, Decision, Need, ProgramData, SolverSettings, Workload
from planner.queueing.footprint import Moments
from planner.queueing.live_tokens import SMALLEST_OVERFLOW, LiveTokens, live_tokens
from planner.queueing.load import Candidates, PoolCheck, ReplicaLoad, settle
from planner.queueing.replicas import feasible, least_replicas
from planner.queueing.residence import Residence

MAX_ROUNDS = 400
CAPACITY_STEP = 0.01
LEAST_TAIL = 1e-6
"""A pool that overflows less often is said to overflow at most so often."""


@dataclass(frozen=True)
class ReplicaState:
    """One replica of a need at a number of replicas: its settled load and the exact law of its live tokens."""

    load: ReplicaLoad
    tokens: LiveTokens


def replica_state(need: Need, replicas: int) -> ReplicaState | None:
    """The settled state of one replica of a need, or ``None`` when it has no steady state."""
    config, demand = need.config, need.demand
    candidates = stacked([config])
    load = settle(candidates, demand, np.array([float(replicas)]))
    if not np.isfinite(load.token_s[0]):
        return None
    return ReplicaState(load, _tokens(config, load, min(need.limits.overflow_probability, SMALLEST_OVERFLOW)))


def pool_overflow(config: Config, state: ReplicaState) -> float:
    """P(live tokens > pool); below `LEAST_TAIL`, that bound."""
    return _tokens(config, state.load, LEAST_TAIL).overflow(config.pool_token_equivalents)


def _tokens(config: Config, load: ReplicaLoad, smallest_overflow: float) -> LiveTokens:
    stay = Residence(*(np.asarray(getattr(load.stay, name)[0]) for name in ("s0", "s1", "s2", "token_s")))
    moments: Moments = config.moments
    rate, idc = float(load.rate_per_s[0]), float(load.idc[0])
    return live_tokens(rate, idc, config.marks, moments, stay, smallest_overflow=smallest_overflow)


def holds_exactly(need: Need, replicas: int) -> bool:
    """Whether a number of replicas holds every constraint, the token pool by its exact quantile."""
    candidates: Candidates = stacked([need.config])
    count = np.array([float(replicas)])
    if not feasible(candidates, need.demand, count, need.limits, PoolCheck.NONE)[0]:
        return False
    state = replica_state(need, replicas)
    overflow = need.limits.overflow_probability
    return state is not None and state.tokens.quantile(overflow) <= need.config.pool_token_equivalents


def exact_need(need: Need) -> Need:
    """Least replicas by the exact quantile: at least the bound, looked for around the gamma's guess."""
    candidates = stacked([need.config])
    guess = int(least_replicas(candidates, need.demand, need.limits, PoolCheck.GUESS)[0])
    low, high, step = need.replicas - 1, max(guess, need.replicas), 1
    while not holds_exactly(need, high):
        low, high, step = high, high + step, step * 2
    step = 1
    while high - low > 1:
        probe = max(high - step, low + 1)
        if holds_exactly(need, probe):
            high, step = probe, step * 2
        else:
            low, step = probe, max((high - probe) // 2, 1)
    return replace(need, replicas=high, exact=True)


def capacity_per_s(need: Need, replicas: int) -> float:
    """Highest rate that the replicas of a pool hold under every constraint, at most `CAPACITY_STEP` too low, per s."""

    def holds(rate: float) -> bool:
        return holds_exactly(replace(need, demand=replace(need.demand, rate_per_s=rate)), replicas)

    low = need.demand.rate_per_s
    high = low * 2.0
    while holds(high):
        low, high = high, high * 2.0
    while high / low > 1.0 + CAPACITY_STEP:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class Fleet:
    """Needs of all models, made exact on demand, and the programs built from them.

    The only state is the cache of exact needs: a need's exact figure never changes, so the order of solves does not
    matter.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        needs: Mapping[str, Sequence[Need]],
        spares: Mapping[str, int],
        data: ProgramData,
        progress: Callable[[str], None],
    ) -> None:
        self._workloads = {w.name: w for w in workloads}
        self._needs = {name: {id(n.config): n for n in items} for name, items in needs.items()}
        self._spares = dict(spares)
        self._data = data
        self._progress = progress

    def data(self, keep: Callable[[Need], bool] = lambda need: True) -> ProgramData:
        """The program's data with the present needs; ``keep`` filters configurations."""
        columns: list[Column] = []
        for name, workload in self._workloads.items():
            needs = [need for need in self._needs[name].values() if keep(need)]
            columns += columns_of(workload, needs, self._data.offers, self._spares[name])
        return replace(self._data, columns=tuple(sorted(columns, key=lambda c: c.key)))

    def solve(self, settings: SolverSettings, keep: Callable[[Need], bool] = lambda need: True) -> Decision | None:
        """The best plan whose every chosen need is exact, or ``None`` when infeasible.

        Raises
        ------
        PlannerError
            If the needs do not settle (which would be a bug: every round makes at least one need exact).
        """
        for _ in range(MAX_ROUNDS):
            decision = solve_ratio(self.data(keep), settings)
            if decision is None:
                return None
            loose = [column.need for column in decision.columns if not column.need.exact]
            if not loose:
                return decision
            for need in loose:
                self._progress(f"exact live tokens: {need.config.model} on {need.config.label}")
                self._needs[need.config.model][id(need.config)] = exact_need(need)
        raise PlannerError(f"Exact needs did not settle in {MAX_ROUNDS} rounds")
