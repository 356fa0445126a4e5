"""The whole pipeline, left to right, in one file.

request, catalog, traffic -> periods, slices -> supply -> memory, speed, queueing -> columns -> program -> `FleetPlan`.
Writing the plan out is `report`'s.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.assemble import Context, Reasons, assemble
from planner.assumptions import assumptions_of
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.errors import Problems, SolverError
from planner.inputs import Inputs, ModelInputs, read_inputs
from planner.optimise.explain.reasons import quota_worth, raise_no_candidate, rejected_classes, runner_up, time_left
from planner.optimise.explain.relax import raise_short
from planner.optimise.needs.candidates import CandidateSet
from planner.optimise.needs.many import Job, all_candidates
from planner.optimise.periods.horizon import Horizon, ModelWeek, horizon_of
from planner.optimise.pools.slices import slices_of
from planner.optimise.solve.fleet import Aids, Fleet
from planner.optimise.solve.warm import warm_columns
from planner.optimise.supply.offers import undominated
from planner.optimise.supply.supplies import Supplied, network_gb_s, supplies_of
from planner.optimise.types import Caps, Decision, ProgramData, Rejection, SolverSettings, Workload
from planner.plan import FleetPlan, RunnerUp
from planner.plan_file import plan_at
from planner.provenance import caveats, input_files, run_id, speed_caveats, started_from
from planner.request import PlanRequest
from planner.solve_options import AS_REQUESTED, SolveOptions, overridden, solver_of
from planner.traffic.demand import growth_base, growth_of
from planner.traffic.growth import Growth

Progress = Callable[[str], None]


def silent(text: str) -> None:
    """Progress that nobody reads."""


def plan_quarter(
    request_path: Path,
    catalog: Catalog,
    *,
    created_at: dt.datetime,
    progress: Progress = silent,
    options: SolveOptions = AS_REQUESTED,
) -> FleetPlan:
    """Plan the fleet that a request file asks for.

    Parameters
    ----------
    request_path
        The request (TOML); paths inside it are relative to its folder.
    catalog
        GPUs, offers, models, engines.
    created_at
        The time stamp of the plan; prices are judged stale against its date.
    progress
        Called with one line before each long step.
    options
        How to solve it.

    Raises
    ------
    InputError
        If the request, the catalogue, a traffic file or the last plan cannot be used.
    InfeasibleError
        If no fleet satisfies the request.
    SolverError
        If the solver fails.
    """
    solver_of(options.overrides)  # before the reading, which takes longer
    last = plan_at(options.last_plan) if options.last_plan is not None else None
    progress("reading traffic")
    inputs = read_inputs(request_path, catalog, created_at.date())
    inputs = inputs.under(overridden(inputs.request, options.overrides))
    quarter = prepare(inputs, progress, inputs.request.solver.threads)
    progress("solving the integer program")
    start = warm_columns(last, quarter.fleet.data().columns) if last is not None else ()
    decision = decide(quarter, inputs.request, start, options)
    reasons = reasons_of(quarter, decision, inputs.request, progress)
    return assemble(context_of(inputs, quarter, decision, created_at, options), decision, reasons)


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
    request = inputs.request
    horizon = horizon_of(request.quarter, request.time, [_model_week(m) for m in inputs.models], _departures(request))
    workloads = workloads_of(inputs.models, request, horizon)
    supplied = _supplied(inputs, horizon)
    found = _candidates(workloads, supplied, inputs, horizon, progress, processes)
    return _quarter(inputs, horizon, workloads, supplied, found, progress)


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
    kept = {
        w.name: CandidateSet(before.fleet.needs(w.name), before.rejections[w.name])
        for w in workloads
        if w.name not in models
    }
    return _quarter(inputs, before.horizon, workloads, before.supplied, found | kept, progress)


def _quarter(
    inputs: Inputs, horizon: Horizon, workloads: tuple[Workload, ...], supplied: Supplied,
    found: Mapping[str, CandidateSet], progress: Progress,
) -> Quarter:  # fmt: skip
    needs = {name: each.needs for name, each in found.items()}
    spares = {w.name: _spare(w, inputs.request) for w in workloads}
    fleet = Fleet(workloads, needs, spares, _data(inputs, horizon, workloads, supplied), progress)
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


def decide(
    quarter: Quarter, request: PlanRequest, start: Sequence[str] = (), options: SolveOptions = AS_REQUESTED
) -> Decision:
    """The best fleet; ``start`` are keys of columns that the first solve begins from.

    Raises
    ------
    InfeasibleError
        If there is none, with the least relaxation that would make one.
    SolverError
        If the solver ends without an answer.
    """
    settings = settings_of(request)
    aids = Aids(options.watch, tuple(start), options.lp_file)
    decision = quarter.fleet.solve(settings, aids=aids)
    if decision is None:
        raise_short(quarter.fleet, settings, quarter.rejections)
    return decision


def settings_of(request: PlanRequest) -> SolverSettings:
    """Solver settings of a request."""
    return SolverSettings(**request.solver.model_dump())


def reasons_of(quarter: Quarter, decision: Decision, request: PlanRequest, progress: Progress = silent) -> Reasons:
    """Runners-up, worth of quotas, rejected classes.

    All runners-up together, and the worths after them, may each take as long as the plan's own solve. A re-solve that
    ends without an answer is left out, so that the proven plan is not lost.
    """
    settings = settings_of(request)
    ends = time.monotonic() + settings.time_limit_s
    runners: dict[str, RunnerUp | None] = {}
    for workload in quarter.workloads:
        progress(f"runner-up of {workload.name}")
        with contextlib.suppress(SolverError):
            in_time = time_left(settings, ends)
            runners[workload.name] = runner_up(quarter.fleet, decision, workload.name, in_time)
    progress("worth of quotas")
    worth = quota_worth(quarter.fleet, decision, settings)
    return Reasons(runners, worth, rejected_classes(quarter.rejections))


def context_of(
    inputs: Inputs, quarter: Quarter, decision: Decision, created_at: dt.datetime, options: SolveOptions
) -> Context:
    """What the plan is about, besides the decisions."""
    request, data = inputs.request, quarter.fleet.data()
    files = (
        *input_files(request, inputs.path, inputs.catalog, quarter.workloads),
        *started_from(options.last_plan),
    )
    return Context(
        request=request,
        workloads={w.name: w for w in quarter.workloads},
        data=data,
        settings=settings_of(request),
        inputs=files,
        assumptions=assumptions_of(request, quarter.workloads, inputs.catalog),
        warnings=(
            *caveats(request, quarter.workloads, inputs.offers, data, decision, inputs.facts, created_at.date()),
            *quarter.supplied.caveats,
            *quarter.horizon.notes,
            *speed_caveats(decision, inputs.measured),
            *options.caveats,
        ),
        run_id=run_id(files, options.words),
        created_at=created_at,
        horizon=quarter.horizon,
    )


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


def _supplied(inputs: Inputs, horizon: Horizon) -> Supplied:
    request = inputs.request
    found = supplies_of(request, inputs.offers.usable, horizon.periods, inputs.catalog, str(inputs.path))
    return found.on(undominated(found.lots, request.quota, _caps(request)))


def _candidates(
    workloads: tuple[Workload, ...], supplied: Supplied, inputs: Inputs, horizon: Horizon, progress: Progress,
    processes: int,
) -> dict[str, CandidateSet]:  # fmt: skip
    gpus = tuple(_gpus(workload, supplied, inputs.catalog) for workload in workloads)
    links = network_gb_s(inputs.request, supplied.lots)
    job = Job(workloads, gpus, inputs.serving, inputs.request.policy, horizon.periods, links)
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


def _data(inputs: Inputs, horizon: Horizon, workloads: Sequence[Workload], supplied: Supplied) -> ProgramData:
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
        caps=_caps(request),
        movement=inputs.movement,
    )


def _caps(request: PlanRequest) -> Caps:
    policy = request.policy
    return Caps(
        budget_usd=request.budget_usd,
        power_kw=policy.max_power_kw,
        carbon_kg=policy.max_carbon_kg,
        liability_usd=policy.max_liability_usd,
    )


def _spare(workload: Workload, request: PlanRequest) -> int:
    own = workload.request.spare_replicas
    return request.policy.spare_replicas if own is None else own
