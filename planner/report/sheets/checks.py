"""Checks: every statement that the workbook makes about itself; each can fail.

No edit can turn a failing check into PASS: tolerances are locked constants, counts have tolerance 0, and while any
input differs from its solved value a check that holds says HOLDS instead of PASS.
"""

from __future__ import annotations

from openpyxl.workbook.defined_name import DefinedName
from openpyxl.worksheet.worksheet import Worksheet

from planner.assemble.rows import KG, KW, USD, USD_AFTER
from planner.plan import FleetPlan
from planner.report import facts, style
from planner.report.check import Check, Rule, none, same_usd
from planner.report.sheets import (
    bridge,
    changelog,
    commitments,
    cover,
    focus,
    input_ids,
    measure,
    replay,
    runs,
    sensitivity,
    showback,
)
from planner.report.style import COUNT, MTOK, ORDINAL, RED, SHARE_FINE, USD_CENTS, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Book, Column, Formula, Sheet, Table
from planner.report.view import View

ALL_CHECKS = "all_checks"
"""Defined name of the one cell that says whether every check passes (1/0)."""
PASS = "Pass (1/0)"
"""Not painted: it is 0 in every row once an input is edited; what fails shows in the column before."""
INPUTS_AS_SOLVED = "Inputs that differ from the solved ones"
NOT_HERE = "(a check of another scenario)"


_TOTAL = Formula("=tblCost[Cost, USD]#total")


def checks(view: View) -> tuple[Check, ...]:
    """All checks of the workbook, in order."""
    plan = view.plan
    return (
        *_money(),
        *_caps(plan),
        *_fleet(),
        *_periods(),
        *_routing(),
        *_limits(plan),
        *_promises(),
        *_record(),
        *_soundness(),
        *runs.checks(view),
        *commitments.checks(view),
        *showback.checks(view),
        *bridge.checks(view),
        *sensitivity.checks(view),
        *replay.checks(view),
        *focus.checks(view),
        *changelog.checks(view),
    )


def _unit_cost(text: str, left: str, right: str) -> Check:
    """USD per million tokens as the workbook has it, and as the plan states it."""
    return Check(
        f"USD per 1M {text} equals the plan's",
        Formula("=<1>", (left,)),
        Rule.EQUAL,
        Formula("=<1>", (right,)),
        input_ids.TOLERANCE,
        "Summary, Cover",
        USD_RATE,
    )


def _money() -> tuple[Check, ...]:
    by_pool = Formula("=tblPlan[Cost, USD]#total+SUMIFS(tblSupplies[Cost, USD],tblSupplies[GPU-hours used],0)")
    after = Formula("=<1>", (measure.AFTER,))
    return (
        same_usd("Cost equals the solver's objective", _TOTAL, Formula("=<1>", (cover.OBJECTIVE,)), "Cost, Runs"),
        same_usd("Cost by supply equals cost by purchase", Formula("=tblSupplies[Cost, USD]#total"), _TOTAL, "Cost"),
        same_usd("Cost by model equals cost by purchase", Formula("=tblModels[Cost, USD]#total"), _TOTAL, "Cost"),
        same_usd("Cost by pool equals cost by purchase", by_pool, _TOTAL, "Plan, Cost"),
        same_usd("Cost by GPU type equals cost by purchase", Formula("=tblGpuTypes[Cost, USD]#total"), _TOTAL, "Cost"),
        same_usd(
            "What is due after the horizon equals the plan's", after, Formula("=<1>", (cover.AFTER,)), "Cost, Cover"
        ),
        _unit_cost("tokens by use", measure.BY_USE, cover.BY_USE),
        _unit_cost("input tokens", measure.INPUT_UNIT, cover.INPUT_UNIT),
        _unit_cost("output tokens", measure.OUTPUT_UNIT, cover.OUTPUT_UNIT),
    )


def _caps(plan: FleetPlan) -> tuple[Check, ...]:
    """Limits of the whole fleet that the request states, against what the sheets add up to."""
    found = []
    for unit, text, left, tolerance, number in (
        (USD, "Cost is within the budget", "=tblCost[Cost, USD]#total", input_ids.TOLERANCE_USD, USD_CENTS),
        (USD_AFTER, "What is due after the horizon is within its limit", "=tblCost[After the horizon, USD]#total",
         input_ids.TOLERANCE_USD, USD_CENTS),
        (KW, "Power is within its limit, kW", "=MAX(tblPeriods[Power, kW])", input_ids.TOLERANCE, MTOK),
        (KG, "Carbon is within its limit, kg CO2e", "=tblLots[Carbon, kg CO2e]#total", input_ids.TOLERANCE, COUNT),
    ):  # fmt: skip
        row = facts.limit(plan, unit)
        if row is not None:
            allowed = Formula("=<1>", (input_ids.quota_id(row),))
            found.append(Check(text, Formula(left), Rule.AT_MOST, allowed, tolerance, "Cost, Periods, Inputs", number))
    return tuple(found)


