"""Data_FOCUS: every charge of the plan by the names of FOCUS 1.2, so that FinOps can join plan to actuals."""

from __future__ import annotations

from collections.abc import Iterable

from planner.report.charges import Charge, Part, charges_of
from planner.report.check import Check, same_usd
from planner.report.commitments import held_lots
from planner.report.focus_columns import NO_WORKLOAD, TEXTS_AFTER, TEXTS_BEFORE
from planner.report.sheets.widths import fitting
from planner.report.style import COUNT, DATE, GREY, MTOK, USD, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value
from planner.report.view import View

_WIDTHS = {"x_Lot": 34, "Tags": 30, "x_PlanPeriod": 16, "CommitmentDiscountId": 24, "SkuId": 18, "x_Pool": 16}
_WIDTH = 10.0
_LEAST = 10.5
"""Holds a date."""
_PAGES_WIDE = 2


def build(view: View) -> Sheet:
    """The Data_FOCUS sheet."""
    charges = charges_of(view.plan)
    focus = _focus(view, charges)
    return Sheet(
        "Data_FOCUS",
        "Data_FOCUS: charges in the names of FOCUS 1.2",
        "A row for each pool, lot and period, for what is idle or unused, and for each purchase; USD and GPU-hours of "
        "the horizon. Effective costs add up to the cost. Columns with x_ are the plan's own. The second table works "
        "them out.",
        "Charges in FOCUS names, to join with actual bills",
        GREY,
        (focus, _charges(charges, focus.bottom + 3)),
        wide=True,
        pages_wide=_PAGES_WIDE,
    )


def checks(view: View) -> tuple[Check, ...]:
    """The charges are the whole cost, on every basis."""
    del view
    cash = "=tblCost[Cost, USD]#total-tblCommit[EffectiveCost]#total+tblCommit[BilledCost]#total"
    bought = Formula("=tblCost[Cost, USD]#total")
    return (
        same_usd("EffectiveCost of Data_FOCUS equals cost by purchase", Formula("=tblFocus[EffectiveCost]#total"),
                 bought, "Data_FOCUS, Cost"),
        same_usd("Showback of Data_FOCUS equals Showback", Formula("=tblFocus[x_ShowbackCost]#total"),
                 Formula("=tblShowback[TotalCost]#total"), "Data_FOCUS, Showback"),
        same_usd("BilledCost of Data_FOCUS equals what is billed by the Commitments and Cost sheets",
                 Formula("=tblFocus[BilledCost]#total"), Formula(cash), "Data_FOCUS, Commitments"),
    )  # fmt: skip


def _focus(view: View, charges: tuple[Charge, ...]) -> Table:
    plan = view.plan
    held = {h.purchase.offer_id: h for h in held_lots(plan)}

    def texts(names: Iterable[str]) -> list[Column]:
        return [
            Column(name, _WIDTHS.get(name, fitting(name, _LEAST)), made[name], _kind(name), _number(name))
            for name in names
        ]

    made: dict[str, tuple[Value, ...]] = {
        name: tuple(text(c, plan, view.name, held.get(c.purchase.offer_id)) for c in charges)
        for name, text in {**TEXTS_BEFORE, **TEXTS_AFTER}.items()
    }

    def worked(header: str, formula: str, number: str = USD) -> Column:
        return Column(header, fitting(header, _LEAST), Formula(formula), Kind.FORMULA, number, total=True)

    hours, committed = "tblCharges[GPU-hours]@", "tblCharges[Committed GPU-hours]@"
    bought = "tblCharges[Billed as a purchase, USD]@"
    columns = (
        *texts(TEXTS_BEFORE),
        worked("PricingQuantity", f"={hours}+{committed}", MTOK),
        worked("ListCost", f"={hours}*tblCharges[List price, USD]@+{bought}"),
        worked("ContractedCost", f"={hours}*tblCharges[Contracted price, USD]@+{bought}"),
        worked("BilledCost", f"=tblCharges[Billed by use]@*[EffectiveCost]+{bought}"),
        worked("EffectiveCost", f"={hours}*tblCharges[Effective price, USD]@+tblCharges[Counted in no period, USD]@"),
        worked("x_ShowbackCost", f"={hours}*tblCharges[Charged, USD]@+tblCharges[Borne by none]@*[EffectiveCost]"),
        *texts(TEXTS_AFTER),
    )
    return Table("tblFocus", "Data_FOCUS", FIRST_TABLE_ROW, columns, len(charges), total_label="Total")


