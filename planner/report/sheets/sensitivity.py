"""Sensitivity: drivers at a low and a high value, planned again; what each fleet costs in each future; regret."""

from __future__ import annotations

from collections.abc import Sequence

from planner.report.check import Check, Rule, none, same_usd
from planner.report.sheets import input_ids
from planner.report.sheets.regret import choice_table, costs_table, regret_table
from planner.report.sheets.tornado import TORNADO_ALT, add_tornado, chart_rows
from planner.report.style import DATE, NAVY, USD, USD_CENTS, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value, stack
from planner.report.view import View
from planner.request_study import BASE
from planner.study import Sensitivity

NONE_ASKED = "(no sensitivity asked for)"
NO_PLAN = "no plan"
ALL_SOLVED = "(none: every future that was asked for has a plan)"
FACTOR = '"x "0.0##'


def build(view: View) -> Sheet:
    """The Sensitivity sheet."""
    study = view.study
    asked = len(study.sensitivities)
    first = _drivers(study.sensitivities, FIRST_TABLE_ROW)
    chart_at = first.bottom + 2
    below = chart_at + chart_rows(asked) + 2 if asked else chart_at + 1
    rest = stack(
        [
            lambda top: _base(view, top),
            lambda top: costs_table(study, top),
            lambda top: regret_table(study, top),
            lambda top: choice_table(study, top),
            lambda top: _unsolved(view, top),
        ],
        below,
    )
    return Sheet(
        "Sensitivity",
        "Sensitivity: what moves the cost, and which fleet is least regretted",
        f"USD for the horizon. Every cost is a plan solved again with one driver of scenario {BASE} multiplied; the "
        "largest swing stands first. Regret: cost of a fleet in a future, over the cheapest fleet there.",
        "Drivers at low and high values, and regret of each fleet",
        NAVY,
        (first, *rest),
        wide=True,
        finish=(lambda sheet, book: add_tornado(sheet, book.tables["tblSensitivity"], chart_at)) if asked else None,
        charts=TORNADO_ALT if asked else {},
    )


def checks(view: View) -> tuple[Check, ...]:
    """Order of the drivers, the base that they are compared with, and the regret of the fleets."""
    del view
    base = Formula("=tblBase[Base cost, USD]@0")
    return (
        none("Sensitivities that do not stand in the order of their swing", "=COUNTIF(tblSensitivity[Sorted (1/0)],0)",
             "Sensitivity"),
        same_usd("Base cost of the sensitivities equals the solve", base, Formula("=tblBase[Base, USD, re-solve]@0"),
                 "Sensitivity, Cost"),
        Check(
            "Regret of a fleet in its own future is 0 within the solver's gap",
            Formula("=MAX(tblRegret[OwnFuture])"),
            Rule.AT_MOST,
            Formula("=<1>*MAX(tblRegretCost[Dearest served])", (input_ids.GAP_TARGET,)),
            input_ids.TOLERANCE_USD,
            "Sensitivity",
            USD_CENTS,
        ),
        same_usd("Least largest regret equals the study's", Formula("=tblChoice[LargestRegret]@0"),
                 Formula("=tblChoice[LargestAsSolved]@0"), "Sensitivity"),
    )  # fmt: skip


def _cells(rows: Sequence[Value], nothing: Value) -> tuple[Value, ...]:
    return tuple(rows) or (nothing,)


