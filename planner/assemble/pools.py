"""Pools of the plan, each from one part of a chosen column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner import units
from planner.assemble.context import Context
from planner.assemble.replica import capacity_tokens, load_of, margins_of, memory_of, speed_of
from planner.assemble.stands import Standing
from planner.errors import PlannerError
from planner.optimise.needs.exact import ReplicaState, replica_state
from planner.optimise.needs.margins import binding_constraint
from planner.optimise.types import Period
from planner.plan import Pool, PoolPeriod, PoolPlacement, Purchase, RunnerUp
from planner.report.launch import launch_command


def pool_of(
    context: Context,
    standing: Standing,
    usd: float,
    purchases: Sequence[Purchase],
    runners_up: Mapping[str, RunnerUp | None] | None,
) -> Pool:
    """A pool with every figure of its busiest period, recomputed at the replicas that run.

    Raises
    ------
    PlannerError
        If its replicas have no steady state: a bug.
    """
    part, need = standing.part, standing.part.need
    workload, config, busiest = context.workloads[standing.model], need.config, need.busiest
    state = _state(standing)
    sizing, deployment, length = config.sizing, config.sizing.deployment, config.length
    demand, served, binding = _demand(context, standing), _served(standing), binding_constraint(need)
    replicas = standing.replicas
    return Pool(
        name=standing.name,
        model=standing.model,
        weights=workload.shape.id,
        cost_centre=workload.request.cost_centre,
        prompt_lo_tokens=need.slice.prompt_lo_tokens,
        prompt_hi_tokens=need.slice.prompt_hi_tokens,
        tenants=need.slice.tenants,
        load_share=part.load_share,
        request_share=demand.request_share,
        offers=_offers(standing, purchases),
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
        replicas_needed=need.replicas[busiest],
        replicas_spare=part.running[busiest] - need.replicas[busiest],
        replicas=replicas[busiest],
        gpus=replicas[busiest] * config.tp,
        periods=_periods(standing, context.data.periods),
        placements=tuple(PoolPlacement(supply=g, replicas=n) for g, n in sorted(standing.on.items())),
        usd=usd,
        score_drop=config.score_drop,
        memory=memory_of(sizing),
        load=load_of(need, state),
        speed=speed_of(need, need.replicas[busiest]),
        margins=margins_of(need, need.replicas[busiest], state),
        binding_constraint=binding,
        stated_rate_per_s=workload.rates.stated_rate_per_s,
        growth=workload.rates.growth,
        peak_factor=demand.peak_factor,
        rate_measured=workload.rates.rate_measured,
        peak_measured=workload.rates.peak_measured,
        mean_prompt_tokens=need.slice.traffic.law.mean_prompt,
        mean_output_tokens=need.slice.traffic.law.mean_output,
        offered_requests=demand.requests,
        refused_request_share=length.refused_request_share,
        refused_token_share=length.refused_token_share,
        refused_input_share=_refused(demand.requests * need.slice.traffic.law.mean_prompt, served.prompt),
        refused_output_share=_refused(demand.requests * need.slice.traffic.law.mean_output, served.output),
        tail_budget=need.slice.tail_budget,
        served_input_mtok=served.prompt / units.TOKENS_PER_MTOK,
        served_output_mtok=served.output / units.TOKENS_PER_MTOK,
        capacity_mtok=capacity_tokens(need, replicas, context.data.periods) / units.TOKENS_PER_MTOK,
        launch_command=launch_command(sizing, _nodes(context, standing)),
        runner_up=None if runners_up is None else runners_up.get(standing.model),
        why=why(standing, binding, runners_up),
    )


def _nodes(context: Context, standing: Standing) -> int:
    """Instances that one replica takes; the most where its supplies differ."""
    sizes = [supply.gpus_per_instance for supply in context.data.supplies if supply.id in standing.on]
    return max(-(-standing.part.placement.gpus_per_replica // size) for size in sizes)


def _state(standing: Standing) -> ReplicaState:
    need = standing.part.need
    state = replica_state(need, need.replicas[need.busiest])
    if state is None:
        raise PlannerError(f"{standing.name}: no steady state at the planned replicas")
    return state


class _Demand(NamedTuple):
    """What arrives at a pool in the horizon."""

    requests: float
    request_share: float
    """Of the model's requests, of which stated rate x growth x horizon arrive."""
    peak_factor: float


def _demand(context: Context, standing: Standing) -> _Demand:
    part, periods = standing.part, context.data.periods
    rates = context.workloads[standing.model].rates
    seconds = units.hours_to_s(context.data.hours)
    requests = part.need.slice.offered_requests(periods) * part.load_share
    planning = float(part.need.slice.planning_rate_per_s[part.need.busiest]) * part.load_share
    return _Demand(requests, requests / (rates.mean_rate_per_s * seconds), planning * seconds / requests)


class Tokens(NamedTuple):
    """Input and output tokens."""

    prompt: float
    output: float


def _served(standing: Standing) -> Tokens:
    """Served tokens of the horizon, split as the law of the served requests splits."""
    law = standing.part.need.config.length.law
    share = law.mean_prompt / (law.mean_prompt + law.mean_output)
    return Tokens(standing.served_tokens * share, standing.served_tokens * (1.0 - share))


def _refused(offered: float, served: float) -> float:
    """Share of offered tokens that is not served; rounding below 0 is 0."""
    return max(0.0, 1.0 - served / offered) if offered > 0 else 0.0


def _periods(standing: Standing, periods: Sequence[Period]) -> tuple[PoolPeriod, ...]:
    part, need = standing.part, standing.part.need
    mean = need.slice.mean_rate_per_s * part.load_share
    return tuple(
        PoolPeriod(
            period=period.name,
            planning_rate_per_s=need.rate_per_s[t],
            mean_rate_per_s=float(mean[t]),
            replicas_needed=need.replicas[t],
            replicas_asked=part.running[t],
            replicas=standing.replicas[t],
        )
        for t, period in enumerate(periods)
    )


def _offers(standing: Standing, purchases: Sequence[Purchase]) -> tuple[str, ...]:
    """Running lots of the supplies that the pool stands on, the most instance-hours first."""
    lots = [p for p in purchases if p.supply in standing.on and p.instance_hours > 0]
    return tuple(p.offer_id for p in sorted(lots, key=lambda p: (-p.instance_hours * p.gpus_per_instance, p.offer_id)))


def why(standing: Standing, binding: str, runners_up: Mapping[str, RunnerUp | None] | None) -> str:
    """The choice in a sentence: what runs, what one replica fewer would break, and the next best GPU type."""
    need, busiest = standing.part.need, standing.part.need.busiest
    count, spare = need.replicas[busiest], standing.part.running[busiest] - need.replicas[busiest]
    noun = "replica" if count == 1 else "replicas"
    text = f"{count} {noun} of {need.config.short_label} is the cheapest that holds every limit"
    if spare:
        text += f" (and {spare} more for spares and scaling)"
    text += ", and there must be one" if count == 1 else f"; one fewer breaks: {binding}"
    if runners_up is None:
        return text + "; the next best was not looked for"
    if standing.model not in runners_up:
        return text + "; the next best was not found within the time limit"
    runner = runners_up[standing.model]
    if runner is None:
        return text + "; nothing else is feasible"
    return f"{text}; next best: {runner.description}"
