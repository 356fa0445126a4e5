"""The whole pipeline, left to right, in one file.

request, catalog, traffic -> periods, slices -> supply -> memory, speed, queueing -> columns -> program -> `FleetPlan`.
Writing the plan out is `report`'s.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.assemble import Context, Reasons, assemble
from planner.assumptions import assumptions_of
from planner.catalog.load import Catalog
from planner.errors import SolverError
from planner.inputs import Inputs, read_inputs
from planner.optimise.explain.reasons import quota_worth, rejected_classes, runner_up, time_left
from planner.optimise.explain.relax import raise_short
from planner.optimise.solve.fleet import Aids
from planner.optimise.solve.warm import warm_columns
from planner.optimise.types import Decision, SolverSettings
from planner.plan import FleetPlan, RunnerUp
from planner.plan_file import plan_at
from planner.preparing import Progress, Quarter, prepare, prepare_again, silent, workloads_of
from planner.provenance import caveats, input_files, run_id, speed_caveats, started_from
from planner.request import PlanRequest
from planner.solve_options import AS_REQUESTED, SolveOptions, overridden, solver_of

__all__ = [
    "Planned", "Progress", "Quarter", "context_of", "decide", "plan_inputs", "plan_quarter", "prepare", "prepare_again",
    "read_asked", "reasons_of", "settings_of", "silent", "workloads_of",
]  # fmt: skip


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
    asked = read_asked(request_path, catalog, created_at, progress, options)
    return plan_inputs(asked, created_at=created_at, progress=progress, options=options).plan


def read_asked(
    request_path: Path, catalog: Catalog, created_at: dt.datetime, progress: Progress, options: SolveOptions
) -> Inputs:
    """Everything that a plan reads, under the options of its solve.

    Raises
    ------
    InputError
        If the request, the catalogue, a traffic file or an option cannot be used.
    """
    solver_of(options.overrides)  # before the reading, which takes longer
    if options.last_plan is not None:
        plan_at(options.last_plan)
    progress("reading traffic")
    inputs = read_inputs(request_path, catalog, created_at.date())
    return inputs.under(overridden(inputs.request, options.overrides))


@dataclass(frozen=True)
class Planned:
    """A plan with what it was made from, for others to be made beside it."""

    inputs: Inputs
    quarter: Quarter
    decision: Decision
    plan: FleetPlan


def plan_inputs(
    inputs: Inputs,
    *,
    created_at: dt.datetime,
    progress: Progress = silent,
    options: SolveOptions = AS_REQUESTED,
) -> Planned:
    """Plan the fleet from what was read.

    Raises
    ------
    InputError
        If the inputs contradict one another.
    InfeasibleError
        If no fleet satisfies the request.
    SolverError
        If the solver fails.
    """
    last = plan_at(options.last_plan) if options.last_plan is not None else None
    quarter = prepare(inputs, progress, inputs.request.solver.threads)
    progress("solving the integer program")
    start = warm_columns(last, quarter.fleet.data().columns) if last is not None else ()
    decision = decide(quarter, inputs.request, start, options)
    reasons = reasons_of(quarter, decision, inputs.request, progress)
    plan = assemble(context_of(inputs, quarter, decision, created_at, options), decision, reasons)
    return Planned(inputs, quarter, decision, plan)


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
    inputs: Inputs, quarter: Quarter, decision: Decision, created_at: dt.datetime, options: SolveOptions,
    future: str = "",
) -> Context:  # fmt: skip
    """What the plan is about, besides the decisions; ``future`` says what differs from the request, if anything."""
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
            *((f"planned for {future}, not for the request as it stands",) if future else ()),
        ),
        run_id=run_id(files, (*options.words, *filter(None, [future]))),
        created_at=created_at,
        horizon=quarter.horizon,
        catalog=inputs.catalog,
    )
