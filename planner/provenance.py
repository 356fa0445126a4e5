"""Where a plan comes from and what its signer must know: input digests and caveats."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from planner import __version__
from planner.assemble.stands import Standing, standings
from planner.catalog.engine import EngineFacts
from planner.catalog.load import Catalog
from planner.memory.types import WeightDtype
from planner.optimise.program import quota_covers
from planner.optimise.supply.lots import RENTED
from planner.optimise.supply.offers import AllowedOffers
from planner.optimise.types import Decision, Lot, LotKind, ProgramData, Workload
from planner.origin import Origin
from planner.plan import InputFile
from planner.plan_file import plan_file
from planner.report.launch import QUANTISED_ON_LOADING
from planner.request import PlanRequest
from planner.speed.measured import MeasuredSet
from planner.speed.roofline import FIGURES_USED
from planner.speed.types import MEASURED_PROVIDERS
from planner.traffic.canonical import digest
from planner.traffic.law import sampling_warning
from planner.traffic.week import LOG

OLD_PRICE_DAYS = 120
"""Age beyond which a price that a plan uses is worth a line."""
SCALES_WANTED = 3
"""Time scales of bursts that a log should resolve before its index of dispersion is believed at others."""


def input_files(
    request: PlanRequest, request_path: Path, catalog: Catalog, workloads: Sequence[Workload]
) -> tuple[InputFile, ...]:
    """Every file that the plan was made from, with its digest."""
    files = [InputFile(role="request", path=request_path.name, sha256=_sha256(request_path))]
    files += [
        InputFile(role=f"traffic of {w.name}", path=w.request.traffic.path, sha256=w.traffic.sha256) for w in workloads
    ]
    files += _named_logs(request, request_path.parent)
    if request.movement is not None:
        path = request_path.parent / request.movement.last_plan
        files.append(InputFile(role="last plan", path=request.movement.last_plan, sha256=_sha256(path)))
    files += _last_quarter(request, request_path.parent)
    if request.engine.calibration:
        path = request_path.parent / request.engine.calibration
        files.append(InputFile(role="calibration", path=request.engine.calibration, sha256=_sha256(path)))
    files += [
        InputFile(role="measured speed", path=name, sha256=_sha256(request_path.parent / name))
        for name in request.speed.measured
    ]
    for model in request.model:
        config = request_path.parent / model.weights
        if config.is_file():
            files.append(InputFile(role=f"config of {model.name}", path=model.weights, sha256=_sha256(config)))
    files += [InputFile(role="catalogue", path=catalog.name_of(path), sha256=_sha256(path)) for path in catalog.files()]
    return tuple(files)


def _named_logs(request: PlanRequest, folder: Path) -> Iterable[InputFile]:
    """Logs of tenants and of weeks, which are read beside the models' own."""
    for model in request.model:
        week = model.traffic.week
        named = [(f"week of {model.name}", week)] if week not in ("", LOG) else []
        named += [(f"traffic of {model.name}, tenant {tenant.name}", tenant.traffic.path) for tenant in model.tenant]
        for role, path in named:
            files = [folder / path] if (folder / path).is_file() else sorted((folder / path).rglob("*"))
            yield InputFile(role=role, path=path, sha256=digest([file for file in files if file.is_file()]))


def _last_quarter(request: PlanRequest, folder: Path) -> Iterable[InputFile]:
    """Last quarter's plan and what came of it."""
    asked = request.last_quarter
    if asked is None:
        return
    yield InputFile(role="last quarter's plan", path=asked.plan, sha256=_sha256(plan_file(folder / asked.plan)))
    if asked.actuals:
        yield InputFile(role="last quarter's actuals", path=asked.actuals, sha256=_sha256(folder / asked.actuals))


def started_from(last_plan: Path | None) -> tuple[InputFile, ...]:
    """The plan that a solve began from, as an input; among fleets within the gap it may decide."""
    if last_plan is None:
        return ()
    return (InputFile(role="start of the solve", path=str(last_plan), sha256=_sha256(plan_file(last_plan))),)


