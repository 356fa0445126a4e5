"""The whole pipeline, left to right, in one file.

request -> catalog, traffic -> memory, speed -> queueing -> optimise -> `FleetPlan`. Writing the plan out is `report`'s.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from planner.assemble import Context, assemble
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.catalog.offer import Offer
from planner.errors import Problems, SolverError
from planner.memory.calibration import NOT_CALIBRATED, Calibration, read_calibration
from planner.memory.types import WeightDtype
from planner.optimise.candidates import DEFAULT_DEGREES, candidate_needs
from planner.optimise.exact import Fleet
from planner.optimise.explain import raise_no_candidate, raise_short, runner_up
from planner.optimise.offers import allowed_offers, undominated
from planner.optimise.types import Decision, Need, ProgramData, Serving, SolverSettings, Workload
from planner.plan import FleetPlan, RunnerUp
from planner.provenance import assumptions_of, caveats, input_files, run_id, speed_caveats
from planner.request import ModelRequest, PlanRequest, read_request
from planner.speed.chain import SILICON, SpeedSources, load_sources
from planner.speed.load_tests.points_file import read_points
from planner.speed.measured import NOTHING_MEASURED, MeasuredSet
from planner.speed.silicon import silicon_source
from planner.traffic.demand import demand_of
from planner.traffic.source import load_traffic

Progress = Callable[[str], None]


def plan_quarter(
    request_path: Path, catalog: Catalog, *, created_at: dt.datetime, progress: Progress = lambda text: None
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

    Raises
    ------
    InputError
        If the request, the catalogue or a traffic file cannot be used.
    InfeasibleError
        If no fleet satisfies the request.
    SolverError
        If the solver fails.
    """
    request = read_request(request_path)
    progress("reading traffic")
    problems = Problems()
    facts = problems.attempt(lambda: catalog.engine(request.engine.name, request.engine.version))
    if request.quarter.end <= created_at.date():
        problems.add(str(request_path), "the horizon is already over", "Move start and end", field="quarter.end")
    _check_degrees(request, problems, str(request_path))
    offers = problems.attempt(lambda: allowed_offers(catalog.offers, request, created_at.date(), str(request_path)))
    workloads = problems.attempt(lambda: read_workloads(request, request_path, catalog))
    calibration = problems.attempt(lambda: calibration_of(request, request_path))
    measured = problems.attempt(lambda: measured_of(request, request_path, catalog))
    problems.raise_if_any()
    assert offers is not None
    assert facts is not None
    assert workloads is not None
    assert calibration is not None
    assert measured is not None
    fleet = fleet_of(request, workloads, offers.usable, catalog, progress, calibration, measured)
    settings = SolverSettings(**request.solver.model_dump())
    progress("solving the integer program")
    decision = fleet.solve(settings)
    if decision is None:
        raise_short(fleet, settings)
    runners_up = _runners_up(fleet, decision, settings, progress)
    data = fleet.data()
    context = Context(
        request=request,
        workloads={w.name: w for w in workloads},
        data=data,
        settings=settings,
        inputs=(inputs := input_files(request, request_path, catalog, workloads)),
        assumptions=assumptions_of(request, workloads, catalog),
        warnings=(
            *caveats(request, workloads, offers, data, decision, facts, created_at.date()),
            *speed_caveats(decision, measured),
        ),
        run_id=run_id(inputs),
        created_at=created_at,
    )
    return assemble(context, decision, runners_up)


def _runners_up(
    fleet: Fleet, decision: Decision, settings: SolverSettings, progress: Progress
) -> dict[str, RunnerUp | None]:
    """Runners-up by model; one whose solve ends without an answer is left out, so that the proven plan is not lost."""
    found: dict[str, RunnerUp | None] = {}
    for column in decision.columns:
        progress(f"runner-up of {column.model}")
        with contextlib.suppress(SolverError):
            found[column.model] = runner_up(fleet, decision, column, settings)
    return found


def fleet_of(
    request: PlanRequest,
    workloads: Sequence[Workload],
    offers: Sequence[Offer],
    catalog: Catalog,
    progress: Progress = lambda text: None,
    calibration: Calibration = NOT_CALIBRATED,
    measured: MeasuredSet = NOTHING_MEASURED,
) -> Fleet:
    """Candidates of all models on the offers that may be used, ready to be solved.

    Raises
    ------
    InfeasibleError
        If a model has no candidate at all.
    """
    engine = request.engine
    serving = Serving(
        catalog.engine(engine.name, engine.version),
        speed_sources(request, catalog, measured),
        engine.gpu_memory_utilization,
        calibration,
    )
    data = ProgramData(
        models=tuple(w.name for w in workloads),
        bands=1,
        offers=undominated(offers, request.quota),
        columns=(),
        quotas=request.quota,
        budget_usd=request.budget_usd,
        horizon_hours=request.quarter.hours,
    )
    needs = {w.name: _needs(w, _gpus(w, data.offers, catalog), serving, request, progress) for w in workloads}
    spares = {w.name: _spare(w.request, request) for w in workloads}
    return Fleet(workloads, needs, spares, data, progress)


def calibration_of(request: PlanRequest, request_path: Path) -> Calibration:
    """Measured terms that the request names; none where it names no file.

    Raises
    ------
    InputError
        Listing everything in the file that cannot be used.
    """
    name = request.engine.calibration
    return read_calibration(request_path.parent / name) if name else NOT_CALIBRATED


