"""Rows of sheet Inputs that formulas read: prices, demand and limits of a plan."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.plan import FleetPlan, Pool, Purchase
from planner.report import facts
from planner.report.sheets.input_contracts import contract_rows
from planner.report.sheets.input_ids import (
    CREATED,
    FX,
    GAP_TARGET,
    HOURS,
    PRICE_AGE,
    demand_id,
    liability_id,
    price_id,
    quota_id,
    reserved_id,
    size_id,
    sunk_id,
    tail_id,
    target_id,
    work_id,
)
from planner.report.style import Kind
from planner.request import Policy

PRICE_GROUP = "Price"


@dataclass(frozen=True)
class InputRow:
    """One row of the Inputs sheet."""

    id: str
    group: str
    text: str
    unit: str
    value: float | str | dt.date
    source: str
    date: dt.date | None
    owner: str
    note: str = ""
    kind: Kind = Kind.INPUT


def made_rows(plan: FleetPlan) -> tuple[InputRow, ...]:
    """Every row that formulas read, in order."""
    return (*_plan_rows(plan), *_price_rows(plan), *_model_rows(plan), *_demand_rows(plan), *_limit_rows(plan))


def _run(plan: FleetPlan) -> str:
    return f"planner run {plan.run_id}"


def _file(plan: FleetPlan, role: str) -> str | None:
    return next((file.path for file in plan.inputs if file.role == role), None)


def _request(plan: FleetPlan) -> str:
    path = _file(plan, "request")
    return f"request {path}" if path else "request"


def _stated_on(plan: FleetPlan) -> dt.date | None:
    """Date of the request's own figures, as the plan's assumption on the horizon states it."""
    return next((a.source_date for a in plan.assumptions if a.id == "horizon_hours"), None)


def _plan_rows(plan: FleetPlan) -> Iterator[InputRow]:
    day, stated = facts.created_utc(plan).date(), _stated_on(plan)
    span = f"{plan.horizon_start} to {plan.horizon_end} (end exclusive)"
    yield InputRow(CREATED, "Plan", "Day of planning", "date", day, _run(plan), day, plan.owner, "", Kind.RESULT)
    yield InputRow(
        HOURS, "Plan", "Hours of the horizon", "h", plan.horizon_hours, f"{_request(plan)}: {span}", stated, plan.owner
    )
    gap = plan.solve.gap_target
    yield InputRow(
        GAP_TARGET, "Plan", "Largest gap to the proven bound", "share", gap, _request(plan), stated, plan.owner
    )
    money = plan.reporting
    if money is not None:
        text, unit = f"{money.currency} for one USD, at which amounts are reported", f"{money.currency}/USD"
        owner = money.owner or plan.owner
        yield InputRow(FX, "Plan", text, unit, money.per_usd, money.source, money.source_date, owner)


def _price_rows(plan: FleetPlan) -> Iterator[InputRow]:
    for p in plan.purchases:
        what = f"{p.instance_type}, {p.provider} {p.region}, {p.term}".replace(" ,", ",")

        def row(key: str, group: str, text: str, unit: str, value: float, note: str = "", p: Purchase = p) -> InputRow:
            return InputRow(key, group, text, unit, value, p.source_url, p.price_as_of, plan.owner, note)

        if p.reserved_usd_per_h > 0:
            text = f"Price of every reserved hour: {what}"
            yield row(reserved_id(p), PRICE_GROUP, text, "USD/instance-h", p.reserved_usd_per_h, p.notes)
        if p.used_usd_per_h > 0 or not (p.reserved_usd_per_h > 0 or p.sunk_usd > 0):
            text = f"Price of an hour in use: {what}"
            yield row(price_id(p), PRICE_GROUP, text, "USD/instance-h", p.used_usd_per_h, p.notes)
        if p.sunk_usd > 0:
            yield row(sunk_id(p), PRICE_GROUP, f"Paid in any case: {what}", "USD", p.sunk_usd, p.notes)
        if p.liability_after_usd > 0:
            each = p.liability_after_usd / p.reserved_instances
            yield row(liability_id(p), "Contract", f"Paid after the horizon: {what}", "USD/instance", each)
        yield row(
            size_id(p), "Hardware", f"GPUs in one instance: {p.instance_type}", "GPU/instance", p.gpus_per_instance
        )
        yield from contract_rows(p, row)


def _log(plan: FleetPlan, model: str) -> str:
    path = _file(plan, f"traffic of {model}")
    return f"traffic log {path}" if path else f"traffic log of {model}"


def _model_rows(plan: FleetPlan) -> Iterator[InputRow]:
    """Rate and growth of each model as stated, or as its log shows them."""
    for model in facts.models(plan):
        pool = next(p for p in plan.pools if p.model == model)
        request = _request(plan)
        for item, text, unit, value, source in (
            ("rate", "mean arrivals", "requests/s", pool.stated_rate_per_s,
             _log(plan, model) if pool.rate_measured else request),
            ("growth", "growth until the horizon", "ratio", pool.growth, request),
        ):  # fmt: skip
            yield InputRow(demand_id(model, item), "Demand", f"{model}: {text}", unit, value, source, None, plan.owner)


def _demand_rows(plan: FleetPlan) -> Iterator[InputRow]:
    """Peak and mean lengths of a pool's requests; its share and what it refuses as the optimiser decided."""
    for pool in plan.pools:

        def row(item: str, text: str, unit: str, value: float, source: str, pool: Pool = pool) -> InputRow:
            return InputRow(
                demand_id(pool.name, item), "Demand", f"{pool.name}: {text}", unit, value, source, None, plan.owner
            )

        def decided(item: str, text: str, value: float, pool: Pool = pool) -> InputRow:
            made = row(item, text, "share", value, f"{_run(plan)}, from the traffic log", pool)
            note = f"max_model_len {pool.max_model_len:,}"
            return replace(made, date=facts.created_utc(plan).date(), note=note, kind=Kind.RESULT)

        log = _log(plan, pool.model)
        yield decided("share", "share of the model's requests", pool.request_share)
        yield _peak_row(plan, pool)
        yield row("mean_prompt", "mean prompt of its requests", "tokens/request", pool.mean_prompt_tokens, log)
        yield row("mean_output", "mean output of its requests", "tokens/request", pool.mean_output_tokens, log)
        yield decided("refused_requests", "requests refused", pool.refused_request_share)
        yield decided("refused_input", "input tokens refused", pool.refused_input_share)
        yield decided("refused_output", "output tokens refused", pool.refused_output_share)


