"""Cost: what is bought, a row per purchase; then the same money by model, by GPU type, and against the limits."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report import facts
from planner.report.sheets.inputs import TOLERANCE, hours_id, price_id, quota_id, size_id, tail_id
from planner.report.style import COUNT, DATE, GREY, MTOK, SHARE, SHARE_FINE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack

NO_POOL = "(offers that no pool uses)"


def build(plan: FleetPlan) -> Sheet:
    """The Cost sheet."""
    return Sheet(
        "Cost",
        "Cost: what is bought and whom it serves",
        "USD for the whole horizon. A reserved GPU is paid every hour, busy or not. Idle rule: an offer's unused GPUs "
        "are charged to its pools in proportion to the GPUs they use there.",
        "What is bought; cost by model and GPU type; quotas",
        GREY,
        stack(
            [
                lambda top: _purchases(plan, top),
                lambda top: _models(plan, top),
                lambda top: _gpu_types(plan, top),
                lambda top: _limits(plan, top),
                lambda top: _covers(plan, top),
            ]
        ),
        wide=True,
    )


def _purchases(plan: FleetPlan, top: int) -> Table:
    bought = plan.purchases
    columns = (
        Column("Offer", 40, tuple(p.offer_id for p in bought), Kind.RESULT),
        Column("Provider", 16, tuple(p.provider for p in bought), Kind.RESULT),
        Column("Instance type", 16, tuple(p.instance_type for p in bought), Kind.RESULT),
        Column("Region", 13, tuple(p.region or "any" for p in bought), Kind.RESULT),
        Column("GPU", 17, tuple(p.gpu for p in bought), Kind.RESULT),
        Column("Term", 13, tuple(p.term for p in bought), Kind.RESULT),
        Column("GPUs per instance", 13, tuple(Formula("=<1>", (size_id(p),)) for p in bought), Kind.LINK, COUNT),
        Column("Instances", 13, tuple(p.instances for p in bought), Kind.RESULT, COUNT, total=True),
        Column("GPUs bought", 13, Formula("=[Instances]*[GPUs per instance]"), Kind.FORMULA, COUNT, total=True),
        Column("GPUs used", 13, Formula("=SUMIFS(tblPlan[GPUs],tblPlan[Offer],[Offer])"), Kind.LINK, COUNT, total=True),
        Column("GPUs idle", 13, Formula("=[GPUs bought]-[GPUs used]"), Kind.FORMULA, COUNT, total=True),
        Column("Hours", 11, tuple(Formula("=<1>", (hours_id(plan, p),)) for p in bought), Kind.LINK, COUNT),
        Column("GPU-hours", 12, Formula("=[GPUs bought]*[Hours]"), Kind.FORMULA, COUNT, total=True),
        Column(
            "Price, USD per instance-hour",
            12,
            tuple(Formula("=<1>", (price_id(p),)) for p in bought),
            Kind.LINK,
            USD_RATE,
        ),
        Column(
            "Cost, USD",
            14,
            Formula("=[Instances]*[Hours]*[Price, USD per instance-hour]"),
            Kind.FORMULA,
            USD,
            total=True,
        ),
        Column(
            "Of which idle GPUs, USD",
            13,
            Formula("=IF([GPUs bought]>0,[Cost, USD]*[GPUs idle]/[GPUs bought],0)"),
            Kind.FORMULA,
            USD,
            total=True,
        ),
        Column("Price as of", 14, tuple(p.price_as_of for p in bought), number=DATE),
    )
    return Table("tblCost", "Cost", top, columns, len(bought), total_label="Total")


def _models(plan: FleetPlan, top: int) -> Table:
    models = facts.models_by_cost(plan)
    centres = tuple(next(p.cost_centre for p in plan.pools if p.model == model) for model in models)

    def by_model(header: str, table: str = "tblPlan") -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[Model],[Model])")

    def with_rest(formula: Formula, rest: Formula | int) -> tuple[Formula | int, ...]:
        return (*(formula for _ in models), rest)

    unused = Formula("=SUMIFS(tblCost[Cost, USD],tblCost[GPUs used],0)")
    tails = tuple(Formula("=<1>", (tail_id(model),)) for model in models)
    columns = (
        Column("Model", 40, (*models, NO_POOL)),
        Column("Cost centre", 16, (*centres, "")),
        Column("GPUs", 16, by_model("GPUs"), Kind.LINK, COUNT, total=True),
        Column("Served, M tokens", 13, by_model("Served, M tokens"), Kind.LINK, MTOK, total=True),
        Column(
            "GPUs held, USD",
            13,
            with_rest(by_model("Cost of GPUs held, USD"), 0),
            (*(Kind.LINK for _ in models), Kind.FORMULA),
            USD,
            total=True,
        ),
        Column("Idle charged, USD", 13, with_rest(by_model("Idle charged, USD"), unused), Kind.LINK, USD, total=True),
        Column("Cost, USD", 13, Formula("=[GPUs held, USD]+[Idle charged, USD]"), Kind.FORMULA, USD, total=True),
        Column(
            "Share of cost",
            13,
            Formula("=IF(tblModels[Cost, USD]#total>0,[Cost, USD]/tblModels[Cost, USD]#total,0)"),
            Kind.FORMULA,
            SHARE,
            total=True,
        ),
        Column(
            "USD per 1M served tokens",
            13,
            Formula("=IF([Served, M tokens]>0,[Cost, USD]/[Served, M tokens],0)"),
            Kind.FORMULA,
            USD_RATE,
        ),
        Column("Requests offered", 13, by_model("Requests offered", "tblDemand"), Kind.LINK, COUNT, total=True),
        Column("Requests refused", 13, by_model("Refused requests", "tblDemand"), Kind.LINK, COUNT, total=True),
        Column(
            "Refused share",
            11,
            Formula("=IF([Requests offered]>0,[Requests refused]/[Requests offered],0)"),
            Kind.FORMULA,
            SHARE_FINE,
        ),
        Column("Tail budget", 12, (*tails, 0), Kind.LINK, SHARE_FINE),
        Column(
            "Within tail (1/0)",
            12,
            Formula("=([Refused share]<=[Tail budget]+<1>)*1", (TOLERANCE,)),
            Kind.FORMULA,
        ),
    )
    return Table("tblModels", "Cost", top, columns, len(models) + 1, "Cost by model", total_label="Total")


def _gpu_types(plan: FleetPlan, top: int) -> Table:
    gpus = facts.gpu_types_by_cost(plan)

    def by_gpu(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblCost[{header}],tblCost[GPU],[GPU])")

    columns = (
        Column("GPU", 40, gpus),
        Column("GPUs bought", 16, by_gpu("GPUs bought"), Kind.FORMULA, COUNT, total=True),
        Column("GPUs used", 16, by_gpu("GPUs used"), Kind.FORMULA, COUNT, total=True),
        Column("GPU-hours", 13, by_gpu("GPU-hours"), Kind.FORMULA, COUNT, total=True),
        Column("Cost, USD", 13, by_gpu("Cost, USD"), Kind.FORMULA, USD, total=True),
        Column(
            "Share of cost",
            13,
            Formula("=IF(tblGpuTypes[Cost, USD]#total>0,[Cost, USD]/tblGpuTypes[Cost, USD]#total,0)"),
            Kind.FORMULA,
            SHARE,
            total=True,
        ),
        Column("USD per GPU-hour", 13, Formula("=IF([GPU-hours]>0,[Cost, USD]/[GPU-hours],0)"), Kind.FORMULA, USD_RATE),
    )
    return Table("tblGpuTypes", "Cost", top, columns, len(gpus), "Cost by GPU type", total_label="Total")


def _limits(plan: FleetPlan, top: int) -> Table:
    quotas = facts.gpu_quotas(plan)
    none = not quotas
    columns = (
        Column("Limit", 40, tuple(q.name for q in quotas) or ("(no quota stated)",)),
        Column("Unit", 16, tuple(q.unit for q in quotas) or ("",)),
        Column("Used", 16, Formula("=SUMIFS(tblCovers[GPUs bought],tblCovers[Limit],[Limit])"), Kind.FORMULA, COUNT),
        Column(
            "Allowed", 13, (0,) if none else tuple(Formula("=<1>", (quota_id(q),)) for q in quotas), Kind.LINK, COUNT
        ),
        Column("Left", 13, Formula("=[Allowed]-[Used]"), Kind.FORMULA, COUNT),
        Column("Within (1/0)", 13, Formula("=([Used]<=[Allowed]+<1>)*1", (TOLERANCE,)), Kind.FORMULA),
    )
    return Table("tblLimits", "Cost", top, columns, max(1, len(quotas)), "Quotas and stock")


def _covers(plan: FleetPlan, top: int) -> Table:
    """Which purchases count towards which limit."""
    pairs = [(q.name, offer) for q in facts.gpu_quotas(plan) for offer in q.offers] or [("(nothing bought)", "")]
    columns = (
        Column("Limit", 40, tuple(limit for limit, _ in pairs)),
        Column("Offer", 16, tuple(offer for _, offer in pairs)),
        Column("GPUs bought", 16, Formula("=SUMIFS(tblCost[GPUs bought],tblCost[Offer],[Offer])"), Kind.FORMULA, COUNT),
    )
    return Table("tblCovers", "Cost", top, columns, len(pairs), "What counts towards each limit")
