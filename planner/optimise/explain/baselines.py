"""What simpler ways of planning would buy for the same request, and how often their pools would overflow.

1. the best fleet of one GPU type for all models;
2. one pool a model, whatever the prompt length;
3. one pool a model, its replicas by the rule of means: mean live tokens (Little's law on mean lengths,
   `planner.queueing.live_tokens.mean_formula`) and mean concurrency, each times 1.5, fit the pool and the cap on
   sequences; bursts, tails and speed are not looked at;
4. the same, but the limits on speed and work are held as in the plan.

What 3 and 4 buy where is left to the same program.

Costs come from the same integer program; overflow is the exact law of the live tokens (`planner.optimise.needs.exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner import units
from planner.optimise.needs.candidate_table import stacked
from planner.optimise.needs.columns import running
from planner.optimise.needs.exact import at_rate, pool_overflow, replica_state
from planner.optimise.solve.fleet import Fleet
from planner.optimise.solve.ratio import solve_ratio
from planner.optimise.types import Column, Decision, Lot, Need, Part, ProgramData, SolverSettings
from planner.plan import SolveStatus
from planner.queueing.live_tokens import MEAN_FACTOR, mean_formula
from planner.queueing.load import Constraint, PoolCheck, settle, used_shares

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PoolRisk:
    """One pool of a baseline, and what it would really do."""

    model: str
    slice: str
    """Whose requests: the key of the slice."""
    config: str
    replicas: int
    """Largest number that runs in a period."""
    overflow: float
    """P(live tokens > pool) of one replica in the worst period, exact; 1 where there is no steady state."""
    overflow_limit: float
    broken: tuple[str, ...]
    """Other limits that are not held in the busiest period."""

    @property
    def holds(self) -> bool:
        """Whether every limit is held."""
        return self.overflow <= self.overflow_limit and not self.broken


@dataclass(frozen=True)
class Baseline:
    """One way of planning; without a decision nothing is feasible, and ``why`` says so."""

    name: str
    usd: float | None = None
    usd_per_mtok: float | None = None
    gpus: int = 0
    """Largest number that runs in a period."""
    gap: float = 0.0
    proven: bool = False
    pools: tuple[PoolRisk, ...] = ()
    why: str = ""

    @property
    def holds(self) -> bool:
        """Whether there is a fleet and all its pools hold their limits."""
        return self.usd is not None and all(pool.holds for pool in self.pools)


def baselines_of(
    fleet: Fleet, decision: Decision, spares: Mapping[str, int], settings: SolverSettings, progress: Progress
) -> tuple[Baseline, ...]:
    """The plan itself and its four baselines, each with the exact overflow of its pools.

    Parameters
    ----------
    decision
        The plan.
    spares
        By model, replicas beyond the need.
    progress
        Called with one line before each long step.

    Raises
    ------
    SolverError
        If the solver ends without an answer.
    """
    data = fleet.data()
    one_gpu, gpu = _one_gpu_type(fleet, data, settings, progress)
    progress("one pool a model")
    one_pool = fleet.with_rules(max_pools=1).solve(settings, lambda need: is_whole(data, need))
    progress("replicas by means")
    by_means = solve_ratio(by_mean_rule(data, spares), settings)
    held = solve_ratio(by_mean_rule(data, spares, speed_held=True), settings)
    made = (
        ("this plan", decision, ""),
        (f"one GPU type: {gpu}" if gpu else "one GPU type", one_gpu, "no GPU type serves every model"),
        ("one pool a model", one_pool, "some model cannot be served by one pool"),
        (f"one pool a model, means x {MEAN_FACTOR:g}", by_means, "what the rule asks for cannot be had"),
        ("the same, speed limits held", held, "what the rule asks for cannot be had"),
    )
    found = []
    for name, plan, why in made:
        progress(f"overflow of {name}")
        found.append(Baseline(name, why=why) if plan is None else baseline_of(name, plan, data.lots))
    return tuple(found)


def baseline_of(name: str, decision: Decision, lots: Sequence[Lot]) -> Baseline:
    """A decision as a baseline."""
    size = {lot.id: lot.gpus_per_instance for lot in lots}
    by_lot = [np.array(counts) * size[lot] for lot, counts in decision.running.items()]
    return Baseline(
        name=name,
        usd=decision.usd,
        usd_per_mtok=decision.usd_per_token * units.TOKENS_PER_MTOK,
        gpus=int(np.sum(by_lot, axis=0).max()) if by_lot else 0,
        gap=decision.gap,
        proven=decision.status is SolveStatus.OPTIMAL,
        pools=tuple(risk_of(column.model, part) for column in decision.columns for part in column.parts),
    )


def risk_of(model: str, part: Part) -> PoolRisk:
    """The exact overflow of a pool's replica in its worst period, and the other limits that it breaks when busiest."""
    need, worst = part.need, 0.0
    seen: set[tuple[float, int]] = set()
    for period, (rate, replicas) in enumerate(zip(need.rate_per_s, part.running, strict=True)):
        if rate <= 0 or (rate, replicas) in seen:
            continue
        seen.add((rate, replicas))
        state = replica_state(need, replicas, period)
        worst = max(worst, 1.0 if state is None else pool_overflow(need.config, state))
    busiest = at_rate(need, need.rate_per_s[need.busiest])
    return PoolRisk(
        model=model,
        slice=need.slice.key,
        config=need.config.label,
        replicas=max(part.running),
        overflow=worst,
        overflow_limit=need.limits.overflow_probability,
        broken=_broken(busiest, part.running[need.busiest], (Constraint.TOKEN_POOL,)),
    )


