"""Demand: from the stated rate to the tokens that are served, a row per pool."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.sheets import inputs
from planner.report.style import COUNT, GREEN, MTOK, SHARE_FINE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table

RATE = "#,##0.00##"


def build(plan: FleetPlan) -> Sheet:
    """The Demand sheet."""
    return Sheet(
        "Demand",
        "Demand: from the stated rate to served tokens",
        "Requests = rate x growth x hours x seconds per hour; served tokens = requests x mean tokens x (1 - refused "
        "share). The fleet must hold the planning rate = rate x growth x peak factor. Flags: 1 = as solved.",
        "From the stated rate to served and refused tokens",
        GREEN,
        (_table(plan),),
        wide=True,
    )


def _table(plan: FleetPlan) -> Table:
    pools = plan.pools

    def linked(item: str) -> tuple[Formula, ...]:
        return tuple(Formula("=<1>", (inputs.demand_id(pool, item),)) for pool in pools)

    def mtok(formula: str) -> Formula:
        return Formula(f"={formula}/<1>", (inputs.TOKENS_PER_MTOK,))

    def same(left: str, right: str) -> Formula:
        return Formula(f"=(ABS([{left}]-[{right}])<=<1>)*1", (inputs.TOLERANCE,))

    columns = (
        Column("Pool", 16, tuple(p.name for p in pools)),
        Column("Model", 16, tuple(p.model for p in pools)),
        Column("Stated rate, requests/s", 10, linked("rate"), Kind.LINK, RATE),
        Column("Growth", 8, linked("growth"), Kind.LINK, RATE),
        Column("Peak factor", 8, linked("peak"), Kind.LINK, RATE),
        Column(
            "Planning rate accepted, requests/s", 11,
            Formula("=[Stated rate, requests/s]*[Growth]*[Peak factor]*(1-[Requests refused])"),
            Kind.FORMULA, RATE,
        ),
        Column(
            "Planning rate as solved", 11, tuple(p.load.planning_rate_per_s for p in pools), Kind.RESULT, RATE
        ),
        Column(
            "Rate as solved (1/0)", 9, same("Planning rate accepted, requests/s", "Planning rate as solved"),
            Kind.FORMULA,
        ),
        Column(
            "Requests offered", 14,
            Formula("=[Stated rate, requests/s]*[Growth]*<1>*<2>", (inputs.HOURS, inputs.SECONDS_PER_HOUR)),
            Kind.LINK, COUNT, total=True,
        ),
        Column("Mean prompt, tokens", 11, linked("mean_prompt"), Kind.LINK, MTOK),
        Column("Mean output, tokens", 10, linked("mean_output"), Kind.LINK, MTOK),
        Column("Requests refused", 10, linked("refused_requests"), Kind.LINK, SHARE_FINE),
        Column("Input tokens refused", 10, linked("refused_input"), Kind.LINK, SHARE_FINE),
        Column("Output tokens refused", 10, linked("refused_output"), Kind.LINK, SHARE_FINE),
        Column(
            "Served input, M tokens", 13,
            mtok("[Requests offered]*[Mean prompt, tokens]*(1-[Input tokens refused])"), Kind.LINK, MTOK, total=True,
        ),
        Column(
            "Served output, M tokens", 13,
            mtok("[Requests offered]*[Mean output, tokens]*(1-[Output tokens refused])"), Kind.LINK, MTOK, total=True,
        ),
        Column(
            "Served, M tokens", 13, Formula("=[Served input, M tokens]+[Served output, M tokens]"), Kind.FORMULA, MTOK,
            total=True,
        ),
        Column("Served as solved, M tokens", 13, tuple(p.served_mtok for p in pools), Kind.RESULT, MTOK, total=True),
        Column("Served as solved (1/0)", 9, same("Served, M tokens", "Served as solved, M tokens"), Kind.FORMULA),
        Column(
            "Refused requests", 11, Formula("=[Requests offered]*[Requests refused]"), Kind.FORMULA, COUNT, total=True
        ),
        Column(
            "Offered, M tokens", 13, mtok("[Requests offered]*([Mean prompt, tokens]+[Mean output, tokens])"),
            Kind.LINK, MTOK, total=True,
        ),
        Column(
            "Refused, M tokens", 11, Formula("=[Offered, M tokens]-[Served, M tokens]"), Kind.FORMULA, MTOK, total=True
        ),
    )  # fmt: skip
    return Table("tblDemand", "Demand", FIRST_TABLE_ROW, columns, len(pools), total_label="Total")
