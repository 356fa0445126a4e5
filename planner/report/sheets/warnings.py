"""Warnings: what a signer must know before signing."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.sheets import inputs
from planner.report.style import NAVY, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value

NONE = "No warnings."


def count(plan: FleetPlan) -> int:
    """Warnings to read: the plan's, and one if inputs have no source date."""
    return len(plan.warnings) + bool(inputs.undated(plan))


def build(plan: FleetPlan) -> Sheet:
    """The Warnings sheet."""
    undated = Formula(
        f'="Inputs without a source date: "&COUNTIF(tblInputs[Source date],"{inputs.UNDATED}")'
        f'&"; sheet Inputs shows them as {inputs.UNDATED}"'
    )
    own: tuple[Value, ...] = (undated,) if inputs.undated(plan) else ()
    texts: tuple[Value, ...] = (*plan.warnings, *own) or (NONE,)
    kinds = tuple(Kind.LINK if isinstance(text, Formula) else Kind.RESULT for text in texts)
    columns = (
        Column("No", 8, tuple(range(1, len(texts) + 1))),
        Column("Warning", 130, texts, kinds, left=True),
    )
    return Sheet(
        "Warnings",
        "Warnings: what a signer must know",
        "Guesses, old prices, short samples: each was found while planning and is part of the plan.",
        "What a signer must know: guesses, old prices, short samples",
        NAVY,
        (Table("tblWarnings", "Warnings", FIRST_TABLE_ROW, columns, len(texts)),),
    )
