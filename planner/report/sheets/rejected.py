"""Rejected: which configurations cannot be used, by rule, and how near the nearest one comes."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.style import COUNT, GREEN, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Sheet, Table

NONE = "(none)"


def build(plan: FleetPlan) -> Sheet:
    """The Rejected sheet."""
    rows = plan.rejected
    columns = (
        Column("Model", 24, tuple(r.model for r in rows) or (NONE,)),
        Column("Rule", 28, tuple(r.reason for r in rows) or ("",), Kind.RESULT),
        Column("Configurations", 14, tuple(r.configurations for r in rows) or (0,), Kind.RESULT, COUNT),
        Column("Nearest miss", 84, tuple(r.example for r in rows) or ("",), Kind.RESULT),
    )
    return Sheet(
        "Rejected",
        "Rejected: what cannot be used, and why",
        "Configurations (GPU type, TP, dtypes, max_model_len) that break a rule before any price is looked at.",
        "Configurations that cannot be used, by rule",
        GREEN,
        (Table("tblRejected", "Rejected", FIRST_TABLE_ROW, columns, max(1, len(rows))),),
    )
