"""Demand: from the stated rate to the tokens that are served, a row per pool."""

from __future__ import annotations

from planner.plan import FleetPlan, Pool
from planner.report.sheets import input_ids
from planner.report.style import COUNT, GREEN, MTOK, SHARE_FINE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack

RATE = "#,##0.00##"


def build(plan: FleetPlan) -> Sheet:
    """The Demand sheet."""
    return Sheet(
        "Demand",
        "Demand: from the stated rate to served tokens",
        "Requests = rate x growth x pool's share x hours x seconds per hour; served tokens = requests x mean tokens x "
        "(1 - refused share). The busiest period's planning rate = rate x growth x share x peak. Flags: 1 = as solved.",
        "From the stated rate to served and refused tokens",
        GREEN,
        stack([lambda top: _requests(plan, top), lambda top: _tokens(plan, top)]),
        wide=True,
    )


def _linked(plan: FleetPlan, item: str) -> tuple[Formula, ...]:
    return tuple(Formula("=<1>", (input_ids.demand_id(pool.name, item),)) for pool in plan.pools)


def _of_model(plan: FleetPlan, item: str) -> tuple[Formula, ...]:
    return tuple(Formula("=<1>", (input_ids.demand_id(pool.model, item),)) for pool in plan.pools)


def _names(pools: tuple[Pool, ...]) -> tuple[Column, Column]:
    return Column("Pool", 16, tuple(p.name for p in pools)), Column("Model", 16, tuple(p.model for p in pools))


def _same(left: str, right: str) -> Formula:
    return Formula(f"=(ABS([{left}]-[{right}])<=<1>)*1", (input_ids.TOLERANCE,))


def _requests(plan: FleetPlan, top: int) -> Table:
    pools = plan.pools
    columns = (
        *_names(pools),
        Column("Stated rate of the model, requests/s", 12, _of_model(plan, "rate"), Kind.LINK, RATE),
        Column("Growth", 10, _of_model(plan, "growth"), Kind.LINK, RATE),
        Column("Share of requests", 10, _linked(plan, "share"), Kind.LINK, SHARE_FINE),
        Column(
            "Mean rate, requests/s", 13,
            Formula("=[Stated rate of the model, requests/s]*[Growth]*[Share of requests]"), Kind.FORMULA, RATE,
        ),
        Column("Peak factor", 13, _linked(plan, "peak"), Kind.LINK, RATE),
        Column("Requests refused", 13, _linked(plan, "refused_requests"), Kind.LINK, SHARE_FINE),
        Column(
            "Planning rate accepted, requests/s", 13,
            Formula("=[Mean rate, requests/s]*[Peak factor]*(1-[Requests refused])"), Kind.FORMULA, RATE,
        ),
        Column(
            "Planning rate as solved", 13, tuple(p.load.planning_rate_per_s for p in pools), Kind.RESULT, RATE
        ),
        Column(
            "Rate as solved (1/0)", 10, _same("Planning rate accepted, requests/s", "Planning rate as solved"),
            Kind.FORMULA,
        ),
        Column(
            "Requests offered", 15,
            Formula("=[Mean rate, requests/s]*<1>*<2>", (input_ids.HOURS, input_ids.SECONDS_PER_HOUR)), Kind.LINK,
            COUNT, total=True,
        ),
        Column(
            "Of all periods", 15,
            Formula("=SUMIFS(tblPoolPeriods[Requests offered],tblPoolPeriods[Pool],[Pool])"), Kind.LINK, COUNT,
            total=True,
        ),
        Column(
            "Periods as stated (1/0)", 10,
            Formula("=(ABS([Of all periods]-[Requests offered])<=<1>*[Requests offered])*1", (input_ids.TOLERANCE,)),
            Kind.FORMULA,
        ),
        Column(
            "Refused requests", 13, Formula("=[Requests offered]*[Requests refused]"), Kind.FORMULA, COUNT, total=True
        ),
        Column(
            "Tail budget", 10, tuple(Formula("=<1>", (input_ids.tail_id(p),)) for p in pools), Kind.LINK, SHARE_FINE
        ),
        Column(
            "Within tail (1/0)", 9, Formula("=([Requests refused]<=[Tail budget]+<1>)*1", (input_ids.TOLERANCE,)),
            Kind.FORMULA,
        ),
    )  # fmt: skip
    return Table("tblDemand", "Demand", top, columns, len(pools), total_label="Total")


def _tokens(plan: FleetPlan, top: int) -> Table:
    pools, offered = plan.pools, "tblDemand[Requests offered]@"

    def mtok(formula: str) -> Formula:
        return Formula(f"={formula}/<1>", (input_ids.TOKENS_PER_MTOK,))

    def served(word: str, mean: str) -> Formula:
        return mtok(f"{offered}*[{mean}, tokens]*(1-[{word} tokens refused])")

    columns = (
        *_names(pools),
        Column("Mean prompt, tokens", 12, _linked(plan, "mean_prompt"), Kind.LINK, MTOK),
        Column("Mean output, tokens", 10, _linked(plan, "mean_output"), Kind.LINK, MTOK),
        Column("Input tokens refused", 10, _linked(plan, "refused_input"), Kind.LINK, SHARE_FINE),
        Column("Output tokens refused", 13, _linked(plan, "refused_output"), Kind.LINK, SHARE_FINE),
        Column("Served input, M tokens", 13, served("Input", "Mean prompt"), Kind.FORMULA, MTOK, total=True),
        Column("Served output, M tokens", 13, served("Output", "Mean output"), Kind.FORMULA, MTOK, total=True),
        Column(
            "Served, M tokens", 13, Formula("=[Served input, M tokens]+[Served output, M tokens]"), Kind.FORMULA, MTOK,
            total=True,
        ),
        Column("Served as solved, M tokens", 13, tuple(p.served_mtok for p in pools), Kind.RESULT, MTOK, total=True),
        Column("Served as solved (1/0)", 10, _same("Served, M tokens", "Served as solved, M tokens"), Kind.FORMULA),
        Column(
            "Offered, M tokens", 15, mtok(f"{offered}*([Mean prompt, tokens]+[Mean output, tokens])"), Kind.FORMULA,
            MTOK, total=True,
        ),
        Column(
            "Refused, M tokens", 15, Formula("=[Offered, M tokens]-[Served, M tokens]"), Kind.FORMULA, MTOK, total=True
        ),
    )  # fmt: skip
    heading = "Tokens offered and served"
    return Table("tblTokens", "Demand", top, columns, len(pools), heading, total_label="Total", workings=True)