def measured_of(request: PlanRequest, request_path: Path, catalog: Catalog) -> MeasuredSet:
    """Measured points of the files that the request names; a GPU that the catalogue lacks could never match.

    Raises
    ------
    InputError
        Listing everything in the files that cannot be used.
    """
    problems = Problems()
    read = [
        problems.attempt(lambda name=name: read_points(request_path.parent / name))  # type: ignore[misc]
        for name in request.speed.measured
    ]
    for name, points in zip(request.speed.measured, read, strict=True):
        for gpu in sorted({point.served.gpu for point in points or ()}):
            problems.attempt(lambda gpu=gpu: catalog.gpu(gpu), name)  # type: ignore[misc]
    problems.raise_if_any()
    return MeasuredSet(tuple(point for points in read for point in points or ()))


def speed_sources(request: PlanRequest, catalog: Catalog, measured: MeasuredSet) -> SpeedSources:
    """Where speeds come from, as the request orders it.

    Raises
    ------
    InputError
        If the facts of a model cannot be used.
    """
    return replace(
        load_sources(catalog.root),
        measured=measured,
        providers=tuple(request.speed.providers),
        version=request.engine.version,
        silicon=silicon_source(catalog.root) if SILICON in request.speed.providers else None,
    )


def read_workloads(request: PlanRequest, request_path: Path, catalog: Catalog) -> tuple[Workload, ...]:
    """Shapes and traffic of all models; problems of all of them are reported together.

    Raises
    ------
    InputError
        If any weights, GPU name, tp degree or traffic file cannot be used.
    """
    problems = Problems()
    found = [_workload(model, request, request_path.parent, catalog, problems) for model in request.model]
    problems.raise_if_any()
    return tuple(workload for workload in found if workload is not None)


def _workload(
    model: ModelRequest, request: PlanRequest, folder: Path, catalog: Catalog, problems: Problems
) -> Workload | None:
    for name in model.gpus:
        problems.attempt(lambda name=name: catalog.gpu(name), f"model '{model.name}', gpus")  # type: ignore[misc]
    shape = problems.attempt(lambda: catalog.model_shape(model.weights, folder), f"model '{model.name}', weights")
    if shape is not None:
        _check_tp(model, shape, problems)
        _check_formats(model, shape, problems)
    source = model.traffic
    traffic = problems.attempt(
        lambda: load_traffic(
            folder / source.path,
            log_format=source.format,
            model=source.model,
            options=source.options,
            name=model.name,
        ),
        f"model '{model.name}', traffic",
    )
    quarter = request.quarter
    if shape is None or traffic is None:
        return None
    rates = problems.attempt(
        lambda: demand_of(source, traffic, quarter.start, quarter.end), f"model '{model.name}', traffic"
    )
    if rates is None:
        return None
    return Workload(
        request=model,
        shape=shape,
        traffic=traffic,
        rates=rates,
        horizon_hours=request.quarter.hours,
    )


def _check_tp(model: ModelRequest, shape: ModelShape, problems: Problems) -> None:
    """A degree that cannot divide the heads is a mistake in the request, not a candidate to reject in silence."""
    for tp in model.tp_degrees or ():
        if shape.attention_heads % tp:
            problems.add(
                f"model '{model.name}'",
                f"tp {tp} does not divide the {shape.attention_heads} attention heads of {shape.id}",
                "Remove it from tp_degrees",
                field="tp_degrees",
            )


def _check_formats(model: ModelRequest, shape: ModelShape, problems: Problems) -> None:
    """Which matrices a mixed checkpoint converts only the checkpoint tells: it cannot be assumed for another one."""
    if WeightDtype.MIXED in model.weight_dtypes and shape.native_weight_dtype != WeightDtype.MIXED:
        problems.add(
            f"model '{model.name}'",
            f"'mixed' holds for a checkpoint that mixes formats, and {shape.id} is stored in "
            f"{shape.native_weight_dtype}",
            "Name the mixed checkpoint in weights, or another format",
            field="weight_dtypes",
        )


def _check_degrees(request: PlanRequest, problems: Problems, where: str) -> None:
    """Degrees must divide each other: only then is counting GPUs the same as packing replicas into instances."""
    degrees = sorted({tp for model in request.model for tp in model.tp_degrees or DEFAULT_DEGREES})
    for small, large in itertools.pairwise(degrees):
        if large % small:
            problems.add(
                where,
                f"tp degrees {small} and {large} do not divide each other, so replicas cannot be packed exactly",
                "Use degrees such as 1, 2, 4, 8 over all models",
                field="tp_degrees",
            )


def _gpus(workload: Workload, offers: Sequence[Offer], catalog: Catalog) -> tuple[Gpu, ...]:
    """GPU types on offer that the model may use."""
    names = sorted({o.gpu for o in offers})
    allowed = [name for name in names if not workload.request.gpus or name in workload.request.gpus]
    return tuple(catalog.gpu(name) for name in allowed)


def _needs(
    workload: Workload,
    gpus: Sequence[Gpu],
    serving: Serving,
    request: PlanRequest,
    progress: Progress,
) -> tuple[Need, ...]:
    progress(f"candidates of {workload.name}")
    result = candidate_needs(workload, gpus, serving, request.policy)
    if not result.needs:
        raise_no_candidate(workload.name, result.rejections, [g.id for g in gpus])
    return result.needs


def _spare(model: ModelRequest, request: PlanRequest) -> int:
    return request.policy.spare_replicas if model.spare_replicas is None else model.spare_replicas
