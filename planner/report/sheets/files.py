"""Files: what the plan was made from, each with its digest."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.style import GREY
from planner.report.table import FIRST_TABLE_ROW, Column, Sheet, Table


def build(plan: FleetPlan) -> Sheet:
    """The Files sheet."""
    files = plan.inputs
    columns = (
        Column("Role", 34, tuple(file.role for file in files) or ("none",)),
        Column("File", 62, tuple(file.path for file in files) or ("",)),
        Column("sha256", 66, tuple(file.sha256 for file in files) or ("",)),
    )
    return Sheet(
        "Files",
        "Files: what the plan was made from",
        "Every file that was read while planning, with the digest of its bytes: the same files give the same plan.",
        "Every file that was read, with its sha256",
        GREY,
        (Table("tblFiles", "Files", FIRST_TABLE_ROW, columns, max(1, len(files))),),
    )