def _same_count(text: str, left: Formula, right: str, where: str) -> Check:
    return Check(text, left, Rule.EQUAL, Formula("=<1>", (right,)), input_ids.EXACT, where)


def _fleet() -> tuple[Check, ...]:
    bought, used = Formula("=tblCost[GPUs bought]#total"), Formula("=tblPlan[GPUs]#total")
    hours = Formula("=<1>", (measure.GPU_HOURS,))
    return (
        _same_count("GPUs bought equal the plan's", bought, cover.GPUS_BOUGHT, "Cost, Cover"),
        _same_count("GPUs of all pools equal the plan's", used, cover.GPUS_USED, "Plan, Cover"),
        Check(
            "GPU-hours paid equal the plan's",
            hours,
            Rule.EQUAL,
            Formula("=<1>", (cover.GPU_HOURS,)),
            input_ids.TOLERANCE,
            "Cost, Cover",
        ),
        none("Supplies where pools use more GPUs than run", "=COUNTIF(tblNodes[Within (1/0)],0)", "Periods"),
        none("Replicas that do not fit the instances", "=COUNTIF(tblRuns[Replicas fit (1/0)],0)", "Periods"),
        none("Pools with fewer replicas than needed and spare", "=COUNTIF(tblFit[Replicas enough (1/0)],0)", "Fit"),
        none("Lots that run more than is reserved", "=COUNTIF(tblCost[Reserved enough (1/0)],0)", "Cost"),
        none("Quotas and stocks exceeded in a period", "=COUNTIF(tblLimits[Within (1/0)],0)", "Cost"),
        none("Limits exceeded when the plan was recomputed", "=COUNTIF(tblUses[Within (1/0)],0)", "Cost"),
    )


def _periods() -> tuple[Check, ...]:
    return (
        Check(
            "Hours of the periods are the horizon's",
            Formula("=tblPeriods[Hours]#total"),
            Rule.EQUAL,
            Formula("=<1>", (input_ids.HOURS,)),
            input_ids.TOLERANCE,
            "Periods, Inputs",
        ),
        none("Pools short of replicas in a period", "=COUNTIF(tblPoolPeriods[Replicas enough (1/0)],0)", "Periods"),
        none("Lots that run more than can be had", "=COUNTIF(tblLots[Can be had (1/0)],0)", "Periods"),
        none("Lots that run more than is paid", "=COUNTIF(tblLots[Paid (1/0)],0)", "Periods"),
        none(
            "Pools whose requests by period are not their demand",
            "=COUNTIF(tblDemand[Periods as stated (1/0)],0)",
            "Demand, Periods",
        ),
    )


def _routing() -> tuple[Check, ...]:
    lost = "=COUNTIF(tblRoutes[Joined (1/0)],0)+COUNTIF(tblRoutes[Open end (1/0)],0)"
    return (
        none("Prompt lengths that are not routed once", lost, "Routing"),
        none(
            "Pools that nothing is routed to",
            '=COUNTIFS(tblFit[Routes to it],0,tblFit[Pool],"<>(none)")',
            "Fit, Routing",
        ),
    )


def _limits(plan: FleetPlan) -> tuple[Check, ...]:
    """For each pool: how many of its limits, of whatever kind, the planned figures exceed."""
    return tuple(
        none(f"Limits exceeded by pool {pool.name}", f"=tblFit[Limits exceeded]@{i}", "Fit, Margins")
        for i, pool in enumerate(plan.pools)
    )


def _promises() -> tuple[Check, ...]:
    return (
        none(
            "Limits broken when the plan was recomputed",
            "=COUNTIF(tblMargins[Held when recomputed (1/0)],0)",
            "Margins",
        ),
        none("Predicted times outside their error band", "=COUNTIF(tblBands[In band (1/0)],0)", "Margins"),
        none("Pools that serve more than their capacity", '=COUNTIF(tblFit[Capacity used],">1")', "Fit"),
        none("Pools that refuse more than the tail budget", "=COUNTIF(tblDemand[Within tail (1/0)],0)", "Demand"),
    )


def _record() -> tuple[Check, ...]:
    return (
        Check(
            "Served tokens equal what the optimiser served, M tokens",
            Formula("=tblPlan[Served, M tokens]#total"),
            Rule.EQUAL,
            Formula("=<1>", (cover.SERVED,)),
            input_ids.TOLERANCE,
            "Demand, Cover",
            MTOK,
        ),
        none(
            "Pools whose served tokens differ from the optimiser's",
            "=COUNTIF(tblTokens[Served as solved (1/0)],0)",
            "Demand",
        ),
        none(
            "Pools whose planning rate differs from the optimiser's",
            "=COUNTIF(tblDemand[Rate as solved (1/0)],0)",
            "Demand",
        ),
        none(INPUTS_AS_SOLVED, "=SUM(tblInputs[Changed (1/0)])", "Inputs"),
        none(
            "Inputs without source, source date or owner",
            "=COUNTBLANK(tblInputs[Source])+COUNTBLANK(tblInputs[Source date])+COUNTBLANK(tblInputs[Owner])",
            "Inputs",
        ),
        none("Prices older than the limit", "=SUM(tblInputs[Price too old (1/0)])", "Inputs"),
    )


