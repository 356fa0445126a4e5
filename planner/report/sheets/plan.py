"""Plan: what is deployed, a row per pool, and what it costs."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report import facts
from planner.report.style import COUNT, GREEN, MTOK, USD, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table


def build(plan: FleetPlan) -> Sheet:
    """The Plan sheet."""
    return Sheet(
        "Plan",
        "Plan: what to deploy",
        "One row for each pool of identical replicas; replicas and GPUs of its busiest period, the others on sheet "
        "Periods. Tokens in millions, money in USD for the whole horizon. A supply's cost is borne by GPU-hours.",
        "What to deploy: a row for each pool of replicas",
        GREEN,
        (_table(plan),),
        wide=True,
    )


def _table(plan: FleetPlan) -> Table:
    pools = plan.pools

    def by_pool(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblStands[{header}],tblStands[Pool],[Pool])")

    columns = (
        Column("Pool", 14, tuple(p.name for p in pools)),
        Column("Model", 13, tuple(p.model for p in pools)),
        Column("Weights", 20, tuple(p.weights for p in pools)),
        Column("GPU", 14, tuple(p.gpu for p in pools), Kind.RESULT),
        Column("Stands on", 21, tuple(facts.stands_on(p) for p in pools), Kind.RESULT),
        Column("TP", 6, tuple(p.tp for p in pools), Kind.RESULT, COUNT),
        Column("Weight dtype", 11, tuple(p.weight_dtype for p in pools), Kind.RESULT),
        Column("KV dtype", 9, tuple(p.kv_dtype for p in pools), Kind.RESULT),
        Column("max_model_len", 13, tuple(p.max_model_len for p in pools), Kind.RESULT, COUNT),
        Column("max_num_seqs", 13, tuple(p.max_num_seqs for p in pools), Kind.RESULT, COUNT),
        Column("Prompts routed here, tokens", 12, tuple(facts.prompt_band(p) for p in pools), Kind.RESULT),
        Column("Tenants", 9, tuple(facts.tenants(p) for p in pools), Kind.RESULT),
        Column("Replicas needed", 10, tuple(p.replicas_needed for p in pools), Kind.RESULT, COUNT),
        Column("Spare", 8, tuple(p.replicas_spare for p in pools), Kind.RESULT, COUNT),
        Column("Replicas", 9, tuple(p.replicas for p in pools), Kind.RESULT, COUNT),
        Column("GPUs", 8, Formula("=[Replicas]*[TP]"), Kind.FORMULA, COUNT, total=True),
        Column("Served, M tokens", 13, Formula("=tblTokens[Served, M tokens]@"), Kind.LINK, MTOK, total=True),
        Column("GPU-hours", 11, by_pool("GPU-hours"), Kind.LINK, COUNT, total=True),
        Column("Cost of GPUs held, USD", 12, by_pool("GPUs held, USD"), Kind.LINK, USD, total=True),
        Column(
            "Idle charged, USD", 12, Formula("=[Cost, USD]-[Cost of GPUs held, USD]"), Kind.FORMULA, USD, total=True
        ),
        Column("Cost, USD", 11, by_pool("Cost, USD"), Kind.LINK, USD, total=True),
        Column(
            "USD per 1M served tokens",
            12,
            Formula("=IF([Served, M tokens]>0,[Cost, USD]/[Served, M tokens],0)"),
            Kind.FORMULA,
            USD_RATE,
        ),
    )
    return Table("tblPlan", "Plan", FIRST_TABLE_ROW, columns, len(pools), total_label="Total")
