"""One replica of a pool in its busiest period: memory, load, speed, margins, and what the pool could serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from planner import units
from planner.memory.types import Sizing
from planner.optimise.needs.candidate_table import EDGES, stacked
from planner.optimise.needs.exact import ReplicaState, capacity_per_s, pool_overflow
from planner.optimise.needs.margins import shares_at
from planner.optimise.types import Need, Period
from planner.plan import Margin, Measure, MemoryTerm, PoolLoad, PoolMemory, PoolSpeed
from planner.queueing.holding import longest_request
from planner.queueing.live_tokens import mean_formula
from planner.queueing.load import Constraint, live_request_quantile, settle, ttft_s


def memory_of(sizing: Sizing) -> PoolMemory:
    """What the engine leaves for the KV cache."""
    return PoolMemory(
        gpu_memory_gib=sizing.gpu_memory.gib,
        budget_gib=sizing.budget.gib,
        terms=tuple(MemoryTerm(name=t.name, gib=t.gib, origin=t.origin.value, source=t.source) for t in sizing.terms),
        available_kv_gib=sizing.available_kv_gib,
        bytes_per_token=sizing.bytes_per_token,
        state_bytes_per_request=sizing.state_bytes_per_request,
        block_size_tokens=sizing.block_size_tokens,
        num_blocks=sizing.num_blocks,
        pool_tokens=sizing.pool_tokens,
        logged_tokens=sizing.logged_tokens,
        max_concurrency=sizing.max_concurrency,
    )


def load_of(need: Need, state: ReplicaState) -> PoolLoad:
    """The load at the least replicas of the busiest period, spares not counted."""
    config, load, overflow = need.config, state.load, need.limits.overflow_probability
    law = config.length.law
    token_s = float(load.token_s[0])
    prefill_s = float(load.time_in_system_s[0]) - law.mean_output * token_s
    formula = mean_formula(float(load.rate_per_s[0]), law.mean_prompt, law.mean_output, 1.0 / token_s, prefill_s)
    return PoolLoad(
        planning_rate_per_s=need.demand.rate_per_s,
        rate_per_replica_per_s=float(load.rate_per_s[0]),
        dispersion=float(load.idc[0]),
        live_dispersion=float(load.live_dispersion[0]),
        mean_live_requests=float(load.live_requests[0]),
        quantile_live_requests=float(live_request_quantile(load, overflow)[0]),
        mean_live_tokens=state.tokens.mean,
        quantile_live_tokens=state.tokens.quantile(overflow),
        mean_formula_tokens=formula.live_requests * config.marks.holding.of_mean(law.mean_prompt, law.mean_output),
        overflow_probability=overflow,
        expected_overflow=pool_overflow(config, state),
        work_share=float(load.work_share[0]),
        prefill_work_share=float(load.prefill_share[0]),
    )


def speed_of(need: Need, replicas: int) -> PoolSpeed:
    """TPOT and TTFT at the planned load: the fixed point at the edges of the band, and as the constraints saw it."""
    config = need.config
    tpot, ttft = {}, {}
    for edge in (*EDGES, None):
        candidates = stacked([config], edge)
        load = settle(candidates, need.demand, np.array([float(replicas)]))
        tpot[edge] = units.s_to_ms(float(load.token_s[0]))
        quantile = ttft_s(candidates, need.demand, load, need.limits.ttft_percentile)
        ttft[edge] = units.s_to_ms(float(quantile[0] * candidates.ttft_edge[0]))
    return PoolSpeed(
        tpot_ms=_measure(tpot, config.tpot_edge, config.speed.source),
        ttft_ms=_measure(ttft, config.ttft_edge, config.speed.source),
        ttft_percentile=need.limits.ttft_percentile,
        decode_tokens_per_s=units.MS_PER_S / tpot[None],
        provider=config.speed.provider.value,
    )


def _measure(at_edge: Mapping[str | None, float], edge: str, source: str) -> Measure:
    """A figure at the edges of the band; infinite where the slow edge has no steady state."""
    return Measure(
        value=at_edge["middle"],
        low=at_edge["lower"],
        high=at_edge["upper"],
        used=at_edge[None],
        edge=edge,
        source=source,
    )


def margins_of(need: Need, replicas: int, state: ReplicaState) -> tuple[Margin, ...]:
    """Every constraint, planned against allowed, at the busiest period."""
    config, limits = need.config, need.limits
    scale = {
        Constraint.TOKEN_POOL: (config.pool_token_equivalents, "tokens"),
        Constraint.SEQUENCES: (float(config.sizing.max_num_seqs), "requests"),
        Constraint.WORK: (limits.max_work_share, "share"),
        Constraint.TPOT: (units.s_to_ms(limits.tpot_s), "ms"),
        Constraint.TTFT: (units.s_to_ms(limits.ttft_s), "ms"),
    }
    shares = shares_at(need, replicas, state)
    margins = [
        _margin(name, share * scale[Constraint(name)][0], *scale[Constraint(name)]) for name, share in shares.items()
    ]
    longest = longest_request(config.sizing)
    plain = config.sizing.sliding_bytes_per_token == 0 and config.sizing.pool_state_bytes_per_request == 0
    held = "tokens" if plain else "token equivalents"  # windows and states included
    return (
        *margins,
        _margin("tail budget", config.length.refused_request_share, need.slice.tail_budget, "share of requests"),
        _margin("longest request", longest, config.pool_token_equivalents, held),
    )


def _margin(name: str, planned: float, limit: float, unit: str) -> Margin:
    share = planned / limit if limit > 0 else float(planned > 0)
    return Margin(
        constraint=str(name), planned=planned, limit=limit, unit=unit, used_share=share, satisfied=planned <= limit
    )


def capacity_tokens(need: Need, replicas: Sequence[int], periods: Sequence[Period]) -> float:
    """Tokens of the horizon at the highest steady rate that the running replicas hold in each period.

    The rate is looked for at the least and the largest number of replicas. Between them a replica's share of it is
    taken as linear in 1 / replicas, as the dispersion of a replica's arrivals is: D(n) = 1 + (D − 1) / n.
    """
    law = need.config.length.law
    counts = sorted({n for n in replicas if n > 0})
    if not counts:
        return 0.0
    ends = {n: capacity_per_s(need, n) / n for n in {counts[0], counts[-1]}}
    by_inverse = sorted((1.0 / n, rate) for n, rate in ends.items())
    xs, rates = zip(*by_inverse, strict=True)
    requests = sum(
        n * float(np.interp(1.0 / n, xs, rates)) * units.hours_to_s(period.hours)
        for n, period in zip(replicas, periods, strict=True)
        if n > 0
    )
    return requests * (law.mean_prompt + law.mean_output)
