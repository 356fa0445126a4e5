"""From decisions to the `FleetPlan`: every figure recomputed without the solver, and compared with its objective."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner import __version__, units
from planner.errors import PlannerError
from planner.memory.types import Sizing
from planner.optimise.candidates import EDGES, stacked
from planner.optimise.exact import ReplicaState, capacity_per_s, pool_overflow, replica_state
from planner.optimise.explain import binding_constraint, shares_at
from planner.optimise.program import quota_covers
from planner.optimise.types import Column, Decision, ProgramData, SolverSettings, Workload
from planner.plan import (
    Assumption,
    FleetPlan,
    InputFile,
    Margin,
    Measure,
    MemoryTerm,
    PlanTotals,
    Pool,
    PoolLoad,
    PoolMemory,
    PoolSpeed,
    Purchase,
    QuotaUse,
    RunnerUp,
    Solve,
)
from planner.queueing.holding import longest_request
from planner.queueing.live_tokens import mean_formula
from planner.queueing.load import Constraint, live_request_quantile, settle, ttft_s
from planner.report.launch import launch_command
from planner.request import PlanRequest

USD_TOLERANCE = 0.005


@dataclass(frozen=True)
class Context:
    """What the plan is about, besides the decisions."""

    request: PlanRequest
    workloads: Mapping[str, Workload]
    data: ProgramData
    settings: SolverSettings
    inputs: tuple[InputFile, ...]
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    run_id: str
    created_at: dt.datetime


def assemble(context: Context, decision: Decision, runners_up: Mapping[str, RunnerUp | None]) -> FleetPlan:
    """The complete plan.

    ``runners_up`` holds ``None`` for a model that no other configuration can serve, and lacks a model whose re-solve
    ended without an answer.

    Raises
    ------
    PlannerError
        If the recomputed cost differs from the solver's, or a pool breaks a constraint: a bug, never a plan.
    """
    pools = tuple(_pool(context, column, runners_up) for column in decision.columns)
    purchases = _purchases(context, decision)
    totals = _totals(pools, purchases)
    plan = FleetPlan(
        planner_version=__version__,
        run_id=context.run_id,
        title=context.request.quarter.title,
        owner=context.request.quarter.owner,
        created_at=context.created_at,
        horizon_start=context.request.quarter.start,
        horizon_end=context.request.quarter.end,
        horizon_hours=context.request.quarter.hours,
        currency=context.request.quarter.currency,
        solve=_solve(decision, context.settings),
        totals=totals,
        pools=pools,
        purchases=purchases,
        quotas=_quotas(context, purchases),
        assumptions=context.assumptions,
        inputs=context.inputs,
        warnings=context.warnings,
    )
    verify(plan)
    return plan


def verify(plan: FleetPlan) -> None:
    """Check a plan against itself: cost, nodes, pools, quotas, refusals.

    Raises
    ------
    PlannerError
        Naming everything that does not hold.
    """
    wrong = []
    if abs(plan.totals.usd - plan.solve.objective) > USD_TOLERANCE:
        wrong.append(f"cost {plan.totals.usd:.4f} USD is not the objective {plan.solve.objective:.4f} USD")
    served = plan.totals.served_input_mtok + plan.totals.served_output_mtok
    if abs(plan.solve.usd_per_mtok * served - plan.totals.usd) > USD_TOLERANCE:
        wrong.append(f"{plan.totals.usd / served:.6f} USD per million tokens is not {plan.solve.usd_per_mtok:.6f}")
    for purchase in plan.purchases:
        if purchase.gpus_used > purchase.gpus_bought:
            wrong.append(f"{purchase.offer_id}: {purchase.gpus_used} GPUs used of {purchase.gpus_bought}")
        needed = instances_needed(purchase, plan.pools)
        if needed > purchase.instances:
            wrong.append(f"{purchase.offer_id}: replicas need {needed} instances, {purchase.instances} are bought")
    for pool in plan.pools:
        wrong += [f"{pool.name}: {m.constraint} {m.planned:g} > {m.limit:g}" for m in pool.margins if not m.satisfied]
    wrong += [f"{q.name}: {q.used:g} > {q.limit:g}" for q in plan.quotas if q.used > q.limit + USD_TOLERANCE]
    if wrong:
        raise PlannerError("The plan does not hold when recomputed: " + "; ".join(wrong))


def instances_needed(purchase: Purchase, pools: Sequence[Pool]) -> int:
    """Instances that the replicas on an offer fill, packed first fit by decreasing size, none split."""
    sizes = [pool.tp for pool in pools if pool.offer_id == purchase.offer_id for _ in range(pool.replicas)]
    room: list[int] = []
    for size in sorted(sizes, reverse=True):
        place = next((i for i, left in enumerate(room) if left >= size), None)
        if place is None:
            room.append(purchase.gpus_per_instance - size)
        else:
            room[place] -= size
    return len(room)


def _solve(decision: Decision, settings: SolverSettings) -> Solve:
    mtok = decision.served_tokens / units.TOKENS_PER_MTOK
    return Solve(
        status=decision.status,
        objective=decision.usd_per_token * decision.served_tokens,
        bound=decision.usd_per_token_bound * decision.served_tokens,
        gap=decision.gap,
        gap_target=settings.gap,
        usd_per_mtok=decision.usd / mtok,
        usd_per_mtok_bound=decision.usd_per_token_bound * units.TOKENS_PER_MTOK,
        ratio_iterations=decision.ratio_iterations,
        solver=decision.solver,
        solver_version=decision.solver_version,
        threads=settings.threads,
        seed=settings.seed,
    )


def _pool(context: Context, column: Column, runners_up: Mapping[str, RunnerUp | None]) -> Pool:
    workload, need, config = context.workloads[column.model], column.need, column.need.config
    state = replica_state(need, need.replicas)
    if state is None:
        raise PlannerError(f"{column.key}: no steady state at the planned replicas")
    sizing, deployment, length = config.sizing, config.sizing.deployment, config.length
    served, refused = _served(column), _refused(workload, column)
    binding = binding_constraint(need)
    return Pool(
        name=column.model,
        model=column.model,
        weights=workload.shape.id,
        cost_centre=workload.request.cost_centre,
        prompt_lo_tokens=0,
        prompt_hi_tokens=None,
        offer_id=column.offer.id,
        gpu=config.gpu.id,
        engine=sizing.engine,
        engine_version=sizing.engine_version,
        tp=config.tp,
        weight_dtype=deployment.weight_dtype.value,
        kv_dtype=deployment.kv_dtype.value,
        max_model_len=sizing.max_model_len,
        max_num_seqs=sizing.max_num_seqs,
        max_num_batched_tokens=sizing.max_num_batched_tokens,
        gpu_memory_utilization=sizing.utilization,
        replicas_needed=need.replicas,
        replicas_spare=column.spare,
        replicas=column.replicas,
        gpus=column.gpus,
        memory=_memory(sizing),
        load=_load(column, state),
        speed=_speed(column),
        margins=_margins(context, column, state),
        binding_constraint=binding,
        stated_rate_per_s=workload.rates.stated_rate_per_s,
        growth=workload.rates.growth,
        peak_factor=workload.rates.peak_factor,
        rate_measured=workload.rates.rate_measured,
        peak_measured=workload.rates.peak_measured,
        mean_prompt_tokens=workload.traffic.law.mean_prompt,
        mean_output_tokens=workload.traffic.law.mean_output,
        offered_requests=workload.offered_requests,
        refused_request_share=length.refused_request_share,
        refused_token_share=length.refused_token_share,
        refused_input_share=refused.prompt,
        refused_output_share=refused.output,
        tail_budget=workload.request.tail_budget,
        served_input_mtok=served.prompt / units.TOKENS_PER_MTOK,
        served_output_mtok=served.output / units.TOKENS_PER_MTOK,
        capacity_mtok=_capacity_tokens(context, column) / units.TOKENS_PER_MTOK,
        launch_command=launch_command(sizing),
        runner_up=runners_up.get(column.model),
        why=_why(column, binding, runners_up),
    )


class Tokens(NamedTuple):
    """Input and output tokens, or shares of them."""

    prompt: float
    output: float


def _served(column: Column) -> Tokens:
    """Served tokens of the horizon: the column's total, split as the law of the served requests splits."""
    law = column.need.config.length.law
    share = law.mean_prompt / (law.mean_prompt + law.mean_output)
    return Tokens(column.served_tokens * share, column.served_tokens * (1.0 - share))


