"""Limits on the Cost sheet: quotas period by period, what counts towards each, and every limit with its worth."""

from __future__ import annotations

from planner.assemble.rows import USD, USD_AFTER
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.sheets.input_ids import TOLERANCE, quota_id
from planner.report.style import COUNT, MTOK, SHARE, USD_CENTS, Kind
from planner.report.table import Column, Formula, Table, Value

NOT_LOOKED_FOR = "not looked for"


def limits_table(plan: FleetPlan, top: int) -> Table:
    """Quotas and stock, a row for each in each period."""
    rows = [(quota, period.name) for quota in facts.gpu_quotas(plan) for period in plan.periods]
    used = "=SUMIFS(tblCovers[GPUs],tblCovers[Limit],[Limit],tblCovers[Period],[Period])"
    allowed: tuple[Value, ...] = tuple(Formula("=<1>", (quota_id(q),)) for q, _ in rows) or (0,)
    columns = (
        Column("Limit", 31, tuple(q.name for q, _ in rows) or ("(no quota stated)",)),
        Column("Period", 15, tuple(period for _, period in rows) or ("",)),
        Column("Unit", 17, tuple(q.unit for q, _ in rows) or ("",)),
        Column("Used", 12, Formula(used), Kind.FORMULA, COUNT),
        Column("Allowed", 13, allowed, Kind.LINK, COUNT),
        Column("Left", 15, Formula("=[Allowed]-[Used]"), Kind.FORMULA, COUNT),
        Column("Within (1/0)", 11, Formula("=([Used]<=[Allowed]+<1>)*1", (TOLERANCE,)), Kind.FORMULA),
    )
    return Table("tblLimits", "Cost", top, columns, max(1, len(rows)), "Quotas and stock, by period")


def covers_table(plan: FleetPlan, top: int) -> Table:
    """Which lots count towards which limit: the GPUs that are paid, whether they run or not."""
    rows = [
        (quota.name, lot, period.name)
        for quota in facts.gpu_quotas(plan)
        for lot in quota.offers
        for period in plan.periods
    ] or [("(nothing bought)", "", "")]
    gpus = "=SUMIFS(tblLots[GPUs paid],tblLots[Lot],[Lot],tblLots[Period],[Period])"
    columns = (
        Column("Limit", 31, tuple(limit for limit, _, _ in rows)),
        Column("Lot", 15, tuple(lot for _, lot, _ in rows)),
        Column("Period", 17, tuple(period for _, _, period in rows)),
        Column("GPUs", 12, Formula(gpus), Kind.LINK, COUNT),
    )
    return Table("tblCovers", "Cost", top, columns, len(rows), "What counts towards each limit", workings=True)


def uses_table(plan: FleetPlan, top: int) -> Table:
    """Every limit that is not money, as the plan was recomputed, and what one more unit of it would save."""
    rows = [q for q in plan.quotas if q.unit not in (USD, USD_AFTER)]
    worth: tuple[Value, ...] = tuple(NOT_LOOKED_FOR if q.worth_usd is None else q.worth_usd for q in rows) or (0,)
    allowed: tuple[Value, ...] = tuple(Formula("=<1>", (quota_id(q),)) for q in rows) or (0,)
    columns = (
        Column("Limit", 31, tuple(q.name for q in rows) or ("(no limit stated)",)),
        Column("Unit", 15, tuple(q.unit for q in rows) or ("",)),
        Column("Most used, as solved", 17, tuple(q.used for q in rows) or (0,), Kind.RESULT, MTOK),
        Column("Allowed", 12, allowed, Kind.LINK, MTOK),
        Column("Limit used", 13, Formula('=IFERROR([Most used, as solved]/[Allowed],"n/a")'), Kind.FORMULA, SHARE),
        Column("Within (1/0)", 15, Formula("=([Most used, as solved]<=[Allowed]+<1>)*1", (TOLERANCE,)), Kind.FORMULA),
        Column("One more is worth, USD, re-solve", 11, worth, Kind.RESULT, USD_CENTS),
    )
    heading = "All limits, and what one more unit would save"
    return Table("tblUses", "Cost", top, columns, max(1, len(rows)), heading, workings=True)
