"""Inputs: every figure that somebody can change or must own, with its source; beside it the value as solved."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.errors import InputError, Problem
from planner.plan import Assumption, FleetPlan, Pool, Purchase, QuotaUse
from planner.report import facts
from planner.report.style import AMBER, COUNT, DATE, GENERAL, SHARE_FINE, USD_CENTS, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table
from planner.request import Policy

CREATED = "plan/created"
HOURS = "plan/horizon_hours"
GAP_TARGET = "solver/gap_target"
BUDGET = "limit/budget_usd"
PRICE_AGE = "check/max_price_age_days"
TOLERANCE_USD = "check/tolerance_usd"
TOLERANCE = "check/tolerance"
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


def price_id(purchase: Purchase) -> str:
    """Input id of the price of an instance-hour."""
    return f"price/{purchase.offer_id}"


def size_id(purchase: Purchase) -> str:
    """Input id of the GPUs of one instance."""
    return f"gpus/{purchase.offer_id}"


def hours_id(plan: FleetPlan, purchase: Purchase) -> str:
    """Input id of the hours paid: the horizon's, unless the term pays other hours."""
    return HOURS if purchase.hours == plan.horizon_hours else f"hours/{purchase.offer_id}"


def demand_id(pool: Pool, side: str) -> str:
    """Input id of the tokens that a pool serves (``input`` or ``output``)."""
    return f"demand/{pool.name}/{side}"


def target_id(pool: Pool, word: str) -> str:
    """Input id of a pool's latency target (``tpot`` or ``ttft``)."""
    return f"target/{pool.name}/{word}"


def tail_id(model: str) -> str:
    """Input id of a model's tail budget."""
    return f"tail/{model}"


def quota_id(quota: QuotaUse) -> str:
    """Input id of a quota's limit."""
    return f"quota/{quota.name}"


def input_rows(plan: FleetPlan) -> tuple[InputRow, ...]:
    """All inputs: what the formulas read first, then the assumptions of the plan.

    Raises
    ------
    InputError
        If two rows have the same id (an offer bought twice, an assumption named like a row of this sheet).
    """
    made = (*_plan_rows(plan), *_price_rows(plan), *_demand_rows(plan), *_limit_rows(plan))
    rows = _with_assumptions(plan, made)
    doubles = [name for name, count in Counter(row.id for row in rows).items() if count > 1]
    if doubles:
        raise InputError([Problem("plan", "two inputs have the same id", "Rename one", field=name) for name in doubles])
    return rows


def input_addresses(plan: FleetPlan) -> dict[str, str]:
    """Address of the live value of each input."""
    table = _table(input_rows(plan))
    return {row.id: table.address("Value", i) for i, row in enumerate(input_rows(plan))}


def _run(plan: FleetPlan) -> str:
    return f"planner run {plan.run_id}"


def _request(plan: FleetPlan) -> str:
    return next((f"request {file.path}" for file in plan.inputs if file.role == "request"), "request")


def _plan_rows(plan: FleetPlan) -> Iterator[InputRow]:
    day = facts.created_utc(plan).date()
    span = f"{plan.horizon_start} to {plan.horizon_end} (end exclusive)"
    yield InputRow(CREATED, "Plan", "Day of planning", "date", day, _run(plan), day, plan.owner)
    yield InputRow(
        HOURS, "Plan", "Hours of the horizon", "h", plan.horizon_hours, f"{_request(plan)}: {span}", day, plan.owner
    )
    gap = plan.solve.gap_target
    yield InputRow(GAP_TARGET, "Plan", "Largest gap to the proven bound", "share", gap, _request(plan), day, plan.owner)


def _price_rows(plan: FleetPlan) -> Iterator[InputRow]:
    for p in plan.purchases:
        what = f"{p.instance_type}, {p.provider} {p.region}, {p.term}".replace(" ,", ",")

        def row(key: str, group: str, text: str, unit: str, value: float, note: str, p: Purchase = p) -> InputRow:
            return InputRow(key, group, text, unit, value, p.source_url, p.price_as_of, plan.owner, note)

        yield row(price_id(p), PRICE_GROUP, f"Price: {what}", "USD/instance-h", p.usd_per_instance_h, p.notes)
        size = f"GPUs in one instance: {p.instance_type}"
        yield row(size_id(p), "Hardware", size, "GPU/instance", p.gpus_per_instance, "")
        if hours_id(plan, p) != HOURS:
            yield row(hours_id(plan, p), "Hours", f"Hours paid: {what}", "h", p.hours, "differs from the horizon")


def _demand_rows(plan: FleetPlan) -> Iterator[InputRow]:
    day = facts.created_utc(plan).date()
    source = f"{_run(plan)}: traffic of the model, requests that fit max_model_len"
    for pool in plan.pools:
        for side, mtok in (("input", pool.served_input_mtok), ("output", pool.served_output_mtok)):
            text = f"Served {side} tokens of pool {pool.name}"
            yield InputRow(demand_id(pool, side), "Demand", text, "M tokens", mtok, source, day, plan.owner)


