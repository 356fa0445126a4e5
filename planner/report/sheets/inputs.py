"""Inputs: every figure that somebody can change or must own, with its source; beside it the value as solved.

Yellow values may be edited. Refused shares are decided by the optimiser and locked; so are the constants below the
table (tolerances of the checks, conversions of units): no edit may disarm a check.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner import units
from planner.errors import InputError, Problem
from planner.plan import Assumption, FleetPlan, Margin, Pool, Purchase, QuotaUse
from planner.report import facts
from planner.report.style import AMBER, COUNT, DATE, GENERAL, SHARE_FINE, USD_CENTS, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table
from planner.request import Policy

CREATED = "plan/created"
HOURS = "plan/horizon_hours"
GAP_TARGET = "solver/gap_target"
BUDGET = "limit/budget_usd"
PRICE_AGE = "limit/max_price_age_days"
TOLERANCE_USD = "constant/tolerance_usd"
TOLERANCE = "constant/tolerance"
EXACT = "constant/exact"
SECONDS_PER_HOUR = "constant/seconds_per_hour"
TOKENS_PER_MTOK = "constant/tokens_per_mtok"
PRICE_GROUP = "Price"
_DIGITS = ((100, "#,##0.0"), (10, "#,##0.00"), (0, "#,##0.00##"))
"""Formats of fractions from a size upwards."""
UNDATED = "undated"
"""Stands in place of a source date that the plan does not know."""

CONSTANTS: tuple[tuple[str, str, str, float, str], ...] = (
    (TOLERANCE_USD, "Tolerance of checks on money: one cent", "USD", 0.01, "0.00"),
    (TOLERANCE, "Tolerance of other sums and shares: rounding of binary numbers", "as checked", 1e-6, "0.000000"),
    (EXACT, "Tolerance of counts: none", "as checked", 0, "0"),
    (SECONDS_PER_HOUR, "Seconds in an hour", "s/h", units.SECONDS_PER_HOUR, COUNT),
    (TOKENS_PER_MTOK, "Tokens in a million", "tokens/M", units.TOKENS_PER_MTOK, COUNT),
)
"""Id, text, unit, value and number format."""


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


def price_id(purchase: Purchase) -> str:
    """Input id of the price of an instance-hour."""
    return f"price/{purchase.offer_id}"


def size_id(purchase: Purchase) -> str:
    """Input id of the GPUs of one instance."""
    return f"gpus/{purchase.offer_id}"


def hours_id(plan: FleetPlan, purchase: Purchase) -> str:
    """Input id of the hours paid: the horizon's, unless the term pays other hours."""
    return HOURS if purchase.hours == plan.horizon_hours else f"hours/{purchase.offer_id}"


def demand_id(pool: Pool, item: str) -> str:
    """Input id of a figure of a pool's demand, such as ``rate`` or ``refused_input``."""
    return f"demand/{pool.name}/{item}"


def target_id(pool: Pool, word: str) -> str:
    """Input id of a pool's latency target (``tpot`` or ``ttft``)."""
    return f"target/{pool.name}/{word}"


def work_id(limit: float) -> str:
    """Input id of the largest work share; one row for each distinct limit."""
    return f"limit/work_share/{limit:g}"


def tail_id(model: str) -> str:
    """Input id of a model's tail budget."""
    return f"tail/{model}"


def quota_id(quota: QuotaUse) -> str:
    """Input id of a quota's limit."""
    return f"quota/{quota.name}"


def limit_id(pool: Pool, margin: Margin) -> str | None:
    """Input id of the limit of a margin; ``None`` where the optimiser decided it (pool of tokens, sequences)."""
    name = margin.constraint.casefold()
    for word in ("tpot", "ttft"):
        if word in name:
            return target_id(pool, word)
    if "work share" in name:
        return work_id(margin.limit)
    return tail_id(pool.model) if "tail" in name else None


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
    """Address of the live value of each input, and of each constant."""
    rows = input_rows(plan)
    table = _table(rows)
    constants = _constants(table.bottom + 3)
    return {
        **{row.id: table.address("Value", i) for i, row in enumerate(rows)},
        **{row[0]: constants.address("Value", i) for i, row in enumerate(CONSTANTS)},
    }


