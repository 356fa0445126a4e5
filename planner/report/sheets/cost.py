"""Cost: what is bought, a row per lot; then the same money by supply, pool, model, GPU type, and against the limits."""

from __future__ import annotations

from planner.plan import FleetPlan, Purchase
from planner.report import facts
from planner.report.sheets.input_ids import HOURS, liability_id, price_id, reserved_id, size_id, sunk_id
from planner.report.sheets.limits import covers_table, limits_table, uses_table
from planner.report.style import COUNT, DATE, GREY, MTOK, SHARE, SHARE_FINE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, Value, stack

NO_POOL = "(supplies that no pool uses)"


def build(plan: FleetPlan) -> Sheet:
    """The Cost sheet."""
    return Sheet(
        "Cost",
        "Cost: what is bought and whom it serves",
        "USD for the whole horizon: reserved hours, hours in use, and what is paid in any case. A supply's cost, idle "
        "GPUs and unused contracts included, is borne by its pools in proportion to their GPU-hours.",
        "What is bought; cost by supply, pool, model, GPU type; quotas",
        GREY,
        stack(
            [
                lambda top: _purchases(plan, top),
                lambda top: _supplies(plan, top),
                lambda top: _stands(plan, top),
                lambda top: _models(plan, top),
                lambda top: _gpu_types(plan, top),
                lambda top: limits_table(plan, top),
                lambda top: covers_table(plan, top),
                lambda top: uses_table(plan, top),
            ]
        ),
        wide=True,
    )


def _linked(name: str, stated: bool) -> Value:
    """An input's value; 0 where a lot has no such figure, and so no such input."""
    return Formula("=<1>", (name,)) if stated else 0


def _has_price(p: Purchase) -> bool:
    return p.used_usd_per_h > 0 or not (p.reserved_usd_per_h > 0 or p.sunk_usd > 0)


def _purchases(plan: FleetPlan, top: int) -> Table:
    bought = plan.purchases
    reserved_price = tuple(_linked(reserved_id(p), p.reserved_usd_per_h > 0) for p in bought)
    price = tuple(_linked(price_id(p), _has_price(p)) for p in bought)
    sunk = tuple(_linked(sunk_id(p), p.sunk_usd > 0) for p in bought)
    after = tuple(
        Formula("=[Reserved instances]*<1>", (liability_id(p),)) if p.liability_after_usd > 0 else 0 for p in bought
    )
    instance_hours = "=SUMIFS(tblLots[Instance-hours],tblLots[Lot],[Lot])"
    columns = (
        Column("Lot", 31, tuple(p.offer_id for p in bought), Kind.RESULT),
        Column("How it is had", 15, tuple(p.kind for p in bought), Kind.RESULT),
        Column("Supply", 17, tuple(p.supply for p in bought), Kind.RESULT),
        Column("Provider", 11, tuple(p.provider for p in bought), Kind.RESULT),
        Column("Region", 12, tuple(p.region or "any" for p in bought), Kind.RESULT),
        Column("GPU", 14, tuple(p.gpu for p in bought), Kind.RESULT),
        Column("GPUs per instance", 11, tuple(Formula("=<1>", (size_id(p),)) for p in bought), Kind.LINK, COUNT),
        Column("Instances", 12, tuple(p.instances for p in bought), Kind.RESULT, COUNT, total=True),
        Column("Reserved instances", 12, tuple(p.reserved_instances for p in bought), Kind.RESULT, COUNT, total=True),
        Column("GPUs bought", 12, Formula("=[Instances]*[GPUs per instance]"), Kind.FORMULA, COUNT, total=True),
        Column("Instance-hours in use", 12, Formula(instance_hours), Kind.LINK, COUNT, total=True),
        Column("Price of a reserved hour, USD", 11, reserved_price, Kind.LINK, USD_RATE),
        Column("Price of an hour in use, USD", 11, price, Kind.LINK, USD_RATE),
        Column(
            "Reserved, USD", 12,
            Formula("=[Reserved instances]*[Price of a reserved hour, USD]*<1>", (HOURS,)), Kind.LINK, USD, total=True,
        ),
        Column(
            "In use, USD", 12, Formula("=[Instance-hours in use]*[Price of an hour in use, USD]"), Kind.FORMULA, USD,
            total=True,
        ),
        Column("In any case, USD", 11, sunk, Kind.LINK, USD, total=True),
        Column(
            "Cost, USD", 12, Formula("=[Reserved, USD]+[In use, USD]+[In any case, USD]"), Kind.FORMULA, USD, total=True
        ),
        Column("After the horizon, USD", 12, after, Kind.LINK, USD, total=True),
        Column("Price as of", 11, tuple(p.price_as_of for p in bought), number=DATE),
        Column(
            "Reserved enough (1/0)", 9,
            Formula("=IF([Price of a reserved hour, USD]>0,([Instances]<=[Reserved instances])*1,1)"), Kind.FORMULA,
        ),
    )  # fmt: skip
    return Table("tblCost", "Cost", top, columns, len(bought), total_label="Total")