def _soundness() -> tuple[Check, ...]:
    columns = ("tblPlan[Cost, USD]", "tblCost[Cost, USD]", "tblStands[Cost, USD]", "tblRuns[GPU-hours]")
    counted = "+".join(f"COUNT({column})" for column in columns)
    return (
        Check(
            "Solver status is optimal (1/0)",
            Formula('=IF(<1>="optimal",1,0)', (cover.STATUS,)),
            Rule.EQUAL,
            1,
            input_ids.EXACT,
            "Cover",
        ),
        Check(
            "Gap to the proven bound is within the target",
            Formula("=<1>", (cover.GAP,)),
            Rule.AT_MOST,
            Formula("=<1>", (input_ids.GAP_TARGET,)),
            input_ids.TOLERANCE,
            "Cover, Inputs",
            SHARE_FINE,
        ),
        Check(
            "No error values: cells of cost and GPU-hours that are numbers",
            Formula(f"={counted}"),
            Rule.EQUAL,
            Formula(f"={counted.replace('COUNT(', 'ROWS(')}"),
            input_ids.EXACT,
            "Plan, Cost, Periods",
        ),
    )


def build(view: View) -> Sheet:
    """The Checks sheet."""
    rows = checks(view)
    as_solved = next(i for i, check in enumerate(rows) if check.text == INPUTS_AS_SOLVED)
    numbers = tuple(check.number for check in rows)
    columns = (
        Column("No", 8, tuple(range(1, len(rows) + 1)), number=ORDINAL),
        Column("Check", 58, tuple(check.text for check in rows), pad=NOT_HERE),
        Column("Left", 17, tuple(check.left for check in rows), Kind.LINK, numbers),
        Column("Rule", 9, tuple(check.rule for check in rows)),
        Column("Right", 17, tuple(check.right for check in rows), Kind.LINK, numbers),
        Column("Tolerance", 12, tuple(Formula("=<1>", (c.tolerance,)) for c in rows), Kind.LINK, "0.######"),
        Column(
            "Difference",
            14,
            Formula(f'=IF([Rule]="{Rule.EQUAL}",ABS([Left]-[Right]),MAX(0,[Left]-[Right]))'),
            Kind.FORMULA,
            numbers,
        ),
        Column("Holds (1/0)", 9, Formula("=IFERROR(([Difference]<=[Tolerance])*1,0)"), Kind.FORMULA, COUNT),
        Column(
            PASS,
            9,
            Formula("=[Holds (1/0)]*tblChecks[Holds (1/0)]@" + str(as_solved)),
            Kind.FORMULA,
            COUNT,
        ),
        Column(
            "Result",
            9,
            Formula('=CHOOSE(1+[Holds (1/0)]+[Pass (1/0)],"FAIL","HOLDS","PASS")'),
            Kind.FORMULA,
        ),
        Column("Sheets to look at", 20, tuple(check.where for check in rows)),
    )
    return Sheet(
        "Checks",
        "Checks",
        "Left is compared with right by the rule and the tolerance; what cannot be calculated fails. HOLDS instead of "
        "PASS: inputs were edited. Cell A3 (name all_checks) is 1 when all pass.",
        "Statements that must hold; one cell sums them up",
        RED,
        (Table("tblChecks", "Checks", FIRST_TABLE_ROW, columns, len(rows)),),
        finish=_finish,
    )


def _finish(sheet: Worksheet, book: Book) -> None:
    """Write the one cell that sums up all checks, and the words that every sheet shows.

    Beside them: how many fail, which words apply (1: all pass, 2: some fail, 3: inputs were edited), and how many are.
    """
    edited = "(SUM(tblInputs[Changed (1/0)])>0)"
    words = '=CHOOSE(D3,"ALL "&E3&" CHECKS PASS",C3&" OF "&E3&" CHECKS FAIL","INPUTS EDITED: "&C3&" FAIL")'
    for place, template in (
        ("A3", "=MIN(tblChecks[Pass (1/0)])"),
        ("B3", words),
        ("C3", "=COUNTIF(tblChecks[Holds (1/0)],0)"),
        ("D3", f"=1+(A3=0)*(1+{edited})"),
        ("E3", '=COUNTIF(tblChecks[No],">0")'),
    ):
        sheet[place] = book.resolve(Formula(template), "Checks")
    for place, number in (("C3", '0" fail"'), ("D3", '"case "0'), ("E3", '"of "0')):
        sheet[place].number_format, sheet[place].font = number, style.FONTS[Kind.CONSTANT]
    workbook = sheet.parent
    if workbook is not None:
        workbook.defined_names[ALL_CHECKS] = DefinedName(ALL_CHECKS, attr_text="Checks!$A$3")