def _refused(workload: Workload, column: Column) -> Tokens:
    """Shares of the offered input and output tokens that are not served."""
    law, served = workload.traffic.law, _served(column)
    offered = Tokens(workload.offered_requests * law.mean_prompt, workload.offered_requests * law.mean_output)
    shares = (1.0 - s / o if o > 0 else 0.0 for s, o in zip(served, offered, strict=True))
    return Tokens(*shares)


def _capacity_tokens(context: Context, column: Column) -> float:
    """Tokens of the horizon at the highest steady rate that the pool's replicas, spares included, can hold."""
    law, hours = column.need.config.length.law, context.data.horizon_hours
    rate = capacity_per_s(column.need, column.replicas)
    return rate * units.hours_to_s(hours) * (law.mean_prompt + law.mean_output)


def _why(column: Column, binding: str, runners_up: Mapping[str, RunnerUp | None]) -> str:
    """The choice in a sentence: what runs, what one replica fewer would break, and the next best GPU type."""
    need, config = column.need, column.need.config
    noun = "replica" if need.replicas == 1 else "replicas"
    text = f"{need.replicas} {noun} of {config.short_label} is the cheapest that holds every limit"
    if column.spare:
        text += f" (and {column.spare} spare)"
    text += ", and there must be one" if need.replicas == 1 else f"; one fewer breaks: {binding}"
    if column.model not in runners_up:
        return text + "; the next best was not found within the time limit"
    runner = runners_up[column.model]
    if runner is None:
        return text + "; nothing else is feasible"
    return f"{text}; next best: {runner.description}"


