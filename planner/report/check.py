"""Statements that the workbook makes about itself: left compared with right, within a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.report.sheets import input_ids
from planner.report.style import COUNT, USD_CENTS
from planner.report.table import Formula


class Rule(StrEnum):
    """How left and right must compare."""

    EQUAL = "equal"
    AT_MOST = "at most"


@dataclass(frozen=True)
class Check:
    """One statement: left compared with right, within a tolerance."""

    text: str
    left: Formula
    rule: Rule
    right: Formula | int
    tolerance: str
    where: str
    number: str = COUNT


def same_usd(text: str, left: Formula, right: Formula, where: str) -> Check:
    """Two sums of money that must be equal to the cent."""
    return Check(text, left, Rule.EQUAL, right, input_ids.TOLERANCE_USD, where, USD_CENTS)


def none(text: str, left: str, where: str) -> Check:
    """A count that must be 0."""
    return Check(text, Formula(left), Rule.EQUAL, 0, input_ids.EXACT, where)