def _drivers(rows: Sequence[Sensitivity], top: int) -> Table:
    def result(header: str, width: float, values: Sequence[Value], nothing: Value, number: str = USD) -> Column:
        return Column(header, width, _cells(values, nothing), Kind.RESULT, number)

    def delta(side: str) -> Formula:
        return Formula(f'=IF(ISNUMBER([Cost{side}]),[Cost{side}]-[BaseCost],"{NO_PLAN}")')

    above = "INDEX(tblSensitivity[Swing],[No]-1)"
    low, high = ([getattr(row, side) for row in rows] for side in ("low", "high"))
    columns = (
        Column("Driver", 26, _cells([row.name for row in rows], NONE_ASKED)),
        Column("No", 6, tuple(range(1, max(1, len(rows)) + 1)), Kind.CONSTANT),
        Column("What", 30, _cells([row.words for row in rows], "")),
        Column("Owner", 14, _cells([row.owner for row in rows], "")),
        result("LowValue", 9, [side.factor for side in low], "", FACTOR),
        result("HighValue", 9, [side.factor for side in high], "", FACTOR),
        result("CostLow", 12, [_or_none(side.usd) for side in low], NO_PLAN),
        result("CostHigh", 12, [_or_none(side.usd) for side in high], NO_PLAN),
        Column("BaseCost", 12, Formula("=tblBase[Base cost, USD]@0"), Kind.FORMULA, USD),
        Column("DeltaLow", 12, delta("Low"), Kind.FORMULA, USD),
        Column("DeltaHigh", 12, delta("High"), Kind.FORMULA, USD),
        Column("Swing", 12, Formula("=MAX([CostLow],[CostHigh],[BaseCost])-MIN([CostLow],[CostHigh],[BaseCost])"),
               Kind.FORMULA, USD),
        Column("Sorted (1/0)", 8, Formula(f"=IF([No]>1,([Swing]<={above})*1,1)"), Kind.FORMULA),
        result("CostPer1MLow", 12, [_or_none(side.usd_per_mtok) for side in low], NO_PLAN, USD_RATE),
        result("CostPer1MHigh", 13, [_or_none(side.usd_per_mtok) for side in high], NO_PLAN, USD_RATE),
        Column("Source", 18, _cells([row.source for row in rows], "")),
        Column("SourceDate", 11, _cells([row.source_date or "undated" for row in rows], ""), number=DATE),
        Column("Note", 18, _cells([_note(row) for row in rows], "")),
    )  # fmt: skip
    return Table("tblSensitivity", "Sensitivity", top, columns, max(1, len(rows)), workings=True)


def _or_none(value: float | None) -> Value:
    return NO_PLAN if value is None else value


def _note(row: Sensitivity) -> str:
    """Why a side has no plan, and gaps that are wider than asked for are said by the solver."""
    return "; ".join(f"{word}: {side.note}" for word, side in (("low", row.low), ("high", row.high)) if side.note)


def _base(view: View, top: int) -> Table:
    """The cost that deltas are taken from: live where Base is shown, as solved where another scenario is."""
    columns = (
        Column("Scenario shown", 26, (view.name,)),
        Column("IsBase", 6, (int(view.number == 0),), Kind.RESULT),
        Column("Cost shown, USD", 30, Formula("=tblCost[Cost, USD]#total"), Kind.LINK, USD_CENTS),
        Column("Base, USD, re-solve", 14, (view.study.plan.solve.objective,), Kind.RESULT, USD_CENTS),
        Column("Base cost, USD", 12, Formula("=IF([IsBase]=1,[Cost shown, USD],[Base, USD, re-solve])"), Kind.FORMULA,
               USD_CENTS),
    )  # fmt: skip
    return Table("tblBase", "Sensitivity", top, columns, 1, f"All sensitivities are of scenario {BASE}", workings=True)


def _unsolved(view: View, top: int) -> Table:
    rows = view.study.unsolved
    columns = (
        Column("Future", 26, _cells([row.name for row in rows], ALL_SOLVED)),
        Column("No", 6, tuple(range(1, max(1, len(rows)) + 1)), Kind.CONSTANT),
        Column("Why there is no plan", 30, _cells([row.why for row in rows], "")),
        Column("What differs", 14, _cells([row.words for row in rows], "")),
    )
    return Table("tblUnsolved", "Sensitivity", top, columns, max(1, len(rows)), "Futures without a plan", workings=True)