def _kind(name: str) -> Kind:
    """Figures of a pool are the optimiser's."""
    return Kind.RESULT if name in {"x_Lot", "x_Tp", "x_WeightsDtype", "x_KvDtype", "x_MaxModelLen"} else Kind.TEXT


def _number(name: str) -> str:
    """Ends of periods are dates; TP and max_model_len are counts."""
    return DATE if name.endswith(("Start", "End")) else COUNT


def _charges(charges: tuple[Charge, ...], top: int) -> Table:
    """How many GPU-hours each charge is for, and at which prices."""

    def flag(header: str, *parts: Part) -> Column:
        return Column(header, _WIDTH, tuple(int(c.part in parts) for c in charges), Kind.RESULT, COUNT)

    def of(table: str, header: str, *keys: str) -> str:
        return f"SUMIFS({table}[{header}],{','.join(f'{table}[{key}],[{key}]' for key in keys)})"

    def linked(header: str, formula: str, number: str = COUNT) -> Column:
        return Column(header, _WIDTH, Formula(f"={formula}"), Kind.LINK, number)

    names = tuple(NO_WORKLOAD[c.part] if c.pool is None else c.pool.name for c in charges)
    committed = "SUMIFS(tblCommitParts[GpuHours],tblCommitParts[Lot],[Lot])"
    columns = (
        Column("Lot", 34, tuple(c.purchase.offer_id for c in charges), Kind.RESULT),
        Column("Supply", _WIDTH, tuple(c.purchase.supply for c in charges), Kind.RESULT),
        Column("Period", _WIDTH, tuple(c.period for c in charges)),
        Column("Pool", _WIDTH, names),
        flag("Used", Part.USED),
        flag("Idle", Part.IDLE),
        flag("Unused", Part.UNUSED),
        flag("Ended", Part.UNCOUNTED),
        flag("Purchase", Part.PURCHASE),
        Column("Billed by use", _WIDTH, tuple(int(c.billed_by_use) for c in charges), Kind.RESULT, COUNT),
        Column("Borne by none", _WIDTH, tuple(int(not c.borne) for c in charges), Kind.RESULT, COUNT),
        linked("Hours", of("tblPeriods", "Hours", "Period"), MTOK),
        linked("GPUs running", of("tblLots", "GPUs running", "Lot", "Period")),
        linked("GPUs paid", of("tblLots", "GPUs paid", "Lot", "Period")),
        linked("GPUs of the supply", of("tblNodes", "GPUs running", "Supply", "Period")),
        linked("GPUs of its pools", of("tblNodes", "GPUs used", "Supply", "Period")),
        linked("GPUs of the pool", of("tblRuns", "GPUs", "Pool", "Supply", "Period")),
        Column("Share of the supply", _WIDTH,
               Formula("=IF([GPUs of the supply]>0,[GPUs running]/[GPUs of the supply],0)"), Kind.FORMULA, USD_RATE),
        Column("GPUs", _WIDTH,
               Formula("=[Share of the supply]*([Used]*[GPUs of the pool]-[Idle]*[GPUs of its pools])"
                       "+[Idle]*[GPUs running]+[Unused]*([GPUs paid]-[GPUs running])"), Kind.FORMULA, MTOK),
        Column("GPU-hours", _WIDTH, Formula("=[GPUs]*[Hours]"), Kind.FORMULA, MTOK, total=True),
        linked("Committed GPU-hours", f"[Purchase]*{committed}", MTOK),
        linked("Effective price, USD", of("tblGpu", "EffectiveUnitPrice", "Lot"), USD_RATE),
        linked("List price, USD", of("tblGpu", "ListUnitPrice", "Lot"), USD_RATE),
        linked("Contracted price, USD", of("tblGpu", "ContractedUnitPrice", "Lot"), USD_RATE),
        linked("Charged, USD", f"[Used]*{of('tblSupplies', 'USD per GPU-hour used', 'Supply')}", USD_RATE),
        linked("Counted in no period, USD", f"[Ended]*{of('tblCost', 'Cost, USD', 'Lot')}", USD),
        linked("Billed as a purchase, USD",
               "[Purchase]*SUMIFS(tblCommit[BilledCost],tblCommit[CommitmentDiscountId],[Lot])", USD),
    )  # fmt: skip
    heading = "How the charges are worked out: GPU-hours and prices, row by row of the table above"
    return Table("tblCharges", "Data_FOCUS", top, columns, len(charges), heading, total_label="Total", workings=True)
