"""Why this fleet, and why none: binding constraints, runners-up, and what is short when nothing is feasible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from planner.errors import InfeasibleError
from planner.optimise.candidates import stacked
from planner.optimise.exact import Fleet, ReplicaState, replica_state
from planner.optimise.solve import shortages
from planner.optimise.types import Column, Decision, Need, Rejection, SolverSettings
from planner.plan import RunnerUp
from planner.queueing.load import Constraint, used_shares

MISS_LINES = 4


def shares_at(need: Need, replicas: int, state: ReplicaState | None) -> dict[str, float]:
    """Planned over limit of every constraint at a number of replicas, the token pool by its exact quantile.

    ``state`` is that of `replica_state` with the same arguments.
    """
    candidates = stacked([need.config])
    screened = used_shares(candidates, need.demand, np.array([float(replicas)]), need.limits)
    shares = {str(name): float(values[0]) for name, values in screened.items()}
    if state is not None:
        exact = state.tokens.quantile(need.limits.overflow_probability)
        shares[Constraint.TOKEN_POOL] = exact / need.config.pool_token_equivalents
    return shares


def binding_constraint(need: Need) -> str:
    """The constraint that one replica fewer would break most; with one replica, that there must be one."""
    if need.replicas == 1:
        return "at least one replica"
    fewer = need.replicas - 1
    shares = shares_at(need, fewer, replica_state(need, fewer))
    broken = {name: share for name, share in shares.items() if share > 1.0}
    return max(broken, key=lambda name: (broken[name], name)) if broken else "rounding to whole replicas"


def runner_up(fleet: Fleet, decision: Decision, column: Column, settings: SolverSettings) -> RunnerUp | None:
    """The best plan in which a model runs on another GPU type, and what it costs more.

    Where no other type is feasible, another tp or other dtypes on the same type; ``None`` where there is nothing else.
    """
    config = column.need.config

    def other_gpu(need: Need) -> bool:
        return need.config.model != config.model or need.config.gpu.id != config.gpu.id

    def other_family(need: Need) -> bool:
        return need.config.model != config.model or need.config.family != config.family

    other = fleet.solve(settings, other_gpu) or fleet.solve(settings, other_family)
    if other is None:
        return None
    chosen = next(c for c in other.columns if c.model == column.model)
    # Plans may differ in served tokens; the extra cost is stated for the tokens that this plan serves.
    extra = (other.usd_per_token - decision.usd_per_token) * decision.served_tokens
    text = f"{chosen.replicas} x {chosen.need.config.short_label} at {chosen.offer.provider}"
    return RunnerUp(description=text, extra_usd=extra)


def raise_no_candidate(model: str, rejections: Sequence[Rejection], offered: Sequence[str]) -> NoReturn:
    """End with the reasons why a model cannot be served at all, the nearest misses first.

    Raises
    ------
    InfeasibleError
        Always.
    """
    counts = Counter(r.reason for r in rejections)
    lines = [f"{reason}: {_plural(count, 'configuration')}" for reason, count in counts.most_common()]
    ranked = sorted((r for r in rejections if np.isfinite(r.excess)), key=lambda r: (r.excess, r.detail))
    misses = list({(r.reason, r.gpu, r.tp): r for r in reversed(ranked)}.values())[::-1]
    lines += [f"nearest miss ({r.reason}): {r.detail}" for r in misses[:MISS_LINES]]
    if not misses:
        examples = {(r.reason, r.gpu): r for r in rejections}
        lines += [f"{r.gpu} tp{r.tp}, {r.reason}: {r.detail}" for r in list(examples.values())[:MISS_LINES]]
    raise InfeasibleError(
        f"No configuration can serve model '{model}' on the GPU types on offer ({', '.join(offered)})", lines
    )


def raise_short(fleet: Fleet, settings: SolverSettings) -> NoReturn:
    """End with what is short: the least excess over quotas and budget that would make the request feasible.

    Raises
    ------
    InfeasibleError
        Always.
    """
    data, lines = fleet.data(), []
    for name, excess in sorted(shortages(data, settings).items()):
        if name == "budget":
            lines.append(f"budget: short by {excess:,.2f} USD (limit {data.budget_usd:,.2f} USD)")
        else:
            quota = next(q for q in data.quotas if q.name == name)
            lines.append(f"quota '{name}': short by {_plural(round(excess), 'GPU')} (limit {quota.max_gpus})")
    without = [m for m in data.models if not any(c.model == m for c in data.columns)]
    lines += [f"model '{m}': no offer holds a whole replica (instances are too small for its tp)" for m in without]
    raise InfeasibleError("No fleet satisfies the request; the least relaxation that would", lines)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
