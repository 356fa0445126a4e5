"""Commitments: contracts and hardware that are held whether they run or not, what they cost, and what is unused."""

from __future__ import annotations

from collections.abc import Sequence

from planner.plan import FleetPlan
from planner.report.check import Check, Rule, none, same_usd
from planner.report.commitments import Held, held_lots
from planner.report.sheets import input_ids
from planner.report.sheets.hardware import hardware_table
from planner.report.sheets.widths import fitting
from planner.report.style import COUNT, DATE, GENERAL, GREY, MTOK, SHARE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, Value, stack
from planner.report.view import View

NOTHING = "(nothing committed, owned or bought)"
NONE = "none"
"""In the row that says so, and where a scenario has fewer."""
UNKNOWN_START = "before the horizon"
UNKNOWN_END = "not stated"
_KEY = "CommitmentDiscountId"


def build(view: View) -> Sheet:
    """The Commitments sheet."""
    plan = view.plan
    return Sheet(
        "Commitments",
        "Commitments: what is held whether it runs or not",
        "Quantity in instances, hours in instance-hours of the horizon, money in USD; an end date is the first day "
        "not held. Billed: cash of the horizon. Effective: its cost, with what is paid in advance spread over time.",
        "Contracts and hardware: used, unused, billed, effective, expiry",
        GREY,
        stack(
            [
                lambda top: _table(plan, top),
                _coverage,
                lambda top: hardware_table(plan, top),
                lambda top: _parts(plan, top),
                lambda top: _held_table(plan, top),
            ]
        ),
        wide=True,
    )


def checks(view: View) -> tuple[Check, ...]:
    """Used and unused hours are those of the contracts; the parts of hardware are its cost."""
    del view
    return (
        none("Commitments whose used and unused hours are not those committed",
             "=COUNTIF(tblCommitParts[Adds up (1/0)],0)", "Commitments"),
        Check(
            "Hours that commitments run are not more than are held",
            Formula("=tblCommit[UsedHours]#total"),
            Rule.AT_MOST,
            Formula("=tblCommit[HoursInQuarter]#total"),
            input_ids.TOLERANCE,
            "Commitments, Periods",
        ),
        same_usd(
            "Capital, operation and power of hardware are its cost",
            Formula("=tblHardware[Cost, USD]#total"),
            Formula("=tblHardware[Cost of the lot, USD]#total"),
            "Commitments",
        ),
    )  # fmt: skip


def _cells(rows: Sequence[Held], values: Sequence[Value], nothing: Value) -> tuple[Value, ...]:
    """Cells of a column; those of the one row that says that nothing is held."""
    return tuple(values) if rows else (nothing,)


def _of_lot(table: str, header: str, key: str) -> str:
    return f"SUMIFS({table}[{header}],{table}[Lot],[{key}])"


