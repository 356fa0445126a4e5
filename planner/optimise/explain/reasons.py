"""Why this fleet, and why none: runners-up, the worth of a quota, rejected classes, and what is short."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from planner.errors import InfeasibleError, SolverError
from planner.optimise.program import quota_covers
from planner.optimise.solve.fleet import Fleet
from planner.optimise.types import Decision, Lot, LotKind, Need, ProgramData, Rejection, SolverSettings
from planner.plan import Rejected, RunnerUp

MISS_LINES = 4
WITHOUT_MARKET_PRICE = (LotKind.OWNED, LotKind.EXISTING_COMMITMENT)


def runner_up(fleet: Fleet, decision: Decision, model: str, settings: SolverSettings) -> RunnerUp | None:
    """The best plan in which a model runs without its chosen GPU types, the other models as they are.

    Its extra cost is what another choice for this model costs, everything bought anew around it; where the others
    must move too (a quota is full), the whole fleet is planned anew. Where no other GPU type is feasible, another tp
    or other dtypes on the same types; ``None`` where there is nothing else.

    Raises
    ------
    SolverError
        If a re-solve ends without an answer.
    """
    mine = [part.need.config for column in decision.columns if column.model == model for part in column.parts]
    types, families = {c.gpu.id for c in mine}, {c.family for c in mine}
    chosen = {id(part.need.config) for column in decision.columns for part in column.parts}

    def other_gpu(need: Need) -> bool:
        return need.config.gpu.id not in types

    def other_family(need: Need) -> bool:
        return need.config.family not in families

    for differs in (other_gpu, other_family):
        for others_fixed in (True, False):
            keep = _keep(model, differs, chosen if others_fixed else None)
            other = fleet.solve(settings, keep)
            if other is not None:
                return _described(decision, other, model, fleet.data(keep))
    return None


def _keep(model: str, differs: Callable[[Need], bool], chosen: set[int] | None) -> Callable[[Need], bool]:
    """Needs of a re-solve: other ones for this model, and for the others their chosen ones only, or all."""

    def keep(need: Need) -> bool:
        if need.config.model == model:
            return differs(need)
        return chosen is None or id(need.config) in chosen

    return keep


def _described(decision: Decision, other: Decision, model: str, data: ProgramData) -> RunnerUp:
    """The other plan in words. Plans may differ in served tokens: the extra is stated for those of this plan."""
    extra = (other.usd_per_token - decision.usd_per_token) * decision.served_tokens
    text = " and ".join(
        f"{max(part.running)} x {part.need.config.short_label}"
        for column in other.columns
        if column.model == model
        for part in column.parts
    )
    return RunnerUp(description=text, extra_usd=extra, flip_usd_per_gpu_h=flip_price(decision, other, model, data))


def flip_price(decision: Decision, other: Decision, model: str, data: ProgramData) -> float | None:
    """Price of a GPU-hour of a model's GPU type at which another plan is as cheap, all its prices moved alike.

        flip = mean USD per GPU-hour paid  +  extra USD / (GPU-hours paid − GPU-hours that the other plan pays)

    All for the tokens that the decision serves, over contracts of the type whose price the market makes: what is owned
    or committed already costs the same in both. ``None`` where the model runs on several GPU types, or the other plan
    has it on this one too or pays for no fewer hours of it.
    """
    types = _types(decision, model)
    if len(types) > 1 or types & _types(other, model):
        return None
    lots = [lot for lot in data.lots if lot.offer.gpu in types and lot.kind not in WITHOUT_MARKET_PRICE]
    same_tokens = decision.served_tokens / other.served_tokens
    usd, gpu_hours = _paid(decision, lots, data)
    freed = gpu_hours - _paid(other, lots, data)[1] * same_tokens
    if freed <= 0:
        return None
    extra_usd = other.usd * same_tokens - decision.usd
    return usd / gpu_hours + extra_usd / freed


def _types(decision: Decision, model: str) -> set[str]:
    """GPU types that a model runs on."""
    return {part.placement.gpu for column in decision.columns if column.model == model for part in column.parts}


def _paid(decision: Decision, lots: Sequence[Lot], data: ProgramData) -> tuple[float, float]:
    """USD and GPU-hours paid for on lots: of running instances, or of reserved ones through the horizon."""
    usd, gpu_hours = 0.0, 0.0
    for lot in lots:
        counts = decision.running.get(lot.id, (0,) * len(data.periods))
        running_h = sum(n * period.hours for n, period in zip(counts, data.periods, strict=True))
        reserved_h = decision.reserved.get(lot.id, 0) * data.hours
        usd += lot.used_usd_per_h * running_h + lot.reserved_usd_per_h * reserved_h
        gpu_hours += (reserved_h if lot.reserved_usd_per_h > 0 else running_h) * lot.gpus_per_instance
    return usd, gpu_hours


def quota_worth(fleet: Fleet, decision: Decision, settings: SolverSettings) -> dict[str, float]:
    """What one more GPU of each quota would save in the horizon (USD), by the quota's name.

    A quota is widened by the smallest instance that it covers, for one GPU often buys nothing, and the saving is
    divided by that instance's GPUs. What is no larger than the decision's gap is 0: it cannot be told from it. Quotas
    whose re-solve ends without an answer are left out; the time limit is that of the whole call.
    """
    data, ends = fleet.data(), time.monotonic() + settings.time_limit_s
    worth: dict[str, float] = {}
    for quota in data.quotas:
        sizes = [lot.gpus_per_instance for lot in data.lots if quota_covers(quota, lot.offer)]
        if not sizes:
            worth[quota.name] = 0.0
            continue
        wider = quota.model_copy(update={"max_gpus": quota.max_gpus + min(sizes)})
        quotas = tuple(wider if q.name == quota.name else q for q in data.quotas)
        with contextlib.suppress(SolverError):
            other = fleet.with_rules(quotas=quotas).solve(time_left(settings, ends))
            if other is not None:
                saving = (decision.usd_per_token - other.usd_per_token) * decision.served_tokens
                worth[quota.name] = saving / min(sizes) if saving > decision.gap * decision.usd else 0.0
    return worth


def time_left(settings: SolverSettings, ends: float) -> SolverSettings:
    """The settings with the time that is left until ``ends`` on the monotonic clock.

    Raises
    ------
    SolverError
        If none is left.
    """
    left = ends - time.monotonic()
    if left <= 0:
        raise SolverError("No time is left (solver.time_limit_s)")
    return replace(settings, time_limit_s=left)


def rejected_classes(rejections: Mapping[str, Sequence[Rejection]]) -> tuple[Rejected, ...]:
    """Configurations that cannot be used, by model and rule, each with its nearest miss."""
    rows = []
    for model in sorted(rejections):
        counts = Counter(r.reason for r in rejections[model])
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            nearest = min((r for r in rejections[model] if r.reason == reason), key=lambda r: (r.excess, r.detail))
            example = f"{nearest.gpu} tp{nearest.tp}: {nearest.detail}" if nearest.tp else nearest.detail
            rows.append(Rejected(model=model, reason=reason, configurations=count, example=example))
    return tuple(rows)


def raise_no_candidate(model: str, rejections: Sequence[Rejection], offered: Sequence[str]) -> NoReturn:
    """End with the reasons why a model cannot be served at all, the nearest misses first.

    Raises
    ------
    InfeasibleError
        Always.
    """
    counts = Counter(r.reason for r in rejections)
    lines = [f"{reason}: {plural(count, 'configuration')}" for reason, count in counts.most_common()]
    ranked = sorted((r for r in rejections if np.isfinite(r.excess)), key=lambda r: (r.excess, r.detail))
    misses = list({(r.reason, r.gpu, r.tp): r for r in reversed(ranked)}.values())[::-1]
    lines += [f"nearest miss ({r.reason}): {r.detail}" for r in misses[:MISS_LINES]]
    if not misses:
        examples = {(r.reason, r.gpu): r for r in rejections}
        lines += [f"{_where(r)}{r.reason}: {r.detail}" for r in list(examples.values())[:MISS_LINES]]
    raise InfeasibleError(
        f"No configuration can serve model '{model}' on the GPU types on offer ({', '.join(offered)})", lines
    )


def _where(rejection: Rejection) -> str:
    """GPU type and degree of a rejection; nothing of one that holds for every GPU type."""
    return f"{rejection.gpu} tp{rejection.tp}, " if rejection.tp else ""


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