def _peak_row(plan: FleetPlan, pool: Pool) -> InputRow:
    """The peak as stated or measured; where the hours of the week made another one, as the optimiser took it."""
    name, text = demand_id(pool.name, "peak"), f"{pool.name}: planning rate of the busiest period over mean rate"
    stated = next((a.value for a in plan.assumptions if a.id == f"peak_{pool.model}"), pool.peak_factor)
    if agree(pool.peak_factor, stated):
        source = _log(plan, pool.model) if pool.peak_measured else _request(plan)
        return InputRow(name, "Demand", text, "ratio", pool.peak_factor, source, None, plan.owner)
    source, day = f"{_run(plan)}, from the hours of the week", facts.created_utc(plan).date()
    return InputRow(name, "Demand", text, "ratio", pool.peak_factor, source, day, plan.owner, "", Kind.RESULT)


def _limit_rows(plan: FleetPlan) -> Iterator[InputRow]:
    def row(key: str, text: str, unit: str, value: float, note: str = "") -> InputRow:
        return InputRow(key, "Limit", text, unit, value, _request(plan), _stated_on(plan), plan.owner, note)

    for pool in plan.pools:
        for word in ("tpot", "ttft"):
            target = facts.margin(pool, word)
            if target:
                yield row(target_id(pool, word), f"{pool.name}: {word.upper()} target", "ms", target.limit)
    work = (facts.margin(pool, "work share") for pool in plan.pools)
    for share in dict.fromkeys(margin.limit for margin in work if margin):
        yield row(work_id(share), "Largest share of time that the work of the load may take", "share", share)
    for pool in plan.pools:
        yield row(tail_id(pool), f"{pool.name}: largest share refused for length", "share", pool.tail_budget)
    for limit in plan.quotas:
        yield row(quota_id(limit), f"Limit: {limit.name}", limit.unit, limit.limit)
    yield _price_age_row(plan)


def _price_age_row(plan: FleetPlan) -> InputRow:
    stated = next((a.value for a in plan.assumptions if a.id == "max_price_age_days"), None)
    known = isinstance(stated, float)
    days = stated if isinstance(stated, float) else float(Policy.model_fields["max_price_age_days"].default)
    source = _request(plan) if known else "default of the planner: the plan states no limit"
    text = "Oldest price that may be planned with"
    return InputRow(PRICE_AGE, "Limit", text, "days", days, source, None, plan.owner)


def agree(one: float | str | dt.date, other: float | str) -> bool:
    """Whether an assumption states the figure of a row; a pool's own figure may be another than the model's."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