def _supplies(plan: FleetPlan, top: int) -> Table:
    supplies = facts.supplies(plan)

    def summed(table: str, header: str) -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[Supply],[Supply])")

    linked = tuple(min(s.nvlink_domain or s.gpus_per_instance, s.gpus_per_instance) for s in supplies)
    columns = (
        Column("Supply", 31, tuple(s.id for s in supplies), Kind.RESULT),
        Column("Region", 15, tuple(s.region or "any" for s in supplies), Kind.RESULT),
        Column("GPU", 17, tuple(s.gpu for s in supplies), Kind.RESULT),
        Column("Spot", 12, tuple("spot" if s.spot else "" for s in supplies), Kind.RESULT),
        Column("GPUs linked", 13, linked, Kind.RESULT, COUNT),
        Column("Share counted on", 15, tuple(s.usable_share for s in supplies), Kind.RESULT, SHARE),
        Column("Cost, USD", 11, summed("tblCost", "Cost, USD"), Kind.FORMULA, USD, total=True),
        Column("GPU-hours paid", 12, summed("tblLots", "GPU-hours paid"), Kind.LINK, COUNT, total=True),
        Column("GPU-hours used", 12, summed("tblRuns", "GPU-hours"), Kind.LINK, COUNT, total=True),
        Column(
            "USD per GPU-hour paid", 12, Formula("=IF([GPU-hours paid]>0,[Cost, USD]/[GPU-hours paid],0)"),
            Kind.FORMULA, USD_RATE,
        ),
        Column(
            "USD per GPU-hour used", 12, Formula("=IF([GPU-hours used]>0,[Cost, USD]/[GPU-hours used],0)"),
            Kind.FORMULA, USD_RATE,
        ),
        Column(
            "Of which idle, USD", 11, Formula("=[Cost, USD]-[GPU-hours used]*[USD per GPU-hour paid]"), Kind.FORMULA,
            USD, total=True,
        ),
    )  # fmt: skip
    return Table("tblSupplies", "Cost", top, columns, len(supplies), "Cost by supply", total_label="Total")


def _stands(plan: FleetPlan, top: int) -> Table:
    rows = facts.stands(plan)

    def at_price(header: str) -> Formula:
        return Formula(f"=[GPU-hours]*SUMIFS(tblSupplies[{header}],tblSupplies[Supply],[Supply])")

    there = "SUMIFS(tblRuns[GPU-hours],tblRuns[Pool],[Pool],tblRuns[Supply],[Supply])"
    columns = (
        Column("Pool", 31, tuple(pool.name for pool, _ in rows)),
        Column("Model", 15, tuple(pool.model for pool, _ in rows)),
        Column("Supply", 17, tuple(place.supply for _, place in rows), Kind.RESULT),
        Column("GPU-hours", 12, Formula(f"={there}"), Kind.LINK, COUNT, total=True),
        Column("GPUs held, USD", 13, at_price("USD per GPU-hour paid"), Kind.FORMULA, USD, total=True),
        Column("Idle charged, USD", 15, Formula("=[Cost, USD]-[GPUs held, USD]"), Kind.FORMULA, USD, total=True),
        Column("Cost, USD", 11, at_price("USD per GPU-hour used"), Kind.FORMULA, USD, total=True),
    )
    return Table(
        "tblStands", "Cost", top, columns, len(rows), "Cost by pool and supply", total_label="Total", workings=True
    )


