"""The whole pipeline, left to right, in one file.

request -> catalog, traffic -> memory, speed -> queueing -> optimise -> `FleetPlan`. Writing the plan out is `report`'s.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from planner import __version__
from planner.assemble import Context, assemble
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.catalog.offer import Offer
from planner.errors import Problems
from planner.optimise.candidates import candidate_needs
from planner.optimise.exact import Fleet
from planner.optimise.explain import raise_no_candidate, raise_short, runner_up
from planner.optimise.offers import AllowedOffers, allowed_offers, undominated
from planner.optimise.types import Need, ProgramData, SolverSettings, Workload
from planner.plan import Assumption, FleetPlan, InputFile
from planner.request import ModelRequest, PlanRequest, read_request
from planner.speed.facts import SpeedFacts, load_speed_facts
from planner.traffic.law import sampling_warning
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
    problems.attempt(lambda: catalog.engine(request.engine.name, request.engine.version))
    offers = problems.attempt(lambda: allowed_offers(catalog.offers, request, created_at.date(), str(request_path)))
    workloads = problems.attempt(lambda: read_workloads(request, request_path, catalog))
    problems.raise_if_any()
    assert offers is not None
    assert workloads is not None
    fleet = fleet_of(request, workloads, offers.usable, catalog, progress)
    settings = SolverSettings(**request.solver.model_dump())
    progress("solving the integer program")
    decision = fleet.solve(settings)
    if decision is None:
        raise_short(fleet, settings)
    runners_up = {}
    for column in decision.columns:
        progress(f"runner-up of {column.model}")
        runners_up[column.model] = runner_up(fleet, decision, column, settings)
    context = Context(
        request=request,
        workloads={w.name: w for w in workloads},
        data=fleet.data(),
        settings=settings,
        inputs=(inputs := _inputs(request_path, catalog, workloads)),
        assumptions=_assumptions(request, workloads, catalog, created_at.date()),
        warnings=_warnings(workloads, offers, request),
        run_id=_run_id(inputs),
        created_at=created_at,
    )
    return assemble(context, decision, runners_up)


def fleet_of(
    request: PlanRequest,
    workloads: Sequence[Workload],
    offers: Sequence[Offer],
    catalog: Catalog,
    progress: Progress = lambda text: None,
) -> Fleet:
    """Candidates of all models on the offers that may be used, ready to be solved.

    Raises
    ------
    InfeasibleError
        If a model has no candidate at all.
    """
    facts, speed = catalog.engine(request.engine.name, request.engine.version), load_speed_facts(catalog.root)
    data = ProgramData(
        models=tuple(w.name for w in workloads),
        bands=1,
        offers=undominated(offers, request.quota),
        columns=(),
        quotas=request.quota,
        budget_usd=request.budget_usd,
        horizon_hours=request.quarter.hours,
    )
    needs = {w.name: _needs(w, _gpus(w, data.offers, catalog), facts, speed, request, progress) for w in workloads}
    spares = {w.name: _spare(w.request, request) for w in workloads}
    return Fleet(workloads, needs, spares, data, request.policy.speed_edge, progress)


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
        problems.attempt(lambda name=name: catalog.gpu(name))  # type: ignore[misc]
    shape = problems.attempt(lambda: catalog.model_shape(model.weights, folder))
    if shape is not None:
        _check_tp(model, shape, problems)
    source = model.traffic
    traffic = problems.attempt(
        lambda: load_traffic(
            folder / source.path,
            log_format=source.format,
            model=source.model,
            options=source.options,
            name=model.name,
        )
    )
    if shape is None or traffic is None:
        return None
    mean_rate = source.rate_per_s * source.growth
    return Workload(
        request=model,
        shape=shape,
        traffic=traffic,
        planning_rate_per_s=mean_rate * source.peak_factor,
        mean_rate_per_s=mean_rate,
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


def _gpus(workload: Workload, offers: Sequence[Offer], catalog: Catalog) -> tuple[Gpu, ...]:
    """GPU types on offer that the model may use."""
    names = sorted({o.gpu for o in offers})
    allowed = [name for name in names if not workload.request.gpus or name in workload.request.gpus]
    return tuple(catalog.gpu(name) for name in allowed)


def _needs(
    workload: Workload,
    gpus: Sequence[Gpu],
    facts: EngineFacts,
    speed: SpeedFacts,
    request: PlanRequest,
    progress: Progress,
) -> tuple[Need, ...]:
    progress(f"candidates of {workload.name}")
    result = candidate_needs(workload, gpus, facts, speed, request.policy, request.engine.gpu_memory_utilization)
    if not result.needs:
        raise_no_candidate(workload.name, result.rejections, [g.id for g in gpus])
    return result.needs


def _spare(model: ModelRequest, request: PlanRequest) -> int:
    return request.policy.spare_replicas if model.spare_replicas is None else model.spare_replicas


def _inputs(request_path: Path, catalog: Catalog, workloads: Sequence[Workload]) -> tuple[InputFile, ...]:
    files = [InputFile(role="request", path=request_path.name, sha256=_sha256(request_path))]
    files += [
        InputFile(role=f"traffic of {w.name}", path=w.request.traffic.path, sha256=w.traffic.sha256) for w in workloads
    ]
    files += [
        InputFile(role="catalogue", path=str(path.relative_to(catalog.root)), sha256=_sha256(path))
        for path in catalog.files()
    ]
    return tuple(files)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run_id(inputs: Sequence[InputFile]) -> str:
    lines = [__version__, *(f"{f.role} {f.path} {f.sha256}" for f in inputs)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _warnings(workloads: Sequence[Workload], offers: AllowedOffers, request: PlanRequest) -> tuple[str, ...]:
    """What a signer must know about the samples and the prices."""
    tails = (sampling_warning(w.traffic, w.request.tail_budget) for w in workloads)
    lines = [f"{w.name}: {text}" for w, text in zip(workloads, tails, strict=True) if text]
    if offers.stale:
        age = request.policy.max_price_age_days
        lines.append(f"{len(offers.stale)} offers left out: priced more than {age} days ago")
    return tuple(lines)


def _assumptions(
    request: PlanRequest, workloads: Sequence[Workload], catalog: Catalog, today: dt.date
) -> tuple[Assumption, ...]:
    """Inputs that somebody must own, for the Inputs sheet."""
    owner, where = request.quarter.owner, "request"
    facts = catalog.engine(request.engine.name, request.engine.version)

    def row(
        key: str, text: str, value: float | str, unit: str, source: str, who: str = owner, note: str = ""
    ) -> Assumption:
        return Assumption(
            id=key, assumption=text, value=value, unit=unit, source=source, source_date=today, owner=who, note=note
        )

    policy = request.policy
    rows = [
        row("horizon_hours", "Hours in the horizon", request.quarter.hours, "h", where),
        row(
            "overflow",
            "Largest probability that live tokens exceed a pool",
            policy.overflow_probability,
            "share",
            where,
        ),
        row("work", "Largest share of time that the work of the load may take", policy.max_work_share, "share", where),
        row("max_price_age_days", "Oldest price that may be used", policy.max_price_age_days, "days", where),
        row("speed_edge", "Edge of the speed band that constraints see", policy.speed_edge, "", where),
        row("engine", "Engine", f"{facts.name} {facts.version}", "", "engine facts of the catalogue"),
    ]
    for w in workloads:
        t = w.request.traffic
        source, who = t.source or where, w.request.owner or owner
        rows += [
            row(f"rate_{w.name}", f"{w.name}: mean arrivals", t.rate_per_s, "requests/s", source, who),
            row(f"peak_{w.name}", f"{w.name}: planning rate over mean rate", t.peak_factor, "ratio", source, who),
            row(f"growth_{w.name}", f"{w.name}: growth until the horizon", t.growth, "ratio", source, who),
            row(
                f"lengths_{w.name}", f"{w.name}: length law", f"{w.traffic.law.requests:,} requests", "",
                w.traffic.source, who,
                f"mean prompt {w.traffic.law.mean_prompt:,.0f}, mean output {w.traffic.law.mean_output:,.0f} tokens",
            ),
            row(f"tail_{w.name}", f"{w.name}: tail budget", w.request.tail_budget, "share of requests", where, who),
        ]  # fmt: skip
    return tuple(rows)
