"""Where a plan comes from and what its signer must know: input digests, owned assumptions, caveats."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from planner import __version__
from planner.catalog.engine import EngineFacts
from planner.catalog.load import Catalog
from planner.memory.types import WeightDtype
from planner.optimise.offers import AllowedOffers
from planner.optimise.program import quota_covers
from planner.optimise.types import Decision, ProgramData, Workload
from planner.origin import Origin
from planner.plan import Assumption, InputFile
from planner.report.launch import QUANTISED_ON_LOADING
from planner.request import PlanRequest
from planner.speed.measured import MeasuredSet
from planner.speed.roofline import FIGURES_USED
from planner.speed.types import MEASURED_PROVIDERS
from planner.traffic.law import sampling_warning
from planner.traffic.types import Traffic

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
    files += [
        InputFile(role="catalogue", path=str(path.relative_to(catalog.root)), sha256=_sha256(path))
        for path in catalog.files()
    ]
    return tuple(files)


def run_id(inputs: Sequence[InputFile]) -> str:
    """First 12 hex digits of the digest over the version and every input."""
    lines = [__version__, *(f"{f.role} {f.path} {f.sha256}" for f in inputs)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def assumptions_of(request: PlanRequest, workloads: Sequence[Workload], catalog: Catalog) -> tuple[Assumption, ...]:
    """Inputs that somebody must own; a date is the one that the request states, never the day of the run."""
    quarter, policy = request.quarter, request.policy
    facts = catalog.engine(request.engine.name, request.engine.version)

    def row(key: str, text: str, value: float | str, unit: str) -> Assumption:
        return Assumption(
            id=key, assumption=text, value=value, unit=unit, source="request", source_date=quarter.stated_on,
            owner=quarter.owner,
        )  # fmt: skip

    rows = [
        row("horizon_hours", "Hours in the horizon", quarter.hours, "h"),
        row("overflow", "Largest probability that live tokens exceed a pool", policy.overflow_probability, "share"),
        row("work", "Largest share of time that the work of the load may take", policy.max_work_share, "share"),
        row("max_price_age_days", "Oldest price that may be used", policy.max_price_age_days, "days"),
        row("speed_edge", "Edge of the 80 % speed band that constraints see", policy.speed_edge, ""),
        row(
            "measured_speed_edge",
            "The same for times measured on the very deployment, within twice the measured load",
            policy.measured_speed_edge,
            "",
        ),
        row("speed_measured", "Files of measured speeds", ", ".join(request.speed.measured) or "none", ""),
        row(
            "speed_providers", "Where speeds may come from, first choice first", ", ".join(request.speed.providers), ""
        ),
        row("engine", "Engine, as asked", f"{request.engine.name} {request.engine.version}", ""),
        row("engine_facts", "Engine facts used (nearest older version)", f"{facts.name} {facts.version}", ""),
        row("calibration", "File of measured terms, used before predictions", request.engine.calibration or "none", ""),
        row("scaling", "Scaling of a log to its stated rate", "lengths and index of dispersion kept", ""),
    ]
    for workload in workloads:
        rows += _workload_rows(workload, request)
    return tuple(rows)


def _last_day(log: Traffic) -> dt.date | None:
    """The day of a figure that was measured in a log: its last; none of a log without dates."""
    if not log.calendar_time:
        return None
    start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=log.window_start_us)
    return (start + dt.timedelta(seconds=log.window_s)).date()


def _workload_rows(workload: Workload, request: PlanRequest) -> list[Assumption]:
    traffic, law = workload.request.traffic, workload.traffic.law
    name, owner = workload.name, workload.request.owner or request.quarter.owner
    stated_on = request.quarter.stated_on

    def row(key: str, text: str, value: float | str, unit: str, note: str = "", log: str = "") -> Assumption:
        return Assumption(
            id=f"{key}_{name}", assumption=f"{name}: {text}", value=value, unit=unit,
            source=log or traffic.source or "request", owner=owner, note=note,
            source_date=stated_on if log else traffic.source_date or stated_on,
        )  # fmt: skip

    def measured(found: Assumption) -> Assumption:
        """Dated by the log, with what was assumed of it."""
        note = "; ".join(filter(None, [found.note, *workload.traffic.notes]))
        return found.model_copy(update={"note": note, "source_date": _last_day(workload.traffic) or stated_on})

    rates = workload.rates
    rate_log = workload.traffic.source if rates.rate_measured else ""
    peak_log = workload.traffic.source if rates.peak_measured else ""
    lengths = f"mean prompt {law.mean_prompt:,.0f}, mean output {law.mean_output:,.0f} tokens"
    notes = "; ".join([lengths, *workload.traffic.notes])
    rate = row("rate", "mean arrivals", rates.stated_rate_per_s, "requests/s", "; ".join(rates.notes), rate_log)
    peak = row("peak", "planning rate over mean rate", rates.peak_factor, "ratio", "", peak_log)
    return [
        measured(rate) if rate_log else rate,
        measured(peak) if peak_log else peak,
        row("growth", "growth until the horizon", rates.growth, "ratio"),
        row("lengths", "length law", f"{law.requests:,} requests", "", notes, workload.traffic.source),
        row("tail", "tail budget", workload.request.tail_budget, "share of requests"),
    ]


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
    lines += _price_caveats(decision, today)
    lines += _supply_caveats(data, decision)
    lines += [
        f"{c.model}: one replica and no spare; a failure or a restart stops the model"
        for c in decision.columns
        if c.replicas == 1
    ]
    lines += _checkpoint_caveats(decision)
    lines += _guess_caveats(decision)
    return tuple(lines)


def speed_caveats(decision: Decision, measured: MeasuredSet) -> tuple[str, ...]:
    """Measured points that are not used, and pools that no measurement holds for although some were given."""
    if not measured.points:
        return ()
    lines = list(measured.left_out())
    for column in decision.columns:
        config = column.need.config
        edges = {config.tpot_edge, config.ttft_edge}
        if config.speed.provider not in MEASURED_PROVIDERS:
            lines.append(
                f"{column.model}: no measured point is of {config.short_label}; {config.speed.provider} is used"
            )
        elif config.speed.reach is None:
            lines.append(
                f"{column.model}: measured on another engine version; the {'/'.join(sorted(edges))} edge is used"
            )
        elif edges == {"upper"}:
            reach = config.speed.reach
            lines.append(
                f"{column.model}: planned beyond twice the measured load ({reach.batch:,.0f} sequences, "
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


def _price_caveats(decision: Decision, today: dt.date) -> Iterable[str]:
    for offer in sorted({c.offer for c in decision.columns}, key=lambda o: o.id):
        age = (today - offer.as_of).days
        if age > OLD_PRICE_DAYS:
            yield f"{offer.id}: the price is {age} days old ({offer.as_of}); confirm it before signing"


def _supply_caveats(data: ProgramData, decision: Decision) -> Iterable[str]:
    """Bought without a stock or quota row, or outside a regional quota because the offer names no region."""
    for offer in data.offers:
        count = decision.instances.get(offer.id, 0)
        if not count:
            continue
        if not any(quota_covers(q, offer) for q in data.quotas):
            gpus = int(offer.gpus_per_instance) * count
            yield f"{offer.id}: no stock or quota row limits it; that {gpus} GPUs can be had is not confirmed"
        for quota in data.quotas:
            if quota.region and not offer.region and quota_covers(quota.model_copy(update={"region": ""}), offer):
                yield f"quota '{quota.name}' is for {quota.region}; {offer.id} names no region and is not counted"


def _checkpoint_caveats(decision: Decision) -> Iterable[str]:
    """Formats that neither the checkpoint has nor the engine makes of it on loading."""
    for column in decision.columns:
        sizing = column.need.config.sizing
        wanted, stored = sizing.deployment.weight_dtype, sizing.native_weight_dtype
        if wanted != stored and not (stored == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING):
            yield (
                f"{column.model}: planned in {wanted}, and {sizing.model_id} is stored in {stored}: a checkpoint in "
                f"{wanted} must be served; its bytes are those of every linear layer converted"
            )


def _guess_caveats(decision: Decision) -> Iterable[str]:
    """Figures that are guesses, one line each with the pools that use them."""
    users: dict[str, list[str]] = {}
    for column in decision.columns:
        config = column.need.config
        for term in (config.sizing.gpu_memory, *config.sizing.terms):
            if term.origin is Origin.GUESS:
                key = f"'{term.name}' is a guess ({term.source})"
                users.setdefault(key, []).append(f"{column.model} {term.gib:.2f} GiB")
        for field in sorted(set(config.gpu.unverified) & FIGURES_USED):
            users.setdefault(f"{config.gpu.id}: {field} is not verified in the catalogue", []).append(column.model)
    return [f"{text}: {', '.join(names)}" for text, names in users.items()]