def undated(plan: FleetPlan) -> int:
    """Inputs whose source has no date."""
    return sum(row.date is None for row in input_rows(plan))


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
    """Rate, growth and peak as stated; mean lengths as the log has them; refused shares as the optimiser decided."""
    for pool in plan.pools:
        path = _file(plan, f"traffic of {pool.model}")
        log = f"traffic log {path}" if path else f"traffic log of {pool.model}"

        def stated(item: str, text: str, unit: str, value: float, source: str, pool: Pool = pool) -> InputRow:
            return InputRow(
                demand_id(pool, item), "Demand", f"{pool.name}: {text}", unit, value, source, None, plan.owner
            )

        def decided(item: str, text: str, value: float, pool: Pool = pool) -> InputRow:
            note = f"max_model_len {pool.max_model_len:,}"
            day = facts.created_utc(plan).date()
            row = stated(item, text, "share", value, f"{_run(plan)}, from the traffic log")
            return replace(row, date=day, note=note, kind=Kind.RESULT)

        yield stated(
            "rate", "mean arrivals", "requests/s", pool.stated_rate_per_s, log if pool.rate_measured else _request(plan)
        )
        yield stated("growth", "growth until the horizon", "ratio", pool.growth, _request(plan))
        yield stated(
            "peak",
            "planning rate over mean rate",
            "ratio",
            pool.peak_factor,
            log if pool.peak_measured else _request(plan),
        )
        yield stated("mean_prompt", "mean prompt of all requests", "tokens/request", pool.mean_prompt_tokens, log)
        yield stated("mean_output", "mean output of all requests", "tokens/request", pool.mean_output_tokens, log)
        yield decided("refused_requests", "requests refused", pool.refused_request_share)
        yield decided("refused_input", "input tokens refused", pool.refused_input_share)
        yield decided("refused_output", "output tokens refused", pool.refused_output_share)


def _limit_rows(plan: FleetPlan) -> Iterator[InputRow]:
    def row(key: str, text: str, unit: str, value: float, note: str = "") -> InputRow:
        return InputRow(key, "Limit", text, unit, value, _request(plan), _stated_on(plan), plan.owner, note)

    for pool in plan.pools:
        for word in ("tpot", "ttft"):
            target = facts.margin(pool, word)
            if target:
                yield row(target_id(pool, word), f"{pool.name}: {word.upper()} target", "ms", target.limit)
    work = (facts.margin(pool, "work share") for pool in plan.pools)
    for limit in dict.fromkeys(margin.limit for margin in work if margin):
        yield row(work_id(limit), "Largest share of time that the work of the load may take", "share", limit)
    for model in facts.models(plan):
        share = next(pool.tail_budget for pool in plan.pools if pool.model == model)
        yield row(tail_id(model), f"{model}: largest share refused for length", "share", share)
    for quota in facts.gpu_quotas(plan):
        yield row(quota_id(quota), f"Limit: {quota.name}", quota.unit, quota.limit)
    budget = facts.budget(plan)
    if budget:
        yield row(BUDGET, f"Budget: {budget.name}", "USD", budget.limit)
    yield _price_age_row(plan)


def _price_age_row(plan: FleetPlan) -> InputRow:
    stated = next((a.value for a in plan.assumptions if a.id == "max_price_age_days"), None)
    known = isinstance(stated, float)
    days = stated if isinstance(stated, float) else float(Policy.model_fields["max_price_age_days"].default)
    source = _request(plan) if known else "default of the planner: the plan states no limit"
    text = "Oldest price that may be planned with"
    return InputRow(PRICE_AGE, "Limit", text, "days", days, source, None, plan.owner)


def _stated_as(plan: FleetPlan) -> dict[str, str]:
    """Id in the plan's assumptions of what backs a row of this sheet: its source, date, owner and note."""
    backed = {HOURS: "horizon_hours", PRICE_AGE: "max_price_age_days"}
    for pool in plan.pools:
        work = facts.margin(pool, "work share")
        if work:
            backed[work_id(work.limit)] = "work"
        backed |= {demand_id(pool, item): f"{item}_{pool.model}" for item in ("rate", "growth", "peak")}
        backed[tail_id(pool.model)] = f"tail_{pool.model}"
    return backed


