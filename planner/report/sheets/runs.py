"""Runs: what the solver proved about each scenario, and the futures for which there is no plan."""

from __future__ import annotations

from planner.report import facts
from planner.report.check import Check, none
from planner.report.scenarios import IN_SCENARIO, names, several
from planner.report.sheets.input_ids import TOLERANCE
from planner.report.style import COUNT, GREEN, MTOK, SHARE_FINE, USD_CENTS, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack
from planner.report.view import View
from planner.study import Study

AS_REQUESTED = "the request as it stands"
NONE_UNSOLVED = "(every future has a plan)"


def build(view: View) -> Sheet:
    """The Runs sheet; it is the same in every scenario."""
    study = view.study
    return Sheet(
        "Runs",
        "Runs: what the solver proved",
        "A row for each scenario that was solved; objective and bound in USD of the horizon. The gap is the most that "
        "a better plan could save. The checks look the objective of the selected scenario up here. Flags: 1 = holds.",
        "Solver, objective, bound and gap of every scenario",
        GREEN,
        stack([lambda top: _solves(study, top), lambda top: _unsolved(study, top)]),
        wide=True,
    )


def of_shown(view: View, header: str) -> Formula:
    """A figure of the scenario that is shown."""
    if several(view.study):
        return Formula(f"=INDEX(tblSolves[{header}],{IN_SCENARIO})")
    return Formula(f"=tblSolves[{header}]@0")


def checks(view: View) -> tuple[Check, ...]:
    """Every solve, also of the scenarios that are not shown, is optimal within its gap."""
    del view
    return (
        none("Solves that are not optimal within their gap", "=COUNTIF(tblSolves[Optimal within gap (1/0)],0)", "Runs"),
    )


def _solves(study: Study, top: int) -> Table:
    scenarios = study.scenarios
    plans = [scenario.plan for scenario in scenarios]
    solves = [plan.solve for plan in plans]
    served = tuple(plan.totals.served_input_mtok + plan.totals.served_output_mtok for plan in plans)
    ratio = "IF([Objective, USD]>0,([Objective, USD]-[Bound, USD])/[Objective, USD],0)"
    result = Kind.RESULT
    columns = (
        Column("Scenario", 20, names(study)),
        Column("What differs", 34, tuple(scenario.words or AS_REQUESTED for scenario in scenarios)),
        Column("Status", 10, tuple(str(solve.status) for solve in solves), result),
        Column("Objective, USD", 15, tuple(solve.objective for solve in solves), result, USD_CENTS),
        Column("Bound, USD", 15, tuple(solve.bound for solve in solves), result, USD_CENTS),
        Column("Gap", 9, Formula(f"={ratio}"), Kind.FORMULA, SHARE_FINE),
        Column("Gap target", 9, tuple(solve.gap_target for solve in solves), result, SHARE_FINE),
        Column(
            "Optimal within gap (1/0)",
            10,
            Formula('=([Status]="optimal")*([Gap]<=[Gap target]+<1>)', (TOLERANCE,)),
            Kind.FORMULA,
        ),
        Column("GPUs", 9, tuple(plan.totals.gpus for plan in plans), result, COUNT),
        Column("Served, M tokens", 13, served, result, MTOK),
        Column(
            "USD per 1M tokens",
            11,
            Formula("=IF([Served, M tokens]>0,[Objective, USD]/[Served, M tokens],0)"),
            Kind.FORMULA,
            USD_RATE,
        ),
        Column("Solver", 10, tuple(solve.solver for solve in solves), result),
        Column("Version", 9, tuple(solve.solver_version for solve in solves), result),
        Column("Threads", 8, tuple(solve.threads for solve in solves), result, COUNT),
        Column("Seed", 7, tuple(solve.seed for solve in solves), result, COUNT),
        Column("Inputs, sha256", 22, tuple(facts.inputs_sha256(plan) for plan in plans)),
        Column("Run", 14, tuple(plan.run_id for plan in plans)),
        Column("Source of the scenario", 22, tuple(scenario.source for scenario in scenarios)),
    )
    return Table("tblSolves", "Runs", top, columns, len(plans), workings=True)


def _unsolved(study: Study, top: int) -> Table:
    rows = study.unsolved
    columns = (
        Column("Scenario", 20, tuple(row.name for row in rows) or (NONE_UNSOLVED,)),
        Column("Why there is no plan", 34, tuple(row.why for row in rows) or ("",)),
        Column("Status", 10, tuple("no plan" for _ in rows) or ("",)),
        Column("What differs", 15, tuple(row.words for row in rows) or ("",)),
    )
    return Table("tblNoPlan", "Runs", top, columns, max(1, len(rows)), "Futures without a plan", workings=True)
