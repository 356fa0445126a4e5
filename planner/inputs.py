"""Everything that a plan reads, once: shapes, logs, offers, measured terms and speeds; problems reported together."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from planner.age_limits import check_ages
from planner.catalog.engine import EngineFacts
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import Problems
from planner.futures.last_quarter import last_quarter_of, with_actual_rates
from planner.memory.calibration import NOT_CALIBRATED, Calibration, read_calibration
from planner.memory.types import WeightDtype
from planner.optimise.needs.configurations import DEFAULT_DEGREES
from planner.optimise.supply.checks import check_supply
from planner.optimise.supply.movement import movement_of
from planner.optimise.supply.offers import AllowedOffers, allowed_offers
from planner.optimise.types import Movement, Serving
from planner.request import ModelRequest, PlanRequest, TenantTraffic, TrafficSource, read_request
from planner.speed.chain import SILICON, SpeedSources, load_sources
from planner.speed.load_tests.points_file import read_points
from planner.speed.measured import NOTHING_MEASURED, MeasuredSet
from planner.speed.silicon import silicon_source
from planner.study import LastQuarter
from planner.traffic.demand import DemandRates, demand_of
from planner.traffic.source import load_traffic
from planner.traffic.types import Traffic
from planner.traffic.week import FLAT, WeekShape, week_of


@dataclass(frozen=True)
class ModelInputs:
    """What is read for one model."""

    request: ModelRequest
    shape: ModelShape
    traffic: Traffic
    tenants: Mapping[str, Traffic]
    """Logs of its tenants, by name."""
    rates: DemandRates
    week: WeekShape


@dataclass(frozen=True)
class Inputs:
    """What is read for a plan."""

    request: PlanRequest
    path: Path
    today: dt.date
    catalog: Catalog
    facts: EngineFacts
    offers: AllowedOffers
    models: tuple[ModelInputs, ...]
    calibration: Calibration = NOT_CALIBRATED
    measured: MeasuredSet = NOTHING_MEASURED
    movement: Movement | None = None
    last: LastQuarter | None = None
    """Last quarter's plan, where the request names one."""

    @property
    def serving(self) -> Serving:
        """What every replica is served with."""
        engine = self.request.engine
        speed = speed_sources(self.request, self.catalog, self.measured)
        return Serving(self.facts, speed, engine.gpu_memory_utilization, self.calibration)

    def under(self, request: PlanRequest) -> Inputs:
        """The same files under a request that differs in targets, budgets, limits or policy only."""
        return replace(
            self,
            request=request,
            models=tuple(replace(m, request=r) for m, r in zip(self.models, request.model, strict=True)),
        )


def read_inputs(path: Path, catalog: Catalog, today: dt.date) -> Inputs:
    """Read a request and every file that it names.

    Raises
    ------
    InputError
        Listing everything that cannot be used.
    """
    problems = Problems()
    request, last = _with_last_quarter(read_request(path), path, problems)
    facts = problems.attempt(lambda: catalog.engine(request.engine.name, request.engine.version))
    if request.quarter.end <= today:
        problems.add(str(path), "the horizon is already over", "Move start and end", field="quarter.end")
    _check_degrees(request, problems, str(path))
    offers = problems.attempt(lambda: allowed_offers(catalog.offers, request, today, str(path)))
    problems.attempt(lambda: check_supply(request, catalog, str(path)))
    models = problems.attempt(lambda: read_models(request, path.parent, catalog))
    calibration = problems.attempt(lambda: calibration_of(request, path))
    measured = problems.attempt(lambda: measured_of(request, path, catalog))
    movement = problems.attempt(lambda: movement_of(request, path.parent))
    if facts is not None:
        known = [model.shape.architecture for model in models or ()]
        problems.attempt(lambda: check_ages(request, catalog, facts, known, today, str(path)))
    problems.raise_if_any()
    assert facts is not None
    assert offers is not None
    assert models is not None
    assert calibration is not None
    assert measured is not None
    return Inputs(request, path, today, catalog, facts, offers, models, calibration, measured, movement, last)


def _with_last_quarter(request: PlanRequest, path: Path, problems: Problems) -> tuple[PlanRequest, LastQuarter | None]:
    """The request with the rates that last quarter's actuals tell, and last quarter."""
    before = len(problems.found)
    last = problems.attempt(lambda: last_quarter_of(request, path))
    if len(problems.found) > before:
        return request, None
    return problems.attempt(lambda: with_actual_rates(request, last, str(path))) or request, last


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


def read_models(request: PlanRequest, folder: Path, catalog: Catalog) -> tuple[ModelInputs, ...]:
    """Shapes and logs of all models; problems of all of them are reported together.

    Raises
    ------
    InputError
        If any weights, GPU name, tp degree or traffic file cannot be used.
    """
    problems = Problems()
    found = [_model(model, request, folder, catalog, problems) for model in request.model]
    problems.raise_if_any()
    return tuple(model for model in found if model is not None)


def _model(
    model: ModelRequest, request: PlanRequest, folder: Path, catalog: Catalog, problems: Problems
) -> ModelInputs | None:
    where = f"model '{model.name}'"
    for name in model.gpus:
        problems.attempt(lambda name=name: catalog.gpu(name), f"{where}, gpus")  # type: ignore[misc]
    shape = problems.attempt(lambda: catalog.model_shape(model.weights, folder), f"{where}, weights")
    if shape is not None:
        _check_tp(model, shape, problems)
        _check_formats(model, shape, problems)
    by_prompt = (model.max_pools or request.routing.max_pools) > 1
    traffic = problems.attempt(lambda: _log(model.traffic, folder, model.name, by_prompt), f"{where}, traffic")
    tenants = {
        tenant.name: problems.attempt(
            lambda tenant=tenant: _log(tenant.traffic, folder, model.name, by_prompt),  # type: ignore[misc]
            f"{where}, tenant '{tenant.name}'",
        )
        for tenant in model.tenant
    }
    if shape is None or traffic is None:
        return None
    start, end = request.quarter.start, request.quarter.end
    rates = problems.attempt(lambda: demand_of(model.traffic, traffic, start, end), f"{where}, traffic")
    week = problems.attempt(lambda: _week(request, model, traffic, folder), f"{where}, traffic.week")
    if rates is None or week is None:
        return None
    read = {name: log for name, log in tenants.items() if log is not None}
    return ModelInputs(model, shape, traffic, read, rates, week)


def _week(request: PlanRequest, model: ModelRequest, traffic: Traffic, folder: Path) -> WeekShape:
    return FLAT if request.time is None else week_of(model.traffic, traffic, request.time, folder)


def _log(source: TrafficSource | TenantTraffic, folder: Path, name: str, by_prompt: bool) -> Traffic:
    """One log; where pools may be cut by prompt length, with the bursts of its prompt lengths."""
    return load_traffic(
        folder / source.path,
        log_format=source.format,
        model=source.model,
        options=source.options,
        name=name,
        prompt_bursts=by_prompt,
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
