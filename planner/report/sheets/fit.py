"""Fit: why the plan holds, a row per pool: tokens, latency, refusals, and what binds."""

from __future__ import annotations

from planner.plan import FleetPlan, Pool
from planner.report import facts
from planner.report.sheets.inputs import size_id, target_id
from planner.report.style import COUNT, GREEN, MS, MTOK, SHARE, SHARE_FINE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value

NO_TARGET = "no target"


def build(plan: FleetPlan) -> Sheet:
    """The Fit sheet."""
    return Sheet(
        "Fit",
        "Fit: why the plan holds",
        "Planned against allowed, one row for each pool, as recomputed from the plan. Times in ms at the planned load, "
        "at the edge of the error band that the constraints saw. Flags: 1 = holds.",
        "Why it holds: tokens, latency and refusals against their limits",
        GREEN,
        (_table(plan),),
        wide=True,
    )


def _target(pool: Pool, word: str) -> Value:
    return Formula("=<1>", (target_id(pool, word),)) if facts.margin(pool, word) else NO_TARGET


def _met(planned: str, target: str) -> Formula:
    return Formula(f"=IF(ISNUMBER([{target}]),([{planned}]<=[{target}])*1,1)")


def _table(plan: FleetPlan) -> Table:
    pools = plan.pools
    bought = [facts.purchase_of(plan, p) for p in pools]
    columns = (
        Column("Pool", 14, tuple(p.name for p in pools)),
        Column("Binding constraint", 17, tuple(p.binding_constraint for p in pools), Kind.RESULT),
        Column("Why", 56, tuple(p.why for p in pools), Kind.RESULT),
        Column("KV pool, tokens a replica", 11, tuple(facts.token_pool(p) for p in pools), Kind.RESULT, COUNT),
        Column("Live tokens, mean", 11, tuple(p.load.mean_live_tokens for p in pools), Kind.RESULT, COUNT),
        Column("Live tokens, quantile", 12, tuple(p.load.quantile_live_tokens for p in pools), Kind.RESULT, COUNT),
        Column("Quantile exceeded at most", 11, tuple(p.load.overflow_probability for p in pools), Kind.RESULT, SHARE),
        Column(
            "KV pool used",
            8,
            Formula("=IF([KV pool, tokens a replica]>0,[Live tokens, quantile]/[KV pool, tokens a replica],0)"),
            Kind.FORMULA,
            SHARE,
        ),
        Column(
            "Tokens fit (1/0)", 8, Formula("=([Live tokens, quantile]<=[KV pool, tokens a replica])*1"), Kind.FORMULA
        ),
        Column("TPOT planned, ms", 9, tuple(p.speed.tpot_ms.used for p in pools), Kind.RESULT, MS),
        Column("TPOT target, ms", 10, tuple(_target(p, "tpot") for p in pools), Kind.LINK, MS),
        Column("TPOT met (1/0)", 9, _met("TPOT planned, ms", "TPOT target, ms"), Kind.FORMULA),
        Column("TTFT planned, ms", 9, tuple(p.speed.ttft_ms.used for p in pools), Kind.RESULT, MS),
        Column("TTFT percentile", 9, tuple(p.speed.ttft_percentile for p in pools), Kind.RESULT, SHARE),
        Column("TTFT target, ms", 10, tuple(_target(p, "ttft") for p in pools), Kind.LINK, MS),
        Column("TTFT met (1/0)", 9, _met("TTFT planned, ms", "TTFT target, ms"), Kind.FORMULA),
        Column("Busy at planning rate", 10, tuple(p.load.busy_share for p in pools), Kind.RESULT, SHARE),
        Column("Capacity, M tokens", 11, tuple(p.capacity_mtok for p in pools), Kind.RESULT, MTOK, total=True),
        Column(
            "Busy on average",
            9,
            Formula(
                "=IF([Capacity, M tokens]>0,[Busy at planning rate]*tblPlan[Served, M tokens]@/[Capacity, M tokens],0)"
            ),
            Kind.LINK,
            SHARE,
        ),
        Column("Requests offered", 12, tuple(p.offered_requests for p in pools), Kind.RESULT, COUNT, total=True),
        Column("Requests refused", 10, tuple(p.refused_request_share for p in pools), Kind.RESULT, SHARE_FINE),
        Column("Tokens refused", 9, tuple(p.refused_token_share for p in pools), Kind.RESULT, SHARE_FINE),
        Column(
            "Refused, requests",
            10,
            Formula("=[Requests offered]*[Requests refused]"),
            Kind.FORMULA,
            COUNT,
            total=True,
        ),
        Column(
            "Replicas enough (1/0)",
            10,
            Formula("=(tblPlan[Replicas]@>=tblPlan[Replicas needed]@+tblPlan[Spare]@)*1"),
            Kind.LINK,
        ),
        Column("GPUs in an instance", 10, tuple(Formula("=<1>", (size_id(b),)) for b in bought), Kind.LINK, COUNT),
        Column(
            "Replicas the instances hold",
            11,
            Formula(
                "=INT([GPUs in an instance]/tblPlan[TP]@)*SUMIFS(tblCost[Instances],tblCost[Offer],tblPlan[Offer]@)"
            ),
            Kind.LINK,
            COUNT,
        ),
        Column("Replicas fit (1/0)", 9, Formula("=(tblPlan[Replicas]@<=[Replicas the instances hold])*1"), Kind.LINK),
        Column("Constraints broken", 10, tuple(facts.broken(p) for p in pools), Kind.RESULT, COUNT, total=True),
        Column("Runner-up and its extra cost", 32, tuple(facts.runner_up(p) for p in pools), Kind.RESULT),
    )
    return Table("tblFit", "Fit", FIRST_TABLE_ROW, columns, len(pools), total_label="Total")
