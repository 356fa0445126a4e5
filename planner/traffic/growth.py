"""Growth: a steady rate, and dated steps (launches, migrations, a client that leaves), each with a range.

A factor at a date multiplies the rates of the log, whose own date is the middle of its window:

    factor(d) = (1 + per_quarter) ^ ((d - base) / quarter) * product of the factors of the steps with base < on <= d

A quarter is 365.25 / 4 days. Steps at or before the base are in the log already and do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

import numpy as np

from planner.errors import Problems

QUARTER_DAYS = 365.25 / 4


class Case(StrEnum):
    """Which end of the stated ranges."""

    LOW = "low"
    EXPECTED = "expected"
    HIGH = "high"


@dataclass(frozen=True)
class Range:
    """A figure that somebody expects, and the range that they stand by."""

    low: float
    expected: float
    high: float

    def at(self, case: Case) -> float:
        """The figure of a case."""
        return float(getattr(self, case.value))


@dataclass(frozen=True)
class Step:
    """A change that happens on a day."""

    on: date
    factor: Range
    why: str


@dataclass(frozen=True)
class Growth:
    """How a model's traffic grows.

    ``per_quarter`` is the steady growth: 0.1 is 10 % a quarter.
    """

    per_quarter: Range = Range(0.0, 0.0, 0.0)
    steps: tuple[Step, ...] = ()

    def factor(self, base: date, day: date, case: Case = Case.EXPECTED) -> float:
        """Rate on ``day`` over the rate on ``base``."""
        steady = (1.0 + self.per_quarter.at(case)) ** ((day - base).days / QUARTER_DAYS)
        steps = [step.factor.at(case) for step in self.steps if base < step.on <= day]
        return float(steady * np.prod(steps))


@dataclass(frozen=True)
class HorizonGrowth:
    """Growth over a horizon, against the log."""

    mean: float
    """Mean factor over the days: what is served and paid for."""
    largest: float
    """Largest factor on any day: what the fleet must hold."""


def over_horizon(growth: Growth, base: date, start: date, end: date, case: Case = Case.EXPECTED) -> HorizonGrowth:
    """Factors over the days from ``start`` to ``end`` (exclusive).

    Raises
    ------
    ValueError
        If the horizon holds no day.
    """
    days = [start + timedelta(days=n) for n in range((end - start).days)]
    if not days:
        raise ValueError(f"no day between {start} and {end}")
    factors = [growth.factor(base, day, case) for day in days]
    return HorizonGrowth(float(np.mean(factors)), max(factors))


def check_steps(where: str, steps: Sequence[Step]) -> None:
    """Refuse steps that cannot be meant.

    Raises
    ------
    InputError
        If a factor is not positive and finite, a range is not in order, or two steps on one day have one reason.
    """
    problems = Problems()
    seen: set[tuple[date, str]] = set()
    for step in steps:
        f = step.factor
        if not 0 < f.low <= f.expected <= f.high < float("inf"):
            what = f"the factors {f.low:g}, {f.expected:g}, {f.high:g} of {step.on} are not positive and in order"
            problems.add(where, what, "Give low <= expected <= high")
        if (step.on, step.why) in seen:
            problems.add(where, f"the step '{step.why}' of {step.on} is given twice", "Keep one")
        seen.add((step.on, step.why))
    problems.raise_if_any()
