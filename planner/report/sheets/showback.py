"""Showback: what each cost centre and workload would be charged, idle GPUs shown apart."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report import facts
from planner.report.check import Check, same_usd
from planner.report.sheets.cost import NO_POOL
from planner.report.style import COUNT, MTOK, NAVY, SHARE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack
from planner.report.view import View

NOBODY = "(no cost centre)"
RULES = (
    ("DirectCost", "GPU-hours that the workload's replicas hold, at what a paid GPU-hour of their supply costs"),
    ("SharedIdleCost", "The rest of each supply's cost (idle instances, unused contracts), by the GPU-hours that its "
     "workloads hold; a supply that no workload uses stays a line of its own"),
    ("TotalCost", "Both; the cost of the plan, to the cent"),
    ("CostPer1MTokens", "Total over served input and output tokens, cached ones included"),
)  # fmt: skip
"""How the money is shared out."""


def build(view: View) -> Sheet:
    """The Showback sheet."""
    plan = view.plan
    return Sheet(
        "Showback",
        "Showback: cost by cost centre and workload",
        "USD for the whole horizon, served input and output tokens in millions. The rules stand below.",
        "What each cost centre and workload costs, idle GPUs apart",
        NAVY,
        stack([lambda top: _workloads(plan, top), lambda top: _centres(plan, top), _rules]),
    )


def checks(view: View) -> tuple[Check, ...]:
    """The money is all there, by workload and by cost centre."""
    del view
    bought = Formula("=tblCost[Cost, USD]#total")
    return (
        same_usd("Showback by workload equals cost by purchase", Formula("=tblShowback[TotalCost]#total"), bought,
                 "Showback, Cost"),
        same_usd("Showback by cost centre equals cost by purchase", Formula("=tblCentres[TotalCost]#total"), bought,
                 "Showback, Cost"),
    )  # fmt: skip


def _costs(table: str, direct: Formula, idle: Formula) -> list[Column]:
    total = f"{table}[TotalCost]#total"
    return [
        Column("DirectCost", 14, direct, Kind.LINK, USD, total=True),
        Column("SharedIdleCost", 15, idle, Kind.LINK, USD, total=True),
        Column("TotalCost", 14, Formula("=[DirectCost]+[SharedIdleCost]"), Kind.FORMULA, USD, total=True),
        Column("CostPer1MTokens", 16, Formula("=IF([MTokens]>0,[TotalCost]/[MTokens],0)"), Kind.FORMULA, USD_RATE),
        Column("Share", 10, Formula(f"=IF({total}>0,[TotalCost]/{total},0)"), Kind.FORMULA, SHARE, total=True),
    ]


def _centre_of(plan: FleetPlan) -> dict[str, str]:
    """Cost centre of each model; one that states none stays visible."""
    return {pool.model: pool.cost_centre or NOBODY for pool in reversed(plan.pools)}


def _numbers(plan: FleetPlan) -> dict[str, int]:
    """Cost centres, the dearest workload's first, with the numbers that sums find them by: names may hold wildcards."""
    centre = _centre_of(plan)
    names = dict.fromkeys((*(centre[model] for model in facts.models_by_cost(plan)), NOBODY))
    return {name: n for n, name in enumerate(names, start=1)}


def _workloads(plan: FleetPlan, top: int) -> Table:
    models, centre = facts.models_by_cost(plan), _centre_of(plan)
    number = _numbers(plan)

    def of_model(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblPlan[{header}],tblPlan[Model],[Workload])")

    def cost(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblModels[{header}],tblModels[Model],[Workload])")

    columns = (
        Column("CostCentre", 24, (*(centre[model] for model in models), NOBODY)),
        Column("Workload", 30, (*models, NO_POOL)),
        Column("GpuHours", 13, of_model("GPU-hours"), Kind.LINK, COUNT, total=True),
        Column("MTokens", 14, of_model("Served, M tokens"), Kind.LINK, MTOK, total=True),
        *_costs("tblShowback", cost("GPUs held, USD"), cost("Idle charged, USD")),
        Column("CentreNo", 10, (*(number[centre[m]] for m in models), number[NOBODY]), Kind.CONSTANT, COUNT),
    )
    return Table("tblShowback", "Showback", top, columns, len(models) + 1, total_label="Total")


def _centres(plan: FleetPlan, top: int) -> Table:
    number = _numbers(plan)

    def summed(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblShowback[{header}],tblShowback[CentreNo],[CentreNo])")

    columns = (
        Column("CostCentre", 24, tuple(number)),
        Column("Workloads", 30, Formula("=COUNTIF(tblShowback[CentreNo],[CentreNo])"), Kind.FORMULA, COUNT,
               total=True),
        Column("GpuHours", 13, summed("GpuHours"), Kind.FORMULA, COUNT, total=True),
        Column("MTokens", 14, summed("MTokens"), Kind.FORMULA, MTOK, total=True),
        *_costs("tblCentres", summed("DirectCost"), summed("SharedIdleCost")),
        Column("CentreNo", 10, tuple(number.values()), Kind.CONSTANT, COUNT),
    )  # fmt: skip
    heading = "Cost by cost centre"
    return Table("tblCentres", "Showback", top, columns, len(number), heading, total_label="Total", workings=True)


def _rules(top: int) -> Table:
    names, rules = zip(*RULES, strict=True)
    columns = (Column("Figure", 24, names), Column("Rule", 30, rules))
    return Table("tblRules", "Showback", top, columns, len(RULES), "How the money is shared out", workings=True)