def is_whole(data: ProgramData, need: Need) -> bool:
    """Whether a need's slice is all requests of its model."""
    return need.slice.start == 0 and need.slice.end == data.end_node[need.slice.model]


def by_mean_rule(data: ProgramData, spares: Mapping[str, int], *, speed_held: bool = False) -> ProgramData:
    """The program over whole models alone, with replicas by the rule of means instead of the exact ones.

    It chooses among the configurations of the exact program's columns.
    """
    columns = [
        _mean_column(column, spares[column.model], speed_held)
        for column in data.columns
        if len(column.parts) == 1 and is_whole(data, column.parts[0].need)
    ]
    return replace(data, columns=tuple(columns))


def _mean_column(column: Column, spare: int, speed_held: bool) -> Column:
    part = column.parts[0]
    counts = tuple(mean_replicas(part.need, rate, speed_held=speed_held) for rate in part.need.rate_per_s)
    need = replace(part.need, replicas=counts, exact=True)
    kept = running(counts, spare, need.slice.scaling)
    return replace(column, parts=(replace(part, need=need, running=kept),))


def mean_replicas(need: Need, rate_per_s: float, factor: float = MEAN_FACTOR, *, speed_held: bool = False) -> int:
    """Least replicas n that hold ``factor`` times their means, as a rule of thumb has it.

    factor * (rate / n) * (s + O / v) * (P + O / 2) <= pool  and  factor * (rate / n) * (s + O / v) <= max_num_seqs,

    with mean lengths P and O (tokens), s the time from admission to the first token and v the decode rate of a stream,
    both as they settle with n replicas. ``speed_held``: also every limit but those on the pool and on sequences.
    """
    if rate_per_s <= 0:
        return 0
    asked = at_rate(need, rate_per_s)

    def holds(replicas: int) -> bool:
        return _mean_share(asked, replicas, factor) <= 1 and not (speed_held and _too_slow(asked, replicas))

    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _mean_share(need: Need, replicas: int, factor: float) -> float:
    """The larger of mean live tokens over the pool and mean live requests over the cap on sequences, times the factor.

    Of one replica; infinite where there is no steady state.
    """
    config, law = need.config, need.config.length.law
    load = settle(stacked([config]), need.demand, np.array([float(replicas)]))
    token_s = float(load.token_s[0])
    if not np.isfinite(token_s):
        return float("inf")
    first_s = float(load.time_in_system_s[0]) - law.mean_output * token_s
    mean = mean_formula(float(load.rate_per_s[0]), law.mean_prompt, law.mean_output, 1.0 / token_s, first_s)
    held = mean.live_requests * config.marks.holding.of_mean(law.mean_prompt, law.mean_output)
    return factor * max(held / config.pool_token_equivalents, mean.live_requests / config.sizing.max_num_seqs)


def _too_slow(need: Need, replicas: int) -> bool:
    """Whether a limit is broken that is neither the pool's nor that on sequences."""
    return bool(_broken(need, replicas, (Constraint.TOKEN_POOL, Constraint.SEQUENCES)))


def _broken(need: Need, replicas: int, besides: Sequence[Constraint]) -> tuple[str, ...]:
    """Limits that are broken at the rate of the need's demand, besides some."""
    shares = used_shares(stacked([need.config]), need.demand, np.array([float(replicas)]), need.limits, PoolCheck.NONE)
    return tuple(sorted(name for name, share in shares.items() if share[0] > 1 + 1e-9 and name not in besides))


def _one_gpu_type(
    fleet: Fleet, data: ProgramData, settings: SolverSettings, progress: Progress
) -> tuple[Decision | None, str]:
    """The cheapest fleet of one GPU type, and the type."""
    best: tuple[Decision | None, str] = (None, "")
    for gpu in sorted({part.placement.gpu for column in data.columns for part in column.parts}):
        serves = {c.model for c in data.columns if all(part.placement.gpu == gpu for part in c.parts)}
        if serves != set(data.models):
            continue
        progress(f"all models on {gpu}")
        found = fleet.solve(settings, lambda need, gpu=gpu: need.config.gpu.id == gpu)  # type: ignore[misc]
        if found is not None and (best[0] is None or found.usd_per_token < best[0].usd_per_token):
            best = found, gpu
    return best
