"""Inputs that somebody must own: each with its own source and date, never the day of the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.catalog.load import Catalog
from planner.optimise.supply.power import HOST_POWER_FACTOR, has_cap
from planner.optimise.types import Workload
from planner.plan import Assumption
from planner.request import ApprovedDtypes, Buying, ModelRequest, Owned, PlanRequest, Scaling, Site, Targets
from planner.traffic.prompt_bursts import burst_assumption
from planner.traffic.types import Traffic

NO_LIMIT = "no limit"


@dataclass(frozen=True)
class Owner:
    """Whose figures rows show: source, date and name."""

    source: str
    date: dt.date | None
    name: str

    def row(self, key: str, text: str, value: float | str, unit: str = "", note: str = "") -> Assumption:
        """One assumption of this owner."""
        return Assumption(
            id=key, assumption=text, value=value, unit=unit, source=self.source, source_date=self.date,
            owner=self.name, note=note,
        )  # fmt: skip


def assumptions_of(request: PlanRequest, workloads: Sequence[Workload], catalog: Catalog) -> tuple[Assumption, ...]:
    """Inputs that somebody must own; a date is the one that the request states."""
    quarter = request.quarter
    owner = Owner("request", quarter.stated_on, quarter.owner)
    return (
        *_policy(request, owner, catalog),
        *_time(request, owner),
        *_supply(request, owner),
        *(row for hardware in request.owned for row in _owned(hardware, request)),
        *(row for hardware in request.buying for row in _bought(hardware, request)),
        *(row for site in request.site for row in _site(site, request)),
        *(row for workload in workloads for row in _workload(workload, request)),
    )


def _policy(request: PlanRequest, owner: Owner, catalog: Catalog) -> Iterator[Assumption]:
    policy = request.policy
    facts = catalog.engine(request.engine.name, request.engine.version)
    measured = "The same for times measured on the very deployment, within twice the measured load"
    yield owner.row("horizon_hours", "Hours in the horizon", request.quarter.hours, "h")
    yield owner.row(
        "overflow", "Largest probability that live tokens exceed a pool", policy.overflow_probability, "share"
    )
    doubt = "How unsure what a request holds is, as a coefficient of variation"
    yield owner.row("load_cv", doubt, policy.load_cv, "share")
    yield owner.row("tail_confidence", "Confidence with which tail budgets are kept", policy.tail_confidence, "share")
    yield owner.row("work", "Largest share of time that the work of the load may take", policy.max_work_share, "share")
    yield owner.row("max_price_age_days", "Oldest price that may be used", policy.max_price_age_days, "days")
    if policy.max_engine_fact_age_days is not None:
        days = policy.max_engine_fact_age_days
        yield owner.row("max_engine_fact_age_days", "Oldest engine fact that may be used", days, "days")
    yield owner.row("speed_edge", "Edge of the 80 % speed band that constraints see", policy.speed_edge)
    yield owner.row("measured_speed_edge", measured, policy.measured_speed_edge)
    yield owner.row("speed_measured", "Files of measured speeds", ", ".join(request.speed.measured) or "none")
    yield owner.row(
        "speed_providers", "Where speeds may come from, first choice first", ", ".join(request.speed.providers)
    )
    yield owner.row("engine", "Engine, as asked", f"{request.engine.name} {request.engine.version}")
    yield owner.row("engine_facts", "Engine facts used (nearest older version)", f"{facts.name} {facts.version}")
    yield owner.row(
        "calibration", "File of measured terms, used before predictions", request.engine.calibration or "none"
    )
    yield owner.row("scaling", "Scaling of a log to its stated rate", "lengths and index of dispersion kept")


def _time(request: PlanRequest, owner: Owner) -> Iterator[Assumption]:
    """Periods and routing: how far replica counts follow the hours, and how many pools a model may have."""
    time, routing = request.time, request.routing
    if time is None:
        yield owner.row("periods", "Periods that replica counts follow", "one: every hour at the planning rate")
    else:
        days = ", ".join(str(day) for day in time.holidays) or "none"
        yield owner.row("periods", "Groups of hours of the week that are planned alike", time.week_periods, "groups")
        yield owner.row("periods_by_month", "Months told apart where growth differs", "yes" if time.by_month else "no")
        yield owner.row("periods_zone", "Time zone of the week", time.zone, "", f"holidays: {days}")
    yield owner.row("max_pools", "Most pools a model", routing.max_pools, "pools")
    if routing.cuts:
        cuts = ", ".join(f"{cut:,}" for cut in routing.cuts)
        yield owner.row("cuts", "Prompt lengths at which a router may cut", cuts, "tokens")
    elif routing.max_pools > 1 or any((model.max_pools or 1) > 1 for model in request.model):
        yield owner.row("bands", "Bands of prompt lengths that pools are made of", routing.bands, "bands")


def _supply(request: PlanRequest, owner: Owner) -> Iterator[Assumption]:
    policy = request.policy
    if any(model.interruptible for model in request.model):
        yield owner.row(
            "spot_reserve", "Share of spot instances kept free for interruptions", policy.spot_reserve, "share"
        )
    if has_cap(policy):
        note = "guess: the largest of three printed machines; rented machines are not measured"
        text = "Power of a rented machine over the TDP of its GPUs"
        yield owner.row("host_power_factor", text, HOST_POWER_FACTOR, "ratio", note)
    for n, held in enumerate(request.commitment, start=1):
        text = f"Commitment to {held.offer}"
        price = "the catalogue's" if held.usd_per_instance_h is None else held.usd_per_instance_h
        yield owner.row(f"commitment_{n}_instances", f"{text}: instances", held.instances, "instances")
        yield owner.row(f"commitment_{n}_until", f"{text}: first day that is not paid", str(held.until), "date")
        yield owner.row(f"commitment_{n}_price", f"{text}: price", price, "USD/instance-h")
    for n, link in enumerate(request.multi_node, start=1):
        what = " ".join(filter(None, (link.provider, link.gpu, link.offer))) or "all offers"
        linked = Owner(link.source, owner.date, owner.name)
        yield linked.row(f"multi_node_{n}", f"{what}: network between instances, a GPU", link.network_gb_s, "GB/s")
    if request.movement is not None:
        text = "GPUs by which a model may exceed last quarter's, in all"
        yield owner.row("max_moved_gpus", text, request.movement.max_moved_gpus, "GPUs", request.movement.last_plan)


def _figures(
    own: Owner, key: str, text: str, figures: Sequence[tuple[str, str, float | str | None, str]]
) -> Iterator[Assumption]:
    """A row for each figure that is stated: its key, name, value and unit."""
    for name, words, value, unit in figures:
        if value is not None:
            yield own.row(f"{key}_{name}", f"{text}: {words}", value, unit)


def _owned(hardware: Owned, request: PlanRequest) -> Iterator[Assumption]:
    quarter = request.quarter
    own = Owner(hardware.source, hardware.source_date or quarter.stated_on, quarter.owner)
    figures = (
        ("instances", f"instances of {hardware.gpus_per_instance} {hardware.gpu}", hardware.instances, "instances"),
        ("until", "first day on which it is gone", None if hardware.until is None else str(hardware.until), "date"),
        ("usd_per_h", "an hour of running one", hardware.usd_per_instance_h, "USD/instance-h"),
        ("power", "power of a running one, before PUE", hardware.power_kw, "kW"),
    )
    return _figures(own, f"owned_{hardware.name}", f"Owned {hardware.name}", figures)


def _bought(hardware: Buying, request: PlanRequest) -> Iterator[Assumption]:
    quarter = request.quarter
    own = Owner(hardware.source, hardware.source_date or quarter.stated_on, quarter.owner)
    figures = (
        ("max", f"most instances of {hardware.gpus_per_instance} {hardware.gpu}", hardware.max_instances, "instances"),
        ("capex", "price of one, installed", hardware.capex_usd, "USD"),
        ("life", "life", hardware.life_years, "years"),
        ("residual", "left of the price at its end", hardware.residual_share, "share"),
        ("capital", "cost of capital a year", hardware.cost_of_capital, "share"),
        ("power", "power of a running one, before PUE", hardware.power_kw, "kW"),
        ("colocation", "room a month", hardware.colocation_usd_per_month, "USD/instance-month"),
        ("maintenance", "maintenance a year, of the price", hardware.maintenance_share_per_year, "share"),
    )
    return _figures(own, f"bought_{hardware.name}", f"To buy {hardware.name}", figures)


def _site(site: Site, request: PlanRequest) -> Iterator[Assumption]:
    quarter = request.quarter
    own = Owner(site.source, site.source_date or quarter.stated_on, quarter.owner)
    figures = (
        ("pue", "power at the meter over that of the machines", site.pue, "ratio"),
        ("usd_per_kwh", "electricity", site.usd_per_kwh, "USD/kWh"),
        ("carbon", "emission", site.carbon_kg_per_kwh, "kg CO2e/kWh"),
    )
    return _figures(own, f"site_{site.region}", f"Site {site.region or 'of all other regions'}", figures)


def _last_day(log: Traffic) -> dt.date | None:
    """The day of a figure that was measured in a log: its last; none of a log without dates."""
    if not log.calendar_time:
        return None
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=log.window_start_us)
    return (start + dt.timedelta(seconds=log.window_s)).date()


def _workload(workload: Workload, request: PlanRequest) -> Iterator[Assumption]:
    model, traffic, rates = workload.request, workload.request.traffic, workload.rates
    law, name, stated_on = workload.traffic.law, workload.name, request.quarter.stated_on
    person = model.owner or request.quarter.owner
    stated = Owner(traffic.source or "request", traffic.source_date or stated_on, person)
    log = Owner(workload.traffic.source, stated_on, person)
    dated = Owner(workload.traffic.source, _last_day(workload.traffic) or stated_on, person)
    log_notes = "; ".join(workload.traffic.notes)

    def row(own: Owner, key: str, text: str, value: float | str, unit: str, note: str = "") -> Assumption:
        return own.row(f"{key}_{name}", f"{name}: {text}", value, unit, note)

    rate_notes = "; ".join([*rates.notes, *(workload.traffic.notes if rates.rate_measured else ())])
    lengths = f"mean prompt {law.mean_prompt:,.0f}, mean output {law.mean_output:,.0f} tokens"
    yield row(
        dated if rates.rate_measured else stated, "rate", "mean arrivals", rates.stated_rate_per_s, "requests/s",
        rate_notes,
    )  # fmt: skip
    yield row(
        dated if rates.peak_measured else stated, "peak", "planning rate over mean rate", rates.peak_factor, "ratio",
        log_notes if rates.peak_measured else "",
    )  # fmt: skip
    yield row(stated, "growth", "growth until the horizon", rates.growth, "ratio")
    note = "; ".join([lengths, *workload.traffic.notes])
    yield row(log, "lengths", "length law", f"{law.requests:,} requests", "", note)
    if len(workload.slices) > 1:
        yield row(log, "prompt_bursts", "bursts of prompt lengths", burst_assumption(workload.traffic), "")
    yield row(stated, "tail", "tail budget", model.tail_budget, "share of requests")
    yield from _rules(model, Owner("request", stated_on, person))


def _rules(model: ModelRequest, own: Owner) -> Iterator[Assumption]:
    """How a model may be served: week, pools, tenants, scaling, quality, places; only what is not the default."""
    name = model.name
    found: list[tuple[str, str, float | str, str]] = []
    if model.traffic.week:
        found.append(("week", "hours of the week from", model.traffic.week, ""))
    if model.max_pools is not None:
        found.append(("max_pools", "most pools", model.max_pools, "pools"))
    if model.scaling != Scaling():
        found += _scaling(model.scaling)
    for tenant in model.tenant:
        share = "its log over all logs" if tenant.traffic.share is None else tenant.traffic.share
        found.append((f"tenant_{tenant.name}", f"share of {tenant.name}", share, "share"))
        if tenant.targets is not None:
            found.append((f"targets_{tenant.name}", f"targets of {tenant.name}", _targets(tenant.targets), ""))
        if tenant.tail_budget is not None:
            text = f"tail budget of {tenant.name}"
            found.append((f"tail_{tenant.name}", text, tenant.tail_budget, "share of requests"))
    if model.max_score_drop is not None:
        found.append(("max_score_drop", "largest drop of its quality score", model.max_score_drop, "share"))
    if model.interruptible:
        found.append(("interruptible", "replicas may stand on spot", "yes", ""))
    if model.regions:
        found.append(("regions", "regions that it may stand in", ", ".join(model.regions), ""))
    if model.survives_region_loss:
        found.append(("region_loss", "any one region may be lost", "yes", ""))
    yield from (own.row(f"{key}_{name}", f"{name}: {text}", value, unit) for key, text, value, unit in found)
    yield from (_quality(name, pair, own) for pair in model.quality)


def _scaling(scaling: Scaling) -> list[tuple[str, str, float | str, str]]:
    return [
        ("fixed", "replicas the same in every period", "yes" if scaling.fixed else "no", ""),
        ("min_replicas", "least replicas of a pool", scaling.min_replicas, "replicas"),
        ("step", "replicas added and removed at a time", scaling.step, "replicas"),
        ("warm_up", "from the decision until a replica serves", scaling.warm_up_min, "minutes"),
    ]


def _targets(targets: Targets) -> str:
    """Latency targets in words."""
    tpot = "no TPOT target" if targets.tpot_ms is None else f"TPOT {targets.tpot_ms:g} ms"
    ttft = "no TTFT target" if targets.ttft_ms is None else f"TTFT {targets.ttft_ms:g} ms"
    return f"{tpot}, {ttft} at {targets.ttft_percentile:.0%}"


def _quality(name: str, pair: ApprovedDtypes, own: Owner) -> Assumption:
    """A measured pair of formats, with the source and date of the measurement."""
    formats = f"{pair.weight_dtype}/{pair.kv_dtype}"
    measured = Owner(pair.source, pair.source_date or own.date, own.name)
    text = f"{name}: drop of the quality score in {formats}"
    return measured.row(f"quality_{formats}_{name}", text, pair.score_drop, "share")