def _table(plan: FleetPlan, top: int) -> Table:
    rows = held_lots(plan)

    def text(header: str, width: float, values: Sequence[Value], number: str = GENERAL) -> Column:
        return Column(header, width, _cells(rows, values, NONE), Kind.RESULT, number, pad=NONE)

    def usd(header: str, formula: str) -> Column:
        return Column(header, fitting(header), Formula(formula), Kind.LINK, USD, total=True)

    def hours(header: str, formula: str) -> Column:
        return Column(header, fitting(header), Formula(formula), Kind.LINK, COUNT, total=True)

    def priced(header: str) -> str:
        return f"=tblCommitParts[GpuHours]@*SUMIFS(tblGpu[{header}],tblGpu[Lot],[{_KEY}])"

    unused = "tblCommitParts[FixedCost]@*[UnusedHours]/[HoursInQuarter]"
    columns = (
        Column(_KEY, 26, _cells(rows, [h.purchase.offer_id for h in rows], NOTHING), Kind.RESULT),
        text("Type", 15, [h.type for h in rows]),
        text("Category", 11, ["Usage" if h.is_commitment else "Hardware" for h in rows]),
        text("Gpu", 13, [h.purchase.gpu for h in rows]),
        text("RegionId", 11, [h.purchase.region or "any" for h in rows]),
        Column("Quantity", 10, _cells(rows, [h.instances for h in rows], 0), Kind.RESULT, COUNT, total=True),
        text("Unit", 11, ["instances" for _ in rows]),
        text("StartDate", 12, [h.start or UNKNOWN_START for h in rows], DATE),
        text("EndDate", 12, [h.end or UNKNOWN_END for h in rows], DATE),
        usd("Upfront", "=tblCommitParts[PaidAtStart]@*([EffectiveCost]+[DueAfter])+tblCommitParts[CapexCash]@"),
        Column("HourlyRate", 11, Formula("=IF([HoursInQuarter]>0,tblCommitParts[FixedCost]@/[HoursInQuarter],0)"),
               Kind.FORMULA, USD_RATE),
        hours("HoursInQuarter", "=[Quantity]*tblCommitParts[HoursEach]@"),
        hours("UsedHours", f"={_of_lot('tblLots', 'Instance-hours', _KEY)}"),
        hours("UnusedHours", f"={_of_lot('tblHeld', 'Unused instance-hours', _KEY)}+tblCommitParts[HoursBetween]@"),
        usd("BilledCost", "=[Upfront]+(1-tblCommitParts[PaidAtStart]@)*[EffectiveCost]-tblCommitParts[CapitalCost]@"),
        usd("ListCost", priced("ListUnitPrice")),
        usd("ContractedCost", priced("ContractedUnitPrice")),
        usd("EffectiveCost", f"={_of_lot('tblCost', 'Cost, USD', _KEY)}"),
        usd("UnusedCost", f"=IF([HoursInQuarter]>0,{unused},0)"),
        usd("DueAfter", f"={_of_lot('tblCost', 'After the horizon, USD', _KEY)}"),
    )  # fmt: skip
    return Table("tblCommit", "Commitments", top, columns, max(1, len(rows)), total_label="Total", workings=True)


def _parts(plan: FleetPlan, top: int) -> Table:
    """Hours and money that the first table is worked out from, row by row of it."""
    rows = held_lots(plan)

    def result(header: str, values: Sequence[Value]) -> Column:
        return Column(header, fitting(header), _cells(rows, values, 0), Kind.RESULT, COUNT)

    def linked(header: str, formula: str, number: str = USD) -> Column:
        return Column(header, fitting(header), Formula(f"={formula}"), Kind.LINK, number)

    def lot(table: str, header: str) -> str:
        return _of_lot(table, header, "Lot")

    held = "tblCommit[HoursInQuarter]@"
    capital = f"{lot('tblHardware', 'Depreciation, USD')}+{lot('tblHardware', 'Return on capital, USD')}"
    columns = (
        Column("Lot", 26, _cells(rows, [h.purchase.offer_id for h in rows], NOTHING), Kind.RESULT),
        result("PaidAtStart", [int(h.paid_at_start) for h in rows]),
        result("HoursEach", [h.hours_each for h in rows]),
        result("HoursBetween", [h.hours_between for h in rows]),
        linked("GpusPerUnit", lot("tblCost", "GPUs per instance"), COUNT),
        linked("GpuHours", f"{held}*[GpusPerUnit]", COUNT),
        linked("FixedCost", f"{lot('tblCost', 'Reserved, USD')}+[CaseCost]"),
        linked("CaseCost", lot("tblCost", "In any case, USD")),
        linked("CaseRate", f"IF({held}>0,[CaseCost]/{held},0)", USD_RATE),
        linked("CapexCash", lot("tblHardware", "Capex cash, USD")),
        linked("CapitalCost", capital),
        Column("Adds up (1/0)", 9,
               Formula(f"=(ABS(tblCommit[UsedHours]@+tblCommit[UnusedHours]@-{held})<=<1>)*1", (input_ids.TOLERANCE,)),
               Kind.FORMULA),
    )  # fmt: skip
    heading = "Hours and money behind the first table: fixed cost is paid whether it runs or not"
    return Table("tblCommitParts", "Commitments", top, columns, max(1, len(rows)), heading, workings=True)


