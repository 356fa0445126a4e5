"""Warnings: what a signer must know before signing."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.style import NAVY, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Sheet, Table

NONE = "No warnings."


def build(plan: FleetPlan) -> Sheet:
    """The Warnings sheet."""
    texts = plan.warnings or (NONE,)
    columns = (
        Column("No", 8, tuple(range(1, len(texts) + 1))),
        Column("Warning", 130, texts, Kind.RESULT),
    )
    return Sheet(
        "Warnings",
        "Warnings: what a signer must know",
        "Guesses, old prices, short samples: each was found while planning and is part of the plan.",
        "What a signer must know: guesses, old prices, short samples",
        NAVY,
        (Table("tblWarnings", "Warnings", FIRST_TABLE_ROW, columns, len(texts)),),
    )