def run_id(inputs: Sequence[InputFile], settings: Sequence[str] = ()) -> str:
    """First 12 hex digits of the digest over the version, every input, and settings that are in none of them."""
    lines = [__version__, *(f"{f.role} {f.path} {f.sha256}" for f in inputs), *settings]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def caveats(
    request: PlanRequest,
    workloads: Sequence[Workload],
    offers: AllowedOffers,
    data: ProgramData,
    decision: Decision,
    facts: EngineFacts,
    today: dt.date,
) -> tuple[str, ...]:
    """What a signer must know: short or censored logs, old prices, unconfirmed stock, single replicas, guesses."""
    lines = [line for w in workloads for line in _log_caveats(w)]
    if facts.version != request.engine.version:
        lines.append(f"engine facts of {facts.name} {facts.version} are used for {request.engine.version}")
    if offers.stale:
        age = request.policy.max_price_age_days
        lines.append(f"{len(offers.stale)} offers left out: priced more than {age} days before {today}, or after it")
    pools = standings(decision, data.models)
    lots = [lot for lot in data.lots if any(decision.running.get(lot.id, ())) or decision.reserved.get(lot.id, 0)]
    lines += _price_caveats(lots, today)
    lines += _stock_caveats(data, decision, lots)
    lines += _contract_caveats(request, data, decision)
    lines += _spot_caveats(data, pools)
    lines += _single_caveats(data, pools)
    lines += _checkpoint_caveats(pools)
    lines += _guess_caveats(pools)
    return tuple(lines)


def speed_caveats(decision: Decision, measured: MeasuredSet) -> tuple[str, ...]:
    """Measured points that are not used, and pools that no measurement holds for although some were given."""
    if not measured.points:
        return ()
    lines = list(measured.left_out())
    for pool in standings(decision, sorted({column.model for column in decision.columns})):
        config = pool.part.need.config
        edges = {config.tpot_edge, config.ttft_edge}
        if config.speed.provider not in MEASURED_PROVIDERS:
            lines.append(f"{pool.name}: no measured point is of {config.short_label}; {config.speed.provider} is used")
        elif config.speed.reach is None:
            lines.append(f"{pool.name}: measured on another engine version; the {'/'.join(sorted(edges))} edge is used")
        elif edges == {"upper"}:
            reach = config.speed.reach
            lines.append(
                f"{pool.name}: planned beyond twice the measured load ({reach.batch:,.0f} sequences, "
                f"{reach.context_tokens:,.0f} tokens each), so the slow edge of a model's band is used"
            )
    return tuple(lines)


def _log_caveats(workload: Workload) -> Iterable[str]:
    traffic, budget = workload.traffic, workload.request.tail_budget
    tail = sampling_warning(traffic, budget)
    if tail:
        yield f"{workload.name}: {tail}"
    for cap in traffic.caps:
        yield (
            f"{workload.name}: {cap.share:.2%} of requests sit at the longest {cap.side} ({cap.tokens:,} tokens): "
            "they were cut there and grow if the limit is raised"
        )
    resolved = traffic.burst.scale_s[traffic.burst.resolution_ok]
    if resolved.size < SCALES_WANTED:
        scales = ", ".join(f"{scale:g} s" for scale in resolved)
        yield f"{workload.name}: the log resolves bursts only at {scales}; that dispersion is used at every scale"


def _price_caveats(lots: Sequence[Lot], today: dt.date) -> Iterable[str]:
    for offer in sorted({lot.offer for lot in lots}, key=lambda o: o.id):
        age = (today - offer.as_of).days
        if age > OLD_PRICE_DAYS:
            yield f"{offer.id}: the price is {age} days old ({offer.as_of}); confirm it before signing"


