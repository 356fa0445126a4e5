"""Points 11 and 14 on studies by chance: every scenario holds, and shows its own plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from openpyxl import load_workbook

from planner.report.workbook import layout, write_workbook
from tests.report.acceptance.reading import Calculated, selector
from tests.report.acceptance.test_selector import checks_pass, equals_its_plan
from tests.report.random_study import random_study


@pytest.mark.parametrize("seed", range(12))
def test_every_scenario_of_a_study_by_chance_holds_and_is_shown(seed: int, tmp_path: Path):
    report = random_study(seed)
    path = tmp_path / "plan.xlsx"
    write_workbook(report, path)
    book, places, found = Calculated(path), layout(report), selector(load_workbook(path))

    def read(sheet: str, row: int, column: int) -> object:
        return book.get((sheet, row, column))

    for scenario in report.scenarios:
        if found:
            book.set(found[0], scenario.name)
        checks_pass(read, places)
        equals_its_plan(read, places, scenario.plan)
    assert found or not report.others
