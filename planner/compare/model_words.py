"""What changed for one model, in words and in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from planner.plan import FleetPlan, Margin, Pool
from planner.report import facts

Side = tuple[Sequence[Pool], FleetPlan]
"""A model's pools, with the plan that they are of."""
SMALLEST_SHARE = 0.005
"""Relative change of traffic or lengths that is said: what does not round to 0 %."""
SMALLEST_REPLICAS = 0.05
"""Change of the mean number of replicas that is said."""


def model_words(name: str, before: Side, after: Side) -> tuple[str, tuple[str, ...]]:
    """How the model's GPUs changed, and what else did."""
    was, is_now = fleet_words(before[0]), fleet_words(after[0])
    if was == is_now:
        lead = f"{name} stays on {is_now}"
    else:
        moved = {pool.gpu for pool in before[0]} != {pool.gpu for pool in after[0]}
        lead = f"{name} {'moved' if moved else 'went'} from {was} to {is_now}"
    return lead, (*_pools(before, after), *_traffic(before, after))


def fleet_words(pools: Sequence[Pool]) -> str:
    """GPUs of a model by type, each pool in its busiest period: ``8 x A100-SXM-80GB + 2 x L40S``."""
    gpus: dict[str, int] = {}
    for pool in pools:
        gpus[pool.gpu] = gpus.get(pool.gpu, 0) + pool.gpus
    return " + ".join(f"{n:,} x {gpu}" for gpu, n in sorted(gpus.items()))


def offered_per_h(pools: Sequence[Pool], plan: FleetPlan) -> float:
    """Requests that arrive in an hour, mean of the horizon."""
    return math.fsum(pool.offered_requests for pool in pools) / plan.horizon_hours


def percent(new: float, old: float) -> str:
    """A relative change: ``+22 %``."""
    return f"{100 * (new / old - 1):+.0f} %"


def _pools(before: Side, after: Side) -> Iterator[str]:
    """Changes pool by pool; the only pool of a model needs no name."""
    if len(before[0]) == len(after[0]) == 1:
        yield from _pool(before[0][0], after[0][0], before[1], after[1])
        return
    old, new = ({pool.name: pool for pool in side[0]} for side in (before, after))
    if len(old) != len(new):
        yield f"{len(new)} pool{'s' if len(new) > 1 else ''} (was {len(old)})"
    for name, pool in new.items():
        if name not in old:
            yield f"{name} new: {_words(pool)}"
            continue
        if pool.gpu != old[name].gpu:
            yield f"{name}: {pool.gpu} (was {old[name].gpu})"
        yield from (f"{name}: {words}" for words in _pool(old[name], pool, before[1], after[1]))
    yield from (f"{name} gone: {_words(pool)}" for name, pool in old.items() if name not in new)


def _words(pool: Pool) -> str:
    return (
        f"{pool.replicas} x {pool.gpu} tp {pool.tp} {pool.weight_dtype}/{pool.kv_dtype}, "
        f"max_model_len {pool.max_model_len:,}"
    )


def _pool(old: Pool, new: Pool, last: FleetPlan, now: FleetPlan) -> Iterator[str]:
    """What differs between a pool and itself last quarter."""
    if new.weights != old.weights:
        yield f"weights {new.weights} (was {old.weights})"
    if new.tp != old.tp:
        yield f"tp {new.tp} (was {old.tp})"
    if new.weight_dtype != old.weight_dtype:
        yield f"{new.weight_dtype} weights now used (was {old.weight_dtype})"
    if new.kv_dtype != old.kv_dtype:
        yield f"{new.kv_dtype} KV cache now used (was {old.kv_dtype})"
    if new.max_model_len != old.max_model_len:
        yield f"max_model_len {new.max_model_len:,} (was {old.max_model_len:,})"
    yield from _replicas(old, new, last, now)
    if (facts.prompt_band(new), new.tenants) != (facts.prompt_band(old), old.tenants):
        yield f"serves {_slice(new)} (was {_slice(old)})"
    if (new.engine, new.engine_version) != (old.engine, old.engine_version):
        yield f"engine {new.engine} {new.engine_version} (was {old.engine} {old.engine_version})"
    yield from _targets(old, new)


def _slice(pool: Pool) -> str:
    band = facts.prompt_band(pool)
    lengths = "all prompts" if band == "all" else f"prompts of {band} tokens"
    return f"{lengths} of {facts.tenants(pool)}" if pool.tenants else lengths


def _replicas(old: Pool, new: Pool, last: FleetPlan, now: FleetPlan) -> Iterator[str]:
    """Replicas of the busiest period; where these stay, the mean of the horizon."""
    if new.replicas != old.replicas:
        yield f"replicas {new.replicas:,} (was {old.replicas:,})"
        return
    mean, was = _mean_replicas(new, now), _mean_replicas(old, last)
    if abs(mean - was) >= SMALLEST_REPLICAS:
        yield f"mean replicas {mean:,.1f} (was {was:,.1f})"


def _mean_replicas(pool: Pool, plan: FleetPlan) -> float:
    hours = {period.name: period.hours for period in plan.periods}
    running = [(period.replicas, hours[period.period]) for period in pool.periods] or [(pool.replicas, 1.0)]
    return sum(n * h for n, h in running) / sum(h for _, h in running)


def _targets(old: Pool, new: Pool) -> Iterator[str]:
    for word in ("TPOT", "TTFT"):
        was, is_now = (facts.margin(pool, word.casefold()) for pool in (old, new))
        if _limit(was) != _limit(is_now):
            yield f"{word} target {_limit(is_now)} (was {_limit(was)})"
    if new.tail_budget != old.tail_budget:
        yield f"tail budget {100 * new.tail_budget:g} % (was {100 * old.tail_budget:g} %)"


def _limit(margin: Margin | None) -> str:
    return "none" if margin is None else f"{margin.limit:g} {margin.unit}"


def _traffic(before: Side, after: Side) -> Iterator[str]:
    """Requests an hour, and their mean lengths weighted by requests."""
    for word, old, new in (
        ("traffic", offered_per_h(*before), offered_per_h(*after)),
        ("mean prompt", _mean_tokens(before[0], "mean_prompt_tokens"), _mean_tokens(after[0], "mean_prompt_tokens")),
        ("mean output", _mean_tokens(before[0], "mean_output_tokens"), _mean_tokens(after[0], "mean_output_tokens")),
    ):
        if old > 0 and abs(new / old - 1) >= SMALLEST_SHARE:
            yield f"{word} {percent(new, old)}"


def _mean_tokens(pools: Sequence[Pool], field: str) -> float:
    requests = math.fsum(pool.offered_requests for pool in pools)
    total = math.fsum(pool.offered_requests * float(getattr(pool, field)) for pool in pools)
    return total / requests if requests > 0 else 0.0
