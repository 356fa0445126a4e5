"""ChangeLog: the plan's own version, and every change since last quarter's plan, to be approved line by line."""

from __future__ import annotations

from dataclasses import dataclass

from planner.compare.changes import Change, ChangeKind, changes
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.check import Check, same_usd
from planner.report.sheets import last_quarter
from planner.report.sheets.cost import NO_POOL
from planner.report.sheets.input_ids import CREATED
from planner.report.style import DATE, NAVY, USD, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table
from planner.report.view import View

EFFECT = "CostEffectUSD"
PLAN = "(plan)"
IN_MODELS = "Its effect is in the rows of the models"
_NONE = "(none)"
_OF_MODEL = "SUMIFS(tblModels[Cost, USD],tblModels[Model],[Subject])"


@dataclass(frozen=True)
class _Row:
    subject: str
    change: str
    reason: str
    effect: Formula


def build(view: View) -> Sheet:
    """The ChangeLog sheet."""
    plan, rows = view.plan, _rows(view)
    columns = (
        Column("Version", 16, (plan.run_id,) * len(rows), left=True),
        Column("Date", 12, Formula("=<1>", (CREATED,)), Kind.LINK, DATE, left=True),
        Column("Author", 20, (plan.owner or "not stated",) * len(rows), left=True),
        Column("Subject", 26, tuple(row.subject for row in rows), pad=_NONE, left=True),
        Column("Change", 62, tuple(row.change for row in rows), left=True),
        Column("Reason", 50, tuple(row.reason for row in rows), left=True),
        Column(EFFECT, 16, tuple(row.effect for row in rows), Kind.LINK, USD),
        Column("ApprovedBy", 18, (None,) * len(rows), Kind.INPUT, pad=""),
        Column("ApprovedOn", 14, (None,) * len(rows), Kind.INPUT, DATE, pad=""),
    )
    return Sheet(
        "ChangeLog",
        "Change log",
        "What this version of the plan changes, with its effect on the cost of the horizon in USD. The first row is "
        "the plan; the rows of its models, and of supplies that no pool uses, add up to it.",
        "Versions and changes, with reason, effect and approval",
        NAVY,
        (Table("tblChange", "ChangeLog", FIRST_TABLE_ROW, columns, len(rows), ranked=True),),
        wide=True,
    )


def checks(view: View) -> tuple[Check, ...]:
    """The rows of the log are all of the difference; nothing without last quarter's plan."""
    if view.study.last is None:
        return ()
    whole = f"tblChange[{EFFECT}]@0"
    left, right = Formula(f"=SUM(tblChange[{EFFECT}])-{whole}"), Formula(f"={whole}")
    return (same_usd("Changes add up to the difference from last quarter's cost", left, right, "ChangeLog, Bridge"),)


def _rows(view: View) -> tuple[_Row, ...]:
    last, plan = view.study.last, view.plan
    if last is None:
        words = f"First version of {plan.title} in this log: no plan of last quarter is named"
        return (_Row(PLAN, words, "Its effect is the whole cost", Formula("=tblCost[Cost, USD]#total")),)
    words = f"{plan.title}: takes the place of plan {last.plan.run_id}, {last.plan.title}"
    whole = Formula(f"=tblCost[Cost, USD]#total-{last_quarter.single(last_quarter.COST)}")
    first = _Row(PLAN, words, "The rows below say what changed", whole)
    return (first, *(_row(change, plan) for change in changes(last.plan, plan)))


def _row(change: Change, plan: FleetPlan) -> _Row:
    """A change; its effect is what its subject bears now less what it bore: 0 for what is no model."""
    subject = NO_POOL if change.kind is ChangeKind.UNSERVED else change.subject
    if change.usd is None:
        # A price's or contract's id could be the name of a model, whose money would then be counted twice.
        return _Row(f"{change.kind.value}: {subject}", change.text, IN_MODELS, _effect())
    return _Row(subject, change.text, _reason(change, plan), _effect())


def _effect() -> Formula:
    return Formula(f"={_OF_MODEL}-{last_quarter.of_model('Subject')}")


def _reason(change: Change, plan: FleetPlan) -> str:
    """Why this plan has it so: of a model, what its dearest pool says."""
    if change.kind is ChangeKind.DROPPED:
        return "This quarter's request does not name it"
    if change.kind is ChangeKind.UNSERVED:
        return "Contracts that stand are paid whether a pool needs them or not"
    pools = [pool for pool in plan.pools if pool.model == change.subject]
    return facts.reason(max(pools, key=lambda pool: pool.usd))
