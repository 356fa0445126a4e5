"""Catalogue: what a GPU-hour costs on each lot: list, contracted, effective, its parts, and last quarter's."""

from __future__ import annotations

from collections.abc import Iterable

from planner.plan import FleetPlan, Purchase
from planner.report import unit_prices
from planner.report.sheets.input_contracts import has_list
from planner.report.sheets.input_ids import FX, list_id, size_id
from planner.report.sheets.widths import fitting
from planner.report.style import COUNT, DATE, GENERAL, GREY, SHARE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, Value, stack
from planner.report.view import View

NO_LAST = "no last quarter"
NOT_BOUGHT = "none bought"
UNKNOWN = "unknown"
_RATE = 8.5
"""Width that holds 999.0000."""
_DISCOUNT = 0.0
"""The planner takes list prices and the prices of contracts; a negotiated discount is in neither."""


def build(view: View) -> Sheet:
    """The Catalogue sheet."""
    return Sheet(
        "Catalogue",
        "Catalogue: what a GPU-hour costs",
        "USD for one GPU-hour, nominal, tax excluded; a row for each lot. List: the provider's price on demand. "
        "Contracted: after negotiated discounts, before commitments. Effective: what is paid over the hours paid.",
        "Unit prices of every lot: list, contracted, effective",
        GREY,
        stack([lambda top: _table(view, top), lambda top: _workings(view.plan, top)]),
        wide=True,
    )


def _table(view: View, top: int) -> Table:
    lots = view.plan.purchases

    def rate(header: str, formula: str) -> Column:
        return Column(header, fitting(header, _RATE), Formula(formula), Kind.FORMULA, USD_RATE)

    def own(header: str, source: str) -> Column:
        """A figure of hardware, for one of its GPUs."""
        found = f"SUMIFS(tblHardware[{source}],tblHardware[Lot],[Lot])"
        size = "tblGpuPrices[GpusPerUnit]@"
        return Column(header, fitting(header, _RATE), Formula(f"=IF({size}>0,{found}/{size},0)"), Kind.LINK, USD_RATE)

    def result(header: str, width: float, values: Iterable[Value], number: str = GENERAL) -> Column:
        return Column(header, width, tuple(values), Kind.RESULT, number)

    fx = Kind.RESULT if view.plan.reporting is None else Kind.LINK
    columns = (
        result("Lot", 27, (p.offer_id for p in lots)),
        result("Gpu", 13, (p.gpu for p in lots)),
        result("MemoryGB", 9, (_known(p.memory_gb) for p in lots), COUNT),
        result("Provider", 10, (p.provider for p in lots)),
        result("RegionId", 11, (p.region or "any" for p in lots)),
        result("PricingCategory", 15, (unit_prices.pricing_category(p) for p in lots)),
        rate("ListUnitPrice", "=IF(tblGpuPrices[PrintedPrice]@>0,tblGpuPrices[PrintedPrice]@,"
             "tblGpuPrices[OwnUnitPrice]@)"),
        result("NegotiatedDiscount", fitting("NegotiatedDiscount", _RATE), (_DISCOUNT for _ in lots), SHARE),
        rate("ContractedUnitPrice", "=[ListUnitPrice]*(1-[NegotiatedDiscount])"),
        own("CapexPerGpu", "Price of one, USD"),
        result("TdpW", 9, (_known(p.tdp_w) for p in lots), COUNT),
        own("DeprPerHour", "Depreciation an hour, USD"),
        own("PowerPerHour", "Power an hour in use, USD"),
        own("OtherPerHour", "Other an hour, USD"),
        rate("EffectiveUnitPrice", "=IF(tblGpuPrices[GpuHoursPaid]@>0,tblGpuPrices[Cost, USD]@"
             "/tblGpuPrices[GpuHoursPaid]@,0)"),
        result("LastQtrUnitPrice", fitting("LastQtrUnitPrice", _RATE), (_last(view, p) for p in lots), USD_RATE),
        Column("BillingCurrency", 15, tuple(view.plan.currency for _ in lots)),
        Column("FxToReporting", fitting("FxToReporting", _RATE), tuple(_fx(view) for _ in lots), fx, USD_RATE),
        Column("Source", 22, tuple(p.source_url for p in lots)),
        Column("SourceDate", 11, tuple(p.price_as_of for p in lots), number=DATE),
    )  # fmt: skip
    return Table("tblGpu", "Catalogue", top, columns, len(lots), workings=True)


def _workings(plan: FleetPlan, top: int) -> Table:
    """Where list and effective prices come from, row by row of the table above."""
    lots = plan.purchases
    hourly = "tblCost[Price of a reserved hour, USD]@+tblCost[Price of an hour in use, USD]@+[CaseRate]"
    case = "SUMIFS(tblCommitParts[CaseRate],tblCommitParts[Lot],[Lot])"
    columns = (
        Column("Lot", 27, tuple(p.offer_id for p in lots), Kind.RESULT),
        Column("List price is", 13, tuple(unit_prices.list_basis(p) for p in lots)),
        Column("GpusPerUnit", 12, tuple(Formula("=<1>", (size_id(p),)) for p in lots), Kind.LINK, COUNT),
        Column("CaseRate", 11, Formula(f"={case}"), Kind.LINK, USD_RATE),
        Column("OwnUnitPrice", 11, Formula(f"=IF([GpusPerUnit]>0,({hourly})/[GpusPerUnit],0)"), Kind.LINK, USD_RATE),
        Column("PrintedPrice", 11, tuple(_printed(p) for p in lots), Kind.LINK, USD_RATE),
        Column("GpuHoursPaid", 11, Formula("=SUMIFS(tblLots[GPU-hours paid],tblLots[Lot],[Lot])"), Kind.LINK, COUNT,
               total=True),
        Column("Cost, USD", 12, Formula("=tblCost[Cost, USD]@"), Kind.LINK, USD, total=True),
    )  # fmt: skip
    heading = "Where the prices come from: of the contract itself, printed by the provider, and cost over hours paid"
    return Table("tblGpuPrices", "Catalogue", top, columns, len(lots), heading, total_label="Total", workings=True)


def _known(value: float | None) -> Value:
    return UNKNOWN if value is None else value


def _printed(purchase: Purchase) -> Value:
    """The provider's list price of a GPU-hour; 0 where the lot's own price is all that is known."""
    return Formula("=<1>/<2>", (list_id(purchase), size_id(purchase))) if has_list(purchase) else 0


def _last(view: View, purchase: Purchase) -> Value:
    """What last quarter's plan paid for a GPU-hour of this lot, else of its GPU type."""
    if view.study.last is None:
        return NO_LAST
    price = unit_prices.last_usd_per_gpu_h(purchase, view.study.last.plan)
    return NOT_BOUGHT if price is None else price


def _fx(view: View) -> Value:
    """Units of the reporting currency for one USD: the input; 1 where USD is reported."""
    return 1.0 if view.plan.reporting is None else Formula("=<1>", (FX,))