def _with_assumptions(plan: FleetPlan, rows: tuple[InputRow, ...]) -> tuple[InputRow, ...]:
    """The rows, then the plan's assumptions that no row shows already."""
    stated = {assumption.id: assumption for assumption in plan.assumptions}
    names = _stated_as(plan)
    lengths = {
        demand_id(pool, item): stated.get(f"lengths_{pool.model}")
        for pool in plan.pools
        for item in ("mean_prompt", "mean_output")
    }
    merged = [_measured(_backed(row, stated.get(names.get(row.id, ""))), lengths.get(row.id)) for row in rows]
    shown = {names[row.id] for row in rows if row.id in names}
    rest = [
        InputRow(a.id, "Assumption", a.assumption, a.unit, a.value, a.source, a.source_date, a.owner, a.note)
        for a in plan.assumptions
        if a.id not in shown
    ]
    return (*merged, *rest)


def _backed(row: InputRow, stated: Assumption | None) -> InputRow:
    if stated is None:
        return row
    note = stated.note or row.note
    return replace(row, source=stated.source, date=stated.source_date, owner=stated.owner, note=note)


def _measured(row: InputRow, lengths: Assumption | None) -> InputRow:
    """A mean length, with the date and owner of the assumption on the length law."""
    return row if lengths is None else replace(row, date=lengths.source_date, owner=lengths.owner)


def number_format(row: InputRow) -> str:
    """How the value of an input is shown: no more digits than its size makes worth reading."""
    if isinstance(row.value, dt.date):
        return DATE
    if isinstance(row.value, str):
        return GENERAL
    if row.unit.startswith("share"):
        return SHARE_FINE
    if row.unit.startswith("USD"):
        return USD_CENTS if round(row.value, 2) == row.value else "#,##0.0000"
    if row.value == int(row.value):
        return COUNT
    return next(number for least, number in _DIGITS if abs(row.value) >= least)


def _table(rows: tuple[InputRow, ...]) -> Table:
    numbers = tuple(number_format(row) for row in rows)
    columns = (
        Column("Id", 31, tuple(row.id for row in rows)),
        Column("Group", 11, tuple(row.group for row in rows)),
        Column("Assumption", 43, tuple(row.text for row in rows)),
        Column("Unit", 15, tuple(row.unit for row in rows)),
        Column("Value", 13, tuple(row.value for row in rows), tuple(row.kind for row in rows), numbers),
        Column("As solved", 13, tuple(row.value for row in rows), Kind.RESULT, numbers),
        Column(
            "Changed (1/0)",
            10,
            Formula("=IF(AND(EXACT([Value],[As solved]),ISNUMBER([Value])=ISNUMBER([As solved])),0,1)"),
            Kind.FORMULA,
        ),
        Column("Source", 48, tuple(row.source for row in rows)),
        Column("Source date", 12, tuple(row.date or UNDATED for row in rows), number=DATE),
        Column("Owner", 21, tuple(row.owner for row in rows)),
        Column(
            "Age, days",
            9,
            Formula(f'=IF(ISNUMBER([Source date]),<1>-[Source date],"{UNDATED}")', (CREATED,)),
            Kind.FORMULA,
            COUNT,
        ),
        Column(
            "Price too old (1/0)",
            10,
            Formula(f'=IF(AND([Group]="{PRICE_GROUP}",[Age, days]><1>),1,0)', (PRICE_AGE,)),
            Kind.FORMULA,
        ),
        Column("Note", 25, tuple(row.note for row in rows)),
    )
    return Table("tblInputs", "Inputs", FIRST_TABLE_ROW, columns, len(rows))


def _constants(top: int) -> Table:
    ids, texts, unit_names, values, numbers = zip(*CONSTANTS, strict=True)
    columns = (
        Column("Id", 31, ids),
        Column("Group", 11, tuple("Constant" for _ in ids)),
        Column("Constant", 43, texts),
        Column("Unit", 15, unit_names),
        Column("Value", 13, values, Kind.CONSTANT, numbers),
    )
    return Table("tblConstants", "Inputs", top, columns, len(ids), "Constants (locked)")


def build(plan: FleetPlan) -> Sheet:
    """The Inputs sheet."""
    table = _table(input_rows(plan))
    return Sheet(
        "Inputs",
        "Inputs and assumptions",
        "Every figure that the plan rests on, with unit, source, date and owner. Edit only yellow cells; "
        "the plan itself is not solved again by an edit.",
        "Prices, demand, limits and assumptions with source and owner",
        AMBER,
        (table, _constants(table.bottom + 3)),
        wide=True,
    )