def _coverage(top: int) -> Table:
    """What finance asks first: how much is committed, how much of it is unused, what is due later, what ends next."""
    covered, running = "tblCoverage[Value]@0", "tblCoverage[Value]@1"
    unused, held = "tblCommit[UnusedHours]#total", "tblCommit[HoursInQuarter]#total"
    cost = "tblCommit[EffectiveCost]#total"
    rows: tuple[tuple[str, str, str, str, str], ...] = (
        ("GPU-hours run, committed", "=SUMPRODUCT(tblCommit[UsedHours],tblCommitParts[GpusPerUnit])", "GPU-h", COUNT,
         "By commitments and own hardware"),
        ("GPU-hours run, all", "=SUMPRODUCT(tblLots[GPUs running],tblLots[Hours])", "GPU-h", COUNT, "By all lots"),
        ("Coverage", f"=IF({running}>0,{covered}/{running},0)", "share", SHARE, "The first over the second"),
        ("Share of cost", f"=IF(tblCost[Cost, USD]#total>0,{cost}/tblCost[Cost, USD]#total,0)", "share", SHARE,
         "Effective cost of commitments and own hardware, of the cost of the horizon"),
        ("Utilisation", f"=IF({held}>0,tblCommit[UsedHours]#total/{held},0)", "share", SHARE,
         "Hours that run, of all hours held"),
        ("Unused hours", f"={unused}", "instance-h", COUNT, "Held, and not running"),
        ("Unused cost", "=tblCommit[UnusedCost]#total", "USD", USD,
         "Fixed cost of the unused hours: a line of its own, part of the idle cost of each supply"),
        ("Due after the horizon", "=tblCommit[DueAfter]#total", "USD", USD,
         "What new contracts and purchases still cost then; in no cost of this plan"),
        ("Capex cash", "=tblHardware[Capex cash, USD]#total", "USD", USD,
         "Paid for hardware in the horizon; its cost is the depreciation and return below"),
        ("Next end", '=IF(COUNT(tblCommit[EndDate])>0,MIN(tblCommit[EndDate]),"none")', "date", DATE,
         "First day on which a contract or machine is not held any more"),
    )  # fmt: skip
    measures, formulas, units, numbers, meanings = zip(*rows, strict=True)
    columns = (
        Column("Measure", 26, measures),
        Column("Value", 14, tuple(Formula(text) for text in formulas), Kind.LINK, numbers),
        Column("Unit", 9, units),
        Column("Meaning", 22, meanings),
    )
    return Table("tblCoverage", "Commitments", top, columns, len(rows), "Coverage, waste and expiry", workings=True)


def _held_table(plan: FleetPlan, top: int) -> Table:
    rows = [(h, t, period.name) for h in held_lots(plan) for t, period in enumerate(plan.periods)]
    runs = "SUMIFS(tblLots[Instances running],tblLots[Lot],[Lot],tblLots[Period],[Period])"
    columns = (
        Column("Lot", 26, tuple(h.purchase.offer_id for h, _, _ in rows) or (NOTHING,), Kind.RESULT),
        Column("Period", 14, tuple(name for _, _, name in rows) or ("",)),
        Column("Hours", 9, Formula("=SUMIFS(tblPeriods[Hours],tblPeriods[Period],[Period])"), Kind.LINK, MTOK),
        Column("Instances held", 12, tuple(h.by_period[t] for h, t, _ in rows) or (0,), Kind.RESULT, COUNT),
        Column("Instances running", 10, Formula(f"={runs}"), Kind.LINK, COUNT),
        Column("Unused instance-hours", 10, Formula("=([Instances held]-[Instances running])*[Hours]"), Kind.FORMULA,
               COUNT, total=True),
    )  # fmt: skip
    heading = "Instances held and running, by period"
    return Table("tblHeld", "Commitments", top, columns, max(1, len(rows)), heading, total_label="Total", workings=True)
