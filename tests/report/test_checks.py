from __future__ import annotations

import datetime as dt
import io
from pathlib import Path

import formualizer
import pytest
from openpyxl import load_workbook

from planner.plan import FleetPlan
from planner.report.recalc import recalculate_with_libreoffice
from planner.report.sheets import checks, cover, inputs
from planner.report.sheets.inputs import input_rows
from planner.report.workbook import layout

Edit = tuple[str, str, int, object]
"""Table, column, row, new value."""


def _input(plan: FleetPlan, name: str, value: object, column: str = "Value") -> Edit:
    ids = [row.id for row in input_rows(plan)]
    return "tblInputs", column, ids.index(name), value


def _cover(plan: FleetPlan, name: str, value: object) -> Edit:
    return "tblRun", "Value", [fact.id for fact in cover.run_facts(plan)].index(name), value


def _errors(plan: FleetPlan) -> dict[str, Edit]:
    """For each check one deliberate error that it must catch."""
    price = inputs.price_id(plan.purchases[0])
    return {
        "Cost equals the solver's objective": _input(plan, price, 60.0),
        "Cost by model equals cost by purchase": ("tblPlan", "Model", 0, "somebody else"),
        "Cost by pool equals cost by purchase": ("tblPlan", "Cost, USD", 0, 1.0),
        "Cost by GPU type equals cost by purchase": ("tblCost", "GPU", 0, "B200"),
        "USD per 1M tokens by use equals the plan's": ("tblFit", "Busy at planning rate", 0, 0.1),
        "Cost is within the budget": _input(plan, inputs.BUDGET, 400_000),
        "GPUs bought equal the plan's": _input(plan, inputs.size_id(plan.purchases[0]), 9),
        "GPUs of all pools equal the plan's": ("tblPlan", "Replicas", 0, 4),
        "Offers where pools use more GPUs than bought": ("tblCost", "Instances", 0, 1),
        "Pools whose replicas do not fit the instances": ("tblPlan", "TP", 2, 16),
        "Pools with fewer replicas than needed and spare": ("tblPlan", "Replicas", 1, 2),
        "Quotas and stocks exceeded": ("tblLimits", "Used", 0, 25),
        "Pools whose live tokens exceed the KV pool": ("tblFit", "Live tokens, quantile", 0, 1_390_001),
        "Pools that miss the TPOT target": ("tblFit", "TPOT planned, ms", 0, 50.1),
        "Pools that miss the TTFT target": ("tblFit", "TTFT planned, ms", 1, 1001),
        "Models that refuse more than the tail budget": ("tblFit", "Requests refused", 0, 0.0011),
        "Constraints broken when the plan was recomputed": ("tblFit", "Constraints broken", 3, 1),
        "Served tokens equal the plan's, M tokens": _input(plan, "demand/chat/input", 1.0),
        "Inputs that differ from the solved ones": _input(plan, "speed/edge", "middle"),
        "Inputs without source or owner": _input(plan, "speed/edge", None, "Source"),
        "Prices older than the limit": _input(plan, price, dt.date(2025, 10, 1), "Source date"),
        "Solver status is optimal (1/0)": _cover(plan, cover.STATUS, "feasible"),
        "Gap to the proven bound is within the target": _cover(plan, cover.BOUND, plan.solve.bound * 0.99),
        "No error values: cost cells that are numbers": ("tblPlan", "Replicas", 0, "three"),
    }


def _edited(xlsx: Path, plan: FleetPlan, edit: Edit) -> bytes:
    table, column, row, value = edit
    sheet, cell = layout(plan).tables[table].address(column, row).replace("$", "").split("!")
    book = load_workbook(xlsx)
    book[sheet][cell] = value
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _results(source: object, plan: FleetPlan) -> dict[str, int]:
    sheet = load_workbook(source, data_only=True)["Checks"]
    table = layout(plan).tables["tblChecks"]
    found = {
        sheet[f"B{row}"].value: sheet[f"{table.letter('Pass (1/0)')}{row}"].value
        for row in range(table.first, table.last + 1)
    }
    failed = sum(flag == 0 for flag in found.values())
    expected = f"ALL {len(found)} CHECKS PASS" if not failed else f"{failed} OF {len(found)} CHECKS FAIL"
    assert sheet["B3"].value == expected
    assert sheet["A3"].value == (0 if failed else 1)
    return found