def _models(plan: FleetPlan, top: int) -> Table:
    models = facts.models_by_cost(plan)
    centres = tuple(next(p.cost_centre for p in plan.pools if p.model == model) for model in models)

    def by_model(header: str, table: str = "tblPlan") -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[Model],[Model])")

    unused = Formula("=SUMIFS(tblSupplies[Cost, USD],tblSupplies[GPU-hours used],0)")
    idle = (*(by_model("Idle charged, USD") for _ in models), unused)
    columns = (
        Column("Model", 31, (*models, NO_POOL)),
        Column("Cost centre", 15, (*centres, "")),
        Column("GPUs", 17, by_model("GPUs"), Kind.LINK, COUNT, total=True),
        Column("Served, M tokens", 12, by_model("Served, M tokens"), Kind.LINK, MTOK, total=True),
        Column("GPUs held, USD", 13, by_model("Cost of GPUs held, USD"), Kind.LINK, USD, total=True),
        Column("Idle charged, USD", 15, idle, Kind.LINK, USD, total=True),
        Column("Cost, USD", 11, Formula("=[GPUs held, USD]+[Idle charged, USD]"), Kind.FORMULA, USD, total=True),
        Column(
            "Share of cost", 12,
            Formula("=IF(tblModels[Cost, USD]#total>0,[Cost, USD]/tblModels[Cost, USD]#total,0)"), Kind.FORMULA, SHARE,
            total=True,
        ),
        Column(
            "USD per 1M served tokens", 12,
            Formula("=IF([Served, M tokens]>0,[Cost, USD]/[Served, M tokens],0)"), Kind.FORMULA, USD_RATE,
        ),
        Column("Requests offered", 12, by_model("Requests offered", "tblDemand"), Kind.LINK, COUNT, total=True),
        Column("Requests refused", 12, by_model("Refused requests", "tblDemand"), Kind.LINK, COUNT, total=True),
        Column(
            "Refused share", 11,
            Formula("=IF([Requests offered]>0,[Requests refused]/[Requests offered],0)"), Kind.FORMULA, SHARE_FINE,
        ),
    )  # fmt: skip
    return Table(
        "tblModels",
        "Cost",
        top,
        columns,
        len(models) + 1,
        "Cost by model",
        total_label="Total",
        workings=True,
        ranked=True,
    )


def _gpu_types(plan: FleetPlan, top: int) -> Table:
    gpus = facts.gpu_types_by_cost(plan)

    def by_gpu(header: str, table: str = "tblSupplies") -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[GPU],[GPU])")

    columns = (
        Column("GPU", 31, gpus),
        Column("GPUs bought", 15, by_gpu("GPUs bought", "tblCost"), Kind.FORMULA, COUNT, total=True),
        Column("GPU-hours paid", 17, by_gpu("GPU-hours paid"), Kind.FORMULA, COUNT, total=True),
        Column("GPU-hours used", 12, by_gpu("GPU-hours used"), Kind.FORMULA, COUNT, total=True),
        Column("Cost, USD", 13, by_gpu("Cost, USD", "tblCost"), Kind.FORMULA, USD, total=True),
        Column(
            "Share of cost", 15,
            Formula("=IF(tblGpuTypes[Cost, USD]#total>0,[Cost, USD]/tblGpuTypes[Cost, USD]#total,0)"), Kind.FORMULA,
            SHARE, total=True,
        ),
        Column(
            "USD per GPU-hour paid", 11, Formula("=IF([GPU-hours paid]>0,[Cost, USD]/[GPU-hours paid],0)"),
            Kind.FORMULA, USD_RATE,
        ),
        Column(
            "USD per GPU-hour used", 12, Formula("=IF([GPU-hours used]>0,[Cost, USD]/[GPU-hours used],0)"),
            Kind.FORMULA, USD_RATE,
        ),
    )  # fmt: skip
    heading = "Cost by GPU type"
    return Table("tblGpuTypes", "Cost", top, columns, len(gpus), heading, total_label="Total", ranked=True)