def _limit_rows(plan: FleetPlan) -> Iterator[InputRow]:
    day = facts.created_utc(plan).date()

    def row(key: str, text: str, unit: str, value: float, note: str = "") -> InputRow:
        return InputRow(key, "Limit", text, unit, value, _request(plan), day, plan.owner, note)

    for pool in plan.pools:
        for word in ("tpot", "ttft"):
            target = facts.margin(pool, word)
            if target:
                yield row(target_id(pool, word), f"{word.upper()} target of pool {pool.name}", "ms", target.limit)
    for model in facts.models(plan):
        share = next(pool.tail_budget for pool in plan.pools if pool.model == model)
        yield row(tail_id(model), f"Largest share of requests refused for length: {model}", "share", share)
    for quota in facts.gpu_quotas(plan):
        yield row(quota_id(quota), f"Limit: {quota.name}", quota.unit, quota.limit)
    budget = facts.budget(plan)
    if budget:
        yield row(BUDGET, f"Budget: {budget.name}", "USD", budget.limit)
    yield row(TOLERANCE_USD, "Tolerance of checks on money", "USD", 0.01, "one cent")
    yield row(TOLERANCE, "Tolerance of other checks", "as checked", 1e-6, "rounding of binary numbers")
    yield _price_age_row(plan, day)


def _price_age_row(plan: FleetPlan, day: dt.date) -> InputRow:
    default = float(Policy.model_fields["max_price_age_days"].default)
    source = "default of the planner: the plan states no limit"
    return InputRow(
        PRICE_AGE, "Limit", "Oldest price that may be planned with", "days", default, source, day, plan.owner
    )


def _stated_as(plan: FleetPlan) -> dict[str, str]:
    """Id in the plan's assumptions of the rows that this sheet makes itself."""
    tails = {tail_id(model): f"tail_{model}" for model in facts.models(plan)}
    return {HOURS: "horizon_hours", PRICE_AGE: "max_price_age_days", **tails}


def _with_assumptions(plan: FleetPlan, rows: tuple[InputRow, ...]) -> tuple[InputRow, ...]:
    """The rows, then the plan's assumptions; one that a row already shows gives that row its value and source."""
    stated = {assumption.id: assumption for assumption in plan.assumptions if not isinstance(assumption.value, str)}
    names = _stated_as(plan)
    merged = [_backed(row, stated.get(names.get(row.id, ""))) for row in rows]
    shown = {names[row.id] for row in rows if names.get(row.id) in stated}
    rest = [
        InputRow(a.id, "Assumption", a.assumption, a.unit, a.value, a.source, a.source_date, a.owner, a.note)
        for a in plan.assumptions
        if a.id not in shown
    ]
    return (*merged, *rest)


def _backed(row: InputRow, stated: Assumption | None) -> InputRow:
    if stated is None:
        return row
    return replace(
        row,
        value=stated.value,
        source=stated.source,
        date=stated.source_date,
        owner=stated.owner,
        note=stated.note or row.note,
    )


def number_format(row: InputRow) -> str:
    """How the value of an input is shown."""
    if isinstance(row.value, dt.date):
        return DATE
    if isinstance(row.value, str):
        return GENERAL
    if row.unit == "share":
        return SHARE_FINE
    if row.unit.startswith("USD"):
        return USD_CENTS if round(row.value, 2) == row.value else "#,##0.00####"
    return COUNT if row.value == int(row.value) else "#,##0.0#####"


def _table(rows: tuple[InputRow, ...]) -> Table:
    numbers = tuple(number_format(row) for row in rows)
    columns = (
        Column("Id", 36, tuple(row.id for row in rows)),
        Column("Group", 11, tuple(row.group for row in rows)),
        Column("Assumption", 46, tuple(row.text for row in rows)),
        Column("Unit", 14, tuple(row.unit for row in rows)),
        Column("Value", 14, tuple(row.value for row in rows), Kind.INPUT, numbers),
        Column("As solved", 14, tuple(row.value for row in rows), Kind.RESULT, numbers),
        Column("Changed (1/0)", 9, Formula("=IF([Value]=[As solved],0,1)"), Kind.FORMULA),
        Column("Source", 60, tuple(row.source for row in rows)),
        Column("Source date", 11, tuple(row.date for row in rows), number=DATE),
        Column("Owner", 14, tuple(row.owner for row in rows)),
        Column("Age, days", 8, Formula('=IF([Source date]="",0,<1>-[Source date])', (CREATED,)), Kind.FORMULA, COUNT),
        Column(
            "Price too old (1/0)",
            9,
            Formula(f'=IF(AND([Group]="{PRICE_GROUP}",[Age, days]><1>),1,0)', (PRICE_AGE,)),
            Kind.FORMULA,
        ),
        Column("Note", 36, tuple(row.note for row in rows)),
    )
    return Table("tblInputs", "Inputs", FIRST_TABLE_ROW, columns, len(rows))


def build(plan: FleetPlan) -> Sheet:
    """The Inputs sheet."""
    return Sheet(
        "Inputs",
        "Inputs and assumptions",
        "Every figure that the plan rests on, with unit, source, date and owner. Edit only yellow cells; "
        "the plan itself is not solved again by an edit.",
        "Prices, demand, limits and assumptions with source and owner",
        AMBER,
        (_table(input_rows(plan)),),
        wide=True,
    )