def test_all_checks_pass_and_each_has_a_deliberate_error(xlsx, plan: FleetPlan):
    found = _results(xlsx, plan)
    assert set(found.values()) == {1}
    assert [check.text for check in checks.checks(plan)] == list(_errors(plan))


@pytest.mark.parametrize("number", range(24))
def test_each_check_can_fail(number: int, xlsx, plan: FleetPlan):
    text, edit = list(_errors(plan).items())[number]
    recalculated = formualizer.recalculate_xlsx_bytes(_edited(xlsx, plan, edit))["bytes"]
    found = _results(io.BytesIO(recalculated), plan)
    assert found[text] == 0
    assert sum(flag == 0 for flag in found.values()) < 15, "one error should not fail everything"


def test_without_budget_and_quota_there_is_no_such_check(plan: FleetPlan):
    texts = [check.text for check in checks.checks(plan.model_copy(update={"quotas": ()}))]
    assert "Cost is within the budget" not in texts
    assert len(texts) == 23


def test_all_checks_is_a_name_of_the_workbook(xlsx):
    assert load_workbook(xlsx).defined_names["all_checks"].attr_text == "Checks!$A$3"


@pytest.mark.libreoffice
def test_libreoffice_agrees_with_every_formula(xlsx, plan: FleetPlan, tmp_path: Path):
    other = load_workbook(recalculate_with_libreoffice(xlsx, tmp_path / "out"), data_only=True)
    formulas, values = load_workbook(xlsx), load_workbook(xlsx, data_only=True)
    compared = 0
    for sheet in formulas.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type != "f":
                    continue
                ours, theirs = values[sheet.title][cell.coordinate].value, other[sheet.title][cell.coordinate].value
                where = (sheet.title, cell.coordinate, cell.value)
                if isinstance(ours, int | float):
                    assert theirs == pytest.approx(ours, rel=1e-6, abs=1e-6), where
                else:
                    assert theirs == ours, where
                compared += 1
    assert compared > 300
    total = layout(plan).tables["tblCost"].place("Cost, USD", "#total", 0).replace("$", "")
    assert other["Cost"][total].value == pytest.approx(plan.totals.usd, abs=0.01)
    assert other["Cost"][total].value == pytest.approx(plan.solve.objective, abs=0.01)


@pytest.mark.libreoffice
def test_libreoffice_sees_the_same_failures(xlsx, plan: FleetPlan, tmp_path: Path):
    text = "Cost equals the solver's objective"
    source = tmp_path / "edited.xlsx"
    source.write_bytes(_edited(xlsx, plan, _errors(plan)[text]))
    ours = io.BytesIO(formualizer.recalculate_xlsx_bytes(source.read_bytes())["bytes"])
    theirs = recalculate_with_libreoffice(source, tmp_path / "out")
    assert _results(theirs, plan) == _results(ours, plan)
    assert _results(theirs, plan)[text] == 0


@pytest.mark.libreoffice
def test_an_error_value_fails_checks_in_libreoffice_too(xlsx, plan: FleetPlan, tmp_path: Path):
    """formualizer's SUMIFS skips error values, LibreOffice's does not; the count of numbers fails in both."""
    text = "No error values: cost cells that are numbers"
    source = tmp_path / "edited.xlsx"
    source.write_bytes(_edited(xlsx, plan, _errors(plan)[text]))
    found = _results(recalculate_with_libreoffice(source, tmp_path / "out"), plan)
    assert found[text] == 0
    assert found["Cost by model equals cost by purchase"] == 0
