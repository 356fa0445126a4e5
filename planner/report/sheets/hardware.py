"""Owned and bought hardware on the Commitments sheet: cash, depreciation and operating cost apart."""

from __future__ import annotations

from planner.optimise.types import LotKind
from planner.plan import FleetPlan, Purchase
from planner.report.commitments import HARDWARE
from planner.report.sheets.input_ids import (
    HOURS,
    HOURS_PER_YEAR,
    capex_id,
    capital_id,
    hosting_id,
    life_id,
    maintenance_id,
    price_id,
    reserved_id,
    residual_id,
)
from planner.report.style import COUNT, MTOK, SHARE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Table, Value

NOTHING = "(no hardware owned or bought)"
OWNED_NOTE = "its price was paid before: no cost of this plan"
PARTS_NOTE = "return on capital by the buyer's rate; life and residual as the request states"
NO_PARTS_NOTE = "the plan does not state the parts of its hourly price: all of it counts as return on capital"


def hardware_table(plan: FleetPlan, top: int) -> Table:
    """A row for each lot of hardware: what was paid for it, and its cost of the horizon in parts."""
    rows = [p for p in plan.purchases if p.kind in HARDWARE]

    def hourly(header: str, part: str) -> Column:
        return Column(header, 10, Formula(part), Kind.FORMULA, USD_RATE)

    def usd(header: str, formula: str, *cells: str) -> Column:
        return Column(header, 10, Formula(formula, cells), Kind.LINK, USD, total=True)

    def stated(header: str, width: float, values: list[Value], number: str = USD_RATE) -> Column:
        return Column(header, width, tuple(values) or (0,), Kind.LINK, number)

    reserved = "[Instances bought]*<1>"
    depreciation = "[Price of one, USD]*(1-[Residual])/([Life, years]*<1>)"
    columns = (
        Column("Lot", 26, tuple(p.offer_id for p in rows) or (NOTHING,), Kind.RESULT),
        Column("How it is had", 14, tuple(p.kind for p in rows) or ("",), Kind.RESULT),
        Column("Instances bought", 9, tuple(p.reserved_instances for p in rows) or (0,), Kind.RESULT, COUNT),
        stated("Price of one, USD", 12, [_of(p, capex_id(p)) for p in rows], COUNT),
        stated("Life, years", 10, [_of(p, life_id(p)) for p in rows], MTOK),
        stated("Residual", 9, [_of(p, residual_id(p)) for p in rows], SHARE),
        stated("Capital an hour, USD", 10, [_capital(p) for p in rows]),
        stated("Maintenance an hour, USD", 10, [_of(p, maintenance_id(p)) for p in rows]),
        stated("Hosting an hour, USD", 10, [_of(p, hosting_id(p)) for p in rows]),
        stated("Power an hour in use, USD", 10, [_power(p) for p in rows]),
        Column(
            "Depreciation an hour, USD", 10, Formula(f"=IF([Life, years]>0,{depreciation},0)", (HOURS_PER_YEAR,)),
            Kind.LINK, USD_RATE,
        ),
        hourly("Other an hour, USD", "=[Capital an hour, USD]-[Depreciation an hour, USD]+[Maintenance an hour, USD]"
               "+[Hosting an hour, USD]"),
        usd("Capex cash, USD", "=[Instances bought]*[Price of one, USD]"),
        usd("Depreciation, USD", f"={reserved}*[Depreciation an hour, USD]", HOURS),
        usd("Return on capital, USD", f"={reserved}*([Capital an hour, USD]-[Depreciation an hour, USD])", HOURS),
        usd("Maintenance, USD", f"={reserved}*[Maintenance an hour, USD]", HOURS),
        usd("Hosting, USD", f"={reserved}*[Hosting an hour, USD]", HOURS),
        usd("Power, USD", "=SUMIFS(tblLots[Instance-hours],tblLots[Lot],[Lot])*[Power an hour in use, USD]"),
        usd("Cost, USD", "=[Depreciation, USD]+[Return on capital, USD]+[Maintenance, USD]+[Hosting, USD]"
            "+[Power, USD]"),
        usd("Cost of the lot, USD", "=SUMIFS(tblCost[Cost, USD],tblCost[Lot],[Lot])"),
        Column("Note", 10, tuple(_note(p) for p in rows) or ("",)),
    )  # fmt: skip
    heading = "Hardware: capex in cash, depreciation and operation apart"
    return Table(
        "tblHardware", "Commitments", top, columns, max(1, len(rows)), heading, total_label="Total", workings=True
    )


def _of(purchase: Purchase, name: str) -> Value:
    """An input of bought hardware; 0 where the plan does not state it."""
    return Formula("=<1>", (name,)) if purchase.owning is not None else 0


def _capital(purchase: Purchase) -> Value:
    if purchase.owning is not None:
        return Formula("=<1>", (capital_id(purchase),))
    return Formula("=<1>", (reserved_id(purchase),)) if purchase.reserved_usd_per_h > 0 else 0


def _power(purchase: Purchase) -> Value:
    """The price of an hour in use: of electricity, or what the owner states for running a machine."""
    return Formula("=<1>", (price_id(purchase),)) if purchase.used_usd_per_h > 0 else 0


def _note(purchase: Purchase) -> str:
    if purchase.kind == LotKind.OWNED.value:
        return OWNED_NOTE
    return PARTS_NOTE if purchase.owning is not None else NO_PARTS_NOTE
