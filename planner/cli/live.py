"""A line that follows a solve on a terminal; nothing at all in pipes."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.text import Text

from planner.optimise.solve.solvers import Report, Watch


def watching(update: Callable[[Text], None], on_terminal: bool) -> Watch | None:
    """What a solver calls with its reports; ``None`` where nobody would see them."""
    return (lambda report: update(Text(line_of(report)))) if on_terminal else None


def plainly(update: Callable[[Text], None]) -> Callable[[str], None]:
    """Progress as plain text on one line: names come from files, and may look like markup."""
    return lambda text: update(Text(" ".join(text.split())))


def line_of(report: Report) -> str:
    """Best plan so far, proven bound, gap and time, in one line."""
    best = f"best {report.incumbent:,.0f} USD" if math.isfinite(report.incumbent) else "no fleet yet"
    bound = f"bound {report.bound:,.0f} USD" if math.isfinite(report.bound) else "no bound yet"
    gap = f"gap {report.gap:.3%}" if math.isfinite(report.gap) else "gap unknown"
    return f"solving the integer program: {best}, {bound}, {gap}, {report.seconds:.0f} s"