def _memory(sizing: Sizing) -> PoolMemory:
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


def _load(column: Column, state: ReplicaState) -> PoolLoad:
    need, config = column.need, column.need.config
    load, overflow = state.load, need.limits.overflow_probability
    law = config.length.law
    token_s = float(load.token_s[0])
    prefill_s = float(load.time_in_system_s[0]) - law.mean_output * token_s
    formula = mean_formula(float(load.rate_per_s[0]), law.mean_prompt, law.mean_output, 1.0 / token_s, prefill_s)
    return PoolLoad(
        planning_rate_per_s=need.demand.rate_per_s,
        rate_per_replica_per_s=float(load.rate_per_s[0]),
        dispersion=float(load.idc[0]),
        mean_live_requests=float(load.live_requests[0]),
        quantile_live_requests=float(live_request_quantile(load, overflow)[0]),
        mean_live_tokens=state.tokens.mean,
        quantile_live_tokens=state.tokens.quantile(overflow),
        mean_formula_tokens=formula.live_requests * config.marks.holding.of_mean(law.mean_prompt, law.mean_output),
        overflow_probability=overflow,
        expected_overflow=pool_overflow(config, state),
        work_share=float(load.work_share[0]),
    )


def _speed(column: Column) -> PoolSpeed:
    """TPOT and TTFT at the planned load: the fixed point at the edges of the band, and as the constraints saw it."""
    need, config = column.need, column.need.config
    tpot, ttft = {}, {}
    for edge in (*EDGES, None):
        candidates = stacked([config], edge)
        load = settle(candidates, need.demand, np.array([float(need.replicas)]))
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


