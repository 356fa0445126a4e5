"""A request made ready to be solved: periods, slices, supply, and the needs of every configuration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import Problems
from planner.inputs import Inputs, ModelInputs
from planner.optimise.explain.reasons import raise_no_candidate
from planner.optimise.needs.candidates import CandidateSet
from planner.optimise.needs.configurations import Replicas
from planner.optimise.needs.many import Job, all_candidates
from planner.optimise.periods.horizon import Horizon, ModelWeek, horizon_of
from planner.optimise.pools.slices import slices_of
from planner.optimise.solve.fleet import Fleet
from planner.optimise.supply.offers import undominated
from planner.optimise.supply.supplies import Supplied, network_gb_s, supplies_of
from planner.optimise.types import Caps, ProgramData, Rejection, Workload
from planner.request import PlanRequest
from planner.traffic.demand import growth_base, growth_of
from planner.traffic.growth import Growth

Progress = Callable[[str], None]


def silent(text: str) -> None:
    """Progress that nobody reads."""


@dataclass(frozen=True)
class Ground:
    """What every fleet of a request serves and may stand on, before any configuration is looked at."""

    horizon: Horizon
    workloads: tuple[Workload, ...]
    everything: Supplied
    """All that can be had."""
    supplied: Supplied
    """The same without lots that another one replaces in every plan."""


def ground_of(inputs: Inputs) -> Ground:
    """Periods, slices and supply.

    Raises
    ------
    InputError
        If the tables of the request contradict one another.
    """
    request = inputs.request
    horizon = horizon_of(request.quarter, request.time, [_model_week(m) for m in inputs.models], _departures(request))
    workloads = workloads_of(inputs.models, request, horizon)
    everything = supplies_of(request, inputs.offers.usable, horizon.periods, inputs.catalog, str(inputs.path))
    lots = undominated(everything.lots, request.quota, caps_of(request))
    return Ground(horizon, workloads, everything, everything.on(lots))


@dataclass(frozen=True)
class Quarter:
    """A request made ready to be solved."""

    horizon: Horizon
    workloads: tuple[Workload, ...]
    supplied: Supplied
    fleet: Fleet
    rejections: Mapping[str, tuple[Rejection, ...]]


def prepare(inputs: Inputs, progress: Progress = silent, processes: int = 1) -> Quarter:
    """Periods, slices, supply and the needs of every configuration.

    Where there are many models they are shared out over ``processes``; the result is the same.

    Raises
    ------
    InputError
        If the tables of the request contradict one another.
    InfeasibleError
        If a model has no candidate at all.
    """
    ground = ground_of(inputs)
    found = _candidates(ground.workloads, ground.supplied, inputs, ground.horizon, progress, processes)
    return _quarter(inputs, ground.horizon, ground.workloads, ground.supplied, found, progress)


def prepare_again(before: Quarter, inputs: Inputs, models: Collection[str], progress: Progress = silent) -> Quarter:
    """The quarter under other targets or budgets of some models, from one that was prepared before.

    Periods, supply and what is known of all other models stay as they are.

    Raises
    ------
    InfeasibleError
        If one of the models has no candidate at all.
    """
    anew = workloads_of(inputs.models, inputs.request, before.horizon)
    workloads = tuple(new if new.name in models else old for new, old in zip(anew, before.workloads, strict=True))
    found = _candidates(
        tuple(w for w in workloads if w.name in models), before.supplied, inputs, before.horizon, progress, 1
    )
    kept = _kept(before, [w.name for w in workloads if w.name not in models])
    return _quarter(inputs, before.horizon, workloads, before.supplied, found | kept, progress)


def prepare_beside(
    before: Quarter,
    was: Inputs,
    inputs: Inputs,
    progress: Progress = silent,
    replicas: dict[ModelShape, Replicas] | None = None,
) -> Quarter:
    """The quarter under other inputs of the same request; candidates that cannot differ are taken over.

    A model's candidates depend on its own request, slices and rates, on the periods, the GPU types on offer and how
    their nodes are linked, the engine, the speeds and the policy; on prices, quotas and electricity in no way: these
    enter with lots, and of every supply at least one lot is always kept. What is known of exact needs is copied, so
    that quarters made from the same one do not depend on each other.

    Parameters
    ----------
    replicas
        Sizings and speeds that were found for other inputs beside the same ones, to save time; more are added.

    Raises
    ------
    InputError
        If the tables of the request contradict one another.
    InfeasibleError
        If a model has no candidate at all.
    """
    ground = ground_of(inputs)
    served = _same_serving(was, inputs) and network_gb_s(was.request, before.supplied.lots) == network_gb_s(
        inputs.request, ground.supplied.lots
    )
    same = _alike(before, was, inputs, ground) if served else []
    workloads = tuple(
        old if old.name in same else new for old, new in zip(before.workloads, ground.workloads, strict=True)
    )
    anew = tuple(w for w in workloads if w.name not in same)
    found = _candidates(anew, ground.supplied, inputs, ground.horizon, progress, 1, replicas if served else None)
    found |= _kept(before, same)
    needs = {name: each.needs for name, each in found.items()}
    data = data_of(inputs, ground.horizon, workloads, ground.supplied)
    fleet = before.fleet.beside(workloads, needs, data, {w.name for w in anew}, progress)
    rejections = {w.name: found[w.name].rejections for w in workloads}
    return Quarter(ground.horizon, workloads, ground.supplied, fleet, rejections)


def _same_serving(was: Inputs, inputs: Inputs) -> bool:
    """Whether replicas are sized, timed and judged alike."""
    one, other = was.request, inputs.request
    return (
        was.facts == inputs.facts
        and one.engine == other.engine
        and one.speed == other.speed
        and one.policy == other.policy
        and was.calibration == inputs.calibration
        and was.measured == inputs.measured
    )


def _alike(before: Quarter, was: Inputs, inputs: Inputs, ground: Ground) -> list[str]:
    """Models whose candidates are those of another quarter of the same request that is served alike."""
    if before.horizon.periods != ground.horizon.periods:
        return []
    names = []
    for old, new in zip(before.workloads, ground.workloads, strict=True):
        gpus = _gpus(old, before.supplied, was.catalog) == _gpus(new, ground.supplied, inputs.catalog)
        if gpus and old.request == new.request and _same_rates(before.horizon, ground.horizon, old.name):
            names.append(old.name)
    return names


def _same_rates(one: Horizon, other: Horizon, model: str) -> bool:
    a, b = one.models.index(model), other.models.index(model)
    return bool(
        np.array_equal(one.planning_rate_per_s[:, a], other.planning_rate_per_s[:, b])
        and np.array_equal(one.mean_rate_per_s[:, a], other.mean_rate_per_s[:, b])
    )


def _kept(before: Quarter, models: Collection[str]) -> dict[str, CandidateSet]:
    """Candidates of models as another quarter has them."""
    return {name: CandidateSet(before.fleet.needs(name), before.rejections[name]) for name in models}


def _quarter(
    inputs: Inputs, horizon: Horizon, workloads: tuple[Workload, ...], supplied: Supplied,
    found: Mapping[str, CandidateSet], progress: Progress,
) -> Quarter:  # fmt: skip
    needs = {name: each.needs for name, each in found.items()}
    spares = {w.name: spare_of(w, inputs.request) for w in workloads}
    fleet = Fleet(workloads, needs, spares, data_of(inputs, horizon, workloads, supplied), progress)
    return Quarter(horizon, workloads, supplied, fleet, {name: each.rejections for name, each in found.items()})


def workloads_of(models: Sequence[ModelInputs], request: PlanRequest, horizon: Horizon) -> tuple[Workload, ...]:
    """Slices of all models with their rates by period; problems of all of them are reported together.

    Raises
    ------
    InputError
        If cuts or tenants contradict the traffic.
    """
    problems = Problems()
    found: list[Workload] = []
    for index, model in enumerate(models):
        made = problems.attempt(
            lambda model=model, index=index: slices_of(  # type: ignore[misc]
                model.request, request.routing, model.traffic, model.tenants,
                horizon.planning_rate_per_s[:, index], horizon.mean_rate_per_s[:, index],
            ),
            f"model '{model.request.name}'",
        )  # fmt: skip
        if made is not None:
            slices, end = made
            found.append(Workload(model.request, model.shape, model.traffic, model.rates, slices, end))
    problems.raise_if_any()
    return tuple(found)


def _model_week(model: ModelInputs) -> ModelWeek:
    source = model.request.traffic
    growth = growth_of(source)
    law = model.traffic.law
    tokens_per_s = model.rates.planning_rate_per_s * (law.mean_prompt + law.mean_output)
    return ModelWeek(
        name=model.request.name,
        rates=model.rates,
        week=model.week,
        growth=growth,
        growth_base=growth_base(source, model.traffic) if growth != Growth() else None,
        scaling=model.request.scaling,
        # What a token costs goes with the parameters that it passes through.
        weight=tokens_per_s * model.shape.active_parameters,
    )


def _departures(request: PlanRequest) -> set[dt.date]:
    """Days on which hardware leaves."""
    owned = {row.until for row in request.owned if row.until is not None}
    return owned | {row.until for row in request.commitment}


def _candidates(
    workloads: tuple[Workload, ...], supplied: Supplied, inputs: Inputs, horizon: Horizon, progress: Progress,
    processes: int, replicas: dict[ModelShape, Replicas] | None = None,
) -> dict[str, CandidateSet]:  # fmt: skip
    gpus = tuple(_gpus(workload, supplied, inputs.catalog) for workload in workloads)
    links = network_gb_s(inputs.request, supplied.lots)
    job = Job(workloads, gpus, inputs.serving, inputs.request.policy, horizon.periods, links, replicas)
    found: dict[int, CandidateSet] = {}
    for number, candidates in all_candidates(job, processes):
        progress(f"candidates: {len(found) + 1} of {len(workloads)} models, {workloads[number].name}")
        found[number] = candidates
    for number, workload in enumerate(workloads):
        if not found[number].needs:
            raise_no_candidate(workload.name, found[number].rejections, [gpu.id for gpu in gpus[number]])
    return {workload.name: found[number] for number, workload in enumerate(workloads)}


def _gpus(workload: Workload, supplied: Supplied, catalog: Catalog) -> tuple[Gpu, ...]:
    """GPU types on offer that the model may use."""
    names = sorted({supply.gpu for supply in supplied.supplies})
    allowed = [name for name in names if not workload.request.gpus or name in workload.request.gpus]
    return tuple(catalog.gpu(name) for name in allowed)


def data_of(inputs: Inputs, horizon: Horizon, workloads: Sequence[Workload], supplied: Supplied) -> ProgramData:
    """The program's data but for its columns."""
    request = inputs.request
    return ProgramData(
        models=tuple(w.name for w in workloads),
        end_node={w.name: w.end_node for w in workloads},
        max_pools={w.name: w.request.max_pools or request.routing.max_pools for w in workloads},
        periods=horizon.periods,
        supplies=supplied.supplies,
        lots=supplied.lots,
        columns=(),
        quotas=request.quota,
        caps=caps_of(request),
        movement=inputs.movement,
    )


def caps_of(request: PlanRequest) -> Caps:
    """Optional limits of a request on the whole fleet."""
    policy = request.policy
    return Caps(
        budget_usd=request.budget_usd,
        power_kw=policy.max_power_kw,
        carbon_kg=policy.max_carbon_kg,
        liability_usd=policy.max_liability_usd,
    )


def spare_of(workload: Workload, request: PlanRequest) -> int:
    """Replicas beyond the need of each pool of a model."""
    own = workload.request.spare_replicas
    return request.policy.spare_replicas if own is None else own
