"""Periods: replicas of each pool and instances of each lot, hour by hour: what runs when."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report import facts
from planner.report.sheets.input_ids import SECONDS_PER_HOUR
from planner.report.style import COUNT, GREEN, MTOK, SHARE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack

RATE = "#,##0.00##"
NO_LIMIT = "no limit"
HOURS = Formula("=SUMIFS(tblPeriods[Hours],tblPeriods[Period],[Period])")


def build(plan: FleetPlan) -> Sheet:
    """The Periods sheet."""
    return Sheet(
        "Periods",
        "Periods: what runs when",
        "Hours of the horizon that are planned alike. Replica-hours = replicas x hours; GPU-hours = GPUs x hours. "
        "Rates are those that a pool must hold (planning) and that arrive (mean). Flags: 1 = holds.",
        "Replicas and instances of every period",
        GREEN,
        stack(
            [
                lambda top: _periods(plan, top),
                lambda top: _pools(plan, top),
                lambda top: _runs(plan, top),
                lambda top: _lots(plan, top),
                lambda top: _nodes(plan, top),
            ]
        ),
        wide=True,
    )


def _periods(plan: FleetPlan, top: int) -> Table:
    def summed(table: str, header: str) -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[Period],[Period])")

    columns = (
        Column("Period", 24, tuple(p.name for p in plan.periods)),
        Column("Hours", 26, tuple(p.hours for p in plan.periods), Kind.RESULT, MTOK, total=True),
        Column("Share of hours", 20, Formula("=[Hours]/tblPeriods[Hours]#total"), Kind.FORMULA, SHARE, total=True),
        Column("GPUs running", 12, summed("tblLots", "GPUs running"), Kind.FORMULA, COUNT),
        Column("GPUs used", 12, summed("tblRuns", "GPUs"), Kind.FORMULA, COUNT),
        Column("Power, kW", 12, summed("tblLots", "Power, kW"), Kind.FORMULA, MTOK),
        Column("Hours of the week", 44, tuple(p.when or "all" for p in plan.periods)),
    )
    return Table("tblPeriods", "Periods", top, columns, len(plan.periods), total_label="Total")


def _pools(plan: FleetPlan, top: int) -> Table:
    rows = [(pool, period) for pool in plan.pools for period in pool.periods]
    running = "SUMIFS(tblRuns[Replicas],tblRuns[Pool],[Pool],tblRuns[Period],[Period])"
    columns = (
        Column("Pool", 24, tuple(pool.name for pool, _ in rows)),
        Column("Model", 26, tuple(pool.model for pool, _ in rows)),
        Column("Period", 20, tuple(period.period for _, period in rows)),
        Column("Hours", 12, HOURS, Kind.FORMULA, MTOK),
        Column(
            "Planning rate accepted, requests/s", 12, tuple(p.planning_rate_per_s for _, p in rows), Kind.RESULT, RATE
        ),
        Column("Mean rate, requests/s", 12, tuple(p.mean_rate_per_s for _, p in rows), Kind.RESULT, RATE),
        Column(
            "Requests offered", 13, Formula("=[Mean rate, requests/s]*[Hours]*<1>", (SECONDS_PER_HOUR,)), Kind.LINK,
            COUNT, total=True,
        ),
        Column("Replicas needed", 10, tuple(p.replicas_needed for _, p in rows), Kind.RESULT, COUNT),
        Column("With spares and steps", 10, tuple(p.replicas_asked for _, p in rows), Kind.RESULT, COUNT),
        Column("Replicas running", 10, Formula(f"={running}"), Kind.FORMULA, COUNT),
        Column("Replica-hours", 12, Formula("=[Replicas running]*[Hours]"), Kind.FORMULA, COUNT, total=True),
        Column(
            "Replicas enough (1/0)", 10,
            Formula("=([Replicas needed]<=[With spares and steps])*([With spares and steps]<=[Replicas running])"),
            Kind.FORMULA,
        ),
    )  # fmt: skip
    heading = "Replicas by pool and period"
    return Table("tblPoolPeriods", "Periods", top, columns, len(rows), heading, total_label="Total", workings=True)


def _runs(plan: FleetPlan, top: int) -> Table:
    rows = [
        (pool, place.supply, period.name, place.replicas[t])
        for pool, place in facts.stands(plan)
        for t, period in enumerate(plan.periods)
    ]
    there = "SUMIFS(tblNodes[GPUs running],tblNodes[Supply],[Supply],tblNodes[Period],[Period])"
    columns = (
        Column("Pool", 24, tuple(pool.name for pool, _, _, _ in rows)),
        Column("Supply", 26, tuple(supply for _, supply, _, _ in rows), Kind.RESULT),
        Column("Period", 20, tuple(period for _, _, period, _ in rows)),
        Column("Hours", 12, HOURS, Kind.FORMULA, MTOK),
        Column("Replicas", 12, tuple(n for _, _, _, n in rows), Kind.RESULT, COUNT),
        Column("GPUs of a replica", 12, Formula("=MAX(1,SUMIFS(tblPlan[TP],tblPlan[Pool],[Pool]))"), Kind.LINK, COUNT),
        Column("GPUs", 13, Formula("=[Replicas]*[GPUs of a replica]"), Kind.FORMULA, COUNT),
        Column("GPU-hours", 10, Formula("=[GPUs]*[Hours]"), Kind.FORMULA, COUNT, total=True),
        Column(
            "GPUs linked", 10, Formula("=MAX(1,SUMIFS(tblSupplies[GPUs linked],tblSupplies[Supply],[Supply]))"),
            Kind.LINK, COUNT,
        ),
        Column("GPUs running there", 10, Formula(f"={there}"), Kind.FORMULA, COUNT),
        Column(
            "Room for replicas", 12,
            Formula(
                "=IF([GPUs of a replica]>[GPUs linked],INT([GPUs running there]/[GPUs of a replica]),"
                "INT([GPUs linked]/[GPUs of a replica])*[GPUs running there]/[GPUs linked])"
            ),
            Kind.FORMULA, COUNT,
        ),
        Column("Replicas fit (1/0)", 10, Formula("=([Replicas]<=[Room for replicas])*1"), Kind.FORMULA),
    )  # fmt: skip
    return Table(
        "tblRuns", "Periods", top, columns, len(rows), "Where replicas stand", total_label="Total", workings=True
    )


def _lots(plan: FleetPlan, top: int) -> Table:
    rows = [(p, t, period.name) for p in plan.purchases for t, period in enumerate(plan.periods)]

    def of_lot(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblCost[{header}],tblCost[Lot],[Lot])")

    columns = (
        Column("Lot", 24, tuple(p.offer_id for p, _, _ in rows), Kind.RESULT),
        Column("Supply", 26, tuple(p.supply for p, _, _ in rows), Kind.RESULT),
        Column("Period", 20, tuple(name for _, _, name in rows)),
        Column("Hours", 12, HOURS, Kind.FORMULA, MTOK),
        Column(
            "Instances to be had", 12,
            tuple(NO_LIMIT if p.available_by_period is None else p.available_by_period[t] for p, t, _ in rows),
            Kind.RESULT, COUNT,
        ),
        Column("Instances running", 12, tuple(p.instances_by_period[t] for p, t, _ in rows), Kind.RESULT, COUNT),
        Column("Instances paid", 13, tuple(p.paid_by_period[t] for p, t, _ in rows), Kind.RESULT, COUNT),
        Column("GPUs of one", 10, of_lot("GPUs per instance"), Kind.LINK, COUNT),
        Column("GPUs running", 10, Formula("=[Instances running]*[GPUs of one]"), Kind.FORMULA, COUNT),
        Column("GPUs paid", 10, Formula("=[Instances paid]*[GPUs of one]"), Kind.FORMULA, COUNT),
        Column("Instance-hours", 12, Formula("=[Instances running]*[Hours]"), Kind.FORMULA, COUNT, total=True),
        Column("GPU-hours paid", 12, Formula("=[GPUs paid]*[Hours]"), Kind.FORMULA, COUNT, total=True),
        Column("kW of one", 10, tuple(p.power_kw_per_instance for p, _, _ in rows), Kind.RESULT, MTOK),
        Column("Power, kW", 10, Formula("=[Instances running]*[kW of one]"), Kind.FORMULA, MTOK),
        Column("kg CO2e an hour", 9, tuple(p.carbon_kg_per_instance_h for p, _, _ in rows), Kind.RESULT, MTOK),
        Column("Carbon, kg CO2e", 11, Formula("=[Instance-hours]*[kg CO2e an hour]"), Kind.FORMULA, COUNT, total=True),
        Column(
            "Can be had (1/0)", 9,
            Formula("=IF(ISNUMBER([Instances to be had]),([Instances running]<=[Instances to be had])*1,1)"),
            Kind.FORMULA,
        ),
        Column("Paid (1/0)", 9, Formula("=([Instances running]<=[Instances paid])*1"), Kind.FORMULA),
    )  # fmt: skip
    heading = "Instances by lot and period"
    return Table("tblLots", "Periods", top, columns, len(rows), heading, total_label="Total", workings=True)


def _nodes(plan: FleetPlan, top: int) -> Table:
    rows = [(supply.id, period.name) for supply in facts.supplies(plan) for period in plan.periods]

    def summed(table: str, header: str) -> Formula:
        return Formula(f"=SUMIFS({table}[{header}],{table}[Supply],[Supply],{table}[Period],[Period])")

    columns = (
        Column("Supply", 24, tuple(supply for supply, _ in rows), Kind.RESULT),
        Column("Period", 26, tuple(period for _, period in rows)),
        Column(
            "Share counted on", 20, Formula("=SUMIFS(tblSupplies[Share counted on],tblSupplies[Supply],[Supply])"),
            Kind.LINK, SHARE,
        ),
        Column("GPUs running", 12, summed("tblLots", "GPUs running"), Kind.FORMULA, COUNT),
        Column("GPUs used", 12, summed("tblRuns", "GPUs"), Kind.FORMULA, COUNT),
        Column("GPUs idle", 12, Formula("=[GPUs running]-[GPUs used]"), Kind.FORMULA, COUNT),
        Column("Within (1/0)", 13, Formula("=([GPUs used]<=[GPUs running]*[Share counted on])*1"), Kind.FORMULA),
    )  # fmt: skip
    return Table("tblNodes", "Periods", top, columns, len(rows), "Supplies: GPUs running and used", workings=True)
