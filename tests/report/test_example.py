from __future__ import annotations

from pathlib import Path

from openpyxl import load_workbook

from planner.plan import read_plan
from planner.report.workbook import write_workbook

EXAMPLE = Path(__file__).parents[2] / "reports" / "example" / "plan.json"


def test_the_example_quarter_passes_its_checks(tmp_path: Path):
    plan = read_plan(EXAMPLE)
    write_workbook(plan, tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert values["Checks"]["A3"].value == 1, values["Checks"]["B3"].value
    assert values["Summary"]["A3"].value == values["Checks"]["B3"].value
