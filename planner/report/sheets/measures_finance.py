"""Measures that finance asks for beside cost and tokens: scenario, last quarter, commitments, run rate, currency."""

from __future__ import annotations

from planner.report.scenarios import IN_SCENARIO, several
from planner.report.sheets import last_quarter
from planner.report.sheets.input_ids import FX, HOURS, HOURS_PER_YEAR
from planner.report.sheets.measure import (
    AFTER,
    BY_RESERVATION,
    BY_USE,
    CAPEX,
    COST,
    RUN_RATE,
    SCENARIO,
    SCENARIO_NUMBER,
    TOKENS,
    Measure,
)
from planner.report.style import COUNT, SHARE, USD, USD_RATE, Kind
from planner.report.table import Formula
from planner.report.view import View

LAST_COST, LAST_UNIT, LAST_TOKENS = "summary/last_cost_usd", "summary/last_usd_per_mtok", "summary/last_mtok"
CHANGE = "summary/change_usd"
_MONEY = (COST, BY_RESERVATION, BY_USE, AFTER, CAPEX, RUN_RATE)
"""Measures that are shown in the reporting currency too."""


def scenario_measures(view: View) -> tuple[Measure, ...]:
    """The scenario that is shown, to be selected, and its number; nothing where there is one only."""
    if not several(view.study):
        return ()
    first = view.study.scenarios[0].name
    return (
        Measure(
            SCENARIO, "Scenario (select one)", first, "name", "General", "Runs",
            "Every sheet shows the plan that was solved for it", Kind.INPUT,
        ),
        Measure(
            SCENARIO_NUMBER, "Number of the scenario", Formula('=MATCH(<1>&"",tblSolves[Scenario],0)', (SCENARIO,)),
            "count", COUNT, "Runs", f"Its row on sheet Runs; name {IN_SCENARIO}",
        ),
    )  # fmt: skip


def regret_measures(view: View) -> tuple[Measure, ...]:
    """What the scenarios say about the fleet that is shown; nothing where there is one future only."""
    regret = view.study.regret
    if regret is None:
        return ()
    mine = [cell for cell in regret.cells if cell.fleet == view.name]
    unserved = ", ".join(cell.future for cell in mine if cell.usd is None) or "none"
    return (
        Measure(
            "summary/regret", "Fleet that is regretted least", regret.choice, "scenario", "General", "Sensitivity",
            "Of the scenarios' fleets, whichever future comes: its pools stay, its replicas follow the load",
            Kind.RESULT,
        ),
        Measure(
            "summary/unserved", "Futures that this fleet cannot serve", unserved, "scenarios", "General",
            "Sensitivity", "With the pools chosen here, however many replicas they get; what is short stands there",
            Kind.RESULT,
        ),
    )  # fmt: skip


def fleet_measures() -> tuple[Measure, ...]:
    """How full the fleet is, what of it is committed, and what it costs in cash and in a year."""
    cost = "tblCost[Cost, USD]#total"
    return (
        Measure(
            "summary/peak", "Peak utilisation", Formula("=MAX(tblFit[Capacity used])"), "share", SHARE, "Fit",
            "Largest share of its capacity that a pool uses: served over what it could serve",
        ),
        Measure(
            "summary/committed", "Committed share of cost",
            Formula(f"=IF({cost}>0,tblCommit[EffectiveCost]#total/{cost},0)"), "share", SHARE, "Commitments",
            "Commitments and own hardware, of the cost of the horizon",
        ),
        Measure(
            "summary/unused", "Unused commitments", Formula("=tblCommit[UnusedCost]#total"), "USD", USD, "Commitments",
            "Fixed cost of hours that are held and do not run; in the cost above",
        ),
        Measure(
            CAPEX, "Capex in cash", Formula("=tblHardware[Capex cash, USD]#total"), "USD", USD, "Commitments",
            "Paid for hardware in the horizon; in the cost above stand its depreciation and return",
        ),
        Measure(
            RUN_RATE, "Annualised run rate", Formula("=<1>/<2>*<3>", (COST, HOURS, HOURS_PER_YEAR)), "USD a year", USD,
            "Cost, Inputs", "Cost of the horizon, for the hours of a year",
        ),
    )  # fmt: skip


def last_measures(view: View) -> tuple[Measure, ...]:
    """Last quarter's issued figures and the change since; nothing where there is no such plan."""
    if view.study.last is None:
        return ()

    def issued(figure: str) -> Formula:
        return Formula(f"={last_quarter.single(figure)}")

    return (
        Measure(LAST_COST, "Last quarter: cost", issued(last_quarter.COST), "USD", USD, "Bridge",
                "Of the plan that was issued then"),
        Measure(CHANGE, "Change since last quarter", Formula("=<1>-<2>", (COST, LAST_COST)), "USD", USD, "Bridge",
                "This quarter's cost less last quarter's; the steps stand on sheet Bridge"),
        Measure("summary/change_share", "Change since last quarter, share",
                Formula("=IF(<2>>0,<1>/<2>,0)", (CHANGE, LAST_COST)), "share", SHARE, "Bridge",
                "Of last quarter's cost"),
        Measure(LAST_TOKENS, "Last quarter: served tokens", issued(last_quarter.TOKENS), "M tokens", COUNT, "Bridge",
                "Input and output, as planned then"),
        Measure("summary/tokens_share", "Change of served tokens, share",
                Formula("=IF(<2>>0,(<1>-<2>)/<2>,0)", (TOKENS, LAST_TOKENS)), "share", SHARE, "Bridge",
                "Of last quarter's served tokens"),
        Measure(LAST_UNIT, "Last quarter: USD per 1M served tokens",
                Formula("=IF(<2>>0,<1>/<2>,0)", (LAST_COST, LAST_TOKENS)), "USD per 1M", USD_RATE, "Bridge",
                "Its cost over its served tokens, input and output"),
    )  # fmt: skip


def currency_measures(view: View, made: tuple[Measure, ...]) -> tuple[Measure, ...]:
    """The main amounts of money in the reporting currency; nothing where that is USD."""
    reporting = view.plan.reporting
    if reporting is None:
        return ()
    currency = reporting.currency
    rows = {measure.id: measure for measure in made}
    return tuple(
        Measure(
            f"{name}/reporting",
            f"In {currency}: {rows[name].text.replace('USD', currency)}",
            Formula("=<1>*<2>", (name, FX)),
            rows[name].unit.replace("USD", currency),
            rows[name].number,
            "Inputs",
            "At the dated rate on sheet Inputs; nominal, tax excluded",
        )
        for name in _MONEY
    )