def _margins(context: Context, column: Column, state: ReplicaState) -> tuple[Margin, ...]:
    need, config = column.need, column.need.config
    limits = need.limits
    shares = shares_at(need, need.replicas, state)
    scale = {
        Constraint.TOKEN_POOL: (config.pool_token_equivalents, "tokens"),
        Constraint.SEQUENCES: (float(config.sizing.max_num_seqs), "requests"),
        Constraint.WORK: (limits.max_work_share, "share"),
        Constraint.TPOT: (units.s_to_ms(limits.tpot_s), "ms"),
        Constraint.TTFT: (units.s_to_ms(limits.ttft_s), "ms"),
    }
    margins = [
        _margin(name, share * scale[Constraint(name)][0], *scale[Constraint(name)]) for name, share in shares.items()
    ]
    budget = context.workloads[column.model].request.tail_budget
    longest = longest_request(config.sizing)
    return (
        *margins,
        _margin("tail budget", config.length.refused_request_share, budget, "share of requests"),
        _margin("longest request", longest, config.pool_token_equivalents, "tokens"),
    )


def _margin(name: str, planned: float, limit: float, unit: str) -> Margin:
    share = planned / limit if limit > 0 else float(planned > 0)
    return Margin(
        constraint=str(name), planned=planned, limit=limit, unit=unit, used_share=share, satisfied=planned <= limit
    )


def _purchases(context: Context, decision: Decision) -> tuple[Purchase, ...]:
    hours = context.data.horizon_hours
    purchases = []
    for offer in context.data.offers:
        count = decision.instances.get(offer.id, 0)
        if count == 0:
            continue
        per_instance = int(offer.gpus_per_instance)
        purchases.append(
            Purchase(
                offer_id=offer.id,
                provider=offer.provider,
                instance_type=offer.instance_type,
                region=offer.region,
                gpu=offer.gpu,
                term=offer.term.value,
                gpus_per_instance=per_instance,
                instances=count,
                gpus_bought=count * per_instance,
                gpus_used=sum(c.gpus for c in decision.columns if c.offer.id == offer.id),
                usd_per_instance_h=offer.usd_per_h,
                hours=hours,
                usd=count * offer.usd_per_h * hours,
                price_as_of=offer.as_of,
                price_kind=offer.price_kind.value,
                source_url=offer.source_url,
                notes=offer.notes,
            )
        )
    return tuple(purchases)


def _totals(pools: Sequence[Pool], purchases: Sequence[Purchase]) -> PlanTotals:
    """By reservation: all that is paid. By use: each pool's GPUs for the share of its capacity that is used."""
    usd = sum(p.usd for p in purchases)
    rate = {p.offer_id: p.usd / p.gpus_bought for p in purchases}
    used = sum(rate[pool.offer_id] * pool.gpus * pool.served_mtok / pool.capacity_mtok for pool in pools)
    served_in, served_out = sum(p.served_input_mtok for p in pools), sum(p.served_output_mtok for p in pools)
    return PlanTotals(
        usd=usd,
        gpus=sum(p.gpus_bought for p in purchases),
        gpu_hours=sum(p.gpus_bought * p.hours for p in purchases),
        served_input_mtok=served_in,
        served_output_mtok=served_out,
        usd_per_mtok_by_reservation=usd / (served_in + served_out),
        usd_per_mtok_by_use=used / (served_in + served_out),
    )


def _quotas(context: Context, purchases: Sequence[Purchase]) -> tuple[QuotaUse, ...]:
    bought = {p.offer_id: p.gpus_bought for p in purchases}
    rows = []
    for quota in context.data.quotas:
        covered = tuple(o.id for o in context.data.offers if o.id in bought and quota_covers(quota, o))
        used = float(sum(bought[offer] for offer in covered))
        rows.append(QuotaUse(name=quota.name, offers=covered, used=used, limit=float(quota.max_gpus), unit="GPUs"))
    if context.data.budget_usd is not None:
        spent = sum(p.usd for p in purchases)
        rows.append(
            QuotaUse(name="budget", offers=tuple(bought), used=spent, limit=context.data.budget_usd, unit="USD")
        )
    return tuple(rows)