def _stock_caveats(data: ProgramData, decision: Decision, lots: Sequence[Lot]) -> Iterable[str]:
    """Rented without a stock or quota row, or outside a regional quota because the offer names no region."""
    for lot in lots:
        offer, count = lot.offer, max(decision.reserved.get(lot.id, 0), *decision.running.get(lot.id, (0,)))
        if lot.kind in RENTED and lot.available is None and not any(quota_covers(q, offer) for q in data.quotas):
            gpus = lot.gpus_per_instance * count
            yield f"{lot.id}: no stock or quota row limits it; that {gpus} GPUs can be had is not confirmed"
        for quota in data.quotas:
            if quota.region and not offer.region and quota_covers(quota.model_copy(update={"region": ""}), offer):
                yield f"quota '{quota.name}' is for {quota.region}; {lot.id} names no region and is not counted"


def _contract_caveats(request: PlanRequest, data: ProgramData, decision: Decision) -> Iterable[str]:
    """What is owed after the horizon, contracts that end inside it, and contracts that are paid and not used."""
    for lot in data.lots:
        owed = lot.liability_after_usd * decision.reserved.get(lot.id, 0)
        if owed > 0:
            yield f"{lot.id}: {owed:,.0f} USD more is due after the horizon, which is in no cost of this plan"
    quarter = request.quarter
    for held in request.commitment:
        if quarter.start < held.until < quarter.end:
            yield f"commitment to {held.offer} ends on {held.until}, inside the horizon; nothing runs on it afterwards"
    hours = [period.hours for period in data.periods]
    for lot in data.lots:
        if lot.kind is LotKind.EXISTING_COMMITMENT and lot.available is not None:
            paid = sum(n * h for n, h in zip(lot.available, hours, strict=True))
            used = sum(n * h for n, h in zip(decision.running.get(lot.id, (0,) * len(hours)), hours, strict=True))
            if used < paid:
                yield f"{lot.id}: {paid - used:,.0f} of {paid:,.0f} paid instance-hours are not used"


def _spot_caveats(data: ProgramData, pools: Sequence[Standing]) -> Iterable[str]:
    spot = {supply.id for supply in data.supplies if supply.spot}
    for pool in pools:
        on = sorted(spot & set(pool.on))
        if on:
            yield f"{pool.name}: stands on spot ({', '.join(on)}); instances may be taken away at any time"


def _single_caveats(data: ProgramData, pools: Sequence[Standing]) -> Iterable[str]:
    """Pools of which a single replica runs, always or in some periods."""
    for pool in pools:
        alone = [period.name for period, n in zip(data.periods, pool.replicas, strict=True) if n == 1]
        when = "" if len(alone) == len(data.periods) else f" in {', '.join(alone)}"
        if alone:
            yield f"{pool.name}: one replica and no spare{when}; a failure or a restart stops the pool"


def _checkpoint_caveats(pools: Sequence[Standing]) -> Iterable[str]:
    """Formats that neither the checkpoint has nor the engine makes of it on loading."""
    for pool in pools:
        sizing = pool.part.need.config.sizing
        wanted, stored = sizing.deployment.weight_dtype, sizing.native_weight_dtype
        if wanted != stored and not (stored == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING):
            yield (
                f"{pool.name}: planned in {wanted}, and {sizing.model_id} is stored in {stored}: a checkpoint in "
                f"{wanted} must be served; its bytes are those of every linear layer converted"
            )


def _guess_caveats(pools: Sequence[Standing]) -> Iterable[str]:
    """Figures that are guesses, one line each with the pools that use them."""
    users: dict[str, list[str]] = {}
    for pool in pools:
        config = pool.part.need.config
        for term in (config.sizing.gpu_memory, *config.sizing.terms):
            if term.origin is Origin.GUESS:
                key = f"'{term.name}' is a guess ({term.source})"
                users.setdefault(key, []).append(f"{pool.name} {term.gib:.2f} GiB")
        if "guess" in config.speed.source:
            key = f"speed on {config.gpu.id} is a guess: {config.speed.source}"
            users.setdefault(key, []).append(pool.name)
        for field in sorted(set(config.gpu.unverified) & FIGURES_USED):
            users.setdefault(f"{config.gpu.id}: {field} is not verified in the catalogue", []).append(pool.name)
    return [f"{text}: {', '.join(names)}" for text, names in users.items()]
